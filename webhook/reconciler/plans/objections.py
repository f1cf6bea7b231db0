"""What speaks against the victims of a plan by the newest state."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.victims.eligible import potential_victims
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.budget_checks import beyond_budget
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state.plan_victims import PlanVictim


class Objection(NamedTuple):
    """Why a plan must end."""

    ending: Ending
    note: str


def objection(
    plan: Plan,
    evaluator: Evaluator,
    policy_set: PolicySet,
    policy: PreemptionPolicy,
    left: list[PlanVictim],
    *,
    at: Now,
    fresh: bool,
    later: Collection[str],
    siblings: Collection[Plan],
) -> Objection | None:
    """Why a plan whose nomination stands must not go on to evict the victims that are left; None if it may.

    Pods, by `namespace/name`, that are nominated to its node for `later` plans have to leave it its room; `siblings`
    are the plans for the other members of its gang.
    It is `fresh` as long as nobody was asked, or is being asked, for it or for another member of its gang. What has not
    changed since the last look is not worked out again.
    """
    state, rules, (now, wall) = evaluator.state, policy_set.rules[policy.name], at
    pod = state.pods.get(plan.key)
    assert pod is not None
    judged_by, uids = basis(evaluator, rules), {victim.uid for victim in left}
    if plan.look.holds(judged_by, now) and uids <= plan.look.judged:
        return None  # what may be done to several may be done to some of them
    if why := rules.why_not(pod, state.snapshot.classes, wall):
        return Objection(Ending.OUTDATED, why)
    # 1. Each of them may go by the rules of now, and none is kept for another reason.
    rows = [state.snapshot.pods.find(victim.namespace, victim.name) for victim in left]
    exclusions = evaluator.exclusions(now)
    verdicts = potential_victims(state.snapshot, compile_pod(pod), rules, wall, exclusions=exclusions)
    for victim, row in zip(left, rows, strict=True):
        if row is not None and (excluded := verdicts.excluded(row)) is not None:
            return Objection(Ending.OUTDATED, f"{victim.key} may not go any more: {excluded.text} ({excluded.rule})")
    # 2. Neither budgets nor rates are used up by others.
    if why := beyond_budget(state, policy, left):
        return Objection(Ending.REFUSED, why)
    limits = policy.limits.at(wall)
    tickets = [plan.tickets.get(victim.uid, 0) for victim in left]
    if why := evaluator.limiter.overdrawn(limits, tickets, now, since=plan.granted):
        return Objection(Ending.OUTDATED, why)
    # 3. It helps, and is needed.
    if plan.look.version != state.snapshot.version:
        if not evaluator.has_room(pod, plan.record.node, but=later):
            return Objection(Ending.OUTDATED, f"evicting would not make room on {plan.record.node} any more")
        fitting = fits(state.snapshot, pod) if fresh else ()
        if plan.record.node not in fitting and not plan.left_out.issuperset(fitting):
            return Objection(Ending.OUTDATED, "it fits without preemption by now")
    # 4. Before anybody was asked: nobody of higher priority waits who would take the room.
    if fresh and not plan.record.resize:
        counted = {victim.uid for victim in plan.record.victims} - plan.unneeded
        known = state.snapshot.pod_rows([victim.key for victim in plan.record.victims])
        known = known[[state.snapshot.pods.uids[row] in counted for row in known.tolist()]]
        together = {plan.record.id, *(sibling.record.id for sibling in siblings)}
        if why := evaluator.taken_by(pod, policy, plan.record.node, known, plans=together, at=at):
            return Objection(Ending.OUTDATED, why)
    plan.look.note_verdict(judged_by, now, uids)
    return None


def basis(evaluator: Evaluator, rules: Rules) -> tuple[object, ...]:
    """What victims are judged by: as long as it is the same, so is the verdict."""
    return evaluator.state.snapshot.version, rules, evaluator.eviction_backoff.version


def has_budget(evaluator: Evaluator, victim: PlanVictim) -> bool:
    """Whether a disruption budget covers this victim."""
    pod = evaluator.state.pods.get(victim.key)
    return pod is not None and bool(evaluator.state.disruptions.covering(pod))
