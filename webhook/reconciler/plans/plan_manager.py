"""The plans under way: how they begin, what the cluster's changes and answers mean for them, how they end.

Acts on nothing. Which notices there are nothing remembers but the pods that carry them. One that no plan under way
stands behind is taken off, whoever wrote it, and however that plan ended.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.kinds import NODES, PODS, SnapshotKind
from webhook.preemption.snapshot.pod_view import grace_of, priority_of
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.outcomes import Evicts, Promised, Waits
from webhook.reconciler.evictions.log import BARE, name_of
from webhook.reconciler.plans.actions import (
    LEAVES,
    Do,
    Effect,
    End,
    Ending,
    PodRequest,
    Spare,
    Verb,
    Wait,
)
from webhook.reconciler.plans.look import PlanContext, judged_by, look, over, policy_for, unasked, was_cleared
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, group_names, nodes_of, stays
from webhook.reconciler.plans.room import (
    claims_in_the_way,
    devices_for,
    fits_elsewhere,
    returning_owners,
    time_for,
    time_limit,
)
from webhook.reconciler.preemptors import PolicySet, grace_under
from webhook.reconciler.state.annotations import (
    PlanMember,
    PlanRecord,
    as_victims,
    carries,
    has_notice,
    notice_of,
)

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

    # How a plan begins, and what later decisions count of it.

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
            room=outcome.room,
        )
        self.take_up(plan, policy, victims)
        for member, (row, node) in zip(plan.members, places, strict=True):
            self.hold_devices(member, devices_for(self._state.snapshot, row, node))
        if self.dry_run:
            # It is held as if it were carried out as long as its preemptor is pending and its room is there.
            for member in plan.members:
                member.nominated = True
            plan.announced = plan.rehearsed = True
            plan.deadline, plan.emptied = math.inf, plan.deadline - policy.plan_timeout
            for uid, eviction in plan.evictions.items():
                self.evaluator.log.asked(uid, eviction, now)
        plan.approved = judged_by(self.context, policy, now)
        return plan

    def take_up(self, plan: Plan, policy: PreemptionPolicy, victims: Collection[Pod]) -> None:
        """Let every later decision count the victims as leaving, the members as nominated, and the rates as used."""
        evictions, ends = self.evaluator.log, dict[str, float]()
        now, wall = self.clock.monotonic(), self.clock.wall()
        self.index.add(plan)
        plan.groups = group_names(self._state, plan.record.victims)
        for pod in victims:
            uid, key = pod.metadata.uid, plan.member_for(pod).key
            notice = max(0.0, plan.notices[uid] - now) if uid in plan.notices else plan.record.notice
            ends[uid] = wall + notice + grace_under(policy, pod)
            by = self._state.pods.get(key)
            plan.evictions[uid] = evictions.eviction_of(pod, name_of(by) if by else f"{BARE}{key}")
        plan.owners |= frozenset(row.workload for row in plan.evictions.values())
        self._state.pending.expect(plan.id, victims, ends)
        for member in plan.unplaced:
            self._state.pending.hold(plan.id, (member.key, member.uid), member.node)
        evictions.intend(plan.id, plan.evictions)
        plan.logged = evictions.version
        self.unchecked[plan.id] = None

    def hold_devices(self, member: Member, devices: Collection[DeviceId]) -> None:
        """Let every later decision but those for pods of higher priority count these devices as taken."""
        member.devices = list(devices)
        self._state.hold_devices((member.key, member.uid), devices)

    def settle(self, plan: Plan) -> None:
        """Expect no more than a plan counts on by now: that victims leave, and that its members are nominated.

        Once it has ended only asked victims leave, and those of whom it is not clear whether they do.
        """
        self.noticed |= {victim.key: None for victim in plan.record.victims if plan.record.notice}
        leaving = {victim.uid for victim in plan.record.victims} - plan.unneeded
        if plan.ended is not None:
            plan.asking = {uid: pod for uid, pod in plan.asking.items() if uid in plan.unclear}
            leaving = set() if self.dry_run else plan.gone.union(plan.asking)
            if not plan.asking and self.index.by_id.pop(plan.id, None) is not None:
                self.index.known.put(plan.id, None)
        self._state.pending.give_up(plan.id, leaving, {member.key for member in plan.unplaced})
        for uid in plan.evictions.keys() - leaving:
            self.evaluator.log.give_back(plan.id, uid)

    def promised(self, pod: Pod) -> Promised:
        """What plans under way mean for a decision for this pod."""
        held: dict[str, list[Pod]] = {}
        plans = self.index.by_id.values()
        victims = ((plan, victim) for plan in plans if not plan.waiting for victim in plan.record.victims)
        planned = dict.fromkeys(victim.key for plan, victim in victims if plan.needs(victim.uid))
        for plan in plans:
            for member in plan.unplaced if plan.gone else ():
                below = self._state.pods.get(member.key)
                if below is None or member.priority >= priority_of(pod):
                    continue
                if below.spec.scheduler_name == pod.spec.scheduler_name:
                    held.setdefault(member.node, []).append(below)
        return Promised(planned, held)

    # What happens to it.

    def changed(self, kind: SnapshotKind, change: Change[Any]) -> Ending | None:
        """The watch showed something new: the plans that it concerns are to be looked at.

        Returns why it is over for the preemptor that has changed, if one has. A scheduler may have cleared its
        nomination: then decisions count that as standing. A pod of higher priority may be behind that, for which
        kube-scheduler preempts there: then the room is taken, or will be, and the next look finds that.
        """
        key, old, new = change.key, change.old, change.new
        if kind is not PODS:
            devices = self.index.by_id.values() if kind is not NODES else ()
            self._touch([plan for plan in devices if plan.devices])
            self._touch(plan for plan, _ in self.index.on_node(key if kind is NODES else ""))
            return None
        # 1. It came to a node or left it, so there is less room or more; or plans want it to go and have yet to ask it.
        here, before = nodes_of(new), nodes_of(old)
        uid, own = (new or old or Pod()).metadata.uid, self.plans.get(key)
        self._touch(plan for node in here ^ before for plan, _ in self.index.on_node(node) if plan is not own)
        self._touch(plan for plan in self.index.naming(uid) if not here or uid not in plan.gone)
        if new is not None and has_notice(new):
            self.noticed[key] = None
        # 2. Who came last to a node is told if its room is taken.
        if own is None:
            if new is not None and stays(new):
                for other in (other for node in here - before for other, _ in self.index.on_node(node)):
                    other.newcomer = f"{key} of priority {priority_of(new)}"
            return None
        # 3. It may be over for a preemptor, or it may be nominated by what it is now.
        member = own.member(key)
        if new is not None and new.status.nominated_node_name == member.node and carries(new, own.id):
            member.seen = member.nominated = True
        reserved = new is None or not member.seen or not was_cleared(own, new)
        if not member.nominated or member.reserved != reserved:
            self._touch([own])
        member.reserved = reserved
        return over(own, member, new)

    def _touch(self, plans: Iterable[Plan]) -> None:
        """These plans are to be looked at."""
        self.unchecked |= {plan.id: None for plan in plans}

    def _touch_others(self, plan: Plan) -> None:
        """A plan will not ask some of its victims: those plans are to be looked at that counted on it."""
        victims = [self._state.pods.get(victim.key) for victim in plan.record.victims]
        nodes = dict.fromkeys(member.node for member in plan.members)
        nodes |= {pod.spec.node_name: None for pod in victims if pod is not None}
        self._touch(other for node in nodes for other, _ in self.index.on_node(node) if other is not plan)

    def note(self, plan: Plan, request: PodRequest, said: Effect | ApiError) -> None:
        """Take in what came of a request for a plan, which may have ended meanwhile."""
        (verb, pod), now = request, self.clock.monotonic()
        meta, tries = pod.metadata, plan.note(request, said, now)
        if verb in {Verb.ASK, Verb.READ} and said in {Effect.DONE, Effect.GONE}:
            self.asked(plan, pod)
        elif verb is Verb.DISPLACE:
            if not isinstance(said, ApiError) or tries.over or tries.whatever:
                plan.displaced.add(meta.uid)
            if said is Effect.DONE and (other := self.plans.get(key_of(pod))) is not None:
                other.member(key_of(pod)).displaced = True
                self._touch([other])
        elif verb is Verb.NOMINATE and said is Effect.DONE:
            plan.member(key_of(pod)).nominated = True
        elif verb is Verb.TRY and said in {Effect.DONE, Effect.GONE, Effect.UNKNOWN}:
            plan.tried[meta.uid] = said is not Effect.UNKNOWN
        elif verb is Verb.TELL and said is Effect.GONE:
            plan.note_told(meta.uid, now)
        if tries.over and not tries.unclear and verb not in {Verb.NOMINATE, Verb.DISPLACE}:
            self.evaluator.log.refused(pod, now)
        if plan.ended is not None:
            self.settle(plan)

    def asked(self, plan: Plan, victim: Pod) -> None:
        """A victim was asked to leave: it has its time to end from now on, and counts for the rates from now on."""
        uid, now = victim.metadata.uid, self.clock.monotonic()
        preemptor = self._state.pods.get(plan.member_for(victim).key) or victim
        policy = policy_for(preemptor, self.context.policy_set)
        grace = grace_under(policy, victim) if policy is not None else grace_of(victim)
        self.index.leaving[uid] = now + grace
        self.evaluator.log.asked(uid, plan.evictions[uid], now)
        plan.note_asked(uid, plan.evicting or self._state.creations.now())

    def victim_left(self, change: Change[Pod]) -> tuple[Plan, Pod] | None:
        """A victim that leaves though it has not been asked, and the plan that told it: so it left because of that."""
        old = change.old
        record = notice_of(old) if old is not None and not stays(change.new) else None
        plan = self.index.by_id.get(record.plan) if record is not None else None
        if plan is None or old is None:
            return None
        uid = old.metadata.uid
        if uid not in plan.notices or uid in plan.asking or not plan.needs(uid):
            return None
        self.asked(plan, old)
        return plan, old

    def look(self, plan: Plan) -> Do | Wait | End:
        """What to do next for a plan, by what there is now; victims that it does not need stay."""
        state, evaluator, snapshot, at = self._state, self.evaluator, self._state.snapshot, Now.by(self.clock)
        # 1. Who was on its way out has left, and others may have had to go.
        for uid, victim in list(plan.asking.items()) if not plan.busy else ():
            if not stays(state.pod_of(key_of(victim), uid)):
                self.asked(plan, victim)
        if plan.ended is not None:
            self.settle(plan)
        try:
            # 2. Note since when there is room, and until when the plan may go on by that. Others may have to act first:
            #    kube-controller-manager has yet to take back what a victim held.
            known = [(row, pod) for row in plan.unplaced if (pod := state.pods.get(row.key)) is not None]
            awaited = not state.pending.awaited.isdisjoint(row.uid for row in plan.record.victims)
            waits = awaited or unasked(plan, self.context) or not all(member.nominated for member, _ in known)
            fits = not waits and all(
                evaluator.fits_on(pod, row.node) or fits_elsewhere(plan, row, pod, evaluator) for row, pod in known
            )
            plan.roomy = min(plan.roomy, at.monotonic) if fits and not self.dry_run else math.inf
            for member, pod in known:
                if claims_in_the_way(snapshot, plan, member) and evaluator.has_room(pod, member.node):
                    self.hold_devices(member, devices_for(snapshot, pod, member.node))
            policy = policy_for(known[0][1], self.context.policy_set) if known else None
            if not self.dry_run:
                timeout = policy.plan_timeout if policy else plan.timeout
                plan.deadline = math.inf if awaited else time_limit(plan, evaluator, self.index, timeout)
            # 3. By that it is said what to do.
            step = look(plan, self.context, at)
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

    def touched(self, end: float) -> Iterator[Plan]:
        """The plans that are to be looked at: those that are due, then, until `end` (stopwatch), those touched.

        Those are plans that something happened to, or was done for. Now and then all are looked at.
        """
        now = self.clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_ALL
            self._touch(self.index.by_id.values())
        yield from [plan for plan in self.index.by_id.values() if min(plan.deadline, plan.wake) <= now]
        while self.unchecked and self.clock.stopwatch() <= end:
            key = next(iter(self.unchecked))
            del self.unchecked[key]
            if (known := self.index.by_id.get(key)) is not None and not known.busy:
                yield known

    def count_as_gone(self) -> bool:
        """Take the victims of rehearsed plans out of account that have had their time; whether there were any."""
        over = [plan for plan in self.index.by_id.values() if plan.emptied <= self.clock.monotonic()]
        for plan in over:
            plan.emptied = math.inf
            self._state.pending.expect_gone(plan.id)
        return bool(over)

    def stands(self, pod: Pod) -> bool:
        """Whether the notice on a pod is that of a plan that wants it to go, or the pod leaves anyway."""
        record, uid = notice_of(pod), pod.metadata.uid
        plan = self.index.by_id.get(record.plan) if record is not None else None
        if pod.metadata.deletion_timestamp or plan is None:
            return bool(pod.metadata.deletion_timestamp)
        wanted = plan.asking if plan.ended is not None else {victim.uid for victim in plan.record.victims}
        return uid in wanted and uid not in plan.unneeded

    # How it ends.

    def end(self, plan: Plan, ending: Ending, because: Member | None = None) -> list[Member]:
        """End a plan, maybe `because` of one member, or have that leave it; returns for which members it is over now.

        These are none if it has ended before. Whether the others go on without one says the next look at the plan. A
        plan that ended because the lease is lost may be taken up again.
        """
        if plan.ended is not None:
            return []
        log_, now = self.evaluator.log, self.clock.monotonic()
        members = [because] if because is not None and ending in LEAVES else plan.unplaced
        for member in members:
            member.ended = ending
            del self.plans[member.key]
        if because is not None and because.ended not in LEAVES and plan.gone:
            for owner in returning_owners(self.evaluator, plan, because, self.index):
                log_.returned(owner, now)
        for member in members:
            self._state.hold_devices((member.key, member.uid), ())
            if ending is not Ending.DEPOSED:
                log_.plans.pop(member.uid, None)
        self._touch_others(plan)
        if plan.unplaced:
            self._touch([plan])
        else:
            plan.ended, plan.deadline, plan.wake, plan.waiting = ending, math.inf, math.inf, False
        if ending is Ending.TIMED_OUT:  # who does not leave in all that time may stay
            for uid, pod in plan.asking.items():
                if self._state.pod_of(key_of(pod), uid) is not None:
                    log_.refused(pod, now)
            plan.asking.clear()
        self.settle(plan)
        return members

    def forget(self) -> None:
        """This process leads no more: what became of victims that were being asked the next leader finds out."""
        for plan in list(self.index.by_id.values()):
            plan.asking.clear()
            self.settle(plan)
        self.unchecked.clear()
        self.noticed.clear()
