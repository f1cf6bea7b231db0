"""What to do next for a plan: a pure function of the plan, the newest state and the time (docs/semantics.md E3, E9).

It is asked whenever something has happened to a plan or an action for it is done, before each try of an eviction, by a
new leader for what it finds on pods, and in a rehearsal: nothing else decides about a plan. How far a plan has come is
not stored: it follows from what was written, told and asked.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred, is_terminal
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.preemption.decision import fits_on, refusal_of
from webhook.preemption.gangs.gang import form_gang, is_gang
from webhook.preemption.snapshot.pod_groups import GroupKey, group_of
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.room import rows_with
from webhook.reconciler.plans.actions import (
    Action,
    Ask,
    Displace,
    End,
    Ending,
    Nominate,
    Notify,
    Prepare,
    Try,
    Wait,
)
from webhook.reconciler.plans.notices import askable, not_told
from webhook.reconciler.plans.plan import Member, Plan, remaining
from webhook.reconciler.plans.plan_devices import asked_in_step, claims_in_the_way, taken_text
from webhook.reconciler.plans.recheck import PlanContext, Situation, fits_elsewhere, later_equals, recheck
from webhook.reconciler.preemptors import PolicySet, is_marked
from webhook.reconciler.state.annotations import PlanVictim, carries
from webhook.reconciler.state.state import State

_SHORTEST_WAIT = 0.05
"""Seconds between two looks at a plan, if nothing happens: whatever it waits for, the loop does not spin on it."""
_ASSEMBLY_PAUSE = 1.0
"""Seconds between two looks at whether all of a gang are there, or all of a group may go, if nothing happens."""


def next_action(plan: Plan, context: PlanContext, at: Now) -> Action:
    """What to do next for a plan, which is not changed, but for `plan.approved`."""
    state, pods = context.evaluator.state, list[tuple[Member, Pod]]()
    # 1. It may be over, or a member may leave it, by what became of the preemptors, the nodes or its time.
    for member in plan.unplaced:
        pod = state.pods.get(member.key)
        if (ending := over(plan, member, pod)) is not None:
            return End(ending, member=member.key)
        assert pod is not None
        pods.append((member, pod))
    if plan.deadline <= at.monotonic:
        return End(Ending.TIMED_OUT)
    if any(state.nodes.get(member.node) is None for member, _ in pods):
        return End(Ending.NODE_GONE)
    # 2. What was written, told and asked says the rest.
    action = _next_step(Situation(plan, context, pods, at, unasked(plan, context)))
    if isinstance(action, Wait):
        action = Wait(max(action.until, at.monotonic + _SHORTEST_WAIT))
    return action


def _next_step(situation: Situation) -> Action:
    """Write the nominations, tell the victims, ask them, and wait for the room; each once all before it is done."""
    plan, left, now = situation.plan, situation.left, situation.now
    # 1. Before anything else the nominations are written: nobody goes for a part of a gang.
    if why := too_few(situation.pods[0][1], situation.context):
        return Wait(now + _ASSEMBLY_PAUSE) if situation.context.unseen else End(Ending.GANG, why)
    if not plan.nominated:
        return Nominate(_to_try(situation, of=2), plan.record.notice)
    if not all(other.nominated for other in _begun_before(situation)):
        return Wait(now + _ASSEMBLY_PAUSE)
    # 2. If all have been asked, the room is there, or will be, or it was taken.
    if not left:
        return _room(situation)
    # 3. By the rules of now, the rest of it still has to be right. Of a group of which one has gone the others go as
    #    soon as their budgets let them.
    policy, *others = (policy_for(pod, situation.context.policy_set) for _, pod in situation.pods)
    if policy is None or any(other is not policy for other in others):
        return End(Ending.OUTDATED, "no policy lets the reconciler preempt for it any more")
    if (objection := recheck(situation, policy)) is not None:
        bound = not plan.bound_to_go().isdisjoint(victim.uid for victim in left)
        refused = isinstance(objection, End) and objection.ending is Ending.REFUSED
        return Wait(now + _ASSEMBLY_PAUSE) if refused and bound else objection
    # 4. Victims are told. Nobody is who would be kept, or for a plan that another victim's refusal would end.
    notice = policy.victims.notice
    if untold := not_told(plan, left, notice):
        if untried := _to_try(situation):
            return _try(situation, untried)
        if notice > plan.record.notice:
            return Nominate((), notice)  # the next leader would ask too early
        ready, later = _not_paused(situation, untold)
        return Notify(tuple(ready), notice) if ready else Wait(later)
    return _evict(situation, policy)


def too_few(pod: Pod, context: PlanContext) -> str:
    """Why nobody may go for this member of a gang: the gang needs more members than are nominated and bound."""
    snapshot = context.evaluator.state.snapshot
    if not is_gang(snapshot, pod):
        return ""
    gang = form_gang(snapshot, [pod], planned_nodes(context, group_of(pod)))
    missing = len(gang.secured) < gang.minimum
    return f"{gang.key} needs {gang.minimum} pods, and {len(gang.secured)} are nominated or bound" if missing else ""


def planned_nodes(context: PlanContext, group: GroupKey) -> list[str]:
    """The nodes that plans have for members of a group."""
    plans = context.plans.by_preemptor
    waiting = map(key_of, context.evaluator.state.waiting_members(group))
    return [plan.member(key).node for key in waiting if (plan := plans.get(key)) is not None]


def _begun_before(situation: Situation) -> list[Plan]:
    """The plans for other members of the gang that began before: what goes for this one needs them to go on."""
    plan, (_, pod) = situation.plan, situation.pods[0]
    waiting = situation.context.evaluator.state.waiting_members(group_of(pod)) if plan.is_gang else ()
    others = (situation.context.plans.by_preemptor.get(key_of(member)) for member in waiting)
    return [other for other in others if other is not None and other.order < plan.order]


def _holds_back(other: Plan, context: PlanContext) -> bool:
    """Whether this plan has yet to find out whether the server would keep one of its victims."""
    left = remaining(context.evaluator.state, other) if not other.waiting else ()
    return any(victim.uid not in other.tried for victim in left)


def _to_try(situation: Situation, *, of: int = 1) -> tuple[PlanVictim, ...]:
    """The victims of whom it was not asked yet whether the server would keep them, if the plan has so many of them.

    One that is kept costs the others, also those that are asked for other plans and have not been answered for.
    """
    plan, there = situation.plan, remaining(situation.context.evaluator.state, situation.plan)
    several = len(there) + len(plan.gone) >= of
    return tuple(victim for victim in there if victim.uid not in plan.tried) if several else ()


def _try(situation: Situation, untried: Collection[PlanVictim]) -> Action:
    """Try those of these victims about whom something may be asked now."""
    ready, later = _not_paused(situation, untried)
    return Try(tuple(ready)) if ready else Wait(later)


def _not_paused(situation: Situation, victims: Collection[PlanVictim]) -> tuple[list[PlanVictim], float]:
    """Those of these victims about whom something may be asked now, and when it may be about the next one."""
    pauses = {victim.uid: situation.plan.pause(victim.uid, situation.now) for victim in victims}
    later = situation.now + min((pause for pause in pauses.values() if pause), default=math.inf)
    return [victim for victim in victims if not pauses[victim.uid]], later


def _evict(situation: Situation, policy: PreemptionPolicy) -> Action:
    """Ask those of the victims that are left whose turn it is: everybody has been told."""
    plan, context, left, now = situation.plan, situation.context, situation.left, situation.now
    evaluator = context.evaluator
    # 1. Whose notice is not over goes if it is ready.
    asked, later = askable(evaluator.state, plan, left, now)
    if not asked:
        return Wait(later)
    # 2. The room must go to nobody of lower priority.
    if not plan.displaced and (lower := to_displace(evaluator.state, plan)):
        return Displace(tuple(lower))
    # 3. If several go, it is tried first whether one of them is kept: the others would go in vain.
    if untried := _to_try(situation, of=2):
        return _try(situation, untried)
    if any(_holds_back(other, context) for other in _begun_before(situation)):
        return Wait(now + _ASSEMBLY_PAUSE)
    # 4. Devices have to come free together, or pods that want fewer take them one by one.
    slow = [victim for victim in left if plan.tried.get(victim.uid) is False]
    if plan.devices and not slow:
        asked, later = asked_in_step(evaluator.state, plan, asked, policy, now)
    # 5. Ask them: first those of whom the server could not tell, then those that a budget covers, the last one last.
    #    The rest of a group goes at once, not bit by bit, and only when no budget can refuse one of it any more.
    pods, covering = evaluator.state.pods, evaluator.state.pending.covering
    covered = [victim for victim in asked if (pod := pods.get(victim.key)) is not None and covering(pod)]
    if len(grouped := [victim for victim in covered if victim.group]) > 1:
        # If the first one is refused the group is whole yet. Once one on a node of the plan has gone there may be room.
        here = {victim.uid for member in plan.unplaced for victim in evaluator.state.pods_on(member.node)}
        return _ask(situation, policy, covered, [min(grouped, key=lambda victim: victim.uid in here)])
    last = 0 if math.isfinite(later) and not plan.devices else 1
    first = slow or (covered if len(covered) < len(asked) else asked[: len(asked) - last]) or asked
    whole = {victim.group for victim in first if len(covered) in (0, len(asked))} - {0}
    chosen = [victim for victim in asked if victim in first or victim.group in whole]
    return _ask(situation, policy, covered, chosen) if chosen else Wait(later)


def _ask(
    situation: Situation, policy: PreemptionPolicy, covered: Collection[PlanVictim], chosen: Collection[PlanVictim]
) -> Action:
    """Ask these victims, one that was asked in vain after a pause: nobody goes in its place.

    One that is deleted is marked before, and one that a budget covers is read.
    """
    ready, later = _not_paused(situation, chosen)
    if not ready:
        return Wait(later)
    first = ready if policy.eviction is EvictionMode.DELETE else covered
    unprepared = tuple(victim for victim in ready if victim in first and victim.uid not in situation.plan.prepared)
    return Prepare(unprepared) if unprepared else Ask(tuple(ready))


def _room(situation: Situation) -> Action:
    """Wait for the room as long as it can come."""
    plan, context = situation.plan, situation.context
    evaluator, snapshot = context.evaluator, context.evaluator.state.snapshot
    for member, pod in situation.pods if math.isinf(plan.roomy) else ():
        later = later_equals(plan, member, context.plans)
        if snapshot.device_claims.is_binding(member.uid) or evaluator.has_room(pod, member.node, but=later):
            continue
        if fits_elsewhere(plan, member, pod, context):
            continue
        if refusal := refusal_of(snapshot, pod, member.node):
            return End(Ending.NODE_CHANGED, refusal)
        if lost := claims_in_the_way(snapshot, plan, member):
            return End(Ending.DEVICES_TAKEN, taken_text(lost), member.key)
        cleared = "" if member.reserved else "; the scheduler cleared the nomination, so nothing was reserved"
        taken = f"{plan.newcomer} came to the node{cleared}" if plan.newcomer else ""
        return End(Ending.SPACE_TAKEN, taken, member.key)
    return Wait(plan.deadline)


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nominations to the plan's nodes are to be cleared: those that do not fit beside its preemptors.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
    """
    snapshot, leaving, displaced = state.snapshot, state.snapshot.pods.leaving(), dict[str, Pod]()
    own = {member.key for member in plan.members}
    for member in plan.unplaced if not plan.record.resize else ():
        preemptor, lower = state.pods.get(member.key), state.lower_nominated(member.node, member.priority, member.key)
        scheduler = preemptor.spec.scheduler_name if preemptor is not None else ""
        lower = [pod for pod in lower if pod.spec.scheduler_name == scheduler and key_of(pod) not in own]
        lower.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)))
        undecided = {key_of(pod) for pod in lower}
        for pod in lower:
            without = rows_with(leaving, snapshot.pod_rows(undecided))
            if fits_on(snapshot, pod, member.node, without=without):
                undecided.discard(key_of(pod))
            else:
                displaced[key_of(pod)] = pod
    return list(displaced.values())


def over(plan: Plan, member: Member, pod: Pod | None) -> Ending | None:
    """Whether it is over for a member by what its pod looks like now; None if it goes on."""
    if pod is None or pod.metadata.uid != member.uid or pod.metadata.deletion_timestamp:
        return Ending.DELETED
    if plan.record.resize:
        return Ending.RESIZED if not is_deferred(pod) or is_terminal(pod) else None
    if pod.spec.node_name:
        return Ending.BOUND
    if member.seen and pod.status.nominated_node_name != member.node and not was_cleared(plan, pod):
        return Ending.LOST
    return Ending.DELETED if is_terminal(pod) else None


def was_cleared(plan: Plan, pod: Pod) -> bool:
    """Whether the nomination is gone and the plan is still on the pod: the scheduler has cleared it.

    Who takes a plan away takes both; who nominates the pod elsewhere leaves no empty field.
    """
    return not pod.status.nominated_node_name and not pod.spec.node_name and carries(pod, plan.id)


def policy_for(pod: Pod, policy_set: PolicySet) -> PreemptionPolicy | None:
    """The policy by which a plan under way for the pod goes on; None if nobody may preempt for it any more."""
    policy = policy_set.policy_of(pod) if is_marked(pod) else None
    known = policy is not None and pod.spec.scheduler_name in policy.preemptors.scheduler_names
    return policy if known and pod.spec.preemption_policy == "Never" else None


def unasked(plan: Plan, context: PlanContext) -> list[PlanVictim]:
    """The victims that are to be asked; not those that another plan has asked, or that an earlier one will ask."""
    if plan.rehearsed:
        return []

    def is_anothers(uid: str) -> bool:
        others = context.plans.naming(uid)
        earlier = [other for other in others if other.order < plan.order]
        return any(uid in other.gone for other in others) or any(other.needs(uid) for other in earlier)

    return [victim for victim in remaining(context.evaluator.state, plan) if not is_anothers(victim.uid)]
