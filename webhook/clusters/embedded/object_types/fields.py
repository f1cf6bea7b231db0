"""Fields of an object against its schema, as Go's typed decoding treats them in Kubernetes.

Unknown ones are pruned and reported, wrong types refused, nulls dropped. Quantities are kept as they are written.
"""

from __future__ import annotations

import re
from typing import Any

from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.statuses import Cause
from webhook.kube.quantity import QuantityError, nanos

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
_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_FAR_EXPONENT = re.compile(r"[eE][+-]?\d{3}")


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
                raise _mismatch(value, "object", parent, path)
            _struct(field, value, f"{path}.", unknown)
        case "list":
            assert item is not None
            if not isinstance(value, list):
                raise _mismatch(value, "array", parent, path)
            for index, element in enumerate(value):
                empty = element is None and item.kind == "struct"
                value[index] = {} if empty else _value(item, element, parent, f"{path}[{index}]", unknown)
        case "map":
            assert item is not None
            if not isinstance(value, dict):
                raise _mismatch(value, "map", parent, path)
            for key, element in value.items():
                empty = element is None and item.kind == "string"
                value[key] = "" if empty else _value(item, element, parent, f"{path}.{key}", unknown)
        case _:
            return _scalar(field.kind, value, parent, path)
    return value


def _scalar(kind: str, value: Any, parent: Schema, path: str) -> Any:
    """A value that is neither struct, list nor map, a quantity as text. Raises StatusError."""
    match kind:
        case "quantity":
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise _mismatch(value, "resource.Quantity", parent, path)
            text = str(value)
            try:
                nanos(text)
            except QuantityError:
                text = ""
            if not text or _FAR_EXPONENT.search(text):
                raise statuses.bad_request(f"unable to parse {path}: {_QUANTITY_RULE}")
            return text
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


def _mismatch(value: Any, wanted: str, parent: Schema, path: str, *, named: bool = False) -> statuses.StatusError:
    shown = value if named else next((name for type_, name in _JSON_TYPES if isinstance(value, type_)), "number")
    where = f"{parent.model.removeprefix('V1')}.{path}"
    return statuses.bad_request(f"json: cannot unmarshal {shown} into Go struct field {where} of type {wanted}")
