"""Fields of an object against its schema, as Go's typed decoding treats them in Kubernetes.

Unknown ones are pruned and reported, wrong types refused, nulls dropped, quantities brought into their canonical form:
`1000m` as `1`, `0.5` as `500m`, `1024Mi` as `1Gi`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.statuses import Cause

_SENT_AS_NULL = {"lastProbeTime", "lastTransitionTime", "lastHeartbeatTime", "eventTime", "firstTimestamp"} | {
    "lastTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "lastUpdateTime",
}
"""Instants that Kubernetes writes even where they are not set."""
_EMPTY: tuple[Any, ...] = (None, "", [])
_INTEGERS = {"integer": ("int32", (-(2**31), 2**31 - 1)), "int64": ("int64", (-(2**63), 2**63 - 1))}
_JSON_TYPES = ((bool, "bool"), (str, "string"), (dict, "object"), (list, "array"))
_SCALARS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "boolean": (bool, "bool"),
    "bytes": (str, "[]uint8"),
    "intstr": ((int, str), "intstr.IntOrString"),
    "string": (str, "string"),
    "time": (str, "string"),
}
_GO_NAMES = {"boolean": "bool", "integer": "int32", "number": "float64", "time": "string"}


def settle(schema: Schema, obj: Object) -> list[str]:
    """Put an object right in place; the paths of its unknown fields, which are gone. Raises StatusError (400)."""
    unknown: list[str] = []
    _struct(schema, obj, "", unknown)
    return unknown


def missing(schema: Schema, obj: Object, path: str = "") -> list[Cause]:
    """A cause for every required field that is absent or empty; status is left out."""
    causes = [
        Cause(f"{path}{name}", "FieldValueRequired", "Required value")
        for name in sorted([name for name in schema.required if obj.get(name) in _EMPTY])
    ]
    for name, value in obj.items():
        field = schema.fields.get(name)
        if field is None or (not path and name in ("status", "metadata")):
            continue
        if field.kind == "struct" and isinstance(value, dict):
            causes += missing(field, value, f"{path}{name}.")
        elif field.kind == "list" and field.item is not None and field.item.kind == "struct":
            for index, item in enumerate(value or ()):
                causes += missing(field.item, item, f"{path}{name}[{index}].")
    return causes


def _struct(schema: Schema, obj: Object, path: str, unknown: list[str]) -> None:
    """Bring the fields of a struct into form, and note those that it does not have."""
    fields = schema.fields
    changed: dict[str, Any] = {}
    for name, value in obj.items():
        field = fields.get(name)
        if field is None:
            unknown.append(f"{path}{name}")
            changed[name] = None
        elif value is None:
            if name not in _SENT_AS_NULL:
                changed[name] = None
        elif field.kind != "string" or not isinstance(value, str):  # most fields are strings, as they should be
            settled = _value(field, value, schema, f"{path}{name}", unknown)
            if settled is not value:
                changed[name] = settled
    for name, value in changed.items():
        if value is None:
            del obj[name]
        else:
            obj[name] = value


def _value(field: Schema, value: Any, parent: Schema, path: str, unknown: list[str]) -> Any:
    """Bring one value into the form of its field. Raises StatusError for another type."""
    item = field.item
    match field.kind:
        case "struct":
            if not isinstance(value, dict):
                raise _mismatch(value, _go_name(field), parent, path)
            _struct(field, value, f"{path}.", unknown)
        case "list":
            assert item is not None
            if not isinstance(value, list):
                raise _mismatch(value, f"[]{_go_name(item)}", parent, path)
            for index, element in enumerate(value):
                empty = element is None and item.kind == "struct"
                value[index] = {} if empty else _value(item, element, parent, f"{path}[{index}]", unknown)
        case "map":
            assert item is not None
            if not isinstance(value, dict):
                raise _mismatch(value, f"map[string]{_go_name(item)}", parent, path)
            for key, element in value.items():
                empty = element is None and item.kind == "string"
                value[key] = "" if empty else _value(item, element, parent, f"{path}.{key}", unknown)
        case _:
            return _scalar(field.kind, value, parent, path)
    return value


def _scalar(kind: str, value: Any, parent: Schema, path: str) -> Any:
    """A value that is neither struct, list nor map, a quantity in its canonical form. Raises StatusError."""
    match kind:
        case "quantity":
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise _mismatch(value, "resource.Quantity", parent, path)
            try:
                return canonical(str(value))
            except QuantityFormatError as error:
                raise statuses.bad_request(f"unable to parse {path}: {error}") from error
        case "integer" | "int64":
            wanted, (low, high) = _INTEGERS[kind]
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise _mismatch(value, wanted, parent, path)
            if isinstance(value, float) or not low <= value <= high:
                raise _mismatch(f"number {value}", wanted, parent, path, named=True)
        case "any" | "number":
            pass
        case _:
            types, wanted = _SCALARS[kind]
            if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
                raise _mismatch(value, wanted, parent, path)
    return value


def _go_name(schema: Schema) -> str:
    return _GO_NAMES.get(schema.kind) or schema.model.removeprefix("V1") or schema.kind


def _mismatch(value: Any, wanted: str, parent: Schema, path: str, *, named: bool = False) -> statuses.StatusError:
    shown = value if named else next((name for type_, name in _JSON_TYPES if isinstance(value, type_)), "number")
    where = f"{parent.model.removeprefix('V1')}.{path}"
    return statuses.bad_request(f"json: cannot unmarshal {shown} into Go struct field {where} of type {wanted}")


_NOTATION = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d+)", re.ASCII)
_DECIMAL = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_ONES = 3
"""The place in _DECIMAL of the unit that has no suffix."""
_LONGEST = 64
_LONGEST_EXPONENT = 4
_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityFormatError(ValueError):
    """A text that is no quantity."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The form in which Kubernetes sends a quantity back. Raises QuantityFormatError.

    Binary amounts keep a binary suffix if they are whole; what has an exponent keeps one; all others get the largest
    decimal suffix that leaves no rest, and what is below a nano is rounded up.
    """
    match = _NOTATION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[2][:1] in "eE" and len(match[2]) > _LONGEST_EXPONENT):
        raise QuantityFormatError(_RULE)
    value, suffix = Decimal(match[1]), match[2]
    exponent = suffix[:1] in ("e", "E") and len(suffix) > 1
    if suffix in _BINARY[1:]:
        value *= 1024 ** _BINARY.index(suffix)
        if abs(value) >= 1024 and value == value.to_integral_value():
            whole, step = _largest_unit(int(value), 1024, len(_BINARY))
            return f"{whole}{_BINARY[step]}"
    elif exponent:
        value = value.scaleb(int(suffix[1:]))
    else:
        value = value.scaleb(3 * (_DECIMAL.index(suffix) - _ONES))
    nanos = int(value.scaleb(9).to_integral_value(ROUND_CEILING))
    whole, step = _largest_unit(nanos, 1000, len(_DECIMAL)) if nanos else (0, _ONES)
    if exponent:
        return f"{whole}e{3 * (step - _ONES)}" if step != _ONES else str(whole)
    return f"{whole}{_DECIMAL[step]}"


def _largest_unit(whole: int, factor: int, units: int) -> tuple[int, int]:
    """Divide by the factor while nothing is left over: the number and how often, at most once less than the units."""
    step = 0
    while whole % factor == 0 and step < units - 1:
        whole, step = whole // factor, step + 1
    return whole, step
