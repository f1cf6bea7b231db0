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
from functools import cache, cached_property, partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from webhook.kube.bounded import bounded_cache
from webhook.kube.objects.devices import DeviceAttribute
from webhook.kube.quantity import INT64_MAX, NANOS, QuantityError, nanos
from webhook.policy.cel.cost import BUDGET
from webhook.policy.cel.program import (
    CelError,
    CelProblem,
    CelRuntimeError,
    Program,
    compiled,
    environment,
    evaluated,
)
from webhook.preemption.snapshot.device_index import DeviceShape

T = TypeVar("T")
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


def _is_whole(value: str) -> bool:
    return not _amount(value) % NANOS


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
_MOST_REMEMBERED = 8192
_DIGEST = 16

_TEXT = r"(?:\"[^\"\\]*\"|'[^'\\]*')"
_OWN_DOMAIN = r"device\s*\.\s*driver\b"
_MAP = rf"\bdevice\s*\.\s*(attributes|capacity)\s*\[\s*({_TEXT}|{_OWN_DOMAIN})\s*\]"
_TOKEN = re.compile(
    r"[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})|[rR](?:\"[^\"]*\"|'[^']*')|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?P<domain>\bdevice\s*\.\s*(?:attributes|capacity)\s*\[(?!\s*\?))|[\[\]]",
    re.DOTALL,
)
"""Texts, so that nothing is found in them, and brackets."""
_READ = re.compile(rf"{_MAP}\s*(?:\.\s*([A-Za-z_]\w*)\b(?!\s*\()|\[\s*({_TEXT})\s*\])")
_DOMAIN = re.compile(rf"({_TEXT})\s+in\s+device\s*\.\s*(attributes|capacity)\b(?!\s*[\[.])")
_OWN = re.compile(r"\bdevice\s*\.\s*(driver|allowMultipleAllocations)\b")
_DEVICE = re.compile(r"\bdevice\b")


def value_of(attribute: DeviceAttribute) -> AttributeValue:
    """The value with its type; an empty type for one that is not known."""
    if attribute.text is not None:
        return "string", attribute.text
    if attribute.number is not None:
        return "int", attribute.number
    if attribute.flag is not None:
        return "bool", attribute.flag
    return ("version", attribute.version) if attribute.version is not None else ("", None)


class ShapeFacts:
    """What expressions see of a device. Raises CelRuntimeError for an attribute of a type that is not known."""

    def __init__(self, shape: DeviceShape) -> None:
        self.driver, self._device = shape
        self.allow_multiple_allocations = self._device.allow_multiple_allocations
        for name, attribute in (self._device.attributes or {}).items():
            if not value_of(attribute)[0]:
                raise CelRuntimeError(f"attribute {name}: unsupported attribute value")

    @cached_property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """The attributes' values by domain and name. Raises CelRuntimeError for what is no semantic version."""
        return self._by_domain("attribute", self._device.attributes or {}, _attribute_value)

    @cached_property
    def capacity(self) -> dict[str, dict[str, Any]]:
        """The capacities as quantities. Raises CelRuntimeError for what is none."""
        return self._by_domain("capacity", self._device.capacity or {}, lambda some: quantity_value(str(some.value)))

    def _by_domain(self, kind: str, values: Mapping[str, T], read: Callable[[T], Any]) -> dict[str, dict[str, Any]]:
        """The values by their domains and own names; one without a domain is the driver's."""
        by_domain: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            domain, slash, own = name.partition("/")
            try:
                by_domain.setdefault(domain if slash else self.driver, {})[own if slash else name] = read(value)
            except OpaqueError as error:
                raise CelRuntimeError(f"{kind} {name}: {error}") from error
        return by_domain


def _attribute_value(attribute: DeviceAttribute) -> object:
    kind, value = value_of(attribute)
    try:
        return version_value(str(value)) if kind == "version" else value
    except OpaqueError as error:
        raise OpaqueError(f"parse semantic version: {error}") from error


class SelectorProgram:
    """A compiled selector. What it says of a device is remembered by what it reads of it."""

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program
        self._reads = _reads(text)
        self._known: dict[tuple[Any, ...], bool | str] = {}

    def matches(self, device: ShapeFacts) -> bool:
        """Whether the device is meant. Raises CelRuntimeError, also for a value that is no bool."""
        key = self._projection(device)
        answer = self._known.get(key)
        if answer is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            answer = self._known[key] = self._evaluate(device)
        if isinstance(answer, str):
            raise CelRuntimeError(answer)
        return answer

    def _projection(self, device: ShapeFacts) -> tuple[Any, ...]:
        if self._reads is None:
            read = (device.driver, device.allow_multiple_allocations, device.attributes, device.capacity)
            return (blake2b(msgspec.json.encode(read), digest_size=_DIGEST).digest(),)
        parts: list[Any] = [device.driver, device.allow_multiple_allocations]
        for kind, domain, name in self._reads:
            values = (device.attributes if kind == "attributes" else device.capacity).get(domain or device.driver)
            value = None if values is None else values.get(name) if name else True
            parts.append((type(value), value))  # true is not 1
        return tuple(parts)

    def _evaluate(self, device: ShapeFacts) -> bool | str:
        """The answer, or why there is none."""
        data: dict[str, Any] = {
            "driver": device.driver,
            "allowMultipleAllocations": device.allow_multiple_allocations,
            "attributes": {domain: dict(values) for domain, values in device.attributes.items()},
            "capacity": {domain: dict(values) for domain, values in device.capacity.items()},
        }
        elements = max(map(len, (data["attributes"], data["capacity"], *device.attributes.values())), default=0)
        if self._program.cost.bound(len(msgspec.json.encode(data)), elements) > BUDGET:
            return f"it could take more than {BUDGET / 1e6:.0f} ms"
        try:
            given = evaluated(self._program.expression, _env().Activation({"device": data}))
        except CelRuntimeError as error:
            return str(error)
        return given if isinstance(given, bool) else "it gave no bool"


@bounded_cache(256, LONGEST_SELECTOR)
def device_selector(text: str) -> SelectorProgram:
    """Compile a selector. Raises CelError."""
    if len(text) > LONGEST_SELECTOR:
        raise CelError([CelProblem(1, 1, f"the expression has {len(text)} characters; at most {LONGEST_SELECTOR}")])
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


def _reads(text: str) -> tuple[tuple[str, str, str], ...] | None:
    """What the expression reads beside the driver: kind, domain and name, which is empty for the domain itself.

    The domain is empty if it is the driver. None if what is read cannot be told.
    """
    reads = {
        (kind, "" if re.fullmatch(_OWN_DOMAIN, key) else _unquoted(key), name or _unquoted(quoted))
        for kind, key, name, quoted in _READ.findall(text)
    }
    reads |= {(kind, _unquoted(domain), "") for domain, kind in _DOMAIN.findall(text)}
    rest = _OWN.sub("", _DOMAIN.sub("", _READ.sub("", text)))
    return None if _DEVICE.search(rest) else tuple(sorted(reads))


def _unquoted(text: str) -> str:
    return text[1:-1]


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
