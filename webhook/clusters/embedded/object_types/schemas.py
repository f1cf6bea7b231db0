"""The shape of every kind, taken from the official client's models when a kind is first used, and objects against it.

How lists and maps merge stands in Kubernetes' OpenAPI and not in those models: the tables here hold it. A list is a
map by its keys, a set, or atomic (replaced as a whole); likewise some structs and maps are atomic. Strategic merge
patch knows one merge key for a list, server-side apply may know several.

Objects are treated as Go's typed decoding treats them in Kubernetes: unknown fields are pruned and reported, wrong
types refused, nulls and empty lists and maps dropped. Quantities are kept as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from kubernetes.client import models

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.statuses import Cause
from webhook.kube.quantity import QuantityError, nanos

_SCALARS = {
    "bytes": "bytes",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "object": "any",
}
_LIST = re.compile(r"List\[(.*)\]")
_MAP = re.compile(r"Dict\[str, (.*)\]")


class ListType(NamedTuple):
    """`keys` of a list that is a map; `is_set` for a list of distinct values; neither: atomic."""

    keys: tuple[str, ...] = ()
    merge_key: str = ""
    is_set: bool = False


def _map(*keys: str) -> ListType:
    return ListType(keys, keys[0])


_ATOMIC = ListType()
_MAPS = {
    "name": "claims containers env ephemeralContainers imagePullSecrets initContainers matchConditions resourceClaims "
    "schedulingGates secrets volumes webhooks",
    "type": "addresses conditions",
    "ip": "hostAliases podIPs",
    "uid": "ownerReferences",
    "devicePath": "volumeDevices",
    "mountPath": "volumeMounts",
    "containerPort protocol": "ports",
    "topologyKey whenUnsatisfiable": "topologySpreadConstraints",
}
"""Keys of the lists that are maps, and their names."""
_LISTS = {
    **{name: _map(*keys.split()) for keys, names in _MAPS.items() for name in names.split()},
    **dict.fromkeys(("finalizers", "podCIDRs"), ListType(is_set=True)),
    "hostIPs": ListType(merge_key="ip"),
}
_LISTS_OF_MODELS = {
    ("V1JobStatus", "conditions"): ListType(merge_key="type"),
    ("V1NamespaceSpec", "finalizers"): _ATOMIC,
    ("V1ServiceAccount", "imagePullSecrets"): ListType(merge_key="name"),
    ("V1ServiceSpec", "ports"): _map("port", "protocol"),
}
_ATOMIC_MODELS = re.compile(
    "CoreV1TypedLocalObjectReference|RbacV1Subject|V1ConfigMapKeySelector|V1LabelSelector|V1LocalObjectReference"
    "|V1NodeSelector|V1NodeSelectorTerm|V1ObjectFieldSelector|V1ObjectReference|V1ResourceFieldSelector|V1RoleRef"
    "|V1ScopeSelector|V1SecretKeySelector|V1SecretReference|V1TopologySelectorTerm|V1TypedLocalObjectReference"
)
_ATOMIC_MAPS = {
    ("V1PodSpec", "nodeSelector"),
    ("V1ReplicationControllerSpec", "selector"),
    ("V1ServiceSpec", "selector"),
}
_NARROWER = {
    ("integer", "int64"): "activeDeadlineSeconds deletionGracePeriodSeconds expirationSeconds fsGroup generation "
    "gracePeriodSeconds observedGeneration remainingItemCount runAsGroup runAsUser sizeBytes startingDeadlineSeconds "
    "supplementalGroups terminationGracePeriodSeconds tolerationSeconds",
    ("string", "quantity"): "allocatable allocatedResources capacity default defaultRequest divisor hard limits max "
    "maxLimitRequestRatio min overhead requests sizeLimit used",
    ("any", "intstr"): "maxSurge maxUnavailable minAvailable port targetPort",
}
_KINDS = {(kind, name): narrower for (kind, narrower), names in _NARROWER.items() for name in names.split()}
"""What a field is of which the client's model says less: by the model's kind and the field's name."""


@dataclass(slots=True)
class Schema:
    """One node.

    `kind` is struct, map, list, string, bytes, integer, int64, number, boolean, time, quantity, intstr or any.
    """

    kind: str
    model: str = ""
    """The model of a struct, such as V1PodSpec."""
    fields: dict[str, Schema] = field(default_factory=dict)
    """Fields of a struct."""
    required: frozenset[str] = frozenset()
    item: Schema | None = None
    """Values of a map, items of a list."""
    lists: ListType = _ATOMIC
    """How a list merges."""
    atomic: bool = False
    """Whether a struct or map is replaced as a whole."""


def of_resource(resource: ApiResource) -> Schema:
    """The schema of a resource's objects."""
    return of_model(model_of(resource))


def model_of(resource: ApiResource) -> str:
    """The name of the client's model for a resource."""
    if resource.kind == "Event":
        return "EventsV1Event" if resource.group else "CoreV1Event"
    return f"V1{resource.kind}"


@cache
def of_model(name: str) -> Schema:
    """The schema of a model such as V1Pod."""
    model = getattr(models, name)
    required = [attribute for attribute, info in model.model_fields.items() if info.is_required()]
    names = {attribute: model.attribute_map[attribute] for attribute in model.openapi_types}
    return Schema(
        "struct",
        name,
        {named: _typed(name, named, model.openapi_types[attribute]) for attribute, named in names.items()},
        frozenset(model.attribute_map[attribute] for attribute in required),
        atomic=_ATOMIC_MODELS.fullmatch(name) is not None,
    )


def _typed(model: str, name: str, type_name: str) -> Schema:
    """The schema of the type that a model's field, or the items or values in it, have in the client."""
    if match := _LIST.fullmatch(type_name):
        lists = _LISTS_OF_MODELS.get((model, name)) or _LISTS.get(name, _ATOMIC)
        return Schema("list", item=_typed(model, name, match[1]), lists=lists)
    if match := _MAP.fullmatch(type_name):
        return Schema("map", item=_typed(model, name, match[1]), atomic=(model, name) in _ATOMIC_MAPS)
    if type_name not in _SCALARS:
        return of_model(type_name)
    kind = _SCALARS[type_name]
    return Schema(_KINDS.get((kind, name), kind))


_SENT_AS_NULL = {
    *("lastProbeTime", "lastTransitionTime", "lastHeartbeatTime", "lastUpdateTime", "eventTime"),
    *("firstTimestamp", "lastTimestamp", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
}
"""Instants that Kubernetes writes even where they are not set."""
_EMPTY: tuple[Any, ...] = (None, "", [])
_BITS = {"integer": 31, "int64": 63}
_TYPES: dict[str, tuple[type, ...]] = {
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
            settled = _settled(field, value, f"{path}{name}", unknown)
            if settled is not value:
                changed[name] = settled
    for name, value in changed.items():
        if value is None:
            del obj[name]
        else:
            obj[name] = value


def _settled(field: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    """Bring one value into the form of its field. Raises StatusError for another type."""
    item = field.item
    match field.kind:
        case "struct" if isinstance(value, dict):
            _struct(field, value, f"{path}.", unknown)
        case "list" if isinstance(value, list) and item is not None:
            for index, element in enumerate(value):
                empty = element is None and item.kind == "struct"
                value[index] = {} if empty else _settled(item, element, f"{path}[{index}]", unknown)
        case "map" if isinstance(value, dict) and item is not None:
            for key, element in value.items():
                empty = element is None and item.kind == "string"
                value[key] = "" if empty else _settled(item, element, f"{path}.{key}", unknown)
        case "struct" | "list" | "map":
            raise _mismatch(value, field.kind, path)
        case _:
            return _scalar(field.kind, value, path)
    return value


def _scalar(kind: str, value: Any, path: str) -> Any:
    """A value that is neither struct, list nor map, a quantity as text. Raises StatusError."""
    if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
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
