"""Whether the preemptor may preempt at all (docs/semantics.md D1, kube-scheduler's `PodEligibleToPreemptOthers`)."""

from __future__ import annotations

from webhook.preemption.filters.filtering import Failures
from webhook.preemption.filters.pod_info import PodInfo
from webhook.preemption.snapshot.pod_view import BY_SCHEDULER
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

__all__ = ["why_not_eligible"]


def why_not_eligible(snapshot: Snapshot, incoming: PodInfo, rules: Rules, failures: Failures) -> str:
    """The reason in Kubernetes' words, if they have any; empty if the preemptor is eligible.

    Kubernetes asks after a failure, so a pod that fits on every node is eligible.
    """
    if not failures.code[snapshot.nodes.known()].any():
        return ""
    if incoming.pod.spec.preemption_policy == "Never" and not rules.never_may_preempt:
        return "not eligible due to preemptionPolicy=Never."
    if incoming.beyond:
        return f"not eligible: {incoming.beyond}."
    node = snapshot.nodes.find(incoming.pod.status.nominated_node_name)
    if node is None or (failures.code[node] > 0 and not failures.resolvable[node]):
        return ""
    if any(_makes_room(snapshot, row, incoming, rules) for row in snapshot.pods.on_node(node)):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def _makes_room(snapshot: Snapshot, row: int, incoming: PodInfo, rules: Rules) -> bool:
    """Whether the pod is a victim on its way out; a policy's victims go by the Eviction API and are marked by it."""
    pods = snapshot.pods
    if not pods.terminating[row] or pods.priority[row] >= incoming.priority:
        return False
    disruption = int(pods.disruption[row])
    return disruption == BY_SCHEDULER or (disruption > 0 and rules.policy is not None)
