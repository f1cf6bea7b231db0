"""CEL, behind one door: expressions compiled and type-checked at load, and bounded in what a run may cost.

The library itself stops at 10 000 iterations and 32 levels of nesting; `webhook.policy.cel.cost` bounds the time.
"""

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache, lru_cache
from typing import Any

import msgspec

from webhook.policy.cel.ast import Tree, parse
from webhook.policy.cel.cost import BUDGET, LARGEST, Cost, CostError
from webhook.policy.cel.string_functions import declared, plain, renamed

VARIABLES = {
    "object": "the object as it would be stored; for a workload, the pod its template describes",
    "oldObject": "the object as it is, on UPDATE; else null",
    "request": "the AdmissionRequest without its objects: operation, userInfo, namespace, name, dryRun …",
    "namespaceObject": "the namespace with its labels and annotations; null for cluster-wide objects",
    "priorityClass": "the PriorityClass the pod has; null without one",
}
"""The variables of every expression, and what each holds."""

LONGEST_EXPRESSION = 4096
"""Characters."""
LONGEST_MESSAGE = 2048
_COMPILED = 256
"""Expressions of each type that are remembered."""
MOST_IN_ALL = 100_000_000.0
"""Nanoseconds that all expressions of a request may take, by their estimates: nobody may keep a server from others."""

_NOTHING = BUDGET / 100
_PROBLEM = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_SYNTAX = "Syntax error: "
_TOKEN, _INPUT = rf"{_SYNTAX}token recognition error at:", rf"{_SYNTAX}(?:mismatched|extraneous) input"
_OPERATORS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
_PATTERNS = (
    (rf"{_TOKEN} '([&|]).*'", r'a single "\1" is no operator; write "\1\1"'),
    (rf"{_TOKEN} '=.*'", 'a single "=" is no operator; write "==" to compare'),
    (rf"{_TOKEN} '['\"].*'", "the text that begins here has no quote at its end"),
    (rf"{_TOKEN} '\s*(.+?)\s*'", r'"\1" means nothing in an expression'),
    (rf"{_INPUT} '<EOF>' .*", "the expression ends too early: something is missing after its last part"),
    *(
        (rf"{_INPUT} '{word}' .*", f'there is no operator "{word}"; write "{sign}"')
        for word, sign in _OPERATORS.items()
    ),
    (rf"{_INPUT} '(.+?)' .*", r'"\1" cannot stand here; perhaps an operator such as && is missing before it'),
    (rf"{_SYNTAX}missing '(.+?)' at '.+?'", r'"\1" is missing here'),
    (rf"{_SYNTAX}no viable alternative at input '(.+)'", r'"\1" cannot stand here'),
    (r"found no matching overload for '_*(.+?)_*' applied to '\(?(.+?)\)?'", r'"\1" does not take \2'),
)
_UNDECLARED = re.compile(r"undeclared reference to '(.+)'")


@cache
def _types() -> Any:
    """The library's types. It takes 15 MB, so it is loaded with the first expression."""
    from cel_expr_python import cel  # noqa: PLC0415 - see above

    return cel.Type


def environment(variables: Iterable[str], functions: Iterable[Any] = ()) -> Any:
    """An environment with these variables of any type, and these functions of our own."""
    from cel_expr_python import cel  # noqa: PLC0415 - see _types
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings  # noqa: PLC0415

    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=[*functions, *declared(cel)],
    )


_env = cache(lambda: environment(VARIABLES))


class CelProblem(msgspec.Struct, frozen=True):
    """What is wrong in an expression; line and column count from 1 in the expression's own text."""

    line: int
    column: int
    message: str


class CelError(ValueError):
    """An expression that does not compile, with every problem found in it; a text is about it as a whole."""

    def __init__(self, problems: list[CelProblem] | str) -> None:
        self.problems = [CelProblem(1, 1, problems)] if isinstance(problems, str) else problems
        super().__init__("; ".join(problem.message for problem in self.problems))


class CelRuntimeError(Exception):
    """An expression that could not be evaluated on this request, in the library's words."""


class AllowanceError(Exception):
    """The expressions of this request may take longer, in all, than its reader has time for now."""


class Inputs:
    """The variables of one request, turned into an activation when the first expression asks for it.

    `allowance` is how many nanoseconds all expressions together may take, by their estimates; None for any number.
    """

    def __init__(self, variables: Callable[[], dict[str, Any]], allowance: float | None = None) -> None:
        self._variables: Callable[[], dict[str, Any]] | None = variables
        self._allowance = math.inf if allowance is None else allowance
        self._spent = 0.0
        self._renewal: float = BUDGET
        self._data: dict[str, Any] = {}
        self._activation: Any = None
        self._sizes: dict[str, tuple[int, int]] = {}
        self._elements: dict[str, int] = {}

    def activation(self) -> Any:
        """The activation; built again after dear expressions, since it keeps what they allocate."""
        if self._activation is None:
            self._activation = _env().Activation(self._values())
        return self._activation

    def size(self, names: Iterable[str]) -> tuple[int, int]:
        """The bytes of these variables as JSON, and at most how long a list or map is."""
        data = self._values()
        for name in names:
            if name not in self._sizes:
                encoded = msgspec.json.encode(data[name])
                self._sizes[name] = len(encoded), encoded.count(b",") + 1
        sizes = [self._sizes[name] for name in names]
        return sum(size for size, _ in sizes), max((elements for _, elements in sizes), default=1)

    def elements(self, names: Iterable[str]) -> int:
        """The length of the longest list or map in these variables."""
        data = self._values()
        for name in names:
            if name not in self._elements:
                longest, waiting = 0, [data[name]]
                while waiting:
                    part = waiting.pop()
                    if type(part) is dict:
                        part = part.values()
                    elif type(part) is not list:
                        continue
                    longest = max(longest, len(part))
                    waiting += [child for child in part if child and type(child) in (dict, list)]
                self._elements[name] = longest
        return max((self._elements[name] for name in names), default=0)

    def spend(self, estimate: float) -> None:
        """Count an estimate. Raises AllowanceError; CelRuntimeError if all is too much."""
        self._spent += estimate
        if self._spent > MOST_IN_ALL:
            text = f"all could take more than {MOST_IN_ALL / 1e6:.0f} ms on this object"
            raise CelRuntimeError(f"{text}: make it smaller")
        if self._spent > self._allowance:
            raise AllowanceError
        if self._spent > self._renewal:
            self._activation, self._renewal = None, self._spent + BUDGET

    def _values(self) -> dict[str, Any]:
        if self._variables is not None:
            self._data = self._variables()
            self._variables = None  # it belongs to a request that has these inputs
        return self._data


class Program(msgspec.Struct, frozen=True):
    """A compiled expression."""

    text: str
    expression: Any
    cost: Cost
    tree: Tree

    def run(self, inputs: Inputs) -> Any:
        """The value. Raises AllowanceError; CelRuntimeError, also if it could take too long."""
        read = self.cost.variables
        size, elements = inputs.size(read)
        if size > LARGEST:
            text = f"it reads {size} bytes; an expression may read at most {LARGEST}"
            raise CelRuntimeError(f"make the object smaller: {text}")
        estimate = self.cost.bound(size, elements)
        if estimate > _NOTHING:  # lists have to be counted, which takes longer than many an expression
            elements = inputs.elements(read)
            estimate = self.cost.bound(size, elements)
        if estimate > BUDGET:
            most = f"at most {BUDGET / 1e6:.0f} ms are allowed"
            text = f"{estimate / 1e6:.0f} ms on {size} bytes with up to {elements} elements in a list"
            raise CelRuntimeError(f"make the object smaller: it could take {text}; {most}")
        inputs.spend(estimate)
        return self.evaluate(inputs)

    def evaluate(self, inputs: Inputs) -> Any:
        """The value, however long it takes. Raises CelRuntimeError."""
        return evaluated(self.expression, inputs.activation())

    def holds(self, inputs: Inputs) -> bool:
        """Whether the expression is true. Raises CelRuntimeError, also if that is no bool."""
        value = self.run(inputs)
        if not isinstance(value, bool):
            raise CelRuntimeError(f"the expression gave {type(value).__name__}, not true or false")
        return value

    def words(self, inputs: Inputs) -> str:
        """A messageExpression's text, cut to one line. Raises CelRuntimeError, also for no text."""
        value = self.run(inputs)
        if not isinstance(value, str):
            raise CelRuntimeError(f"the expression gave {type(value).__name__}, not a string")
        return value[:LONGEST_MESSAGE].replace("\n", " ")


@lru_cache(maxsize=_COMPILED)
def compile_bool(text: str) -> Program:
    """Compile an expression that must give a bool, once for file and engine. Raises CelError."""
    return _compile(text, _types().BOOL, "true or false")


@lru_cache(maxsize=_COMPILED)
def compile_text(text: str) -> Program:
    """Compile an expression that must give a string. Raises CelError."""
    return _compile(text, _types().STRING, "a string")


def is_certain(program: Program) -> bool:
    """Whether the value's type is known, whatever objects the expression reads."""
    certain: bool = program.expression.return_type() != _types().DYN
    return certain


def _compile(text: str, wanted: Any, words: str) -> Program:
    if len(text) > LONGEST_EXPRESSION:
        raise CelError(f"the expression has {len(text)} characters; at most {LONGEST_EXPRESSION}")
    program = compiled(_env(), text, VARIABLES)
    kind = program.expression.return_type()
    if kind not in (wanted, _types().DYN):
        raise CelError(f"the expression gives {kind.name().lower()}; it must give {words}")
    return program


def compiled(env: Any, text: str, variables: Collection[str]) -> Program:
    """Compile an expression in an environment with these variables. Raises CelError."""
    try:
        expression = env.compile(renamed(text))
    except Exception as error:
        rows: dict[tuple[int, int, str], None] = {}
        for line, column, words in _PROBLEM.findall(str(error)):
            rows[max(1, int(line)), max(1, int(column)), _plain(words)] = None
        # What follows a syntax error is only its consequence
        told = [row for row in sorted(rows) if row[2].startswith("Syntax error")][:1] or rows
        problems = [CelProblem(line, column, _plain_words(words, variables)) for line, column, words in told]
        raise CelError(problems or _plain(str(error))) from error
    try:
        tree = parse(expression.serialize())
        return Program(text, expression, Cost(tree, variables), tree)
    except CostError as error:
        raise CelError(str(error)) from error


def evaluated(expression: Any, activation: Any) -> Any:
    """The value of an expression of the library. Raises CelRuntimeError."""
    try:
        value = expression.eval(activation)
    except Exception as error:  # the binding raises bare RuntimeError, and others for odd input
        raise CelRuntimeError(_plain(str(error))) from error
    if value.type() == _types().ERROR:
        raise CelRuntimeError(_plain(str(value.value())))
    return value.value()


def _plain(report: str) -> str:
    """One line of the library's report, without its status codes."""
    report = report.strip() or "unknown error"
    line = re.sub(r"\s*\[[A-Z_]+\]\s*$", "", report).splitlines()[0]
    line = re.sub(r"^(?:[A-Z_]+: )+", "", line)
    return plain(line.removesuffix(" (in container '')"))


def _plain_words(message: str, known: Collection[str]) -> str:
    """The library's message for people, if it is a known one; `known` variables may be meant."""
    if undeclared := _UNDECLARED.fullmatch(message):
        near = difflib.get_close_matches(undeclared[1].partition(".")[0][:64], known, n=1)
        return f'there is no variable or function "{undeclared[1]}"' + (f'; did you mean "{near[0]}"?' if near else "")
    for pattern, words in _PATTERNS:
        if match := re.fullmatch(pattern, message, re.DOTALL):
            return match.expand(words)
    return message
