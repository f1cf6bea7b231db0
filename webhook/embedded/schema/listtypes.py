"""How lists and maps of Kubernetes merge: facts its OpenAPI carries and its clients' models do not.

A list is a map by its keys, a set, or atomic (replaced as a whole); likewise some structs and maps are atomic.
Strategic merge patch knows one merge key for a list, server-side apply may know several.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ListType", "is_atomic", "is_int64", "is_quantity", "list_type"]


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


_BY_FIELD = {
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
_BY_MODEL = {
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


def list_type(model: str, field: str) -> ListType:
    """How the list in a field of a model merges."""
    return _BY_MODEL.get((model, field)) or _BY_FIELD.get(field, _ATOMIC)


def is_atomic(model: str, field: str, of: str) -> bool:
    """Whether a struct (of the model `of`) or map in a field of a model is replaced as a whole."""
    return of in _ATOMIC_MODELS or (model, field) in _ATOMIC_MAPS


def is_int64(field: str) -> bool:
    """Whether a whole number has 64 bits rather than 32."""
    return field in _INT64


def is_quantity(field: str) -> bool:
    """Whether a string, or the values of a map, are quantities such as 100m or 1Gi."""
    return field in _QUANTITIES
