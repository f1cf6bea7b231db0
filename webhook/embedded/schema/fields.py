"""Fields of an object against its schema, as Go's typed decoding treats them in Kubernetes.

Unknown ones are pruned and reported, wrong types refused, nulls dropped, quantities brought into their canonical form.
"""

from __future__ import annotations

from typing import Any

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.calls import Object
from webhook.embedded.protocol.statuses import Cause
from webhook.embedded.schema.quantities import QuantityFormatError, canonical
from webhook.embedded.schema.schemas import Schema

__all__ = ["missing", "settle"]

_SENT_AS_NULL = {"lastProbeTime", "lastTransitionTime", "lastHeartbeatTime", "eventTime", "firstTimestamp"} | {
    "lastTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "lastUpdateTime",
}
"""Instants that Kubernetes writes even where they are not set."""
_EMPTY: tuple[Any, ...] = (None, "", [])
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_JSON_TYPES = ((bool, "bool"), (str, "string"), (dict, "object"), (list, "array"))
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
        else:
            kind = field.kind
            if kind == "string":
                if not isinstance(value, str):
                    raise _mismatch(value, "string", schema, f"{path}{name}")
            else:
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
    match field.kind:
        case "struct":
            if not isinstance(value, dict):
                raise _mismatch(value, _go_name(field), parent, path)
            _struct(field, value, f"{path}.", unknown)
        case "list":
            return _list(field, value, parent, path, unknown)
        case "map":
            return _map(field, value, parent, path, unknown)
        case "quantity":
            return _quantity(value, parent, path)
        case "integer" | "int64":
            _integer(field.kind, value, parent, path)
        case "any" | "number":
            pass
        case _:
            types, wanted = _SCALARS[field.kind]
            if not isinstance(value, types) or (isinstance(value, bool) and field.kind != "boolean"):
                raise _mismatch(value, wanted, parent, path)
    return value


_SCALARS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "boolean": (bool, "bool"),
    "bytes": (str, "[]uint8"),
    "intstr": ((int, str), "intstr.IntOrString"),
    "string": (str, "string"),
    "time": (str, "string"),
}


def _list(field: Schema, value: Any, parent: Schema, path: str, unknown: list[str]) -> Any:
    item = field.item
    assert item is not None
    if not isinstance(value, list):
        raise _mismatch(value, f"[]{_go_name(item)}", parent, path)
    for index, one in enumerate(value):
        at = f"{path}[{index}]"
        if one is None and item.kind == "struct":
            value[index] = {}
        else:
            value[index] = _value(item, one, parent, at, unknown)
    return value


def _map(field: Schema, value: Any, parent: Schema, path: str, unknown: list[str]) -> Any:
    item = field.item
    assert item is not None
    if not isinstance(value, dict):
        raise _mismatch(value, f"map[string]{_go_name(item)}", parent, path)
    for key, one in value.items():
        if one is None and item.kind == "string":
            value[key] = ""
        else:
            value[key] = _value(item, one, parent, f"{path}.{key}", unknown)
    return value


def _integer(kind: str, value: Any, parent: Schema, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        shown = f"number {value}" if isinstance(value, float) else value
        raise _mismatch(shown, kind.replace("integer", "int32"), parent, path, named=isinstance(value, float))
    low, high = _INT32 if kind == "integer" else _INT64
    if not low <= value <= high:
        raise _mismatch(f"number {value}", kind.replace("integer", "int32"), parent, path, named=True)


def _quantity(value: Any, parent: Schema, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _mismatch(value, "resource.Quantity", parent, path)
    try:
        return canonical(str(value))
    except QuantityFormatError as error:
        raise statuses.bad_request(f"unable to parse {path}: {error}") from error


def _go_name(schema: Schema) -> str:
    return _GO_NAMES.get(schema.kind) or schema.model.removeprefix("V1") or schema.kind


def _mismatch(value: Any, wanted: str, parent: Schema, path: str, *, named: bool = False) -> statuses.StatusError:
    shown = value if named else next((name for type_, name in _JSON_TYPES if isinstance(value, type_)), "number")
    where = f"{parent.model.removeprefix('V1')}.{path}"
    return statuses.bad_request(f"json: cannot unmarshal {shown} into Go struct field {where} of type {wanted}")
