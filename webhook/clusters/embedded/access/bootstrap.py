"""What a new cluster holds from the start: namespaces, the two system classes, and the roles RBAC begins with.

The roles have Kubernetes' names; their rules are what the stand-ins use and what people expect of `edit` and `view`
for the resources served here.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.clusters.embedded.object_types.validation import SYSTEM_CLASSES
from webhook.clusters.embedded.protocol.api_resources import Object

RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "deletecollection", "patch", "update"]
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
CLASS_DESCRIPTIONS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, "
    "but can be moved to another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


def _rule(groups: str, resources: str, verbs: list[str]) -> Object:
    return {"verbs": verbs, "apiGroups": groups.split(","), "resources": resources.split()}


_EVENTS = _rule(",events.k8s.io", "events", ["create", "patch", "update"])
_PODS = _rule("", "pods", ["create", "delete", "get", "list", "patch", "watch"])


def _of_pods(group: str, plural: str) -> list[Object]:
    """What the controller of a workload needs that makes pods."""
    return [
        _EVENTS,
        _PODS,
        _rule(group, plural, [*READ, "patch", "update"]),
        _rule(group, f"{plural}/status {plural}/finalizers", ["update", "patch"]),
    ]


CONTROLLERS: dict[str, list[Object]] = {
    "replicaset-controller": _of_pods("apps", "replicasets"),
    "statefulset-controller": _of_pods("apps", "statefulsets"),
    "daemon-set-controller": [*_of_pods("apps", "daemonsets"), _rule("", "nodes", READ)],
    "job-controller": _of_pods("batch", "jobs"),
    "deployment-controller": [
        _EVENTS,
        _rule("apps", "deployments", [*READ, "patch", "update"]),
        _rule("apps", "deployments/status deployments/finalizers", ["update", "patch"]),
        _rule("apps", "replicasets", [*READ, "create", "delete", "patch", "update"]),
        _rule("", "pods", READ),
    ],
    "disruption-controller": [
        _EVENTS,
        _rule("", "pods replicationcontrollers", READ),
        _rule("apps", "deployments replicasets statefulsets", READ),
        _rule("policy", "poddisruptionbudgets", READ),
        _rule("policy", "poddisruptionbudgets/status", ["update", "patch"]),
    ],
    "namespace-controller": [
        _rule("", "namespaces", [*READ, "delete"]),
        _rule("", "namespaces/finalize namespaces/status", ["update"]),
        _rule("*", "*", ["delete", "deletecollection", "get", "list"]),
    ],
    "generic-garbage-collector": [_rule("*", "*", [*READ, "delete", "patch", "update"]), _EVENTS],
}
"""Service accounts of kube-system, by name, and the rules of `system:controller:NAME`."""

_SCHEDULER = [
    _EVENTS,
    _rule("", "nodes pods persistentvolumeclaims persistentvolumes namespaces", READ),
    _rule("", "pods", ["delete"]),
    _rule("", "pods/binding bindings", ["create"]),
    _rule("", "pods/status", ["patch", "update"]),
    _rule("storage.k8s.io", "csinodes storageclasses", READ),
    _rule("policy", "poddisruptionbudgets", READ),
    _rule("scheduling.k8s.io", "priorityclasses", READ),
]
_NODE = [
    _EVENTS,
    _rule("", "nodes", ["create", *READ, "patch", "update"]),
    _rule("", "nodes/status pods/status", ["patch", "update"]),
    _rule("", "pods", ["create", "delete", *READ]),
]
_WORKLOADS = [
    _rule("", "configmaps endpoints persistentvolumeclaims pods replicationcontrollers services serviceaccounts", []),
    _rule("apps", "controllerrevisions daemonsets deployments replicasets statefulsets", []),
    _rule("apps", "deployments/scale replicasets/scale statefulsets/scale", []),
    _rule("batch", "cronjobs jobs", []),
    _rule("policy", "poddisruptionbudgets", []),
]
_VIEW = [
    *({**rule, "verbs": READ} for rule in _WORKLOADS),
    _rule("", "bindings limitranges namespaces pods/status resourcequotas", READ),
    _rule(",events.k8s.io", "events", READ),
]
_EDIT = [
    *_VIEW,
    *({**rule, "verbs": WRITE} for rule in _WORKLOADS),
    _rule("", "pods/eviction serviceaccounts/token", ["create"]),
    _rule("", "secrets", [*READ, *WRITE]),
    _rule(",events.k8s.io", "events", WRITE),
    _rule("coordination.k8s.io", "leases", [*READ, *WRITE]),
]
_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]
_VERSION = ["/healthz", "/livez", "/readyz", "/version", "/version/"]


def bootstrap_objects() -> Iterator[Object]:
    """Yield every object of a new cluster, in an order in which they can be created."""
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name, description in CLASS_DESCRIPTIONS.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": SYSTEM_CLASSES[name],
            "description": description,
        }
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    yield from _bound("cluster-admin", [anything, _paths(["*"], ["*"])], _group("system:masters"))
    yield from _bound("system:discovery", [_paths(_DISCOVERY + _VERSION, ["get"])], _group("system:authenticated"))
    yield from _bound(
        "system:public-info-viewer",
        [_paths(_VERSION, ["get"])],
        _group("system:authenticated"),
        _group("system:unauthenticated"),
    )
    reviews = [
        _rule("authorization.k8s.io", "selfsubjectaccessreviews", ["create"]),
        _rule("authentication.k8s.io", "selfsubjectreviews", ["create"]),
    ]
    yield from _bound("system:basic-user", reviews, _group("system:authenticated"))
    yield from _bound(
        "system:kube-scheduler", _SCHEDULER, {"kind": "User", "apiGroup": RBAC, "name": "system:kube-scheduler"}
    )
    manager = {"kind": "User", "apiGroup": RBAC, "name": "system:kube-controller-manager"}
    yield from _bound("system:kube-controller-manager", [_rule("*", "*", READ)], manager)
    yield from _bound("system:node", _NODE, _group("system:nodes"))
    for name, rules in CONTROLLERS.items():
        account = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
        yield from _bound(f"system:controller:{name}", rules, account)
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}}
    yield _cluster_role("view", _VIEW)
    yield _cluster_role("edit", _EDIT)


def _bound(name: str, rules: list[Object], *subjects: Object) -> Iterator[Object]:
    yield _cluster_role(name, rules)
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": list(subjects),
    }


def _cluster_role(name: str, rules: list[Object]) -> Object:
    metadata = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _paths(urls: list[str], verbs: list[str]) -> Object:
    return {"verbs": verbs, "nonResourceURLs": urls}


def _group(name: str) -> Object:
    return {"kind": "Group", "apiGroup": RBAC, "name": name}
