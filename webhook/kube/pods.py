"""Facts about pods and workloads that more than one package asks for. Pure.

Has a pod ended, whose is it, does its PriorityClass speak for it; which workloads there are, with which templates.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import Condition, ObjectMeta, OwnerReference
from webhook.kube.objects.pod import Pod, PodDisruptionBudgetStatus
from webhook.kube.selectors import integer

POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' annotation of pods: which of them a ReplicaSet removes first, those of the lowest cost."""
TEMPLATE_HASH = "pod-template-hash"
"""The label by which the pods of a Deployment's ReplicaSets are told apart."""
RESIZE_PENDING = "PodResizePending"
"""The condition of a pod on a node that wants to grow or to shrink, and may not yet."""
SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment")
"""Kubernetes' own kinds with a scale; others, such as Job and DaemonSet, have none."""
SYNC_FAILED = "SyncFailed"
"""The reason of a budget's condition if the disruption controller cannot count its pods."""
_LONGEST_KIND, _LONGEST_NAME = 63, 253
"""Characters that the kind and the name of an object have at most; the API server takes any text as an owner's."""


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended and holds no more room (kube-scheduler's `IsPodTerminal`)."""
    return pod.status.phase in ("Succeeded", "Failed")


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that is the object's controller (`GetControllerOf`), None if it has none."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def workload_of(pod: Pod) -> str:
    """`Kind/namespace/name` of the workload a pod belongs to, empty for a bare pod.

    A ReplicaSet's pods count for the Deployment they carry the
    `pod-template-hash` of, so that a rollout's two ReplicaSets share one rate.
    """
    meta, owner = pod.metadata, controller_of(pod.metadata)
    if owner is None:
        return ""
    return workload_name(owner.kind, owner.name, meta.namespace, meta.labels or {})


def workload_name(kind: str, name: str, namespace: str, labels: Mapping[str, str]) -> str:
    """`workload_of` a pod with these labels and a controller of that kind and name; empty for none."""
    if not kind or len(kind) > _LONGEST_KIND or len(name) > _LONGEST_NAME:
        return ""
    if "/" in kind or not (kind + name).isprintable():
        return ""
    revision = labels.get(TEMPLATE_HASH)
    if kind == "ReplicaSet" and revision and name.endswith(f"-{revision}"):
        kind, name = "Deployment", name[: -len(revision) - 1]
    return f"{kind}/{namespace}/{name}"


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """As Kubernetes reads it: an int32 without plus, or leading zeros but after a minus; anything else counts as 0."""
    text = annotations.get(POD_DELETION_COST, "0")
    if text[:1] not in tuple("-123456789"):
        return 0
    return integer(text, 32) or 0


class WorkloadKind(NamedTuple):
    """A kind of object that makes pods; `template` is the path to the template of its pods."""

    kind: str
    template: tuple[str, ...] = ("spec", "template")


WORKLOADS = {
    ("apps", "deployments"): WorkloadKind("Deployment"),
    ("apps", "statefulsets"): WorkloadKind("StatefulSet"),
    ("apps", "daemonsets"): WorkloadKind("DaemonSet"),
    ("apps", "replicasets"): WorkloadKind("ReplicaSet"),
    ("", "replicationcontrollers"): WorkloadKind("ReplicationController"),
    ("batch", "jobs"): WorkloadKind("Job"),
    ("batch", "cronjobs"): WorkloadKind("CronJob", ("spec", "jobTemplate", "spec", "template")),
}
"""By group and resource."""

TEMPLATE_PATHS = tuple(dict.fromkeys(workload.template for workload in WORKLOADS.values()))
"""Every place in which some workload keeps its template."""

_BY_RESOURCE = {resource: workload for (_, resource), workload in WORKLOADS.items()}


def template_of(obj: dict[str, Any] | None, resource: str) -> dict[str, Any] | None:
    """The pod template of an object of this resource, such as `deployments`; None if it has none."""
    workload = _BY_RESOURCE.get(resource)
    if workload is None:
        return None
    part: Any = obj
    for key in workload.template:
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else None


def resize_pending(pod: Pod) -> str:
    """Why a pod's resize in place is not granted yet, `Deferred` or `Infeasible`; empty if none is pending.

    The condition's status is not read, as by kube-scheduler (`IsPodResizeInfeasible`).
    """
    pending = _resize_condition(pod)
    return pending.reason if pending else ""


def is_deferred(pod: Pod) -> bool:
    """Whether the pod is on a node and wants to grow, for which there is no room now."""
    told = _resize_condition(pod) if pod.spec.node_name else None
    return told is not None and told.reason == "Deferred" and told.status != "False"


def _resize_condition(pod: Pod) -> Condition | None:
    for condition in pod.status.conditions or ():
        if condition.type == RESIZE_PENDING:
            return condition
    return None


def sync_failure(status: PodDisruptionBudgetStatus) -> Condition | None:
    """The condition why a budget's pods cannot be counted, if so; it allows nothing then."""
    conditions = status.conditions or ()
    return next((row for row in conditions if row.reason == SYNC_FAILED), None)


def speaking(named: PriorityClass | None, priority: int | None) -> PriorityClass | None:
    """The class of that name if it speaks for an object of this `spec.priority` (absent: 0), which is its value.

    The name alone says nothing (docs/semantics.md C7): a class can be deleted and made again with another value and
    other annotations, while its pods keep their priority.
    """
    if named is not None and named.value == (priority or 0):
        return named
    return None


def silence(name: str, named: PriorityClass | None, priority: int | None) -> str:
    """Why the class of this name is not `speaking` for an object of this priority."""
    if named is None:
        return f"PriorityClass {name} does not exist"
    values = f"its value is {named.value}, and the priority is {priority or 0}"
    return f"PriorityClass {name} was made again: {values}"
