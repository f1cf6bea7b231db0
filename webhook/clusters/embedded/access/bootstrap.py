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
CLASS_DESCRIPTIONS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, "
    "but can be moved to another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}
_READ, _WRITE = "get,list,watch", "create,delete,patch,update"
_EVENTS = "events events.events.k8s.io"
_WORKLOADS = (
    "configmaps persistentvolumeclaims pods replicationcontrollers services serviceaccounts "
    "daemonsets.apps deployments.apps replicasets.apps statefulsets.apps "
    "deployments.apps/scale replicasets.apps/scale statefulsets.apps/scale cronjobs.batch jobs.batch "
    "poddisruptionbudgets.policy"
)
_VIEW = f"""
  {_READ} {_WORKLOADS} bindings limitranges namespaces pods/status resourcequotas {_EVENTS}"""

_STAND_INS = "Group/system:nodes Group/system:serviceaccounts:kube-system User/system:kube-scheduler"
_MANAGER = "User/system:kube-controller-manager"
_ROLES = f"""
cluster-admin Group/system:masters {_STAND_INS} {_MANAGER}
  * *.* /*
system:discovery Group/system:authenticated
  get /api /api/* /apis /apis/* /openapi /openapi/*
system:basic-user Group/system:authenticated
  create selfsubjectreviews.authentication.k8s.io
view {_VIEW}
edit {_VIEW}
  {_WRITE} {_WORKLOADS} {_EVENTS}
  create pods/eviction serviceaccounts/token
  {_READ},{_WRITE} secrets leases.coordination.k8s.io
"""
"""A ClusterRole a block: its name and whom it is bound to, then verbs and what they are for, as kubectl writes it."""


def bootstrap_objects(accounts: Iterable[str]) -> Iterator[Object]:
    """Yield every object of a new cluster, with these service accounts in kube-system, as they can be created."""
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name in accounts:
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}}
    for name, description in CLASS_DESCRIPTIONS.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": SYSTEM_CLASSES[name],
            "description": description,
        }
    for block in _ROLES.strip().replace("\n  ", "\0").splitlines():
        head, *rules = block.split("\0")
        name, *bound = head.split()
        of_bootstrap = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        kind, rbac = "ClusterRole", {"apiVersion": f"{RBAC}/v1", "metadata": of_bootstrap}
        yield {**rbac, "kind": kind, "rules": [rule for line in rules for rule in _rules(*line.split())]}
        subjects: list[Object] = [
            {"kind": kind, "apiGroup": RBAC, "name": subject} for kind, subject in (text.split("/") for text in bound)
        ]
        if subjects:
            reference = {"apiGroup": RBAC, "kind": kind, "name": name}
            yield {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}


def _rules(verbs: str = "", *names: str) -> Iterator[Object]:
    """Yield the rules for what is named: paths, or `resource.group/subresource`."""
    for name in names:
        given = {"verbs": verbs.split(",")}
        if name.startswith("/"):
            yield {**given, "nonResourceURLs": [name]}
        else:
            whole, slash, subresource = name.partition("/")
            resource, _, group = whole.partition(".")
            yield {**given, "apiGroups": [group], "resources": [f"{resource}{slash}{subresource}"]}
