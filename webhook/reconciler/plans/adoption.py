"""What a new leader takes over from the one before: the evictions, and the plans that are written on pods.

An annotation is text that somebody wrote, so a plan is believed only if the log of evictions has the digest of just
that text. If nobody was asked for it, a decision made now has to ask for just the same pods.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from webhook.kube.instants import epoch, epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluation import unnominated
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.victim_exclusions import decide_with_exclusions
from webhook.reconciler.evictions.store import EvictionRecord, recall
from webhook.reconciler.plans.plan import Member, Plan, group_names, is_leaving
from webhook.reconciler.plans.plan_devices import devices_for
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.recheck import time_for
from webhook.reconciler.preemptors import PolicySet, lacks_post_filter
from webhook.reconciler.state.annotations import (
    PlanMember,
    PlanRecord,
    UnreadableError,
    decision_of,
    digest_of,
    plan_of,
    with_names,
)
from webhook.reconciler.state.notices import notice_of

log = logging.getLogger(__name__)


class TakeOff(NamedTuple):
    """The plan of that id, for that node, is to be taken off the pod."""

    plan_id: str
    node: str


class Adopted(NamedTuple):
    """A plan of an earlier leader is under way here; it must end if `outdated` says why."""

    plan: Plan
    outdated: str = ""


def adopt(
    pod: Pod, manager: PlanManager, policy_set: PolicySet, clearing: Collection[tuple[str, str]]
) -> Adopted | TakeOff | None:
    """Take over the plan an earlier leader wrote on a pod; None if it carries none, or one that is being taken off.

    `clearing` are the plans that this process is taking off their pods, each with the uid of the pod. The plan of a
    gang is taken over with all members that are there, also those on which the earlier leader has not written it yet.
    """
    # 1. Read it. What no version of giveway would write is taken off.
    state, name, evictions = manager.evaluator.state, key_of(pod), manager.evaluator.log
    try:
        record = plan_of(pod)
    except UnreadableError as error:
        log.warning("%s: %s; taking it off", name, error)
        return TakeOff((pod.metadata.annotations or {})[PLAN], pod.status.nominated_node_name)
    if record is None or (record.id, pod.metadata.uid) in clearing or state.pending.is_cleared(name, record.id):
        return None
    # 2. Take it off if the leader before did not have it under way like this, or it is over: without its nomination
    #    though the scheduler clears none, or for a pod to leave alone, or one that goes on without this pod.
    nominated, policy = pod.status.nominated_node_name, policy_set.policy_to_act_by(pod)
    under_way = nominated == record.node or (not nominated and lacks_post_filter(pod))
    if record.resize:
        under_way = pod.spec.node_name == record.node
    if not evictions.is_of_leader_before(pod.metadata.uid, digest_of(pod)):
        return TakeOff(record.id, record.node)
    if not under_way or policy is None or record.id in manager.index.by_id:
        del evictions.plans[pod.metadata.uid]
        return TakeOff(record.id, record.node)
    # 3. Let it hold its room. Its time begins again: while nobody led, nobody could see the scheduler at work.
    record = with_names(record, state.pods.items().values())
    members = _members(pod, record, manager, clearing)
    plan, remaining = _taken_over(members, record, manager, policy)
    manager.index.add(plan)
    for victim in plan.record.victims:
        if state.pod_of(victim.key, victim.uid) is None:
            state.pending.expect_deallocated(victim.uid)
    pods = [(member, state.pods.items()[member.key]) for member in members]
    for member, known in pods:
        manager.hold_devices(member, member.devices)
        state.pending.hold(plan.id, (member.key, member.uid), member.node)
        if member.nominated:
            manager.observe_nomination(plan, member, known)
    manager.unchecked[plan.id] = None
    # 4. If nobody was asked, go on only if a decision made now asks for just the victims that remain; that of a gang
    #    goes on by the rules of now. So does a plan that has evicted, where it is: what was done would have been in
    #    vain. Its rates were granted, by a clock that may differ.
    outdated = ""
    if remaining and math.isinf(plan.granted) and not plan.is_gang:
        outdated = disagreement(manager.evaluator, pod, policy_set.rules[policy.name], plan.record)
    if remaining and not outdated:
        log.info("plan %s for %s: going on with it, %d victims remain", plan.id, name, len(remaining))
        manager.expect(plan, policy, remaining)
    # 5. A member on which no devices are written gets those that it would get once all victims are gone.
    for member, known in pods if plan.is_gang else ():
        if not member.devices:
            manager.hold_devices(member, devices_for(state.snapshot, known, member.node))
    return Adopted(plan, outdated)


def _members(pod: Pod, record: PlanRecord, manager: PlanManager, clearing: Collection[tuple[str, str]]) -> list[Member]:
    """The pod, and of those that its plan names the others that wait for a node and have no other plan since."""
    state, evictions, members = manager.evaluator.state, manager.evaluator.log, []
    act = manager.context.policy_set.policy_to_act_by
    for named in record.members or (PlanMember(pod.metadata.name, pod.metadata.uid, record.node),):
        key, said = f"{pod.metadata.namespace}/{named.name}", None
        known = state.pod_of(key, named.uid)
        waits = known is not None and not known.spec.node_name and act(known) is not None and key not in manager.plans
        if known is None or (record.id, named.uid) in clearing or not (waits or known is pod):
            continue
        if known is pod or digest_of(known) in evictions.earlier_plans.get(named.uid, ()):
            with suppress(UnreadableError):
                said = plan_of(known)
        if said is not None and said.id != record.id:
            continue
        member = Member(key, named.uid, known.spec.priority or 0, named.node)
        if said is not None and (known is pod or evictions.is_of_leader_before(named.uid, digest_of(known))):
            member.nominated = member.seen = True
            member.devices = [DeviceId(device.driver, device.pool, device.device) for device in said.devices]
        members.append(member)
    return members


def _taken_over(
    members: list[Member], record: PlanRecord, manager: PlanManager, policy: PreemptionPolicy
) -> tuple[Plan, list[Pod]]:
    """The plan as far as it has come, and its victims that remain: who was told and asked is read off the victims."""
    state, now, wall = manager.evaluator.state, manager.clock.monotonic(), manager.clock.wall()
    there = [known for victim in record.victims if (known := state.pod_of(victim.key, victim.uid)) is not None]
    remaining = [victim for victim in there if not is_leaving(victim)]
    gone = {victim.uid for victim in record.victims} - {victim.metadata.uid for victim in remaining}
    plan = Plan(
        record,
        members,
        now,
        now + time_for(there, policy),
        timeout=policy.plan_timeout,
        announced=not remaining,
        evicting=state.creations.at(record.begun),
        notices=_notices(remaining, record, now, wall),
        ends={victim.metadata.uid: _ends(manager, victim, policy) for victim in there if victim not in remaining},
        groups=group_names(state, record.victims),
        granted=now if gone else -math.inf,
        gone=gone,
    )
    for decision in (decision_of(state.pods.items()[member.key]) for member in members):
        if decision is not None and decision.plan == record.id:
            plan.owners |= frozenset(victim.owner for victim in decision.victims if victim.owner)
            plan.room = plan.room or decision.room
    return plan, remaining


def _notices(victims: Iterable[Pod], record: PlanRecord, now: float, wall: float) -> dict[str, float]:
    """Until when the notices of these victims last, in monotonic seconds; `wall` is `now` in seconds since the epoch.

    What a victim was told is kept, whatever the policy says by now; by a clock that is behind it is not longer than the
    plan says from now on.
    """
    notices = [(victim.metadata.uid, notice_of(victim)) for victim in victims]
    told = [(uid, notice) for uid, notice in notices if notice is not None and notice.plan == record.id]
    return {uid: now + min(epoch(notice.by) - wall, record.notice) for uid, notice in told}


def _ends(manager: PlanManager, victim: Pod, policy: PreemptionPolicy) -> float:
    """When a victim that is leaving has had its time to end, in monotonic seconds."""
    left = epoch_or(victim.metadata.deletion_timestamp, 0.0) - manager.clock.wall()
    return manager.clock.monotonic() + min(max(0.0, left), time_for([victim], policy))


def disagreement(evaluator: Evaluator, pod: Pod, rules: Rules, record: PlanRecord) -> str:
    """Why the rest of an earlier leader's plan must not be carried out; empty if it is what would be done now.

    The decision is made as if the pod had no nomination. Rates are not asked, since the plan's victims count already,
    and extenders neither, since they have agreed.
    """
    state, at = evaluator.state, Now.by(evaluator.clock)
    leaving, excluded = state.snapshot.pods.leaving(), evaluator.exclusions(at.monotonic)
    try:
        decision = decide_with_exclusions(state, unnominated(pod), rules, at.wall, excluded, leaving=leaving)
    except ClusterError as error:
        return str(error)
    if decision.fits:
        return "it fits without preemption by now"
    candidate = decision.selected
    if candidate is None or candidate.node != record.node:
        return f"preemption on {record.node} is not what would be done now"
    wanted = {victim.uid for victim in candidate.victims if victim.key not in state.index.leaving}
    if not wanted <= {victim.uid for victim in record.victims}:
        return f"other pods than planned would have to go on {record.node}"
    known = {victim.uid: state.pod_of(victim.key, victim.uid) for victim in record.victims}
    alive = {
        uid for uid, pod in known.items() if pod and not is_terminal(pod) and key_of(pod) not in state.index.leaving
    }
    return "" if alive == wanted else f"not all pods that were planned have to go on {record.node}"


def recall_evictions(evaluator: Evaluator, policy_set: PolicySet, record: EvictionRecord) -> None:
    """Count the evictions of earlier leaders for the rates and the history. Returning owners are excluded again."""
    for policy in policy_set.policies.preemption:
        evaluator.log.remember(policy.limits)
    pods = evaluator.state.pods.items().values()
    there = {pod.metadata.uid for pod in pods if not pod.metadata.deletion_timestamp}
    recall(record, evaluator.log, Now.by(evaluator.clock), there)
