"""What a new cluster holds from the start: namespaces, the two system classes, and the roles RBAC begins with.

The roles have Kubernetes' names; their rules are what the stand-ins use and what people expect of `edit` and `view`
for the resources served here.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    "configmaps endpoints persistentvolumeclaims pods replicationcontrollers services serviceaccounts "
    "controllerrevisions.apps daemonsets.apps deployments.apps replicasets.apps statefulsets.apps "
    "deployments.apps/scale replicasets.apps/scale statefulsets.apps/scale cronjobs.batch jobs.batch "
    "poddisruptionbudgets.policy"
)
_VIEW = f"""
  {_READ} {_WORKLOADS} bindings limitranges namespaces pods/status resourcequotas {_EVENTS}"""


def _of_pods(resource: str, more: str = "") -> str:
    """What the controller of a workload needs that makes pods."""
    name, _, group = resource.partition(".")
    return f"""
  create,patch,update {_EVENTS}
  create,delete,get,list,patch,watch pods
  {_READ},patch,update {resource}
  patch,update {name}.{group}/status {name}.{group}/finalizers
  {more}"""


_ROLES = f"""
cluster-admin Group/system:masters
  * *.* /*
system:discovery Group/system:authenticated
  get /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
system:public-info-viewer Group/system:authenticated Group/system:unauthenticated
  get /healthz /livez /readyz /version /version/
system:basic-user Group/system:authenticated
  create selfsubjectaccessreviews.authorization.k8s.io selfsubjectreviews.authentication.k8s.io
system:kube-scheduler User/system:kube-scheduler
  create,patch,update {_EVENTS}
  {_READ} nodes pods persistentvolumeclaims persistentvolumes namespaces
  delete pods
  create pods/binding bindings
  patch,update pods/status
  {_READ} csinodes.storage.k8s.io storageclasses.storage.k8s.io poddisruptionbudgets.policy
  {_READ} priorityclasses.scheduling.k8s.io
system:kube-controller-manager User/system:kube-controller-manager
  {_READ} *.*
system:node Group/system:nodes
  create,patch,update {_EVENTS}
  create,{_READ},patch,update nodes
  patch,update nodes/status pods/status
  create,delete,{_READ} pods
system:controller:replicaset-controller {_of_pods("replicasets.apps")}
system:controller:statefulset-controller {_of_pods("statefulsets.apps")}
system:controller:daemon-set-controller {_of_pods("daemonsets.apps", f"{_READ} nodes")}
system:controller:job-controller {_of_pods("jobs.batch")}
system:controller:deployment-controller
  create,patch,update {_EVENTS}
  {_READ},patch,update deployments.apps
  patch,update deployments.apps/status deployments.apps/finalizers
  {_READ},create,delete,patch,update replicasets.apps
  {_READ} pods
system:controller:disruption-controller
  create,patch,update {_EVENTS}
  {_READ} pods replicationcontrollers deployments.apps replicasets.apps statefulsets.apps poddisruptionbudgets.policy
  patch,update poddisruptionbudgets.policy/status
system:controller:namespace-controller
  {_READ},delete namespaces
  update namespaces/finalize namespaces/status
  delete,get,list *.*
system:controller:generic-garbage-collector
  {_READ},delete,patch,update *.*
  create,patch,update {_EVENTS}
view {_VIEW}
edit {_VIEW}
  {_WRITE} {_WORKLOADS} {_EVENTS}
  create pods/eviction serviceaccounts/token
  {_READ},{_WRITE} secrets leases.coordination.k8s.io
"""
"""A ClusterRole a block: its name and whom it is bound to, then verbs and what they are for, as kubectl writes it.

A role of a controller is bound to the service account of that name in kube-system.
"""


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
    for block in _ROLES.strip().replace("\n  ", "\0").splitlines():
        head, *rules = block.split("\0")
        name, *bound = head.split()
        of_bootstrap = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        kind, rbac = "ClusterRole", {"apiVersion": f"{RBAC}/v1", "metadata": of_bootstrap}
        yield {**rbac, "kind": kind, "rules": [rule for line in rules for rule in _rules(*line.split())]}
        subjects: list[Object] = [
            {"kind": kind, "apiGroup": RBAC, "name": subject} for kind, subject in (text.split("/") for text in bound)
        ]
        if name.startswith("system:controller:"):
            account = {"name": name.removeprefix("system:controller:"), "namespace": "kube-system"}
            yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
            subjects = [{"kind": "ServiceAccount", **account}]
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
