"""The plans under way: how they begin, what the cluster's changes and answers mean for them, how they end.

Acts on nothing. Which notices there are nothing remembers but the pods that carry them. One that no plan under way
stands behind is taken off, whoever wrote it, and however that plan ended.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_view import grace_of, priority_of
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.outcomes import Evicts, Promised, Waits
from webhook.reconciler.evictions.log import BARE, PodEviction, name_of
from webhook.reconciler.plans.actions import LEAVES, Do, Effect, End, Ending, PodAnswer, Spare, Verb, Wait
from webhook.reconciler.plans.look import PlanContext, judged_by, look, over, policy_for, unasked, was_cleared
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, group_names, is_leaving
from webhook.reconciler.plans.room import (
    awaits_deallocation,
    claims_in_the_way,
    concerns,
    devices_for,
    fits_elsewhere,
    returning_owners,
    time_for,
    time_limit,
)
from webhook.reconciler.preemptors import PolicySet, grace_under, lacks_post_filter
from webhook.reconciler.queue.event_handlers import makes_company, node_helps
from webhook.reconciler.state.annotations import PlanMember, PlanRecord, as_victims, carries, is_ready, notice_of

log = logging.getLogger(__name__)

_CHECK_ALL = 5.0
"""Seconds between two looks at plans that nothing seems to have happened to."""


class PlanManager:
    """Owns the plans under way, and what later decisions count of them. In a dry run they are only rehearsed."""

    def __init__(self, evaluator: Evaluator, policy_set: PolicySet, *, dry_run: bool = False) -> None:
        self.index = PlanIndex()
        self.plans = self.index.by_preemptor
        self.unchecked: dict[str, None] = {}
        """Plans, by id, that something happened to since they were last looked at."""
        self.evaluator = evaluator
        self.clock = evaluator.clock
        self.dry_run = dry_run
        self._state = evaluator.state
        self.noticed: dict[str, None] = {}
        """Pods whose notice is to be looked at, once no plan is left that may be taken over."""
        self.context = PlanContext(evaluator, policy_set, self.index)
        self._next_check = 0.0

    def begin(self, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits, attempts: int) -> Plan:
        """Make a plan of an outcome, for the pod or for the members of its gang that are placed.

        From now on every decision counts its victims as leaving. `attempts` is how many plans evicted for it in vain.
        """
        victims, places = outcome.victims, outcome.places or ((pod, outcome.node),)
        now, wall, seconds = self.clock.monotonic(), self.clock.wall(), time_for(victims, policy)
        gang = tuple(PlanMember(row.metadata.name, row.metadata.uid, node) for row, node in outcome.places)
        record = PlanRecord(
            id=uuid.uuid4().hex[:16],
            node=outcome.node,
            victims=as_victims(victims, outcome.groups),
            begun=rfc3339(wall),
            deadline=rfc3339(wall + seconds),
            policy=policy.name,
            attempt=attempts + 1,
            resize=bool(pod.spec.node_name),
            members=gang or msgspec.UNSET,
            notice=policy.victims.notice,
        )
        plan = Plan(
            record,
            [Member(key_of(row), row.metadata.uid, priority_of(row), node) for row, node in places],
            now,
            now + seconds,
            timeout=policy.plan_timeout,
            left_out=outcome.left_out,
            grounds={victim.metadata.uid: outcome.grounds[key_of(victim)] for victim in victims if outcome.grounds},
            groups=group_names(self._state, record.victims),
            room=outcome.room,
        )
        self.index.add(plan)
        self.expect(plan, policy, victims)
        for member, (row, node) in zip(plan.members, places, strict=True):
            self.hold_devices(member, devices_for(self._state.snapshot, row, node))
        if self.dry_run:
            # It is held as if it were carried out as long as its preemptor is pending and its room is there.
            for member in plan.members:
                member.nominated = True
            plan.announced = plan.rehearsed = True
            plan.deadline, plan.emptied = math.inf, plan.deadline - policy.plan_timeout
        self.unchecked[plan.id] = None
        plan.approved, plan.approved_at = judged_by(self.context, policy, now), now
        return plan

    def expect(self, plan: Plan, policy: PreemptionPolicy, victims: Collection[Pod]) -> None:
        """Let every later decision count the victims as leaving, the members as nominated, and the rates as used."""
        now, uptime = self.clock.wall(), self.clock.monotonic()
        ends: dict[str, float] = {}
        for pod in victims:
            uid = pod.metadata.uid
            notice = max(0.0, plan.notices[uid] - uptime) if uid in plan.notices else plan.record.notice
            ends[uid] = now + notice + grace_under(policy, pod)
        self._state.pending.expect(plan.id, victims, ends)
        for member in plan.unplaced:
            self._state.pending.hold(plan.id, (member.key, member.uid), member.node)
        evictions = {pod.metadata.uid: self._eviction(plan, pod) for pod in victims}
        plan.owners |= frozenset(eviction.workload for eviction in evictions.values() if eviction.workload)
        log = self.evaluator.log
        for uid, eviction in evictions.items() if self.dry_run else ():
            log.asked(uid, eviction, uptime)
        log.intend(plan.id, evictions)
        plan.logged = log.version

    def _eviction(self, plan: Plan, victim: Pod) -> PodEviction:
        """The eviction of a victim for this plan."""
        key = plan.member_for(victim).key
        by = self._state.pods.get(key)
        return self.evaluator.log.eviction_of(victim, name_of(by) if by else f"{BARE}{key}")

    def hold_devices(self, member: Member, devices: Collection[DeviceId]) -> None:
        """Let every later decision but those for pods of higher priority count these devices as taken."""
        member.devices = list(devices)
        self._state.hold_devices((member.key, member.uid), devices)

    def promised(self, pod: Pod) -> Promised:
        """What plans under way mean for a decision for this pod."""
        held: dict[str, list[Pod]] = {}
        plans, priority = self.index.by_id.values(), pod.spec.priority or 0
        lower = (
            row for plan in plans if plan.gone for row in plan.members if row.priority < priority and row.ended is None
        )
        for member in lower:
            below = self._state.pods.get(member.key)
            if below is not None and below.spec.scheduler_name == pod.spec.scheduler_name:
                held.setdefault(member.node, []).append(below)
        planned = (victim.key for plan in plans if not plan.waiting for victim in plan.asks())
        return Promised(dict.fromkeys(planned), held)

    def asked(self, plan: Plan, victim: Pod) -> None:
        """A victim was asked to leave: it has its time to end from now on, and counts for the rates from now on."""
        uid, now = victim.metadata.uid, self.clock.monotonic()
        policy = policy_for(self._state.pods.get(plan.member_for(victim).key) or victim, self.context.policy_set)
        ends = now + (grace_under(policy, victim) if policy is not None else grace_of(victim))
        self.evaluator.log.asked(uid, self._eviction(plan, victim), now)
        plan.note_asked(uid, ends, plan.evicting or self._state.creations.now())

    def note(self, plan: Plan, answer: PodAnswer) -> None:
        """Take in what came of a request for a plan, which may have ended meanwhile."""
        (verb, pod), now = answer.request, self.clock.monotonic()
        plan.note(answer, now)
        if answer.goes:
            self.asked(plan, pod)
        tries = plan.tries.get(pod.metadata.uid)
        if verb is Verb.DISPLACE and answer.said is Effect.DONE and (other := self.plans.get(key_of(pod))) is not None:
            other.member(key_of(pod)).displaced = True
            self.unchecked[other.id] = None
        elif tries is not None and tries.over and not tries.unclear and verb is not Verb.NOMINATE:
            self.evaluator.log.refused(pod, now)
        if plan.ended is not None:
            self.settle(plan)

    def acted(self, plan: Plan) -> None:
        """What the last look at a plan found has been done: it is looked at again."""
        plan.busy = False
        self.unchecked[plan.id] = None

    def settle(self, plan: Plan) -> None:
        """Expect no more than a plan counts on by now: that victims leave, and that its members are nominated.

        Once it has ended only asked victims leave, and those of whom it is not clear whether they do.
        """
        self.noticed |= {victim.key: None for victim in plan.record.victims if victim.uid in plan.notices}
        victims = {victim.uid for victim in plan.record.victims}
        leaving = victims - plan.unneeded
        if plan.ended is not None:
            plan.asking = {uid: pod for uid, pod in plan.asking.items() if uid in plan.unclear}
            leaving = set() if self.dry_run else plan.gone.union(plan.asking)
            if not plan.asking:
                self.index.forget(plan)
        self._state.pending.give_up(plan.id, leaving, {member.key for member in plan.unplaced})
        self.evaluator.log.give_back(plan.id, victims - leaving)

    def forget(self) -> None:
        """This process leads no more: what became of victims that were being asked the next leader finds out."""
        for plan in list(self.index.by_id.values()):
            plan.asking.clear()
            self.settle(plan)
        self.unchecked.clear()
        self.noticed.clear()

    def end(self, plan: Plan, ending: Ending, because: Member | None = None) -> list[Member]:
        """End a plan, maybe `because` of one member, or have that leave it; returns for which members it is over now.

        These are none if it has ended before. Whether the others go on without one says the next look at the plan. A
        plan that ended because the lease is lost may be taken up again.
        """
        if plan.ended is not None:
            return []
        leaves = because is not None and ending in LEAVES
        members = [because] if because is not None and leaves else plan.unplaced
        self.index.leave(plan, members, ending)
        if because is not None and not leaves and plan.gone:
            for owner in returning_owners(self.evaluator, plan, because, self.index):
                self.evaluator.log.returned(owner, self.clock.monotonic())
        for member in members:
            self._state.hold_devices((member.key, member.uid), ())
            if ending is not Ending.DEPOSED:
                self.evaluator.log.plans.pop(member.uid, None)
        self._touch_others(plan)
        if plan.ended is None:
            self._note_touched(plan)
        if ending is Ending.TIMED_OUT:  # who does not leave in all that time may stay
            for uid, pod in plan.asking.items():
                if self._state.pod_of(key_of(pod), uid) is not None:
                    self.evaluator.log.refused(pod, self.clock.monotonic())
            plan.asking.clear()
        self.settle(plan)
        return members

    def preemptor_changed(self, plan: Plan, member: Member, pod: Pod | None) -> Ending | None:
        """The watch showed something new of a member: why it is over for that, None if it goes on."""
        if pod is not None and pod.status.nominated_node_name == member.node and carries(pod, plan.id):
            member.seen = member.nominated = True
        if not member.nominated:
            self.unchecked[plan.id] = None  # by what it is now it may be nominated at once
        return over(plan, member, pod)

    def observe_nomination(self, plan: Plan, member: Member, pod: Pod) -> bool:
        """Go on without the nomination if the scheduler has cleared it; decisions count it as standing.

        A pod of higher priority may be behind that, for which kube-scheduler preempts there: then the room is taken,
        or will be, and the next look at the node finds that. Returns whether a scheduler has just cleared it that
        clears every nomination.
        """
        before, member.reserved = member.reserved, not was_cleared(plan, pod)
        if member.reserved or not before:
            return False
        self._note_touched(plan)
        return lacks_post_filter(pod)

    def notice_seen(self, key: str, pod: Pod) -> None:
        """The watch showed a pod with a notice: no plan may stand behind it, or the pod says that it is ready."""
        record = notice_of(pod)
        if record is None or not self.stands(pod):
            self.noticed[key] = None
        elif is_ready(pod, record.plan):
            self.unchecked[record.plan] = None

    def victim_left(self, change: Change[Pod]) -> tuple[Plan, Pod] | None:
        """A victim that leaves though it has not been asked, and the plan that told it: so it left because of that."""
        old, new = change.old, change.new
        record = notice_of(old) if old is not None else None
        plan = self.index.by_id.get(record.plan) if record is not None else None
        if plan is None or old is None or (new is not None and not is_leaving(new)):
            return None
        uid = old.metadata.uid
        return (plan, old) if uid in plan.notices and uid not in plan.asking and plan.needs(uid) else None

    def withdrawn_next(self) -> str:
        """One of the pods that are to be looked at if its notice is to be taken off; empty if that is not."""
        key, _ = self.noticed.popitem()
        pod = self._state.pods.get(key)
        return key if pod is not None and not self.stands(pod) else ""

    def stands(self, pod: Pod) -> bool:
        """Whether the notice on a pod is that of a plan that wants it to go, or the pod leaves anyway."""
        record, uid = notice_of(pod), pod.metadata.uid
        plan = self.index.by_id.get(record.plan) if record is not None else None
        if pod.metadata.deletion_timestamp or plan is None:
            return bool(pod.metadata.deletion_timestamp)
        wanted = plan.asking if plan.ended is not None else {victim.uid for victim in plan.record.victims}
        return uid in wanted and uid not in plan.unneeded

    def came_to_node(self, change: Change[Pod]) -> None:
        """A pod changed: the plans for the node that it came to, or left, have lost or got their room."""
        new, old = change.new, change.old
        if new is None or is_terminal(new):
            if old is not None and old.spec.node_name:
                self._touch(old.spec.node_name, victim=old.metadata.uid)
            return
        nominated = new.status.nominated_node_name if change.key not in self.plans and not new.spec.node_name else ""
        if makes_company(change):
            self._touch(new.spec.node_name, new)
        elif nominated and nominated != (old.status.nominated_node_name if old else ""):
            self._touch(nominated, new)

    def object_changed(self, change: Change[Any]) -> None:
        """A node that is gone or different, or a change of devices: plans may have got their room, or lost it."""
        if isinstance(change.new or change.old, Node):
            if change.new is None or node_helps(change):
                self._touch(change.key)
            return
        for plan in self.index.by_id.values():
            if concerns(change, plan):
                self._note_touched(plan)

    def _touch(self, node: str, newcomer: Pod | None = None, victim: str = "") -> None:
        """Something, or a pod, came to a node or happened to it: the plans there, or of this victim, are looked at."""
        for plan in (*(plan for plan, _ in self.index.on_node(node)), *self.index.naming(victim)):
            self._note_touched(plan, newcomer)

    def _touch_others(self, plan: Plan) -> None:
        """A plan will not ask some of its victims: those plans are to be looked at that counted on it."""
        victims = [self._state.pods.get(victim.key) for victim in plan.record.victims]
        nodes = dict.fromkeys(member.node for member in plan.members)
        for node in nodes | {pod.spec.node_name: None for pod in victims if pod is not None}:
            for other, _ in self.index.on_node(node):
                if other is not plan:
                    self._note_touched(other)

    def _note_touched(self, plan: Plan, newcomer: Pod | None = None) -> None:
        """Something happened to one of a plan's nodes: room may have come up, or a pod came."""
        if newcomer is not None and key_of(newcomer) not in {member.key for member in plan.members}:
            plan.newcomer = f"{key_of(newcomer)} of priority {newcomer.spec.priority or 0}"
        self.unchecked[plan.id] = None

    def look(self, plan: Plan) -> Do | Wait | End:
        """What to do next for a plan, by what there is now; victims that it does not need stay."""
        for uid, pod in list(plan.asking.items()) if not plan.busy else ():
            if (known := self._state.pod_of(key_of(pod), uid)) is None or is_leaving(known):
                self.asked(plan, pod)  # it was on its way out
        if plan.ended is not None:
            self.settle(plan)
        try:
            self._observe_room(plan)
            step = look(plan, self.context, Now.by(self.clock))
        except ClusterError as error:
            step = End(Ending.OUTDATED, str(error))
        if isinstance(step, Spare):
            shown = ", ".join(victim.key for victim in plan.record.victims if victim.uid in step.uids)
            log.info("plan %s for %s: %s stay: %s", plan.id, plan.key, shown, step.why)
            plan.unneeded |= step.uids
            self.settle(plan)
            self._touch_others(plan)
            return self.look(plan)
        plan.waiting = isinstance(step, Wait) and step.all_asked
        return step

    def _observe_room(self, plan: Plan) -> None:
        """Note since when there is room on a plan's nodes, and until when the plan may go on by that."""
        known = [(row, pod) for row in plan.unplaced if (pod := self._state.pods.get(row.key)) is not None]
        if not known or self.dry_run:
            return
        there = plan.nominated and not unasked(plan, self.context) and not awaits_deallocation(self._state, plan)
        fits = there and all(
            self.evaluator.fits_on(pod, member.node) or fits_elsewhere(plan, member, pod, self.evaluator)
            for member, pod in known
        )
        plan.roomy = min(plan.roomy, self.clock.monotonic()) if fits else math.inf
        for member, pod in known:
            if claims_in_the_way(self._state.snapshot, plan, member) and self.evaluator.has_room(pod, member.node):
                self.hold_devices(member, devices_for(self._state.snapshot, pod, member.node))
        policy = policy_for(known[0][1], self.context.policy_set)
        plan.deadline = time_limit(plan, self.evaluator, self.index, policy.plan_timeout if policy else plan.timeout)

    def count_as_gone(self) -> bool:
        """Take the victims of rehearsed plans out of account that have had their time; whether there were any."""
        over = [plan for plan in self.index.by_id.values() if plan.emptied <= self.clock.monotonic()]
        for plan in over:
            plan.emptied = math.inf
            self._state.pending.expect_gone(plan.id)
        return bool(over)

    def touched(self, end: float) -> Iterator[Plan]:
        """The plans that are to be looked at: those that are due, then, until `end` (stopwatch), those touched.

        Those are plans that something happened to, or was done for. Now and then all are looked at.
        """
        now = self.clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_ALL
            self.unchecked |= dict.fromkeys(self.index.by_id)
        yield from [plan for plan in self.index.by_id.values() if plan.due <= now]
        while self.unchecked and self.clock.stopwatch() <= end:
            key = next(iter(self.unchecked))
            del self.unchecked[key]
            if (known := self.index.by_id.get(key)) is not None and not known.busy:
                yield known
