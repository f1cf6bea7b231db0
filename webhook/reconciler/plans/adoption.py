"""What a new leader takes over from the one before: the evictions, and the plans written on pods.

An annotation is text that somebody wrote. So a plan is believed only if the log of evictions
has its digest. Then it is a plan like any other: a look says whether and how it goes on.
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
from webhook.reconciler.plans.plan import Member, Plan, group_names, over, stays
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


def adopt(pod: Pod, manager: PlanManager) -> Plan | None:
    """Take over an earlier leader's plan on a pod; None without one, or if it is taken off.

    That of a gang is taken over with all members that are there, also if they lack it.
    """
    # 1. Read it. What no version of giveway would write is taken off.
    state, evictions, key = manager.evaluator.state, manager.evaluator.log, key_of(pod)
    record, uid = None, pod.metadata.uid
    try:
        record = plan_of(pod)
    except UnreadableError as error:
        log.warning("%s: %s; taking it off", key, error)
    # 2. Take it off if it was not under way like this, or is over: its nomination is gone
    #    though the scheduler clears none, the pod is left alone, or it goes on without it.
    policy, nominated = manager.context.policy_set.policy_to_act_by(pod), pod.status.nominated_node_name
    node = record.node if record else nominated
    under_way = nominated == node or (not nominated and lacks_post_filter(pod))
    if record and record.resize:
        under_way = pod.spec.node_name == node
    believed = record and evictions.is_of_leader_before(uid, digest_of(pod))
    known = record and record.id in manager.index.by_id
    if not (record and policy and believed and under_way) or known:
        if believed:
            del evictions.plans[uid]
        text = (pod.metadata.annotations or {}).get(PLAN, "")
        state.pending.count_on(text, {key: CountedOn(uid, node=node, off=True)})
        return None
    # 3. Let it hold its room. Its time begins again: nobody saw the scheduler at work.
    record = with_names(record, state.pods.items().values())
    plan = _taken_up(record, _members(pod, record, manager), manager, policy)
    for member in plan.unplaced:
        over(plan, member, state.pods.get(member.key))
    log.info("plan %s for %s: going on with it, %d victims remain", plan.id, plan.key, len(plan.needed))
    return plan


def _members(pod: Pod, record: PlanRecord, manager: PlanManager) -> dict[str, Member]:
    """The pod, and others of its plan that wait for a node and have no other plan."""
    state, evictions = manager.evaluator.state, manager.evaluator.log
    members, act = dict[str, Member](), manager.context.policy_set.policy_to_act_by
    for named in record.members or (PlanMember(pod.metadata.name, pod.metadata.uid, record.node),):
        key, uid = f"{pod.metadata.namespace}/{named.name}", named.uid
        known, said = state.pod_of(key, uid), None
        if not known:
            continue
        waits = not known.spec.node_name and act(known) and key not in manager.plans
        if not waits and known is not pod:
            continue
        digest = digest_of(known)
        if known is pod or digest in evictions.earlier_plans.get(uid, ()):
            with suppress(UnreadableError):
                said = plan_of(known)
        if said.id != record.id if said else carries(known, record.id):
            continue
        member = members[key] = Member(key, uid, known.spec.priority or 0, named.node)
        if said and (known is pod or evictions.is_of_leader_before(uid, digest)):
            member.nominated = member.seen = True
            member.devices = [DeviceId(*device) for device in said.devices]
            state.hold_devices(key, uid, member.devices)
    return members


def _taken_up(record: PlanRecord, members: dict[str, Member], manager: PlanManager, policy: PreemptionPolicy) -> Plan:
    """The plan, under way again: its victims show who was told and asked."""
    state, now, wall = manager.evaluator.state, manager.clock.monotonic(), manager.clock.wall()
    remaining, ends, notices = list[Pod](), dict[str, float](), dict[str, float]()
    for row in record.victims:
        victim, seconds = state.pod_of(row.key, row.uid), record.notice
        if victim is None:
            state.pending.expect_deallocated(row.uid)
        if not stays(victim):
            continue
        remaining.append(victim)
        # A victim's notice ends as it was told, and no later than the plan's would now.
        notice = notice_of(victim)
        if notice and notice.plan == record.id:
            seconds = min(epoch_or(notice.by, math.inf) - wall, seconds)
            notices[row.uid] = now + seconds
        ends[row.uid] = wall + max(0.0, seconds) + grace_under(policy, victim)
    gone = {row.uid for row in record.victims} - ends.keys()
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
        if decision and decision.plan == record.id:
            plan.owners |= {row.owner for row in decision.victims if row.owner}
            plan.room = plan.room or decision.room
    manager.take_up(plan, remaining, ends)
    return plan


def recall_evictions(evaluator: Evaluator, policy_set: PolicySet, record: EvictionRecord) -> None:
    """Note an earlier leader's record of evictions; returning owners stay excluded.

    Nobody knows when a pod went that was yet to be asked: it counts as of now, so no rate
    comes back too early.
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
    for owner, known in record.returning.items():
        log_.returning[owner] = known._replace(until=known.until + ahead)
