"""What to do next for a plan: a pure function of the plan, the newest state and the time (docs/semantics.md E3, E9).

The executor asks before each step and before each try, the plan manager whenever something has happened, a new leader
for what it finds on pods, and a rehearsal for what it only imagines: so all of them go by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.objects import Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model import EvictionMode, PreemptionPolicy
from webhook.preemption.decision import fits
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import potential_victims
from webhook.reconciler.evaluate.budget_checks import beyond_budget
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.pods_ahead import blocked_text
from webhook.reconciler.plans.plan import Ending, Plan, PlanStep, remaining, to_displace, unneeded
from webhook.reconciler.preemptors import PolicySet, is_marked
from webhook.reconciler.state.annotations import PlanVictim, carries

__all__ = [
    "Action",
    "Ask",
    "Displace",
    "End",
    "Nominate",
    "PlanContext",
    "Spare",
    "Try",
    "Wait",
    "next_action",
    "over",
    "policy_for",
    "time_limit",
    "was_cleared",
]


class PlanContext(NamedTuple):
    """What a plan is judged by, beside itself; `beside` are all plans for a node.

    `unanswered` are those that are over, whose victims are still being asked: they may leave, or stay.
    """

    evaluator: Evaluator
    policy_set: PolicySet
    beside: Callable[[str], Iterable[Plan]]
    unanswered: Callable[[], Iterable[Plan]] = tuple


class Nominate(NamedTuple):
    """Write nomination and plan."""


class Displace(NamedTuple):
    """Clear the nominations of these pods, if there are any."""

    pods: tuple[Pod, ...]


class Spare(NamedTuple):
    """These victims, by uid, stay, and why."""

    uids: frozenset[str]
    why: str


class Try(NamedTuple):
    """Ask with `dryRun` whether the API server would let these victims go: one that it keeps would cost the others."""

    victims: tuple[PlanVictim, ...]


class Ask(NamedTuple):
    """Ask these victims to leave, side by side."""

    victims: tuple[PlanVictim, ...]


class Wait(NamedTuple):
    """All have been asked: wait until the preemptor is bound, or until then, in monotonic seconds."""

    until: float


class End(NamedTuple):
    """The plan is over."""

    ending: Ending
    note: str = ""


Action = Nominate | Displace | Spare | Try | Ask | Wait | End


def next_action(plan: Plan, context: PlanContext, now: float, asking: Collection[str] = ()) -> Action:
    """What to do next for a plan; the victims `asking`, by uid, are being asked, so it is too late for them.

    `now` is in monotonic seconds. The plan is not changed but for notes of what need not be worked out again.
    """
    state = context.evaluator.state
    pod = state.pods.get(plan.key)
    # 1. It may be over by what became of the preemptor, the node or its time.
    if (ending := over(plan, pod, now)) is not None:
        return End(ending)
    assert pod is not None
    if state.nodes.get(plan.record.node) is None:
        return End(Ending.NODE_GONE)
    # 2. First of all the nomination is written.
    if plan.step is PlanStep.NOMINATING:
        return Nominate()
    # 3. If all victims have been asked, for this plan or another one, the room is there, or will be, or it was taken.
    others = _asked_for_others(plan, context)
    left = [victim for victim in remaining(state, plan) if victim.uid not in asking and victim.uid not in others]
    if plan.rehearsed or not left:
        if math.isinf(plan.roomy) and not context.evaluator.has_room(pod, plan.record.node):
            return End(Ending.SPACE_TAKEN, _who_took(plan))
        return Wait(plan.deadline)
    # 4. By the rules of now, the rest of it still has to be right.
    if (policy := policy_for(pod, context.policy_set)) is None:
        return End(Ending.OUTDATED, "no policy lets the reconciler preempt for it any more")
    if (end := _objection(plan, context, pod, left, fresh=not (plan.gone or asking))) is not None:
        return end
    # 5. Whoever need not go stays.
    wait = min(policy.wait_for_terminating, plan.deadline - now)
    rules = context.policy_set.rules[policy.name]
    unsure = _not_answered_for(plan, context)
    if (spare := unneeded(context.evaluator, plan, rules, wait, frozenset(asking), unsure=unsure)).uids:
        return Spare(spare.uids, spare.why)
    # 6. The room must go to nobody of lower priority.
    if not plan.displaced:
        return Displace(tuple(to_displace(state, plan)))
    # 7. If one of several victims may be kept, ask first whether they are.
    if len(left) + len(plan.gone) > 1:
        untried = [one for one in left if one.uid not in plan.tried and _is_doubtful(context, one, policy)]
        if untried:
            return Try(tuple(untried))
    # 8. Ask them: first those of whom the server could not tell, then those that a budget covers, the last one last.
    slow = [victim for victim in left if plan.tried.get(victim.uid) is False]
    covered = [victim for victim in left if _has_budget(context, victim)]
    return Ask(tuple(slow or (covered if len(covered) < len(left) else left[:-1]) or left))


def over(plan: Plan, pod: Pod | None, now: float) -> Ending | None:
    """Whether a plan is over by what its preemptor looks like now and by its deadline; None if it goes on."""
    if pod is None or pod.metadata.uid != plan.uid or pod.metadata.deletion_timestamp:
        return Ending.DELETED
    if pod.spec.node_name:
        return Ending.BOUND
    if plan.seen and pod.status.nominated_node_name != plan.record.node and not was_cleared(plan, pod):
        return Ending.LOST
    if is_terminal(pod):
        return Ending.DELETED
    return Ending.TIMED_OUT if plan.deadline <= now else None


def was_cleared(plan: Plan, pod: Pod) -> bool:
    """Whether the nomination is gone and the plan is still on the pod: the scheduler has cleared it.

    Who takes a plan away takes both; who nominates the pod elsewhere leaves no empty field.
    """
    return not pod.status.nominated_node_name and not pod.spec.node_name and carries(pod, plan.record.id)


def time_limit(plan: Plan, context: PlanContext, timeout: float) -> float:
    """When a plan is given up if nothing happens, in monotonic seconds; infinite if the scheduler has to act first.

    The time counts from when the room was there, and only while the preemptor's scheduler is seen at work: if that is
    away, no node is to blame. Before, it counts from when the last victim that is there has had its time to end.
    """
    state = context.evaluator.state
    if math.isinf(plan.roomy):
        there = [one.uid for one in plan.record.victims if state.pod_of(one.key, one.uid) is not None]
        return max([plan.started, *(plan.ends.get(uid, plan.started) for uid in there)]) + timeout
    pod = state.pods.get(plan.key)
    return context.evaluator.schedulers.chance(pod, plan.roomy, timeout) + timeout if pod is not None else math.inf


def policy_for(pod: Pod, policy_set: PolicySet) -> PreemptionPolicy | None:
    """The policy by which a plan under way for the pod goes on; None if nobody may preempt for it any more."""
    policy = policy_set.policy_of(pod) if is_marked(pod) else None
    known = policy is not None and pod.spec.scheduler_name in policy.preemptors.scheduler_names
    return policy if known and pod.spec.preemption_policy == "Never" else None


def _asked_for_others(plan: Plan, context: PlanContext) -> set[str]:
    """Victims, by uid, that an earlier plan for the node asks, or will: no pod is asked twice at once."""
    earlier = [
        other
        for other in context.beside(plan.record.node)
        if other is not plan and (other.started, other.record.id) < (plan.started, plan.record.id)
    ]
    return {one.uid for other in earlier for one in other.record.victims if other.needs(one.uid)}


def _not_answered_for(plan: Plan, context: PlanContext) -> set[str]:
    """Pods, by `namespace/name`, that other plans count on, and of which the server has not said that they leave."""
    others = [other for other in context.beside(plan.record.node) if other is not plan]
    expected = {one.key for other in others for one in other.record.victims if other.needs(one.uid)}
    over = [one for other in context.unanswered() for one in other.record.victims if one.uid in other.asking]
    return expected | {one.key for one in over}


def _who_took(plan: Plan) -> str:
    if not plan.newcomer:
        return ""
    why = "" if plan.reserved else "; the scheduler cleared the nomination, so nothing was reserved"
    return f"{plan.newcomer} came to the node{why}"


def _objection(plan: Plan, context: PlanContext, pod: Pod, left: list[PlanVictim], *, fresh: bool) -> End | None:
    """Why a plan whose nomination stands must not go on to evict the victims that are left; None if it may.

    It is `fresh` before anybody was asked. What has not changed since the last look is not worked out again.
    """
    evaluator, policy = context.evaluator, policy_for(pod, context.policy_set)
    assert policy is not None
    state, rules, now = evaluator.state, context.policy_set.rules[policy.name], evaluator.clock.monotonic()
    basis = (state.snapshot.version, rules, evaluator.eviction_backoff.version, frozenset(one.uid for one in left))
    if plan.judged == basis:
        return None
    if why := rules.outside(evaluator.clock.wall()):
        return End(Ending.OUTDATED, why)
    # 1. Each of them may go by the rules of now, and none is kept for another reason.
    rows = [state.snapshot.pods.find(victim.namespace, victim.name) for victim in left]
    exclusions = evaluator.exclusions(now)
    verdicts = potential_victims(state.snapshot, compile_pod(pod), rules, evaluator.clock.wall(), exclusions=exclusions)
    for victim, row in zip(left, rows, strict=True):
        if row is not None and (excluded := verdicts.excluded(row)) is not None:
            return End(Ending.OUTDATED, f"{victim.key} may not go any more: {excluded.text} ({excluded.rule})")
    # 2. Neither budgets nor rates are used up by others.
    if why := beyond_budget(state, policy, left):
        return End(Ending.REFUSED, why)
    limits = policy.limits.at(evaluator.clock.wall())
    if why := evaluator.limiter.overdrawn(limits, [plan.tickets.get(one.uid, 0) for one in left], now):
        return End(Ending.OUTDATED, why)
    # 3. It helps, and is needed.
    if plan.looked != state.snapshot.version:
        if not evaluator.has_room(pod, plan.record.node):
            return End(Ending.OUTDATED, f"evicting would not make room on {plan.record.node} any more")
        found = fits(state.snapshot, pod) if fresh else ()
        if plan.record.node not in found and not plan.left_out.issuperset(found):
            return End(Ending.OUTDATED, "it fits without preemption by now")
    # 4. Before anybody was asked: nobody of higher priority waits who would take the room.
    if fresh:
        ahead = evaluator.pods_ahead(pod)
        place = state.snapshot.nodes.find(plan.record.node)
        known = np.array([row for row in rows if row is not None and state.snapshot.pods.node[row] == place], np.intp)
        node = np.full(len(known), place, np.intp)
        nobody = np.zeros(len(known), np.bool_)
        if len(known) and ahead(Candidates.on_nodes(state.snapshot, node, known, nobody)).any():
            return End(Ending.OUTDATED, blocked_text(ahead.blocking))
    plan.judged = basis
    return None


def _is_doubtful(context: PlanContext, victim: PlanVictim, policy: PreemptionPolicy) -> bool:
    """Whether the API server may refuse to let this victim go."""
    if _has_budget(context, victim):
        return True
    evaluator = context.evaluator
    pod = evaluator.state.pods.get(victim.key)
    if pod is not None and evaluator.eviction_backoff.remembers(pod):
        return True
    return evaluator.state.eviction_reviews.may_refuse(deletes=policy.eviction is EvictionMode.DELETE)


def _has_budget(context: PlanContext, victim: PlanVictim) -> bool:
    state = context.evaluator.state
    pod = state.pods.get(victim.key)
    return pod is not None and bool(state.disruptions.covering(pod))
