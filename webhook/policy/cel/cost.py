"""How long an expression may take on an object of a given size, worked out from its type-checked tree.

The CEL library stops after 10 000 iterations, but not at texts that grow, at searches of one text for another, or at
`map` and `filter`, which copy their result at every step. An object is written by somebody else than the expression, so
the estimate is for the worst object of that size. It is an upper bound that is rather too high than too low; the rates
below were measured on one core of a small server.

Of what is in a loop, the sum over all its repetitions is known: what is done for each element, in proportion to its
size, is done once for the whole list. So a loop over the elements of an element is no loop over everything, and
`object.spec.containers.all(c, c.env.all(e, e.value.contains('x')))` counts as one pass.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from webhook.policy.cel.ast import EMPTY, LIST, Comprehension, Constant, FunctionCall, Identifier, Select, Tree
from webhook.policy.cel.string_functions import DECLARED

BUDGET = 20_000_000
"""Nanoseconds that one expression may take by its estimate."""
LARGEST = 512 * 1024
"""Bytes that an expression may read: what it reads is converted in one go, about 15 ms for as much as this."""
ORDINARY_SIZE, ORDINARY_ELEMENTS = 8 * 1024, 32
"""Bytes, and elements of the longest list, of an object that every expression must be able to judge."""

_ITERATIONS = 10_000
"""The library's own bound, over all loops of an evaluation."""
_STEP = 60.0
"""Nanoseconds for one operation, whatever it reads."""
_CALL = 1000.0
"""Nanoseconds to call a function that is declared again: it is one of Python's."""
_COPY = 25.0
"""Nanoseconds for each element that `map` and `filter` have collected, at every further one, and that `+` joins."""
_SCALAR = 8.0
_SMALLEST_ELEMENT = 2.0
"""Bytes: a digit and a comma."""
_MUCH = 1e60
"""More than any budget, so that products of sizes do not end beyond what numbers can say."""

_RATES = {
    name: rate
    for rate, names in (
        (0.0, "_&&_ _||_ !_ _?_:_ @not_strictly_false _-_ _*_ _/_ _%_ -_ _[_] _[?_] _?._ hasValue value or orValue"),
        (0.0, "optional.of optional.none optional.ofNonZeroValue type dyn"),
        (1.0, "size startsWith endsWith"),
        (1.5, "_+_"),
        (5.0, "lowerAscii upperAscii charAt substring trim reverse"),
        (5.0, "int uint double bool string bytes timestamp duration @in"),
        (8.0, "join format strings.quote"),
        (50.0, "replace"),
    )
    for name in names.split()
}
"""Nanoseconds a function takes for each byte it reads or makes."""
_OTHER_RATE = 100.0
_COMPARED = 12.0
"""Nanoseconds for each byte of the shorter of two values that are compared."""
_SEARCHES = {"contains": 0.5, "indexOf": 6.0, "lastIndexOf": 6.0}
_SEARCHED = 0.02
"""Nanoseconds for each byte searched, and for that times each byte searched for."""
_COMPILED, _COMPILED_AT_LEAST, _MATCHED, _MATCHED_STEP = 300.0, 20.0, 10.0, 5.0
"""Nanoseconds to compile a step of a regular expression, which has so many at least; to read a byte with it, and to do
so for each of its steps."""
_LONGEST_NUMBER = 1000
"""Digits that `format` writes of one number, at most."""

_PATTERN_PARTS = re.compile(
    r"(?P<open>\((?:\?[^:)]*:)?)|(?P<close>\))|\{(?P<repeated>\d{1,4}(?:,\d{0,4})?)\}"
    r"|(?P<category>\\[pP](?:\{\^?\w*\}|.))|\[(?!\^)(?:[\x20-\x5a\x5e-\x7e]|\\[^pPDSWx\x80-\U0010ffff])*\]"
    r"|(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\.|\\[DSW])|\\.|.",
    re.DOTALL,
)
_CATEGORY = re.compile(r"\\[pP]")
_STEPS = {"category": 500.0, "set": 12.0}
"""The steps of a Unicode category, and of a set with characters beyond ASCII, as bytes of UTF-8; any other is one."""

_COMPARISONS = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))

_Sums: TypeAlias = tuple[float, ...]
"""The bytes of a value that is made inside loops: in all their repetitions, in those of all but the outermost loop, and
so on; the last is the value alone. It is a bound for each, and so are sums of such numbers."""


class CostError(ValueError):
    """An expression that would take too long on an ordinary object."""


class _Value(msgspec.Struct, frozen=True):
    """What is known of a value: at most so many bytes, and so many elements in each list or map of it."""

    size: _Sums
    elements: float
    text: str | None = None
    """A text that is written out in the expression."""


_NUMBER = _Value((_SCALAR,), 0)
_COLLECTED = _Value((0.0,), 0)
"""What a loop has made so far: the loop itself charges what it copies of that."""
_Scope: TypeAlias = dict[str, _Value]


class Cost:
    """The cost of one expression. Raises CostError if an ordinary object could already cost too much.

    `variables` are those of a request. A name of a type (`type(object.x) == list`) is free in the tree, but is none.
    """

    def __init__(self, tree: Tree, variables: Iterable[str]) -> None:
        self._tree = tree
        self._rounded = lru_cache(256)(self.estimate)
        ordinary = _Estimate(tree, ORDINARY_SIZE, ORDINARY_ELEMENTS)
        self.ordinary = ordinary.total
        """Nanoseconds that it takes at most on an ordinary object."""
        self.variables = ordinary.free.intersection(variables)
        """The variables of the request that the expression reads."""
        if self.ordinary > BUDGET:
            raise CostError(
                f"the expression may take {self.ordinary / 1e6:.0f} ms on an object of {ORDINARY_SIZE // 1024} KiB"
                f" whose lists have {ORDINARY_ELEMENTS} elements; at most {BUDGET / 1e6:.0f} ms are allowed: use fewer"
                " loops inside loops, and search and join shorter texts"
            )

    def estimate(self, size: int, elements: int) -> float:
        """At most so many nanoseconds on `size` bytes with `elements` in a list or map."""
        return _Estimate(self._tree, size, elements).total

    def bound(self, size: int, elements: int) -> float:
        """As `estimate`, for the next powers of two, so that it is known; exact if that is much."""
        powers = [1 << (number - 1).bit_length() if number else 0 for number in (size, elements)]
        rough = self._rounded(*powers)
        return rough if rough <= BUDGET / 10 else self.estimate(size, elements)


class _Estimate:
    """One walk over the tree, which adds up what each part costs in all its repetitions."""

    def __init__(self, tree: Tree, size: int, elements: int) -> None:
        self._input = _Value((float(size),), min(float(elements), size / _SMALLEST_ELEMENT))
        self._repeated: _Sums = (1.0,)
        """How often the part is done that is looked at, as the sums of one byte."""
        self.total = 0.0
        """Nanoseconds."""
        self.free: set[str] = set()
        """The names that the expression uses and no loop or bind of its own makes."""
        self._value(tree, {})

    def _value(self, tree: Tree, scope: _Scope) -> _Value:
        """What the tree's value is at most; its cost is charged."""
        self._charge((_STEP,))
        match tree:
            case Constant(value, size):
                return _Value((float(size),), 0, value if isinstance(value, str) else None)
            case Identifier(name):
                self.free |= {name} - scope.keys()
                return scope.get(name, self._input)
            case Select(operand):
                return self._value(operand, scope)
            case FunctionCall():
                return self._call(tree, [self._value(part, scope) for part in tree.arguments])
            case Comprehension():
                return self._comprehension(tree, scope)

    def _call(self, call: FunctionCall, values: list[_Value]) -> _Value:
        """A function's or operator's value, as long as its arguments unless known better."""
        name, sizes = call.function, [value.size for value in values]
        if name == LIST:
            most = max([float(len(values)), *(value.elements for value in values)])
            return _Value(self._sum(*sizes, (2.0 * len(values),)), most)
        result = _Value(self._sum(*sizes), sum(value.elements for value in values))
        if name == "_+_" and values[0] is _COLLECTED and not call.scalar:
            return result
        if name in DECLARED:
            self._charge((_CALL,))
        if name in _COMPARISONS:
            self._charge(tuple(map(min, *map(self._here, sizes))), _COMPARED)
        elif name in _SEARCHES:
            self._charge(sizes[0], _SEARCHES[name])
            self._charge(self._product(*sizes[:2]), _SEARCHED)
        elif name == "matches":
            if values[1].text is None:
                raise CostError("the pattern of matches is no text that is written out: write it into the expression")
            steps = _steps_of_pattern(values[1].text)
            self._charge((steps + _COMPILED_AT_LEAST,), _COMPILED)
            self._charge(sizes[0], _MATCHED + _MATCHED_STEP * steps)
        else:
            if name == "_+_" and not call.scalar:
                self._charge((_COPY * result.elements,))
            result = _NUMBER if call.scalar else self._made(name, values, result)
            self._charge(self._sum(*sizes, result.size), _RATES.get(name, _OTHER_RATE))
        return _NUMBER if call.scalar else result

    def _made(self, name: str, values: list[_Value], result: _Value) -> _Value:
        """The result of the functions that can make more than they are given."""
        sizes = [value.size for value in values]
        match name:
            case "replace":
                old, new = values[1].text, sizes[2]
                more = self._product(sizes[0], new)
                return _Value(self._sum(sizes[0], _times(more, 1 / len(old)) if old else more, new), 0)
            case "join":
                separator = sizes[1] if len(sizes) > 1 else ()
                return _Value(self._sum(sizes[0], _times(separator, values[0].elements)), 0)
            case "format":
                verbs = sizes[0] if values[0].text is None else (float(values[0].text.count("%")),)
                return _Value(self._sum(result.size, _times(verbs, _LONGEST_NUMBER)), 0)
            case "split":
                return _Value(_times(sizes[0], _SMALLEST_ELEMENT), sizes[0][-1])
            case _:
                return result

    def _comprehension(self, loop: Comprehension, scope: _Scope) -> _Value:
        """What a loop costs: its range once, and its step for every element."""
        range_, init = self._value(loop.range, scope), self._value(loop.init, scope)
        if loop.range == EMPTY:
            return self._value(loop.result, {**scope, loop.accumulator: init})
        steps = min(range_.elements, float(_ITERATIONS))
        size, outside = self._here(range_.size), self._repeated
        rows = zip(outside, size, strict=True)
        often = (min(count * steps, all_ / _SMALLEST_ELEMENT, _ITERATIONS) for count, all_ in rows)
        self._repeated = (*often, 1.0)
        element = _Value((*size, size[-1]), range_.elements)
        inner = {**scope, loop.variable: element, loop.accumulator: _COLLECTED}
        self._value(loop.condition, inner)
        value, made = self._value(loop.step, inner), _NUMBER
        # `map` and `filter` put each element behind those that they have
        if isinstance(loop.init, FunctionCall) and loop.init.function == LIST:
            self._charge((_COPY * steps,))
            made = _Value(self._here(value.size)[:-1], max(steps, value.elements))
        self._repeated = outside
        return self._value(loop.result, {**scope, loop.accumulator: made})

    def _charge(self, size: _Sums, rate: float = 1.0) -> None:
        """Add what one repetition costs, over all, at most the library's own number."""
        here = self._here(size)
        self.total += rate * min(here[0], _ITERATIONS * here[-1])

    def _here(self, size: _Sums) -> _Sums:
        """The sums over all loops of a value that the inner ones may leave as it is."""
        last = len(size) - 1
        inner = self._repeated[last]
        return (*(sum_ * inner for sum_ in size), *(size[last] * count for count in self._repeated[last + 1 :]))

    def _sum(self, *sizes: _Sums) -> _Sums:
        """The sizes of a value that is made of others."""
        rows = [self._here(size) for size in sizes if size]
        return tuple(map(math.fsum, zip(*rows, strict=True))) if rows else (0.0,)

    def _product(self, size: _Sums, other: _Sums) -> _Sums:
        """The one's sum with the other at its most; sum by sum if inner loops change none."""
        first, second = sorted((size, other), key=len)
        here, there, last = self._here(first), self._here(second), len(first) - 1
        least = [min(row[0] * there[-1], row[1] * here[-1], _MUCH) for row in zip(here, there, strict=True)]
        for place, size_ in enumerate(first):
            least[place] = min(least[place], size_ * there[last])
        return tuple(least)


def _steps_of_pattern(pattern: str) -> float:
    """The steps of a compiled regular expression, at most."""
    groups, last = [0.0], 0.0
    """The steps of every open group, and those of what a repetition would repeat."""
    for part in _PATTERN_PARTS.finditer(pattern):
        match part.lastgroup:
            case "open":
                groups.append(0.0)
                last = 0.0
            case "close" if len(groups) > 1:
                last = groups.pop() + 2
                groups[-1] += last
            case "repeated":
                counts = [int(count) for count in part["repeated"].split(",") if count]
                repeated = last * 2 * max(1, *counts)
                groups[-1] += repeated - last
                last = repeated
            case group:
                last = _STEPS.get(group or "", 1.0)
                if group == "set":
                    last += _STEPS["category"] * len(_CATEGORY.findall(part[group]))
                groups[-1] += last
    return sum(groups) + 2


def _times(size: _Sums, number: float) -> _Sums:
    return tuple(sum_ * number for sum_ in size)
