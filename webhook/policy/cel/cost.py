"""How long an expression may take on an object of a given size, worked out from its type-checked tree.

The CEL library stops after 10 000 iterations, but not at texts that grow, at searches of one text for another, or at
`map` and `filter`, which copy their result at every step. An object is written by somebody else than the expression, so
the estimate is for the worst object of that size. It is an upper bound that is rather too high than too low; the rates
below were measured on one core of a small server.

Sizes inside a loop are polynomials in the sizes of the loops' elements: what is done once for each element, in
proportion to its size, is done once for the whole list. So a loop over the elements of an element is not taken for a
loop over everything, and `object.spec.containers.all(c, c.env.all(e, e.value.contains('x')))` counts as one pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

from webhook.policy.cel.ast import Comprehension, Constant, FunctionCall, Identifier, ListOrMap, Select, Tree
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
_MOST_TERMS = 64

_RATES = {
    **dict.fromkeys(("_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "_-_", "_*_", "_/_", "_%_", "-_"), 0.0),
    **dict.fromkeys(("_[_]", "_[?_]", "_?._", "hasValue", "value", "or", "orValue"), 0.0),
    **dict.fromkeys(("optional.of", "optional.none", "optional.ofNonZeroValue", "type", "dyn"), 0.0),
    **dict.fromkeys(("size", "startsWith", "endsWith"), 1.0),
    **dict.fromkeys(("lowerAscii", "upperAscii", "charAt", "substring", "trim", "reverse"), 4.0),
    **dict.fromkeys(("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration", "@in"), 5.0),
    **dict.fromkeys(("join", "format", "strings.quote"), 8.0),
    "_+_": 1.5,
    "replace": 50.0,
    "split": 100.0,
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
_LONGEST_REPETITION, _LONGEST_NUMBER = 1000, 1000
"""What the library allows: repetitions in a regular expression, digits that `format` writes of one number."""

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

_Polynomial: TypeAlias = Mapping[tuple[int, ...], float]
"""Coefficients by the loops whose element's size is multiplied; the empty key is the constant."""


class CostError(ValueError):
    """An expression that would take too long on an ordinary object."""


class _Value(msgspec.Struct, frozen=True):
    """What is known of a value: at most so many bytes, and so many elements in each list or map of it."""

    size: _Polynomial
    elements: float
    text: str | None = None
    """A text that is written out in the expression."""


class _Loop(msgspec.Struct, frozen=True):
    """A loop that is being looked at: the size of what it goes over and the number of its steps, at most."""

    range: _Polynomial
    steps: float


_NUMBER = _Value({(): _SCALAR}, 0)
_Scope: TypeAlias = dict[str, _Value]


class Cost:
    """The cost of one expression. Raises CostError if an ordinary object could already cost too much.

    `variables` are those of a request. A name of a type (`type(object.x) == list`) is free in the tree, but is none.
    """

    def __init__(self, tree: Tree, variables: Iterable[str]) -> None:
        self._tree = tree
        self.variables = _free_names(tree).intersection(variables)
        """The variables of the request that the expression reads."""
        self._rounded = lru_cache(256)(self.estimate)
        self.ordinary = self.estimate(ORDINARY_SIZE, ORDINARY_ELEMENTS)
        """Nanoseconds that it takes at most on an ordinary object."""
        if self.ordinary > BUDGET:
            raise CostError(
                f"the expression may take {self.ordinary / 1e6:.0f} ms on an object of {ORDINARY_SIZE // 1024} KiB"
                f" whose lists have {ORDINARY_ELEMENTS} elements; at most {BUDGET / 1e6:.0f} ms are allowed: use fewer"
                " loops inside loops, and search and join shorter texts"
            )

    def estimate(self, size: int, elements: int) -> float:
        """The nanoseconds it takes at most on inputs of `size` bytes with at most `elements` in a list or map."""
        return _Estimate(size, elements).cost(self._tree)

    def bound(self, size: int, elements: int) -> float:
        """As `estimate`, for the next powers of two, so that it is mostly known already; exact if that is much."""
        rough = self._rounded(
            1 << (size - 1).bit_length() if size else 0, 1 << (elements - 1).bit_length() if elements else 0
        )
        return rough if rough <= BUDGET / 10 else self.estimate(size, elements)


def _free_names(tree: Tree, bound: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names that an expression uses and no loop or bind of its own makes."""
    match tree:
        case Identifier(name):
            return frozenset() if name in bound else frozenset((name,))
        case Select(operand):
            return _free_names(operand, bound)
        case FunctionCall(_, parts) | ListOrMap(parts):
            return frozenset().union(*(_free_names(part, bound) for part in parts))
        case Comprehension():
            outside = _free_names(tree.range, bound) | _free_names(tree.init, bound)
            inner = bound | {tree.variable, tree.accumulator}
            return outside.union(*(_free_names(part, inner) for part in (tree.condition, tree.step, tree.result)))
        case _:
            return frozenset()


class _Estimate:
    """One walk over the tree, which adds up what each part costs in all its repetitions."""

    def __init__(self, size: int, elements: int) -> None:
        self._size = float(size)
        self._input = _Value(_number(self._size), min(float(elements), self._size / _SMALLEST_ELEMENT))
        self._loops: list[_Loop] = []
        self._total = 0.0

    def cost(self, tree: Tree) -> float:
        """Nanoseconds."""
        self._value(tree, {})
        return self._total

    def _value(self, tree: Tree, scope: _Scope) -> _Value:
        """What the tree's value is at most; its cost is charged."""
        self._charge(_number(_STEP))
        match tree:
            case Constant(text, size):
                return _Value(_number(float(size)), 0, text)
            case Identifier(name):
                return scope.get(name, self._input)
            case Select(operand):
                return self._value(operand, scope)
            case ListOrMap(parts):
                values = [self._value(part, scope) for part in parts]
                most = max([float(len(parts)), *(value.elements for value in values)])
                return _Value(_sum(*(value.size for value in values), _number(2.0 * len(parts))), most)
            case FunctionCall():
                return self._call(tree, [self._value(part, scope) for part in tree.arguments])
            case Comprehension():
                return self._comprehension(tree, scope)

    def _call(self, call: FunctionCall, values: list[_Value]) -> _Value:
        """The value of a function or operator; its result is as long as its arguments together unless known better."""
        name, sizes = call.function, [value.size for value in values]
        result = _Value(_sum(*sizes), sum(value.elements for value in values))
        if name in DECLARED:
            self._charge(_number(_CALL))
        if name in _COMPARISONS:
            self._charge(_times(_smaller(*sizes), _COMPARED))
        elif name in _SEARCHES:
            self._charge(_sum(_times(sizes[0], _SEARCHES[name]), _times(_product(sizes[0], sizes[1]), _SEARCHED)))
        elif name == "matches":
            steps = _steps_of_pattern(values[1])
            self._charge(_sum(_times(_sum(steps, _number(_COMPILED_AT_LEAST)), _COMPILED), _times(sizes[0], _MATCHED)))
            self._charge(_times(_product(sizes[0], steps), _MATCHED_STEP))
        else:
            if name == "_+_" and not call.scalar:
                self._charge(_number(_COPY * result.elements))
            result = _NUMBER if call.scalar else self._made(name, values, result)
            self._charge(_times(_sum(*sizes, result.size), _RATES.get(name, _OTHER_RATE)))
        return _NUMBER if call.scalar else result

    def _made(self, name: str, values: list[_Value], result: _Value) -> _Value:
        """The result of the functions that can make more than they are given."""
        sizes = [value.size for value in values]
        match name:
            case "replace":
                old, new = values[1], sizes[2]
                factor = _sum(_number(1.0), new if not old.text else _times(new, 1 / len(old.text)))
                return _Value(_sum(_product(sizes[0], factor), new), 0)
            case "join":
                separator = sizes[1] if len(sizes) > 1 else {}
                return _Value(_sum(sizes[0], _times(separator, values[0].elements)), 0)
            case "format":
                verbs = _number(float((values[0].text or "").count("%"))) if values[0].text is not None else sizes[0]
                return _Value(_sum(result.size, _times(verbs, _LONGEST_NUMBER)), 0)
            case "split":
                return _Value(sizes[0], self._at_most(sizes[0]))
            case _:
                return result

    def _comprehension(self, loop: Comprehension, scope: _Scope) -> _Value:
        """What a loop costs: its range once, and its step for every element."""
        range_, init = self._value(loop.range, scope), self._value(loop.init, scope)
        if loop.range == ListOrMap(()):
            return self._value(loop.result, {**scope, loop.accumulator: init})
        steps = min(range_.elements, float(_ITERATIONS))
        self._loops.append(_Loop(range_.size, steps))
        variable = len(self._loops)
        inner = {**scope, loop.variable: _Value({(variable,): 1.0}, range_.elements), loop.accumulator: _NUMBER}
        self._value(loop.condition, inner)
        collected = _collected(loop)
        if collected is None:
            self._value(loop.step, inner)
            made = _NUMBER
        else:
            condition, element = collected
            if condition is not None:
                self._value(condition, inner)
            value = self._value(element, inner)
            self._charge(_number(_STEP + _COPY * steps))
            size = _sum(_summed_over(value.size, variable, range_.size, _number(steps)), _number(2.0 * steps))
            made = _Value(size, max(steps, value.elements))
        self._loops.pop()
        return self._value(loop.result, {**scope, loop.accumulator: made})

    def _charge(self, once: _Polynomial) -> None:
        """Add what one repetition costs, over all repetitions: the least of three bounds.

        By the library's iterations with every size at its most; by the steps of every loop; and by the sizes alone,
        with as many steps as the smallest elements allow.
        """
        if not self._loops:
            self._total += once.get((), 0.0)
            return
        by_steps, by_sizes = once, once
        for variable in range(len(self._loops), 0, -1):
            loop = self._loops[variable - 1]
            most = _number(loop.steps)
            fits = _times(loop.range, 1 / _SMALLEST_ELEMENT)
            by_steps = _summed_over(by_steps, variable, loop.range, most)
            by_sizes = _summed_over(by_sizes, variable, loop.range, _smaller(most, fits) if set(fits) <= {()} else fits)
        self._total += min(_ITERATIONS * self._at_most(once), self._at_most(by_steps), self._at_most(by_sizes))

    def _at_most(self, size: _Polynomial) -> float:
        """The number that a polynomial cannot exceed: every element as large as all inputs."""
        return math.fsum(factor * self._size ** len(term) for term, factor in size.items())


def _collected(loop: Comprehension) -> tuple[Tree | None, Tree] | None:
    """The condition and the element of a loop that makes a list (`map`, `filter`); None for one that makes a scalar.

    Raises CostError for a loop that no known macro makes.
    """
    own = Identifier(loop.accumulator)
    match loop.step:
        case FunctionCall("_&&_" | "_||_", (first, _)) if first == own:
            return None
        case FunctionCall("_+_", (first, ListOrMap((element,)))) if first == own:
            return None, element
        case FunctionCall("_?_:_", (condition, FunctionCall("_+_", (first, ListOrMap((element,)))), last)) if (
            first == last == own
        ):
            return condition, element
        case FunctionCall("_?_:_", (_, FunctionCall("_+_", (first, Constant())), last)) if first == last == own:
            return None
    raise CostError("the expression has a macro whose cost is not known")


def _steps_of_pattern(pattern: _Value) -> _Polynomial:
    """The steps of a compiled regular expression, at most; a text that is not written out may be any expression."""
    if pattern.text is None:
        return _times(pattern.size, _LONGEST_REPETITION)
    groups, last = [0.0], 0.0
    """The steps of every open group, and those of what a repetition would repeat."""
    for part in _PATTERN_PARTS.finditer(pattern.text):
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
    return _number(sum(groups) + 2)


def _sum(*parts: _Polynomial) -> _Polynomial:
    total: dict[tuple[int, ...], float] = {}
    for part in parts:
        for term, factor in part.items():
            total[term] = total.get(term, 0.0) + factor
    return total


def _number(value: float) -> _Polynomial:
    return {(): value}


def _times(size: _Polynomial, number: float) -> _Polynomial:
    return {term: factor * number for term, factor in size.items()}


def _product(polynomial: _Polynomial, other: _Polynomial) -> _Polynomial:
    """The product; CostError for one with more terms than an honest expression has."""
    total: dict[tuple[int, ...], float] = {}
    for term, factor in polynomial.items():
        for other_term, other_factor in other.items():
            key = tuple(sorted(term + other_term))
            total[key] = total.get(key, 0.0) + factor * other_factor
    if len(total) > _MOST_TERMS:
        raise CostError("the expression makes values out of too many others inside loops; do it in fewer steps")
    return total


def _smaller(polynomial: _Polynomial, other: _Polynomial) -> _Polynomial:
    """One that is not larger than either: the smaller number, else the one that is a number, else the first."""
    if set(polynomial) <= {()} and set(other) <= {()}:
        return min(polynomial, other, key=lambda size: size.get((), 0.0))
    return other if set(other) <= {()} else polynomial


def _summed_over(once: _Polynomial, variable: int, range_: _Polynomial, steps: _Polynomial) -> _Polynomial:
    """The sum over a loop's elements: the sizes of all together are at most the size of what the loop goes over."""
    total: _Polynomial = {}
    for term, factor in once.items():
        degree = term.count(variable)
        rest: _Polynomial = {tuple(other for other in term if other != variable): factor}
        if not degree:
            rest = _product(rest, steps)
        for _ in range(degree):
            rest = _product(rest, range_)
        total = _sum(total, rest)
    return total
