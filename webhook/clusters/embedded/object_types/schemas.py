"""The shape of every kind, taken from the official client's models when a kind is first used.

How lists and maps merge stands in Kubernetes' OpenAPI and not in those models: the tables here hold it. A list is a
map by its keys, a set, or atomic (replaced as a whole); likewise some structs and maps are atomic. Strategic merge
patch knows one merge key for a list, server-side apply may know several.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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
