"""How long a plan may take: when it is given up if nothing happens, and when its preemptor may be bound elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable

from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.reconciler.clock import Now
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_devices import awaits_deallocation
from webhook.reconciler.plans.recheck import PlanContext
from webhook.reconciler.preemptors import grace_under


def time_for(victims: Iterable[Pod], policy: PreemptionPolicy) -> float:
    """Seconds a plan may take: the policy's, from when notices are over and the last victim has had its time to end.

    If it were given up earlier, they would have ended for nothing, and others after them.
    """
    graces = [grace_under(policy, victim) for victim in victims]
    return policy.plan_timeout + (policy.victims.notice + max(graces) if graces else 0.0)


def time_limit(plan: Plan, context: PlanContext, timeout: float) -> float:
    """When a plan is given up if nothing happens, in monotonic seconds; infinite if others have to act first.

    These are the preemptor's scheduler, and kube-controller-manager while it has not taken a victim's devices back.

    The time counts from when the room was there, and only while the preemptor's scheduler is seen at work: if that is
    away, no node is to blame. Before, it counts from when the last notice is over, when the last pod that leaves the
    node has had its time to end.
    """
    state = context.evaluator.state
    if awaits_deallocation(state, plan):
        return math.inf
    if math.isfinite(plan.roomy) and any(math.isinf(sibling.roomy) for sibling in context.plans.siblings(plan)):
        return math.inf  # it waits for the room of another member, whose time counts
    if math.isinf(plan.roomy):
        beside = [plan, *context.plans.on_node(plan.record.node)]
        asked = [
            (victim, other.ends[victim.uid])
            for other in beside
            for victim in other.record.victims
            if victim.uid in other.ends
        ]
        ends = [end for victim, end in asked if state.pod_of(victim.key, victim.uid) is not None]
        told = [until for uid, until in plan.notices.items() if plan.needs(uid)]
        return max(plan.started, _room_comes(plan, context), *ends, *told) + timeout
    pod = state.pods.get(plan.key)
    if plan.record.resize:
        return plan.roomy + timeout  # the kubelet tries again as soon as a pod has left
    return context.evaluator.schedulers.chance(pod, plan.roomy, timeout) + timeout if pod is not None else math.inf


def fits_elsewhere(plan: Plan, context: PlanContext) -> bool:
    """Whether its scheduler finds room for the preemptor now, though none comes up on the node of its plan."""
    evaluator, pod = context.evaluator, context.evaluator.state.pods.get(plan.key)
    evicted = context.plans.have_evicted(plan)
    if pod is None or plan.record.resize or not evicted or evaluator.has_room(pod, plan.record.node):
        return False
    return not plan.left_out.issuperset(fits(evaluator.state.snapshot, pod))


def _room_comes(plan: Plan, context: PlanContext) -> float:
    """When the last pod that leaves a plan's node has had its time to end, in monotonic seconds; -inf if none does.

    Its deletionTimestamp is by the API server's clock, and this one may be ahead. So it has at least its grace period
    from when the plan first saw it leave.
    """
    evaluator = context.evaluator
    state, now = evaluator.state, Now.by(evaluator.clock)
    pods, rows = state.snapshot.pods, evaluator.leaving_within(math.inf, now)
    last = -math.inf
    for row in rows[pods.node[rows] == state.snapshot.nodes.find(plan.record.node)].tolist():
        last = max(last, float(pods.gone_at[row]) - now.wall + now.monotonic)
        if (pod := state.pods.get(f"{pods.namespaces[row]}/{pods.names[row]}")) is not None:
            last = max(last, _end_by_own_clock(plan, pod, now.monotonic))
    return last


def _end_by_own_clock(plan: Plan, pod: Pod, now: float) -> float:
    """By when a pod that leaves has had its time, since the plan first saw it leave; all in monotonic seconds."""
    written = pod.metadata.deletion_grace_period_seconds
    return plan.leaving.setdefault(pod.metadata.uid, now + (grace_of(pod) if written is None else written))
