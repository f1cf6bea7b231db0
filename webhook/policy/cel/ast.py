"""The type-checked syntax tree of a CEL expression, as far as its cost depends on it.

The library gives the tree as a serialized `cel.expr.CheckedExpr` (google/api/expr, checked.proto and syntax.proto).
Of its dozens of messages seven are read here, so this file reads the protobuf wire format itself: four kinds of
fields, no schema compiler and no further dependency.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias, TypeVar

import msgspec

from webhook.kube import protobuf_wire
from webhook.policy.cel.string_functions import plain


class Constant(msgspec.Struct, frozen=True):
    """A literal: its value if that is a string, an int or a bool, None for any other type; `size` in bytes."""

    value: str | int | None
    size: int


class Identifier(msgspec.Struct, frozen=True):
    """A variable: one of the request's, or one that a comprehension makes."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """`operand.field`, or a test for the field: `has(operand.field)`."""

    operand: Tree
    field: str = ""
    is_test: bool = False


class FunctionCall(msgspec.Struct, frozen=True):
    """A function or operator, its target first; `scalar` if its value is a number, a bool or an instant.

    A message written out, `google.protobuf.ListValue{values: object.l}`, is the call of its name on its fields' values,
    a list or a map the call of LIST on its elements, or on its keys and values in turn.
    """

    function: str
    arguments: tuple[Tree, ...]
    scalar: bool = False


class Comprehension(msgspec.Struct, frozen=True):
    """A macro such as `all` or `map`, expanded: for `variable` in `range`, `accumulator` becomes `step`, then `result`.

    `cel.bind(x, init, result)` is one too: its range is empty and its accumulator is x.
    """

    variable: str
    range: Tree
    accumulator: str
    init: Tree
    condition: Tree
    step: Tree
    result: Tree


Tree: TypeAlias = Constant | Identifier | Select | FunctionCall | Comprehension
LIST = "[]"
EMPTY = FunctionCall(LIST, ())

_Value = TypeVar("_Value", int, bytes)
_Fields: TypeAlias = dict[int, list[int | bytes]]
_FIXED = (protobuf_wire.FIXED32, protobuf_wire.FIXED64)
_SCALAR_PRIMITIVES = frozenset((1, 2, 3, 4))
"""BOOL, INT64, UINT64 and DOUBLE of `cel.expr.Type.PrimitiveType`; the others are STRING and BYTES."""
_INSTANTS = frozenset((2, 3))
"""TIMESTAMP and DURATION of `cel.expr.Type.WellKnownType`."""
_NUMBER_SIZE = 8


def parse(serialized: bytes) -> Tree:
    """The tree of a serialized expression. Raises ValueError for anything else."""
    checked = _message(_fields(serialized), 2)
    scalars: set[int] = set()
    for entry in _messages(checked, 3):
        type_ = _message(entry, 2)
        if _last(type_, 3, 0) in _SCALAR_PRIMITIVES or _last(type_, 5, 0) in _INSTANTS:
            scalars.add(_last(entry, 1, 0))
    return _tree(_message(checked, 4), scalars)


def _tree(node: _Fields, scalars: set[int]) -> Tree:
    """The tree of a `cel.expr.Expr`; `scalars` are ids of numbers, bools and instants."""
    kind = next((field for field in range(3, 10) if field in node), None)
    if kind is None:
        raise ValueError("an expression without a kind")
    body = _message(node, kind)

    def trees(of: _Fields, *numbers: int) -> tuple[Tree, ...]:
        return tuple(_tree(part, scalars) for number in numbers for part in _messages(of, number))

    match kind:
        case 3:
            for field, values in body.items():
                raw, number = values[0], _last(body, field, 0)
                if isinstance(raw, bytes):
                    return Constant(raw.decode() if field == 6 else None, len(raw))
                if field == 2:
                    return Constant(bool(number), _NUMBER_SIZE)
                if field == 3:  # what is negative is written as it is modulo 2⁶⁴
                    return Constant(number if number < 1 << 63 else number - (1 << 64), _NUMBER_SIZE)
            return Constant(None, _NUMBER_SIZE)
        case 4:
            return Identifier(_text(body, 1))
        case 5:
            (operand,) = trees(body, 1)
            return Select(operand, _text(body, 2), bool(_last(body, 3, 0)))
        case 6:
            return FunctionCall(plain(_text(body, 2)), trees(body, 1, 3), _last(node, 2, 0) in scalars)
        case 7:
            return FunctionCall(LIST, trees(body, 1))
        case 8:
            parts: list[Tree] = []
            for entry in _messages(body, 2):
                parts += trees(entry, 3, 4)
            return FunctionCall(_text(body, 1) or LIST, tuple(parts))
        case _:
            range_, *others = trees(body, 2, 4, 5, 6, 7)
            return Comprehension(_text(body, 1), range_, _text(body, 3), *others)


def _fields(data: bytes) -> _Fields:
    """The fields of one message, by number, in order; numbers of fixed size are read as 0."""
    fields: _Fields = defaultdict(list)
    for number, wire, value in protobuf_wire.fields(data):
        fields[number].append(0 if wire in _FIXED else value)
    return fields


def _messages(fields: _Fields, number: int) -> list[_Fields]:
    return [_fields(raw) for raw in fields.get(number, ()) if isinstance(raw, bytes)]


def _message(fields: _Fields, number: int) -> _Fields:
    return _fields(_last(fields, number, b""))


def _last(fields: _Fields, number: int, absent: _Value) -> _Value:
    """The last value of that number, as protobuf has it; `absent` if its type is another."""
    values = fields.get(number, ())
    return values[-1] if values and isinstance(values[-1], type(absent)) else absent


def _text(fields: _Fields, number: int) -> str:
    return _last(fields, number, b"").decode()
