"""What a new cluster holds from the start: namespaces, the two system classes, and the roles RBAC begins with.

The roles have Kubernetes' names; the rules of `edit` and `view` are what people expect of them for the resources served
here. Kubernetes' own parts may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.clusters.embedded.object_types.validation import SYSTEM_CLASSES
from webhook.clusters.embedded.protocol.api_resources import Object

RBAC = "rbac.authorization.k8s.io"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def _rule(verbs: str, resources: str, *groups: str) -> Object:
    """A rule for resources of these groups, by default of the core one."""
    return {"verbs": verbs.split(), "apiGroups": list(groups) or [""], "resources": resources.split()}


_READ, _WRITE = "get list watch", "create delete patch update"
_GROUPS = ("", "apps", "batch", "events.k8s.io", "policy")
_WORKLOADS = (
    "configmaps persistentvolumeclaims pods replicationcontrollers services serviceaccounts daemonsets deployments "
    "replicasets statefulsets deployments/scale replicasets/scale statefulsets/scale cronjobs jobs "
    "poddisruptionbudgets events"
)
_VIEW = _rule(_READ, f"{_WORKLOADS} bindings limitranges namespaces pods/status resourcequotas", *_GROUPS)
_ROLES = {
    "cluster-admin": [_rule("*", "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "system:discovery": [
        {"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]}
    ],
    "system:basic-user": [_rule("create", "selfsubjectreviews", "authentication.k8s.io")],
    "view": [_VIEW],
    "edit": [
        _VIEW,
        _rule(_WRITE, _WORKLOADS, *_GROUPS),
        _rule("create", "pods/eviction serviceaccounts/token"),
        _rule(f"{_READ} {_WRITE}", "secrets leases", "", "coordination.k8s.io"),
    ],
}
_BOUND = {
    "cluster-admin": [
        *(("Group", name) for name in ("system:masters", "system:nodes", "system:serviceaccounts:kube-system")),
        *(("User", f"system:kube-{name}") for name in ("scheduler", "controller-manager")),
    ],
    "system:discovery": [("Group", "system:authenticated")],
    "system:basic-user": [("Group", "system:authenticated")],
}
"""ClusterRoles, and to whom they are bound everywhere."""


def bootstrap_objects(accounts: Iterable[str]) -> Iterator[Object]:
    """Yield every object of a new cluster, with these service accounts in kube-system, as they can be created."""
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name in accounts:
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}}
    for name, value in SYSTEM_CLASSES.items():
        named = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        yield {**named, "value": value, "description": "Used for system critical pods."}
    rbac = {"apiVersion": f"{RBAC}/v1"}
    for name, rules in _ROLES.items():
        yield {**rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    for name, bound in _BOUND.items():
        subjects = [{"kind": kind, "apiGroup": RBAC, "name": subject} for kind, subject in bound]
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        binding = {**rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name}}
        yield {**binding, "roleRef": reference, "subjects": subjects}
