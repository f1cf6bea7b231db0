"""The shape of every kind, taken from the official client's models when a kind is first used.

How lists and maps merge stands in Kubernetes' OpenAPI and not in those models: the tables here hold it. A list is a
map by its keys, a set, or atomic (replaced as a whole); likewise some structs and maps are atomic. Strategic merge
patch knows one merge key for a list, server-side apply may know several.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from kubernetes.client import models

from webhook.clusters.embedded.protocol.api_resources import ApiResource

_SCALARS = {
    "bytes": "bytes",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "object": "any",
}
_INT_OR_STRING = {"maxSurge", "maxUnavailable", "minAvailable", "port", "targetPort"}
_LIST = re.compile(r"List\[(.*)\]")
_MAP = re.compile(r"Dict\[str, (.*)\]")


class ListType(NamedTuple):
    """`keys` of a list that is a map; `is_set` for a list of distinct values; neither: atomic."""

    keys: tuple[str, ...] = ()
    merge_key: str = ""
    is_set: bool = False
    retain_keys: bool = False


_ATOMIC = ListType()
_SET = ListType(is_set=True)


def _map(*keys: str, retain_keys: bool = False) -> ListType:
    return ListType(keys, keys[0], retain_keys=retain_keys)


_LISTS = {
    "addresses": _map("type"),
    "claims": _map("name"),
    "conditions": _map("type"),
    "containers": _map("name"),
    "env": _map("name"),
    "ephemeralContainers": _map("name"),
    "finalizers": _SET,
    "hostAliases": _map("ip"),
    "hostIPs": ListType(merge_key="ip"),
    "imagePullSecrets": _map("name"),
    "initContainers": _map("name"),
    "matchConditions": _map("name"),
    "ownerReferences": _map("uid"),
    "podCIDRs": _SET,
    "podIPs": _map("ip"),
    "ports": _map("containerPort", "protocol"),
    "resourceClaims": _map("name"),
    "schedulingGates": _map("name"),
    "secrets": _map("name"),
    "topologySpreadConstraints": _map("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": _map("devicePath"),
    "volumeMounts": _map("mountPath"),
    "volumes": _map("name", retain_keys=True),
    "webhooks": _map("name"),
}
_LISTS_OF_MODELS = {
    ("V1EndpointSubset", "addresses"): _ATOMIC,
    ("V1EndpointSubset", "ports"): _ATOMIC,
    ("V1JobStatus", "conditions"): ListType(merge_key="type"),
    ("V1NamespaceSpec", "finalizers"): _ATOMIC,
    ("V1LoadBalancerIngress", "ports"): _ATOMIC,
    ("V1ServiceAccount", "imagePullSecrets"): ListType(merge_key="name"),
    ("V1ServiceSpec", "ports"): _map("port", "protocol"),
}
_ATOMIC_MODELS = {
    "CoreV1TypedLocalObjectReference",
    "V1ConfigMapKeySelector",
    "V1LabelSelector",
    "V1LocalObjectReference",
    "V1NodeSelector",
    "V1NodeSelectorTerm",
    "V1ObjectFieldSelector",
    "V1ObjectReference",
    "V1ResourceFieldSelector",
    "V1RoleRef",
    "V1ScopeSelector",
    "V1SecretKeySelector",
    "V1SecretReference",
    "V1TopologySelectorTerm",
    "V1TypedLocalObjectReference",
    "RbacV1Subject",
}
_ATOMIC_MAPS = {
    ("V1PodSpec", "nodeSelector"),
    ("V1ReplicationControllerSpec", "selector"),
    ("V1ServiceSpec", "selector"),
}
_INT64 = {
    "activeDeadlineSeconds",
    "deletionGracePeriodSeconds",
    "expirationSeconds",
    "fsGroup",
    "generation",
    "gracePeriodSeconds",
    "observedGeneration",
    "remainingItemCount",
    "runAsGroup",
    "runAsUser",
    "sizeBytes",
    "startingDeadlineSeconds",
    "supplementalGroups",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
}
_QUANTITIES = {
    "allocatable",
    "allocatedResources",
    "capacity",
    "default",
    "defaultRequest",
    "divisor",
    "hard",
    "limits",
    "max",
    "maxLimitRequestRatio",
    "min",
    "overhead",
    "requests",
    "sizeLimit",
    "used",
}


class Schema:
    """One node.

    `kind` is struct, map, list, string, bytes, integer, int64, number, boolean, time, quantity, intstr or any.
    """

    __slots__ = ("atomic", "fields", "item", "kind", "lists", "model", "required")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.model = ""
        """The model of a struct, such as V1PodSpec."""
        self.fields: dict[str, Schema] = {}
        """Fields of a struct."""
        self.required: frozenset[str] = frozenset()
        self.item: Schema | None = None
        """Values of a map, items of a list."""
        self.lists = ListType()
        """How a list merges."""
        self.atomic = False
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
    schema = Schema("struct")
    schema.model = name
    model = getattr(models, name)
    for attribute, type_name in model.openapi_types.items():
        name_in_json = model.attribute_map[attribute]
        schema.fields[name_in_json] = _typed(name, name_in_json, type_name)
    required = [attribute for attribute, info in model.model_fields.items() if info.is_required()]
    schema.required = frozenset(model.attribute_map[attribute] for attribute in required)
    schema.atomic = name in _ATOMIC_MODELS
    return schema


def _typed(model: str, field: str, type_name: str) -> Schema:
    """The schema of the type that a model's field, or the items or values in it, have in the client."""
    if match := _LIST.fullmatch(type_name):
        schema = Schema("list")
        schema.item = _typed(model, field, match[1])
        schema.lists = _LISTS_OF_MODELS.get((model, field)) or _LISTS.get(field, _ATOMIC)
        return schema
    if match := _MAP.fullmatch(type_name):
        schema = Schema("map")
        schema.item = _typed(model, field, match[1])
        schema.atomic = (model, field) in _ATOMIC_MAPS
        return schema
    if type_name not in _SCALARS:
        return of_model(type_name)
    kind = _SCALARS[type_name]
    if kind == "string" and field in _QUANTITIES:
        return Schema("quantity")
    if kind == "integer" and field in _INT64:
        return Schema("int64")
    if kind == "any" and field in _INT_OR_STRING:
        return Schema("intstr")
    return Schema(kind)
