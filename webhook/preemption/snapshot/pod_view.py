"""What the snapshot reads off a pod: what selectors and rules see, when it started, why it goes."""

from __future__ import annotations

import math
from typing import NamedTuple

from webhook.kube.instants import InstantError, epoch, epoch_or
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.preemption.snapshot.amounts import ClusterError, int32

KEPT_ANNOTATIONS = frozenset({CAN_BE_PREEMPTED, PROTECTION_DURATION, "volcano.sh/preemptable"})
"""The pod annotations kept unless a policy names others (`Rules.annotations`)."""

BY_SCHEDULER, BY_EVICTION = 1, 2
"""Who set DisruptionTarget: kube-scheduler, the Eviction API or a reconciler."""

HEALTHY, UNREADY, STARTING = range(3)
"""A pod to the Eviction API: its budget guards it; it is not ready; its phase is still Pending."""


class Identity(NamedTuple):
    """What selectors see: Kubernetes' own the labels now, policies those at creation."""

    namespace: str
    labels: dict[str, str]
    labels_at_creation: dict[str, str]


class Owner(NamedTuple):
    """A pod's controller; empty strings if it has none."""

    kind: str
    name: str
    uid: str


class Profile(NamedTuple):
    """What rules on victims see of a pod beside its identity, with `annotations` kept."""

    priority_class_name: str
    priority: int
    scheduler_name: str
    annotations: tuple[tuple[str, str], ...]


_NO_OWNER = Owner("", "", "")
_DEFAULT_GRACE = 30
_LONGEST_GRACE = 10 * 366 * 86_400


def priority_of(pod: Pod) -> int:
    """The pod's priority, 0 without one. Raises ClusterError for what is no int32."""
    priority = pod.spec.priority or 0
    if -(2**31) <= priority < 2**31:  # no place is put into words for nothing
        return priority
    return int32(priority, f"pod {key_of(pod)}: spec.priority")


def start_of(pod: Pod) -> float:
    """When the pod started, in seconds, else infinite. Raises ClusterError for no instant.

    Who writes `pods/status` may write anything: no pod starts before it was made, or on no node.
    """
    if pod.status.start_time is None or not pod.spec.node_name:
        return math.inf
    try:
        return max(epoch(pod.status.start_time), created_at(pod.metadata, -math.inf))
    except InstantError as error:
        raise ClusterError(f"pod {key_of(pod)}: status.startTime: {error}") from error


def created_at(meta: ObjectMeta, otherwise: float) -> float:
    """When the API server made the pod, in seconds, else `otherwise`. Nobody else writes that."""
    return epoch_or(meta.creation_timestamp, otherwise) if meta.creation_timestamp else otherwise


def owner_of(pod: Pod) -> Owner:
    """The pod's controller, as the snapshot keeps it.

    A static pod, never a victim, has its Node. Who may patch a pod can name one, too.
    But the API server gives a ServiceAccount to every other pod, and nobody changes that.
    """
    owner = controller_of(pod.metadata)
    if owner and owner.kind == "Node" and pod.spec.service_account_name:
        return _NO_OWNER
    return Owner(owner.kind, owner.name, owner.uid) if owner else _NO_OWNER


def profile_of(pod: Pod, kept: frozenset[str]) -> Profile:
    """The pod's profile, with its annotations of the `kept` keys."""
    annotations = pod.metadata.annotations
    pairs = tuple(sorted((k, v) for k, v in annotations.items() if k in kept)) if annotations else ()
    return Profile(pod.spec.priority_class_name, pod.spec.priority or 0, pod.spec.scheduler_name, pairs)


def grace_of(pod: Pod) -> int:
    """How many seconds the pod gets to end, as it says or by Kubernetes' default.

    The API server takes any int64, also beyond all instants: at most ten years count.
    """
    seconds = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE if seconds is None else min(seconds, _LONGEST_GRACE)


def health_of(pod: Pod) -> int:
    """How far the pod has come, as the Eviction API asks before it asks a budget."""
    if pod.status.phase == "Pending":
        return STARTING
    for condition in pod.status.conditions or ():
        if condition.type == "Ready" and condition.status == "True":
            return HEALTHY
    return UNREADY


def disruption_of(pod: Pod) -> int:
    """Who marked the pod as a DisruptionTarget, 0 for nobody; the first condition counts."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            if condition.status != "True":
                return 0
            return BY_SCHEDULER if condition.reason == "PreemptionByScheduler" else BY_EVICTION
    return 0
