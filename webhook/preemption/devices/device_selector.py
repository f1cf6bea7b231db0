"""CEL selectors of devices, after Kubernetes' `dynamic-resource-allocation/cel`.

`device` has `driver`, `allowMultipleAllocations`, and `attributes` and `capacity` by domain
and name. A domain that the device lacks is an empty map. Quantities and semantic versions
have the functions of Kubernetes' libraries (`apiserver/pkg/cel/library`). The CEL library
knows no further types: such a value is a text with a mark that no attribute can have. Equal
texts are equal values. Other Kubernetes libraries (`sets`, regular expressions, URLs, IP
addresses) are unknown: what uses them does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from webhook.kube.bounded import bounded_cache
from webhook.kube.objects.devices import DeviceAttribute, DeviceCapacity
from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos
from webhook.policy.cel.cost import BUDGET
from webhook.policy.cel.program import CelError, CelRuntimeError, Program, compiled, environment, evaluated
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
    """A text that is no such value, or another kind of value."""


def quantity_value(text: str) -> str:
    """The value of a quantity. Raises OpaqueError."""
    try:
        return f"{_QUANTITY}{nanos(text)}"
    except QuantityError as error:
        raise OpaqueError(str(error)) from error


def version_value(text: str) -> str:
    """The value of a semantic version. Raises OpaqueError."""
    match = _SEMVER.fullmatch(text)
    if match is None or any(int(part) >= _LARGEST_PART for part in match.groups()[:3]):
        raise OpaqueError(f"{text!r} is not a semantic version")
    return _VERSION + text


def _is(parse: Callable[..., str]) -> Callable[..., bool]:
    def is_value(*given: str | bool) -> bool:
        try:
            parse(*given)
        except OpaqueError:
            return False
        return True

    return is_value


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
    """What versions are ordered by: one without a pre-release is later than one with."""
    if not value.startswith(_VERSION):
        raise OpaqueError("not a semantic version: no such overload")
    match = _SEMVER.fullmatch(value.removeprefix(_VERSION))
    assert match is not None
    major, minor, patch, pre_release = match.groups()[:4]
    parts = pre_release.split(".") if pre_release else ()
    keys = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return int(major), int(minor), int(patch), keys or ((2, 0, ""),)


def _compared(value: str, other: str) -> int:
    order: Callable[[str], Any] = _version if value.startswith(_VERSION) else _amount
    first, second = order(value), order(other)
    return int(first > second) - int(first < second)


def _normalized(text: str) -> str:
    """A version without `v` and leading zeros, with all parts (`normalizeAndParse`)."""
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


FUNCTIONS: tuple[tuple[Any, ...], ...] = (
    ("quantity", "dyn", quantity_value),
    ("isQuantity", "bool", _is(quantity_value)),
    ("isInteger", "bool", lambda value: not _amount(value) % NANOS),
    ("asInteger", "int", _whole),
    ("asApproximateFloat", "double", lambda value: _amount(value) / NANOS),
    ("sign", "int", lambda value: (_amount(value) > 0) - (_amount(value) < 0)),
    *(("add", "dyn", partial(_added, 1), kind) for kind in ("string", "int")),
    *(("sub", "dyn", partial(_added, -1), kind) for kind in ("string", "int")),
    ("compareTo", "int", _compared, "string"),
    ("isGreaterThan", "bool", lambda value, other: _compared(value, other) > 0, "string"),
    ("isLessThan", "bool", lambda value, other: _compared(value, other) < 0, "string"),
    ("semver", "dyn", version_value),
    ("semver", "dyn", _parsed, "bool"),
    ("isSemver", "bool", _is(version_value)),
    ("isSemver", "bool", _is(_parsed), "bool"),
    ("major", "int", lambda value: _version(value)[0]),
    ("minor", "int", lambda value: _version(value)[1]),
    ("patch", "int", lambda value: _version(value)[2]),
)
"""Name, type of the result, what it does with a text, and the type of a value beside it."""
_GLOBAL = ("quantity", "isQuantity", "semver", "isSemver")
"""The functions not called on a value."""
LONGEST_SELECTOR = 10 * 1024
"""Characters, as in Kubernetes."""
_TOKEN = re.compile(
    r"[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})|[rR](?:\"[^\"]*\"|'[^']*')|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?P<domain>\bdevice\s*\.\s*(?:attributes|capacity)\s*\[(?!\s*\?))|[\[\]]",
    re.DOTALL,
)
"""Brackets, and texts, where nothing is to be found."""


def value_of(attribute: DeviceAttribute) -> AttributeValue:
    """The value with its type, empty if unknown."""
    if attribute.text is not None:
        return "string", attribute.text
    if attribute.number is not None:
        return "int", attribute.number
    if attribute.flag is not None:
        return "bool", attribute.flag
    return ("version", attribute.version) if attribute.version is not None else ("", None)


def facts_of(shape: DeviceShape) -> Facts:
    """What expressions see of a device; names without a domain are the driver's.

    Raises CelRuntimeError for an unknown type, and for what is no version or quantity.
    """
    driver, device = shape
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": _by_domain(driver, "attribute", device.attributes, _attribute_value),
        "capacity": _by_domain(driver, "capacity", device.capacity, _capacity_value),
    }


def _by_domain(driver: str, kind: str, values: Mapping[str, Any] | None, read: Callable[[Any], Any]) -> Facts:
    by_domain: Facts = {}
    for name, value in (values or {}).items():
        domain, own = name.split("/", 1) if "/" in name else (driver, name)
        try:
            by_domain.setdefault(domain, {})[own] = read(value)
        except OpaqueError as error:
            raise CelRuntimeError(f"{kind} {name}: {error}") from error
    return by_domain


def _attribute_value(attribute: DeviceAttribute) -> object:
    kind, value = value_of(attribute)
    if not kind:
        raise OpaqueError("unsupported attribute value")
    if kind != "version":
        return value
    try:
        return version_value(str(value))
    except OpaqueError as error:
        raise OpaqueError(f"parse semantic version: {error}") from error


def _capacity_value(capacity: DeviceCapacity) -> str:
    return quantity_value(str(capacity.value))


class SelectorProgram(NamedTuple):
    """A compiled selector."""

    text: str
    program: Program

    def matches(self, device: Facts) -> bool:
        """Whether the device is meant. Raises CelRuntimeError, also if it gives no bool."""
        attributes = device["attributes"]
        maps = (attributes, device["capacity"], *attributes.values())
        size, elements = len(msgspec.json.encode(device)), max(map(len, maps))
        if self.program.cost.bound(size, elements) > BUDGET:
            raise CelRuntimeError(f"it could take more than {BUDGET / 1e6:.0f} ms")
        activation = _env().Activation({"device": device})
        given = evaluated(self.program.expression, activation)
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
    """The expression with an empty map for each domain a device lacks."""
    closing = list[str]()

    def replaced(token: re.Match[str]) -> str:
        if token["domain"]:
            closing.append("].orValue(dyn({}))")
            return f"{token[0]}?"
        if token[0] == "[":
            closing.append("]")
        return closing.pop() if token[0] == "]" and closing else token[0]

    return _TOKEN.sub(replaced, text)


@cache
def _env() -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - loaded with the first expression: it takes 15 MB

    names = ("string", "int", "bool", "double", "dyn")
    types = {name: getattr(cel.Type, name.upper()) for name in names}
    functions: dict[str, list[Any]] = {}
    for number, (name, result, implementation, *beside) in enumerate(FUNCTIONS):
        overload = cel.Overload(
            id=f"{name}_{number}",
            return_type=types[result],
            parameters=[types[kind] for kind in ("string", *beside)],
            is_member=name not in _GLOBAL,
            impl=implementation,
        )
        functions.setdefault(name, []).append(overload)
    declarations = [cel.FunctionDecl(name, overloads) for name, overloads in functions.items()]
    return environment(("device",), declarations)
