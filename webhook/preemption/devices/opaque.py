"""Quantities and semantic versions in CEL, after Kubernetes' libraries (`apiserver/pkg/cel/library`).

The CEL library here knows no further types, so such a value is a text with a mark that no attribute can have: equal
texts are equal values. A function of one kind of value refuses any other text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos

_MARK = "\ue000" * 22  # 66 bytes: an attribute has at most 64
_QUANTITY, _VERSION = f"{_MARK}quantity ", f"{_MARK}semver "
_NUMERIC = r"(?:0|[1-9]\d*)"
_SEMVER = re.compile(
    rf"({_NUMERIC})\.({_NUMERIC})\.({_NUMERIC})"
    rf"(?:-((?:{_NUMERIC}|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:{_NUMERIC}|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)
_LARGEST_PART = 2**64


class OpaqueError(ValueError):
    """A text that is no such value, or a value of the wrong kind."""


class CelFunction(NamedTuple):
    """A function: its name, the types of its parameters and its result by name, and whether it is called on a value."""

    name: str
    parameters: tuple[str, ...]
    result: str
    member: bool
    implementation: Callable[..., Any]


def quantity_value(text: str) -> str:
    """The value of a quantity as it is written. Raises OpaqueError."""
    try:
        return f"{_QUANTITY}{nanos(text)}"
    except QuantityError as error:
        raise OpaqueError(str(error)) from error


def version_value(text: str) -> str:
    """The value of a semantic version as it is written. Raises OpaqueError."""
    match = _SEMVER.fullmatch(text)
    if match is None or any(int(part) >= _LARGEST_PART for part in match.groups()[:3]):
        raise OpaqueError(f"{text!r} is not a semantic version")
    return _VERSION + text


def _is(parse: Callable[[str], str]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            parse(text)
        except OpaqueError:
            return False
        return True

    return is_one


def _amount(value: str) -> int:
    """The nanos of a quantity."""
    if not value.startswith(_QUANTITY):
        raise OpaqueError("not a quantity: no such overload")
    return int(value.removeprefix(_QUANTITY))


def _whole(value: str) -> int:
    amount, rest = divmod(_amount(value), NANOS)
    if rest or not -INT64_MAX <= amount <= INT64_MAX:
        raise OpaqueError("cannot convert value to integer")
    return amount


def _is_whole(value: str) -> bool:
    return not _amount(value) % NANOS


def _added(value: str, other: str | int, sign: int) -> str:
    more = other * NANOS if isinstance(other, int) else _amount(other)
    return f"{_QUANTITY}{_amount(value) + sign * more}"


def _version(value: str) -> tuple[int, int, int, tuple[tuple[int, int, str], ...]]:
    """What versions are ordered by: a version without a pre-release is later than one with."""
    if not value.startswith(_VERSION):
        raise OpaqueError("not a semantic version: no such overload")
    match = _SEMVER.fullmatch(value.removeprefix(_VERSION))
    assert match is not None
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in (match[4].split(".") if match[4] else ())
    )
    return int(match[1]), int(match[2]), int(match[3]), parts or ((2, 0, ""),)


def _compared(value: str, other: str) -> int:
    first, second = (
        (_version(value), _version(other)) if value.startswith(_VERSION) else (_amount(value), _amount(other))
    )
    return (first > second) - (first < second)  # type: ignore[operator]  # both are of one kind


def _normalized(text: str) -> str:
    """A version without its `v`, leading zeros and missing parts, as `normalizeAndParse` of the library."""
    parts = text.removeprefix("v").split(".", 2)
    for number, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[number] = stripped if stripped[:1].isdigit() else f"0{stripped}"
    if len(parts) < 3:
        if set(parts[-1]) & set("+-"):
            raise OpaqueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return version_value(".".join(parts))


def _parsed(text: str, normalize: bool) -> str:
    return _normalized(text) if normalize else version_value(text)


FUNCTIONS = (
    CelFunction("quantity", ("string",), "dyn", False, quantity_value),
    CelFunction("isQuantity", ("string",), "bool", False, _is(quantity_value)),
    CelFunction("isInteger", ("string",), "bool", True, _is_whole),
    CelFunction("asInteger", ("string",), "int", True, _whole),
    CelFunction("asApproximateFloat", ("string",), "double", True, lambda value: _amount(value) / NANOS),
    CelFunction("sign", ("string",), "int", True, lambda value: (_amount(value) > 0) - (_amount(value) < 0)),
    *(
        CelFunction("add", ("string", kind), "dyn", True, lambda value, other: _added(value, other, 1))
        for kind in ("string", "int")
    ),
    *(
        CelFunction("sub", ("string", kind), "dyn", True, lambda value, other: _added(value, other, -1))
        for kind in ("string", "int")
    ),
    CelFunction("compareTo", ("string", "string"), "int", True, _compared),
    CelFunction("isGreaterThan", ("string", "string"), "bool", True, lambda value, other: _compared(value, other) > 0),
    CelFunction("isLessThan", ("string", "string"), "bool", True, lambda value, other: _compared(value, other) < 0),
    CelFunction("semver", ("string",), "dyn", False, version_value),
    CelFunction("semver", ("string", "bool"), "dyn", False, _parsed),
    CelFunction("isSemver", ("string",), "bool", False, _is(version_value)),
    CelFunction(
        "isSemver",
        ("string", "bool"),
        "bool",
        False,
        lambda text, normalize: _is(_normalized if normalize else version_value)(text),
    ),
    CelFunction("major", ("string",), "int", True, lambda value: _version(value)[0]),
    CelFunction("minor", ("string",), "int", True, lambda value: _version(value)[1]),
    CelFunction("patch", ("string",), "int", True, lambda value: _version(value)[2]),
)
"""Every function of both libraries."""
