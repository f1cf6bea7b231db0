"""Whether the rest of a plan is right by the newest state, how long it may take, and who put pods back. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits, victims_needed
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import grace_of, priority_of
from webhook.preemption.victims.eligible import potential_victims
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.limits import beyond_budget
from webhook.reconciler.evaluate.room import rows_with, rows_without
from webhook.reconciler.plans.actions import End, Ending, Spare
from webhook.reconciler.plans.plan import Approval, Member, Plan, PlanIndex, remaining
from webhook.reconciler.plans.plan_devices import awaits_deallocation, takers
from webhook.reconciler.preemptors import PolicySet, grace_under
from webhook.reconciler.state.annotations import PlanVictim

_MOMENT = 1.0
"""Seconds for which an approval holds, if nothing happens."""


class PlanContext(NamedTuple):
    """What a plan is judged by, beside itself.

    `plans` are under way. `unanswered` are over, by id, and their victims are still being asked: they may leave, or
    stay. As long as pods are `unseen` some plans may yet be taken over.
    """

    evaluator: Evaluator
    policy_set: PolicySet
    plans: PlanIndex
    unanswered: Mapping[str, Plan] = MappingProxyType({})
    unseen: Collection[str] = ()


class Situation(NamedTuple):
    """What the next action is worked out from: a plan that is not over, and the members that go on with their pods.

    The victims that are `left` are to be asked.
    """

    plan: Plan
    context: PlanContext
    pods: list[tuple[Member, Pod]]
    at: Now
    left: list[PlanVictim]

    @property
    def now(self) -> float:
        """The time, in monotonic seconds."""
        return self.at.monotonic


def recheck(situation: Situation, policy: PreemptionPolicy) -> End | Spare | None:
    """Why a plan must not go on to evict the victims that are left, or which of these stay; None if all may go.

    If nothing has happened for a moment it is not worked out again. After that it is: schedules end, and pods that
    leave come to their end, without any event.
    """
    plan, now = situation.plan, approval(situation.context, policy, situation.now)
    if (known := plan.approved) is not None and known.judged_by == now.judged_by and now.at <= known.at + _MOMENT:
        return None
    action = _may_not_go(situation, policy) or _in_vain(situation, policy)
    if action is None:
        plan.approved = now
    return action


def approval(context: PlanContext, policy: PreemptionPolicy, now: float) -> Approval:
    """That the victims of a plan may go, by all that they are judged by now."""
    evaluator, rules = context.evaluator, context.policy_set.rules[policy.name]
    return Approval((evaluator.state.snapshot.version, rules, evaluator.log.excluded(now)), now)


def _may_not_go(situation: Situation, policy: PreemptionPolicy) -> End | None:
    """Whether policy, budgets or rates keep one of the victims by now."""
    plan, context, members, at, left = situation
    evaluator, state = context.evaluator, context.evaluator.state
    rules, (now, wall) = context.policy_set.rules[policy.name], at
    pods = [pod for _, pod in members]
    if why := next(filter(None, (rules.why_not(pod, state.snapshot.classes, wall) for pod in pods)), ""):
        return End(Ending.OUTDATED, why)
    exclusions = evaluator.exclusions(now)
    for pod in pods if rules.pairs is not None else [min(pods, key=priority_of)]:
        verdicts = potential_victims(state.snapshot, compile_pod(pod), rules, wall, exclusions=exclusions)
        for victim in left:
            row = state.snapshot.pods.find(victim.namespace, victim.name)
            if row is not None and (excluded := verdicts.excluded(row)) is not None:
                return End(Ending.OUTDATED, f"{victim.key} may not go any more: {excluded.text} ({excluded.rule})")
    if why := beyond_budget(state, policy, left):
        return End(Ending.REFUSED, why)
    uids = [victim.uid for victim in left]
    if why := evaluator.log.overdrawn(policy.limits.at(wall), uids, now, since=plan.granted):
        return End(Ending.OUTDATED, why)
    return None


def _in_vain(situation: Situation, policy: PreemptionPolicy) -> End | Spare | None:
    """Whether evicting would not help, or is not needed, for all or for some of the victims.

    All of them stay if all members fit by now. Otherwise those without which each fits once the other victims are gone,
    however long these take, and the pods that leave anyway in time. What goes together by the rules stays or goes
    whole: if one of a group has been asked, the others are needed.
    """
    plan, context, members, at, _ = situation
    evaluator, state, fresh = context.evaluator, context.evaluator.state, not (plan.gone or plan.asking)
    snapshot, pods = state.snapshot, state.snapshot.pods
    uids = {victim.uid for victim in plan.record.victims}
    rows = snapshot.pod_rows([victim.key for victim in plan.record.victims]).tolist()
    victims = {pods.uids[row]: row for row in rows if pods.uids[row] in uids}  # not a new pod of a victim's name
    unasked = frozenset(victim.uid for victim in remaining(state, plan)).difference(plan.asking, plan.bound_to_go())
    among = np.array([row for uid, row in victims.items() if uid in unasked], np.intp)
    lacking: list[tuple[Member, Pod]] = []
    for member, pod in members:
        # 1. There would be no room, since others have come, or there is room without evicting anybody.
        if not evaluator.has_room(pod, member.node, but=later_equals(plan, member, context.plans)):
            return End(Ending.OUTDATED, f"evicting would not make room on {member.node} any more", member.key)
        with pods.staying(among):
            fitting = fits(snapshot, pod)
        elsewhere = member.node not in fitting and not plan.left_out.issuperset(fitting)
        if fresh and elsewhere:
            return End(Ending.OUTDATED, "it fits without preemption by now")
        if member.node not in fitting and not (elsewhere and plan.gone and len(members) == 1):
            lacking.append((member, pod))  # two members might count on one node elsewhere
        # 2. A pod in front would take the room.
        if fresh and not plan.record.resize:
            counted = np.array([row for uid, row in victims.items() if uid not in plan.unneeded], np.intp)
            if why := evaluator.taken_by(pod, policy, member.node, counted, plans={plan.id}, at=at):
                return End(Ending.OUTDATED, why)
    # 3. Nobody is needed any more, or not everybody.
    if unasked and not lacking:
        return Spare(unasked, "it fits without further evictions by now")
    if not unasked:
        return None
    wait = min(policy.wait_for_terminating, plan.deadline - at.monotonic)
    leaving = rows_without(evaluator.room_within(wait, at), snapshot.pod_rows(list(_not_answered_for(plan, context))))
    begun = np.array([row for uid, row in victims.items() if uid not in unasked | plan.unneeded], np.intp)
    without = np.setdiff1d(np.append(leaving, begun), among)
    rules, staying = context.policy_set.rules[policy.name], unasked
    for member, pod in lacking:
        with pods.staying(among):
            needed = victims_needed(snapshot, pod, member.node, among, rules=rules, begun=begun, without=without)
        staying -= {pods.uids[row] for row in needed.tolist()}
    return Spare(staying, "it fits without them once pods that are leaving are gone") if staying else None


def later_equals(plan: Plan, member: Member, index: PlanIndex) -> list[str]:
    """The preemptors of the same priority for which the node was chosen later: if room was taken, theirs is lost."""
    equals = [(other, own) for other, own in index.on_node(member.node) if own.priority == member.priority]
    return [own.key for other, own in equals if other.order > plan.order]


def _not_answered_for(plan: Plan, context: PlanContext) -> set[str]:
    """Pods, by `namespace/name`, that other plans count on, and of which the server has not said that they leave."""
    snapshot = context.evaluator.state.snapshot
    pods, there = snapshot.pods, snapshot.pods.leaving()
    expected = {
        f"{pods.namespaces[row]}/{pods.names[row]}"
        for row in there[np.isin(pods.node[there], nodes_of(plan, context))].tolist()
        if any(other is not plan and other.needs(pods.uids[row]) for other in context.plans.naming(pods.uids[row]))
    }
    over = [
        victim for other in context.unanswered.values() for victim in other.record.victims if victim.uid in other.asking
    ]
    return expected | {victim.key for victim in over}


def nodes_of(plan: Plan, context: PlanContext) -> NDArray[np.intp]:
    """The nodes of a plan, by row."""
    return context.evaluator.state.snapshot.nodes.rows_of({member.node for member in plan.unplaced})


def returning_owners(evaluator: Evaluator, plan: Plan, member: Member, index: PlanIndex) -> set[str]:
    """The owners (`workload_of`) of victims of the plan that have put pods back in their place, in this member's way.

    Such a pod was made after the plan began to evict. It has devices of the member, or is on the node, and the member
    would fit there without it. If something else keeps the member from the node, such as another owner's pod, nobody
    has put anything back.
    """
    state, node, victims = evaluator.state, member.node, {victim.uid for victim in plan.record.victims}
    preemptor, snapshot = state.pods.get(member.key), evaluator.state.snapshot
    keys = [known.key for known in state.pods_on(node)]
    keys += [key for owner in plan.owners for key in state.index.owned.get(owner, ())] if plan.room else []
    there = [pod for key in keys if (pod := state.pods.get(key)) is not None]
    others, evicting = later_equals(plan, member, index), plan.evicting

    def is_put_back(pod: Pod) -> bool:
        came = evicting is not None and evicting.is_before(pod)
        return came and pod.metadata.uid not in victims and workload_of(pod) in plan.owners

    owners = {workload_of(pod) for pod in takers(state, plan, member) if is_put_back(pod)}
    back = {key_of(pod): pod for pod in there if is_put_back(pod)}
    if preemptor is None or not back or not evaluator.has_room(preemptor, node, but=[*others, *back]):
        return owners
    gone = rows_with(snapshot.pods.leaving(), snapshot.pod_rows(others))
    needed = victims_needed(snapshot, preemptor, node, snapshot.pod_rows(back), without=gone)
    names, namespaces = snapshot.pods.names, snapshot.pods.namespaces
    return owners | {workload_of(back[f"{namespaces[row]}/{names[row]}"]) for row in needed.tolist()}


def time_for(victims: Iterable[Pod], policy: PreemptionPolicy) -> float:
    """Seconds a plan may take: the policy's, from when notices are over and the last victim has had its time to end.

    If it were given up earlier, they would have ended for nothing, and others after them.
    """
    graces = [grace_under(policy, victim) for victim in victims]
    return policy.plan_timeout + (policy.victims.notice + max(graces) if graces else 0.0)


def time_limit(plan: Plan, context: PlanContext, timeout: float) -> float:
    """When a plan is given up if nothing happens, in monotonic seconds; infinite if others have to act first.

    These are the preemptor's scheduler, and kube-controller-manager while it has not taken a victim's devices back.

    The time counts from when all room was there, and only while the preemptor's scheduler is seen at work: if that is
    away, no node is to blame. Before, it counts from when the last notice is over, when the last pod that leaves the
    node has had its time to end.
    """
    state = context.evaluator.state
    if awaits_deallocation(state, plan):
        return math.inf
    if math.isinf(plan.roomy):
        beside = {plan, *(other for member in plan.unplaced for other, _ in context.plans.on_node(member.node))}
        asked = [
            (victim, other.ends[victim.uid])
            for other in beside
            for victim in other.record.victims
            if victim.uid in other.ends
        ]
        ends = [end for victim, end in asked if state.pod_of(victim.key, victim.uid) is not None]
        told = [until for uid, until in plan.notices.items() if plan.needs(uid)]
        return max(plan.started, _room_comes(plan, context), *ends, *told) + timeout
    if plan.record.resize:
        return plan.roomy + timeout  # the kubelet tries again as soon as a pod has left
    chance, pods = context.evaluator.schedulers.chance, [state.pods.get(member.key) for member in plan.unplaced]
    chances = [chance(pod, plan.roomy, timeout) for pod in pods if pod is not None]
    return max(chances, default=math.inf) + timeout


def fits_elsewhere(plan: Plan, member: Member, pod: Pod, context: PlanContext) -> bool:
    """Whether its scheduler finds room for a member now, though none comes up on the node of its plan."""
    evaluator = context.evaluator
    if plan.record.resize or not plan.gone or evaluator.has_room(pod, member.node):
        return False
    return not plan.left_out.issuperset(fits(evaluator.state.snapshot, pod))


def _room_comes(plan: Plan, context: PlanContext) -> float:
    """When the last pod that leaves a plan's nodes has had its time to end, in monotonic seconds; -inf if none does.

    Its deletionTimestamp is by the API server's clock, and this one may be ahead. So it has at least its grace period
    from when the plan first saw it leave.
    """
    evaluator = context.evaluator
    state, now = evaluator.state, Now.by(evaluator.clock)
    pods, rows = state.snapshot.pods, evaluator.leaving_within(math.inf, now)
    last = -math.inf
    for row in rows[np.isin(pods.node[rows], nodes_of(plan, context))].tolist():
        last = max(last, float(pods.gone_at[row]) - now.wall + now.monotonic)
        if (pod := state.pods.get(f"{pods.namespaces[row]}/{pods.names[row]}")) is not None:
            written = pod.metadata.deletion_grace_period_seconds
            grace = grace_of(pod) if written is None else written
            last = max(last, plan.leaving.setdefault(pod.metadata.uid, now.monotonic + grace))
    return last
