"""Which pods are the reconciler's: marked by the webhook, of a managed class, found unschedulable by the scheduler."""

from __future__ import annotations

from webhook.kube.instants import InstantError, epoch
from webhook.kube.objects import Pod
from webhook.policy.model import MANAGED, MARK, PreemptionPolicy

__all__ = ["ineligible_reason", "instant", "is_marked", "lacks_post_filter", "unschedulable_since"]


def is_marked(pod: Pod) -> bool:
    """Whether the webhook handed this pod's preemption to the reconciler."""
    return (pod.metadata.labels or {}).get(MARK) == MANAGED


def ineligible_reason(pod: Pod, policy: PreemptionPolicy | None) -> str:
    """Why the reconciler leaves this pod alone; empty if it is a preemptor to act for.

    `policy` is the PreemptionPolicy that manages the pod's class, None if there is none. The policy's delay is not
    looked at: it is a matter of when, not of whether.
    """
    if not is_marked(pod):
        return f"it does not carry the label {MARK}={MANAGED}, which only the webhook gives"
    if policy is None:
        return f"no PreemptionPolicy manages its priority class {pod.spec.priority_class_name!r}"
    if pod.spec.scheduler_name not in policy.preemptors.scheduler_names:
        names = ", ".join(map(repr, policy.preemptors.scheduler_names))
        return f"policy {policy.name} acts for pods of {names}; this one is of {pod.spec.scheduler_name!r}"
    if pod.spec.preemption_policy != "Never":
        return "its preemptionPolicy is not Never, so kube-scheduler preempts for it by itself"
    return _progress(pod)


def lacks_post_filter(pod: Pod) -> bool:
    """Whether the scheduler's profile runs no PostFilter plugin, judged by what it last said of the pod.

    kube-scheduler appends what PostFilter found ("preemption: …") to the message of `PodScheduled`.
    """
    said = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    return said is not None and said.reason == "Unschedulable" and "preemption:" not in (said.message or "")


def unschedulable_since(pod: Pod) -> float | None:
    """Seconds since the epoch since when the scheduler finds no node; None if it does not say so."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return instant(condition.last_transition_time or pod.metadata.creation_timestamp)
    return None


def _progress(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "it is being deleted"
    if pod.spec.node_name:
        return f"it is bound to node {pod.spec.node_name}"
    if pod.status.phase not in ("", "Pending"):
        return f"its phase is {pod.status.phase}, not Pending"
    if pod.spec.scheduling_gates:
        return "it has scheduling gates"
    if unschedulable_since(pod) is None:
        return "the scheduler has not found it unschedulable"
    return ""


def instant(text: str | None) -> float:
    """Seconds since the epoch, 0 for what is no instant."""
    try:
        return epoch(text or "")
    except InstantError:
        return 0.0
