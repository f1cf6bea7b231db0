"""The plans under way: how they begin, what the cluster's changes mean for them, how they end. Acts on nothing."""

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
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_view import grace_of, priority_of
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.outcomes import Evicts, Promised, Waits
from webhook.reconciler.evictions.log import BARE, PodEviction, name_of
from webhook.reconciler.plans.actions import LEAVES, Action, Ending, Spare
from webhook.reconciler.plans.next_action import next_action, over, policy_for, unasked, was_cleared
from webhook.reconciler.plans.notices import Notices
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, group_names, is_leaving
from webhook.reconciler.plans.plan_devices import awaits_deallocation, claims_in_the_way, concerns, devices_for
from webhook.reconciler.plans.recheck import (
    PlanContext,
    approval,
    fits_elsewhere,
    returning_owners,
    time_for,
    time_limit,
)
from webhook.reconciler.preemptors import PolicySet, grace_under, lacks_post_filter
from webhook.reconciler.queue.event_handlers import makes_company, node_helps
from webhook.reconciler.state.annotations import PlanMember, PlanRecord, as_victims, carries
from webhook.reconciler.state.notices import is_ready

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
        self.unseen: dict[str, None] = {}
        """Pods that are yet to be looked at: preemptors come to the queue, plans of earlier leaders are taken over."""
        self._unanswered: dict[str, Plan] = {}
        """Plans that have ended, by id, as long as a victim that they asked has not been answered for."""
        self.notices = Notices(self.index, self._unanswered)
        self.context = PlanContext(evaluator, policy_set, self.index, self._unanswered, self.unseen)
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
            plan.waiting = plan.announced = plan.rehearsed = True
            plan.deadline, plan.emptied = math.inf, plan.deadline - policy.plan_timeout
        self.unchecked[plan.id] = None
        plan.approved = approval(self.context, policy, now)
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

    def planned(self) -> set[str]:
        """The pods, by `namespace/name`, that plans count on and have yet to ask."""
        plans = (*self.index.by_id.values(), *self._unanswered.values())
        return {victim.key for plan in plans for victim in plan.asks()}

    def promised(self, pod: Pod) -> Promised:
        """What plans under way mean for a decision for this pod."""
        held: dict[str, list[Pod]] = {}
        for plan in self.index.by_id.values():
            for member in plan.unplaced if plan.gone else ():
                below = self._state.pods.get(member.key) if member.priority < (pod.spec.priority or 0) else None
                if below is not None and below.spec.scheduler_name == pod.spec.scheduler_name:
                    held.setdefault(member.node, []).append(below)
        return Promised(self.planned(), held)

    def exclude(self, plan: Plan, unneeded: Collection[str]) -> None:
        """These victims, by uid, turned out not to be needed: they stay, and nothing counts them as leaving."""
        plan.unneeded |= set(unneeded)
        self.settle(plan)
        self._touch_others(plan)

    def asked(self, plan: Plan, victim: Pod) -> None:
        """A victim was asked to leave: it has its time to end from now on, and counts for the rates from now on."""
        uid, now = victim.metadata.uid, self.clock.monotonic()
        policy = policy_for(self._state.pods.get(plan.member_for(victim).key) or victim, self.context.policy_set)
        ends = now + (grace_under(policy, victim) if policy is not None else grace_of(victim))
        self.evaluator.log.asked(uid, self._eviction(plan, victim), now)
        plan.note_asked(uid, ends, plan.evicting or self._state.creations.now())

    def acted(self, plan: Plan) -> None:
        """What the last look at a plan found has been done: it is looked at again."""
        plan.busy = False
        self.unchecked[plan.id] = None
        plan.waiting = plan.nominated and not unasked(plan, self.context)

    def settle(self, plan: Plan) -> None:
        """Expect no more than a plan counts on by now: that victims leave, and that its members are nominated.

        Once it has ended only asked victims leave, and those that are being asked count as asked. If its time was over
        these do not: they may stay.
        """
        self.notices.look_at(plan)
        victims = {victim.uid for victim in plan.record.victims}
        leaving = victims - plan.unneeded
        if plan.ended is not None:
            asking = set(plan.asking) if plan.ended is not Ending.TIMED_OUT else set()
            if asking:
                self._unanswered[plan.id] = plan
            else:
                self._unanswered.pop(plan.id, None)
            leaving = set() if self.dry_run else plan.gone | asking
        self._state.pending.give_up(plan.id, leaving, {member.key for member in plan.unplaced})
        self.evaluator.log.give_back(plan.id, victims - leaving)

    def forget_unanswered(self) -> None:
        """Nobody waits any more for what became of the victims of plans that are over."""
        for plan in list(self._unanswered.values()):
            plan.asking.clear()
            self.settle(plan)

    def end(self, plan: Plan, ending: Ending, because: Member | None = None) -> list[Member]:
        """End a plan, maybe `because` of one member, or have that leave it; returns for which members it is over now.

        These are none if it has ended before. Whether the others go on without one says the next look at the plan. A
        plan that ended because the lease is lost may be taken up again.
        """
        if self.index.by_id.get(plan.id) is not plan:
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
        if ending is Ending.TIMED_OUT:
            for victim in plan.record.victims:
                if victim.uid in plan.asking and (pod := self._state.pod_of(victim.key, victim.uid)) is not None:
                    self.evaluator.log.refused(pod, self.clock.monotonic())
        self.settle(plan)
        return members

    def preemptor_changed(self, plan: Plan, member: Member, pod: Pod | None) -> Ending | None:
        """The watch showed something new of a member: why it is over for that, None if it goes on."""
        if pod is not None and pod.status.nominated_node_name == member.node and carries(pod, plan.id):
            member.seen = True
        return over(plan, member, pod)

    def observe_nomination(self, plan: Plan, member: Member, pod: Pod) -> bool:
        """Go on without the nomination if the scheduler has cleared it; decisions count it as standing.

        A pod of higher priority may be behind that, for which kube-scheduler preempts there: then the room is taken,
        or will be, and the next look at the node finds that. Returns whether a scheduler has just cleared it that
        clears every nomination.
        """
        before = member.reserved
        member.reserved = not was_cleared(plan, pod)
        if member.reserved:
            return False
        if not before:
            return False
        self._note_touched(plan)
        return lacks_post_filter(pod)

    def notice_seen(self, key: str, pod: Pod) -> None:
        """The watch showed a pod with a notice: no plan may stand behind it, or the pod says that it is ready."""
        plan = self.notices.seen(key, pod)
        if plan is not None and is_ready(pod, plan.id):
            self.unchecked[plan.id] = None

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
                self._note_touched(plan, freed=self.clock.monotonic())

    def _touch(self, node: str, newcomer: Pod | None = None, victim: str = "") -> None:
        """Something, or a pod, came to a node or happened to it: the plans there, or of this victim, are looked at."""
        for plan in (*(plan for plan, _ in self.index.on_node(node)), *self.index.naming(victim)):
            self._note_touched(plan, self.clock.monotonic() if newcomer is None else None, newcomer)

    def _touch_others(self, plan: Plan) -> None:
        """A plan will not ask some of its victims: those plans are to be looked at that counted on it."""
        victims = [self._state.pods.get(victim.key) for victim in plan.record.victims]
        nodes = dict.fromkeys(member.node for member in plan.members)
        for node in nodes | {pod.spec.node_name: None for pod in victims if pod is not None}:
            for other, _ in self.index.on_node(node):
                if other is not plan:
                    self._note_touched(other)

    def _note_touched(self, plan: Plan, freed: float | None = None, newcomer: Pod | None = None) -> None:
        """Something happened to one of a plan's nodes: room may have come up then, or a pod came."""
        plan.freed = plan.freed if freed is None else freed
        if newcomer is not None and key_of(newcomer) not in {member.key for member in plan.members}:
            plan.newcomer = f"{key_of(newcomer)} of priority {newcomer.spec.priority or 0}"
        self.unchecked[plan.id] = None

    def next_action(self, plan: Plan) -> Action:
        """What to do next for a plan, by what there is now; victims that it does not need stay."""
        for uid, pod in list(plan.asking.items()) if not plan.busy else ():
            if (known := self._state.pod_of(key_of(pod), uid)) is None or is_leaving(known):
                self.asked(plan, plan.asking.pop(uid))  # it was on its way out
        while True:
            plan.waiting = plan.nominated and not unasked(plan, self.context)
            self._observe_room(plan)
            match action := next_action(plan, self.context, Now.by(self.clock)):
                case Spare(uids, why):
                    shown = ", ".join(victim.key for victim in plan.record.victims if victim.uid in uids)
                    log.info("plan %s for %s: %s stay: %s", plan.id, plan.key, shown, why)
                    self.exclude(plan, uids)
                case _:
                    return action

    def _observe_room(self, plan: Plan) -> None:
        """Note since when there is room on a plan's nodes, and until when the plan may go on by that."""
        pods, now = [(member, self._state.pods.get(member.key)) for member in plan.unplaced], self.clock.monotonic()
        known = [(member, pod) for member, pod in pods if pod is not None]
        if not known or self.dry_run:
            return
        there = plan.waiting and not awaits_deallocation(self._state, plan)
        fits = there and all(
            self.evaluator.fits_on(pod, member.node) or fits_elsewhere(plan, member, pod, self.context)
            for member, pod in known
        )
        since = max(plan.started, plan.freed) if math.isfinite(plan.freed) else now
        plan.roomy = min(plan.roomy, since) if fits else math.inf
        for member, pod in known:
            if claims_in_the_way(self._state.snapshot, plan, member) and self.evaluator.has_room(pod, member.node):
                self.hold_devices(member, devices_for(self._state.snapshot, pod, member.node))
        policy = policy_for(known[0][1], self.context.policy_set)
        plan.deadline = time_limit(plan, self.context, policy.plan_timeout if policy else plan.timeout)

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
            plans = self.index.by_id.items()
            self.unchecked |= {key: None for key, plan in plans if plan.started < now - _CHECK_ALL}
        for plan in [plan for plan in self.index.by_id.values() if plan.due <= now]:
            if plan.ended is None:
                yield plan
        while self.unchecked and self.clock.stopwatch() <= end:
            key = next(iter(self.unchecked))
            del self.unchecked[key]
            if (known := self.index.by_id.get(key)) is not None and not known.busy:
                yield known
