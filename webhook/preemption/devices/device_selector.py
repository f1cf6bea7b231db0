"""CEL selectors of devices: expressions over `device`, as Kubernetes' `dynamic-resource-allocation/cel` has them.

`device` has `driver`, `allowMultipleAllocations`, and `attributes` and `capacity` by domain and name. A domain that the
device does not have is an empty map. Quantities and semantic versions have their own functions. Other Kubernetes
libraries (`sets`, regular expressions, URLs, IP addresses) are not known here: what uses them does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from webhook.kube.bounded import bounded_cache
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
from webhook.preemption.devices.opaque import FUNCTIONS

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


class DeviceFacts(Protocol):
    """What an expression sees of a device: values by domain and name; their types are those of `devices.opaque`."""

    @property
    def driver(self) -> str:
        """The driver's name."""

    @property
    def allow_multiple_allocations(self) -> bool:
        """Whether several claims may have a share of it."""

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """The attributes. They are asked for only if the expression reads one."""

    @property
    def capacity(self) -> Mapping[str, Mapping[str, Any]]:
        """The capacities, likewise."""


class SelectorProgram:
    """A compiled selector. What it says of a device is remembered by what it reads of it."""

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program
        self._reads = _reads(text)
        self._known: dict[tuple[Any, ...], bool | str] = {}

    def matches(self, device: DeviceFacts) -> bool:
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

    def _projection(self, device: DeviceFacts) -> tuple[Any, ...]:
        if self._reads is None:
            read = (device.driver, device.allow_multiple_allocations, device.attributes, device.capacity)
            return (blake2b(msgspec.json.encode(read), digest_size=_DIGEST).digest(),)
        parts: list[Any] = [device.driver, device.allow_multiple_allocations]
        for kind, domain, name in self._reads:
            values = (device.attributes if kind == "attributes" else device.capacity).get(domain or device.driver)
            value = None if values is None else values.get(name) if name else True
            parts.append((type(value), value))  # true is not 1
        return tuple(parts)

    def _evaluate(self, device: DeviceFacts) -> bool | str:
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
