"""CEL selectors of devices: expressions over `device`, as Kubernetes' `dynamic-resource-allocation/cel` has them.

`device` has `driver`, `allowMultipleAllocations`, and `attributes` and `capacity` by domain and name. A domain that the
device does not have is an empty map. Quantities and semantic versions have their own functions, after Kubernetes'
libraries (`apiserver/pkg/cel/library`). The CEL library here knows no further types, so such a value is a text with a
mark that no attribute can have: equal texts are equal values. Other Kubernetes libraries (`sets`, regular expressions,
URLs, IP addresses) are not known here: what uses them does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from webhook.kube.bounded import bounded_cache
from webhook.kube.objects.devices import DeviceAttribute
from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos
from webhook.policy.cel.cost import BUDGET
from webhook.policy.cel.program import (
    CelError,
    CelRuntimeError,
    Program,
    compiled,
    environment,
    evaluated,
)
from webhook.preemption.snapshot.device_index import DeviceShape

Facts = dict[str, Any]
"""A device as an expression sees it."""
AttributeValue = tuple[str, object]
"""The type of an attribute's value, and the value."""
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


def _added(sign: int, value: str, other: str | int) -> str:
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
    """A version without `v`, leading zeros and missing parts, as `normalizeAndParse` has it."""
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
    CelFunction("isInteger", ("string",), "bool", True, lambda value: not _amount(value) % NANOS),
    CelFunction("asInteger", ("string",), "int", True, _whole),
    CelFunction("asApproximateFloat", ("string",), "double", True, lambda value: _amount(value) / NANOS),
    CelFunction("sign", ("string",), "int", True, lambda value: (_amount(value) > 0) - (_amount(value) < 0)),
    *(
        CelFunction(name, ("string", kind), "dyn", True, partial(_added, sign))
        for name, sign in (("add", 1), ("sub", -1))
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


LONGEST_SELECTOR = 10 * 1024
"""Characters, as in Kubernetes."""
_TOKEN = re.compile(
    r"[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})|[rR](?:\"[^\"]*\"|'[^']*')|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?P<domain>\bdevice\s*\.\s*(?:attributes|capacity)\s*\[(?!\s*\?))|[\[\]]",
    re.DOTALL,
)
"""Texts, so that nothing is found in them, and brackets."""


def value_of(attribute: DeviceAttribute) -> AttributeValue:
    """The value with its type; an empty type for one that is not known."""
    if attribute.text is not None:
        return "string", attribute.text
    if attribute.number is not None:
        return "int", attribute.number
    if attribute.flag is not None:
        return "bool", attribute.flag
    return ("version", attribute.version) if attribute.version is not None else ("", None)


def facts_of(shape: DeviceShape) -> Facts:
    """What expressions see of a device; names without a domain are the driver's.

    Raises CelRuntimeError for an attribute of a type that is not known, and for what is no version or quantity.
    """
    driver, device = shape
    attributes, capacity = dict[str, Any](), dict[str, Any]()
    parts: tuple[tuple[str, Facts, Mapping[str, Any] | None, Callable[[Any], Any]], ...] = (
        ("attribute", attributes, device.attributes, _attribute_value),
        ("capacity", capacity, device.capacity, lambda some: quantity_value(str(some.value))),
    )
    for kind, by_domain, values, read in parts:
        for name, value in (values or {}).items():
            domain, slash, own = name.partition("/")
            try:
                by_domain.setdefault(domain if slash else driver, {})[own if slash else name] = read(value)
            except OpaqueError as error:
                raise CelRuntimeError(f"{kind} {name}: {error}") from error
    several = device.allow_multiple_allocations
    return {"driver": driver, "allowMultipleAllocations": several, "attributes": attributes, "capacity": capacity}


def _attribute_value(attribute: DeviceAttribute) -> object:
    kind, value = value_of(attribute)
    if not kind:
        raise OpaqueError("unsupported attribute value")
    try:
        return version_value(str(value)) if kind == "version" else value
    except OpaqueError as error:
        raise OpaqueError(f"parse semantic version: {error}") from error


class SelectorProgram:
    """A compiled selector."""

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    def matches(self, device: Facts) -> bool:
        """Whether the device is meant. Raises CelRuntimeError, also for a value that is no bool."""
        maps = (device["attributes"], device["capacity"], *device["attributes"].values())
        elements = max(map(len, maps), default=0)
        if self._program.cost.bound(len(msgspec.json.encode(device)), elements) > BUDGET:
            raise CelRuntimeError(f"it could take more than {BUDGET / 1e6:.0f} ms")
        given = evaluated(self._program.expression, _env().Activation({"device": device}))
        if not isinstance(given, bool):
            raise CelRuntimeError("it gave no bool")
        return given


@bounded_cache(256, LONGEST_SELECTOR)
def device_selector(text: str) -> SelectorProgram:
    """Compile a selector. Raises CelError."""
    if len(text) > LONGEST_SELECTOR:
        raise CelError(f"the expression has {len(text)} characters; at most {LONGEST_SELECTOR}")
    return SelectorProgram(text, compiled(_env(), _with_empty_domains(text), ("device",)))


def _with_empty_domains(text: str) -> str:
    """The expression with an empty map for each domain that a device does not have."""
    made, begin, closing = [], 0, list[str]()
    for token in _TOKEN.finditer(text):
        made.append(text[begin : token.start()])
        begin = token.end()
        if token["domain"] or token[0] == "[":
            closing.append("].orValue(dyn({}))" if token["domain"] else "]")
            made.append(f"{token[0]}?" if token["domain"] else "[")
        else:
            made.append(closing.pop() if token[0] == "]" and closing else token[0])
    return "".join([*made, text[begin:]])


@cache
def _env() -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - loaded with the first expression: it takes 15 MB

    types = {"string": cel.Type.STRING, "int": cel.Type.INT, "bool": cel.Type.BOOL, "dyn": cel.Type.DYN}
    types["double"] = cel.Type.DOUBLE
    functions: dict[str, list[Any]] = {}
    for number, declared in enumerate(FUNCTIONS):
        overload = cel.Overload(
            id=f"{declared.name}_{number}",
            return_type=types[declared.result],
            parameters=[types[kind] for kind in declared.parameters],
            is_member=declared.member,
            impl=declared.implementation,
        )
        functions.setdefault(declared.name, []).append(overload)
    return environment(("device",), [cel.FunctionDecl(name, overloads) for name, overloads in functions.items()])
