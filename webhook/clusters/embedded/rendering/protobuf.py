"""Bodies that kubectl's typed commands send as `application/vnd.kubernetes.protobuf`, as plain data.

An envelope (`runtime.Unknown`) names version and kind; the fields follow the schema of that kind. Answers are always
JSON, which these clients accept as well.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_KIND, Object
from webhook.kube.protobuf_wire import WireError, fields

_MAGIC = b"k8s\0"
_STRING_INT_OR_STRING = 1
_MESSAGES = """
V1ClusterRole metadata rules aggregationRule
V1ConfigMap metadata data binaryData immutable
V1DeleteOptions gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
V1Eviction metadata deleteOptions
V1LabelSelector matchLabels matchExpressions
V1LabelSelectorRequirement key operator values
V1Namespace metadata spec
V1NamespaceSpec finalizers
V1ObjectMeta name generateName namespace selfLink uid resourceVersion - - - - labels annotations
V1PodDisruptionBudget metadata spec
V1PodDisruptionBudgetSpec minAvailable selector maxUnavailable unhealthyPodEvictionPolicy
V1PolicyRule verbs apiGroups resources resourceNames nonResourceURLs
V1Preconditions uid resourceVersion
V1PriorityClass metadata value globalDefault description preemptionPolicy
V1Secret metadata data type stringData immutable
"""
"""Messages, each with its fields in the order of their numbers, which start at 1; `-` is one that counts for nothing.

Messages are called as the official client's models are. Left out is what the pages have nobody create with kubectl
alone, and of these messages what a new object does not bring.
"""


_NOT_STORED = {("policy/v1", "Eviction"), ("v1", "DeleteOptions")}
"""The kinds of no resource: kubectl drain sends the one, helm the other."""
_FIELDS = {message: fields for message, *fields in map(str.split, _MESSAGES.strip().splitlines())}


def decode(body: bytes) -> Object:
    """A body as an object with kind and apiVersion. Raises StatusError: 400 for what does not parse."""
    if not body.startswith(_MAGIC):
        raise statuses.bad_request("provided data does not appear to be a protobuf message, expected prefix k8s")
    try:
        unknown = dict(_fields(body[len(_MAGIC) :]))
        meta = {number: value.decode() for number, value in _fields(unknown.get(1, b""))}
        version, kind = meta.get(1, ""), meta.get(2, "")
        resource = BY_KIND.get((version, kind))
        if resource is None and (version, kind) not in _NOT_STORED:
            raise statuses.bad_request(f'no kind "{kind}" is registered for version "{version}"')
        model = schemas.model_of(resource) if resource is not None else f"V1{kind}"
        return {"kind": kind, "apiVersion": version, **_message(schemas.of_model(model), unknown.get(2, b""), model)}
    except (WireError, IndexError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise statuses.bad_request(f"the protobuf body cannot be read: {error}") from error


def _message(schema: Schema, data: bytes, name: str) -> Object:
    """The fields of one message. Raises StatusError (400) if it is not in the table: kubectl does not send it."""
    obj: Object = {}
    names = dict(enumerate(_FIELDS.get(name, ()), start=1))
    if data and not names:
        raise statuses.bad_request(f"{name.removeprefix('V1')} is not read from protobuf here; send JSON")
    for number, raw in _fields(data):
        field_name = names.get(number, "")
        match schema.fields.get(field_name):
            case Schema(kind="list", item=Schema() as item):
                obj.setdefault(field_name, []).append(_value(item, raw))
            case Schema(kind="map", item=Schema() as item):
                entry = dict(_fields(raw))
                obj.setdefault(field_name, {})[entry.get(1, b"").decode()] = _value(item, entry.get(2, b""))
            case Schema() as field if (value := _value(field, raw)) != "":  # these messages always carry their texts
                obj[field_name] = value
    return obj


def _value(field: Schema, raw: Any) -> Any:
    """One value, by the kind of its field in JSON."""
    match field.kind:
        case "struct":
            return _message(field, raw, field.model)
        case "intstr":
            parts = dict(_fields(raw))
            is_string = parts.get(1) == _STRING_INT_OR_STRING
            return parts.get(3, b"").decode() if is_string else _integer(parts.get(2, 0))
        case "integer" | "int64":
            return _integer(raw)
        case "boolean":
            return bool(raw)
        case "bytes":
            return base64.b64encode(raw).decode()
    return raw.decode()


def _integer(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and raw values of a message's fields, in order."""
    for number, _, value in fields(data):
        yield number, value
