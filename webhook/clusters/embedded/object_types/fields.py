"""Fields of an object against its schema, as Go's typed decoding treats them in Kubernetes.

Unknown ones are pruned and reported, wrong types refused, nulls and empty lists and maps dropped. Quantities are kept
as they are written.
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
_BITS = {"integer": 31, "int64": 63}
_SCALARS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    **dict.fromkeys(("bytes", "string", "time"), (str,)),
    "intstr": (int, str),
    "quantity": (str, int, float),
    **dict.fromkeys(("integer", "int64"), (int,)),
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
        Cause.required(f"{path}{name}")
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
        elif value is None or (not value and field.kind in ("list", "map") and name not in schema.required):
            if name not in _SENT_AS_NULL:
                changed[name] = None
        elif field.kind != "string" or not isinstance(value, str):  # most fields are strings, as they should be
            settled = _value(field, value, f"{path}{name}", unknown)
            if settled is not value:
                changed[name] = settled
    for name, value in changed.items():
        if value is None:
            del obj[name]
        else:
            obj[name] = value


def _value(field: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    """Bring one value into the form of its field. Raises StatusError for another type."""
    item = field.item
    match field.kind:
        case "struct" if isinstance(value, dict):
            _struct(field, value, f"{path}.", unknown)
        case "list" if isinstance(value, list) and item is not None:
            for index, element in enumerate(value):
                empty = element is None and item.kind == "struct"
                value[index] = {} if empty else _value(item, element, f"{path}[{index}]", unknown)
        case "map" if isinstance(value, dict) and item is not None:
            for key, element in value.items():
                empty = element is None and item.kind == "string"
                value[key] = "" if empty else _value(item, element, f"{path}.{key}", unknown)
        case "struct" | "list" | "map":
            raise _mismatch(value, field.kind, path)
        case _:
            return _scalar(field.kind, value, path)
    return value


def _scalar(kind: str, value: Any, path: str) -> Any:
    """A value that is neither struct, list nor map, a quantity as text. Raises StatusError."""
    if kind in _SCALARS and (not isinstance(value, _SCALARS[kind]) or (isinstance(value, bool) and kind != "boolean")):
        raise _mismatch(value, kind, path)
    if kind in _BITS and not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
        raise _mismatch(value, kind, path)
    if kind != "quantity":
        return value
    text = str(value)
    try:
        nanos(text)
    except QuantityError:
        text = ""
    if not text or _FAR_EXPONENT.search(text):
        raise statuses.bad_request(f"unable to parse {path}: {_QUANTITY_RULE}")
    return text


def _mismatch(value: Any, wanted: str, path: str) -> statuses.StatusError:
    return statuses.bad_request(
        f"json: cannot unmarshal {type(value).__name__} {str(value)[:20]!r} into {path} ({wanted})"
    )
