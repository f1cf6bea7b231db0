"""What a new leader takes over from the one before: the evictions, and the plans that are written on pods.

An annotation is text that somebody wrote, so a plan is believed only if the log of evictions has the digest of just
that text. Then it is a plan like any other: a look at it says whether and how it goes on.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evictions.store import EvictionRecord
from webhook.reconciler.plans.look import over
from webhook.reconciler.plans.plan import Member, Plan, group_names, stays
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import PolicySet, grace_under, lacks_post_filter
from webhook.reconciler.state.annotations import (
    PlanMember,
    PlanRecord,
    UnreadableError,
    carries,
    decision_of,
    digest_of,
    notice_of,
    plan_of,
    with_names,
)
from webhook.reconciler.state.pending import CountedOn
from webhook.reconciler.state.state import ServerTime

log = logging.getLogger(__name__)


def adopt(pod: Pod, manager: PlanManager, policy_set: PolicySet) -> Plan | None:
    """Take over the plan an earlier leader wrote on a pod; None if it carries none, or one that is to be taken off.

    The plan of a gang is taken over with all members that are there, also those on which the earlier leader has not
    written it yet.
    """
    # 1. Read it. What no version of giveway would write is taken off.
    state, evictions, key, uid = manager.evaluator.state, manager.evaluator.log, key_of(pod), pod.metadata.uid
    try:
        record = plan_of(pod)
    except UnreadableError as error:
        log.warning("%s: %s; taking it off", key, error)
        record = None
    # 2. Take it off if the leader before did not have it under way like this, or it is over: without its nomination
    #    though the scheduler clears none, or for a pod to leave alone, or one that goes on without this pod.
    nominated, policy = pod.status.nominated_node_name, policy_set.policy_to_act_by(pod)
    node = record.node if record is not None else nominated
    under_way = nominated == node or (not nominated and lacks_post_filter(pod))
    if record is not None and record.resize:
        under_way = pod.spec.node_name == node
    believed = record is not None and evictions.is_of_leader_before(uid, digest_of(pod))
    if record is None or policy is None or not (believed and under_way) or record.id in manager.index.by_id:
        if believed:
            del evictions.plans[uid]
        text = (pod.metadata.annotations or {}).get(PLAN, "")
        state.pending.count_on(text, {key: CountedOn(uid, node=node, off=True)})
        return None
    # 3. Let it hold its room. Its time begins again: while nobody led, nobody could see the scheduler at work. Rates
    #    were granted to a plan that has evicted, by a clock that may differ.
    record = with_names(record, state.pods.items().values())
    plan = _taken_up(record, _members(pod, record, manager), manager, policy)
    for member in plan.unplaced:
        over(plan, member, state.pods.get(member.key))
    log.info("plan %s for %s: going on with it, %d victims remain", plan.id, plan.key, len(plan.needed))
    return plan


def _members(pod: Pod, record: PlanRecord, manager: PlanManager) -> dict[str, Member]:
    """The pod, and of those that its plan names the others that wait for a node and have no other plan since."""
    state, evictions, members = manager.evaluator.state, manager.evaluator.log, dict[str, Member]()
    act = manager.context.policy_set.policy_to_act_by
    for named in record.members or (PlanMember(pod.metadata.name, pod.metadata.uid, record.node),):
        key, said = f"{pod.metadata.namespace}/{named.name}", None
        known = state.pod_of(key, named.uid)
        waits = known is not None and not known.spec.node_name and act(known) is not None and key not in manager.plans
        if known is None or not (waits or known is pod):
            continue
        if known is pod or digest_of(known) in evictions.earlier_plans.get(named.uid, ()):
            with suppress(UnreadableError):
                said = plan_of(known)
        if said.id != record.id if said is not None else carries(known, record.id):
            continue
        member = Member(key, named.uid, known.spec.priority or 0, named.node)
        if said is not None and (known is pod or evictions.is_of_leader_before(named.uid, digest_of(known))):
            member.nominated = member.seen = True
            member.devices = [DeviceId(row.driver, row.pool, row.device) for row in said.devices]
            state.hold_devices(key, named.uid, member.devices)
        members[key] = member
    return members


def _taken_up(record: PlanRecord, members: dict[str, Member], manager: PlanManager, policy: PreemptionPolicy) -> Plan:
    """The plan, under way again: who was told and asked is read off the victims."""
    state, now, wall = manager.evaluator.state, manager.clock.monotonic(), manager.clock.wall()
    remaining, gone, notices, ends = list[Pod](), set[str](), dict[str, float](), dict[str, float]()
    for row in record.victims:
        victim = state.pod_of(row.key, row.uid)
        if victim is None:
            state.pending.expect_deallocated(row.uid)
        if victim is None or not stays(victim):
            gone.add(row.uid)
            continue
        remaining.append(victim)
        # What a victim was told is kept, by a clock that is behind no longer than the plan says from now on.
        notice, seconds = notice_of(victim), record.notice
        if notice is not None and notice.plan == record.id:
            seconds = min(epoch_or(notice.by, math.inf) - wall, seconds)
            notices[row.uid] = now + seconds
        ends[row.uid] = wall + max(0.0, seconds) + grace_under(policy, victim)
    plan = Plan(
        record,
        members,
        now,
        timeout=policy.plan_timeout,
        announced=not remaining,
        groups=group_names(state, record.victims),
        evicting=ServerTime(epoch_or(record.newest or record.begun, math.inf)),
        notices=notices,
        granted=now if gone else -math.inf,
        gone=gone,
    )
    for decision in (decision_of(state.pods.items()[key]) for key in members):
        if decision is not None and decision.plan == record.id:
            plan.owners |= frozenset(victim.owner for victim in decision.victims if victim.owner)
            plan.room = plan.room or decision.room
    manager.take_up(plan, remaining, ends)
    return plan


def recall_evictions(evaluator: Evaluator, policy_set: PolicySet, record: EvictionRecord) -> None:
    """Note what an earlier leader has written of evictions. Returning owners are excluded again.

    When a pod went that was yet to be asked is not known, so that counts as of now: nobody gets a rate back too early.
    """
    log_, now, wall = evaluator.log, evaluator.clock.monotonic(), evaluator.clock.wall()
    ahead, unled = now - record.now, max(0.0, wall - record.wall)
    log_.remember(policy.limits for policy in policy_set.policies.preemption)
    for row in reversed(record.evictions):
        log_.note(row._replace(at=min(row.at + ahead, now), unled=row.unled + unled))
    pods = evaluator.state.pods.items().values()
    there = {pod.metadata.uid for pod in pods if not pod.metadata.deletion_timestamp}
    for uid, eviction in record.intended.items():
        if uid not in there:
            log_.asked(uid, eviction, now)
    log_.earlier_plans = dict(record.plans)
    log_.returning = {owner: known._replace(until=known.until + ahead) for owner, known in record.returning.items()}
