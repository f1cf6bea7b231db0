"""The plans under way: how they begin, what the cluster's changes and answers mean for them, how they end.

Acts on nothing. Which notices there are nothing remembers but the pods that carry them. One that no plan under way
stands behind is taken off, whoever wrote it, and however that plan ended.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import devices_on
from webhook.preemption.filters.devices import needs_devices
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES, PODS, SnapshotKind
from webhook.preemption.snapshot.pod_info import compile_pod
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
    Spare,
    Tries,
    Verb,
    Wait,
    may_pass,
)
from webhook.reconciler.plans.look import Look, PlanContext, judged_by, over, policy_for
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, stays
from webhook.reconciler.plans.room import claims_in_the_way, returning_owners, time_limit
from webhook.reconciler.preemptors import PolicySet, grace_under
from webhook.reconciler.state.annotations import PlanMember, PlanRecord, PlanVictim, has_notice, notice_of
from webhook.reconciler.state.pending import CountedOn

log = logging.getLogger(__name__)

_CHECK_AGAIN = 5.0
"""Seconds between two looks at a plan that nothing seems to have happened to."""


class PlanManager:
    """Owns the plans under way, and what later decisions count of them. In a dry run they are only rehearsed."""

    def __init__(self, evaluator: Evaluator, policy_set: PolicySet, *, dry_run: bool = False) -> None:
        self.index = PlanIndex()
        self.plans = self.index.by_preemptor
        self.unchecked: dict[Plan, None] = {}
        """Plans that something happened to since they were last looked at."""
        self.evaluator = evaluator
        self.clock = evaluator.clock
        self.dry_run = dry_run
        self._state = evaluator.state
        self.noticed: dict[str, None] = {}
        """Pods whose plan or notice is to be looked at, once no plan is left that may be taken over."""
        self.context = PlanContext(evaluator, policy_set, self.index)

    # How a plan begins, and what later decisions count of it.

    def begin(self, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits, attempts: int) -> Plan:
        """Make a plan of an outcome, for the pod or for the members of its gang that are placed.

        From now on every decision counts its victims as leaving. `attempts` is how many plans evicted for it in vain.
        """
        victims, places = outcome.victims, outcome.places or ((pod, outcome.node),)
        now, wall, notice = self.clock.monotonic(), self.clock.wall(), policy.victims.notice
        # If it were given up before its victims have had their time, they would have ended for nothing.
        ends = {victim.metadata.uid: wall + notice + grace_under(policy, victim) for victim in victims}
        emptied = max(ends.values(), default=wall)
        numbers, rows = {"": 0}, list[PlanVictim]()
        for victim in victims:
            meta, group = victim.metadata, outcome.groups.get(key_of(victim), "")
            rows.append(PlanVictim(meta.namespace, meta.name, meta.uid, numbers.setdefault(group, len(numbers))))
        gang = tuple(PlanMember(row.metadata.name, row.metadata.uid, node) for row, node in outcome.places)
        record = PlanRecord(
            id=uuid.uuid4().hex[:16],
            node=outcome.node,
            victims=tuple(rows),
            begun=rfc3339(wall),
            newest=rfc3339(max(0.0, self._state.newest.made)),
            deadline=rfc3339(emptied + policy.plan_timeout),
            policy=policy.name,
            attempt=attempts + 1,
            resize=bool(pod.spec.node_name),
            members=gang or msgspec.UNSET,
            notice=notice,
        )
        plan = Plan(
            record,
            {key_of(row): Member(key_of(row), row.metadata.uid, priority_of(row), node) for row, node in places},
            now,
            timeout=policy.plan_timeout,
            left_out=outcome.left_out,
            grounds={victim.metadata.uid: row for victim, row in zip(victims, outcome.decided, strict=False)},
            groups={number: group for group, number in numbers.items() if number},
            room=outcome.room,
        )
        self.take_up(plan, victims, ends)
        if self.dry_run:
            # It is held as if it were carried out as long as its preemptor is pending and its room is there.
            for member in plan.unplaced:
                member.nominated = True
            plan.announced = plan.rehearsed = True
            plan.emptied = now + emptied - wall
            for uid, eviction in plan.evictions.items():
                self.evaluator.log.asked(uid, eviction, now)
        plan.approved = judged_by(self.context, policy, now)
        return plan

    def take_up(self, plan: Plan, victims: Iterable[Pod], ends: Mapping[str, float]) -> None:
        """Let every later decision count on the plan: victims leave, members are nominated, rates and devices taken.

        Each victim will be gone at its end, by uid, in seconds since the epoch.
        """
        evictions = self.evaluator.log
        self.index.put(plan)
        for pod in victims:
            key = plan.member_for(pod).key
            by = self._state.pods.get(key)
            preemptor = name_of(by) if by else f"{BARE}{key}"
            uid = pod.metadata.uid
            plan.evictions[uid] = evictions.eviction_of(pod, preemptor)
            plan.leaves[key_of(pod)] = CountedOn(uid, rfc3339(ends[uid]))
        plan.owners |= frozenset(row.workload for row in plan.evictions.values())
        self._state.pending.count_on(plan.id, plan.counted_on())
        evictions.intend(plan.id, plan.evictions)
        plan.logged = evictions.version
        for member in plan.unplaced:
            self._hold_devices(member, self._state.pods.get(member.key))
        self.unchecked[plan] = None

    def _hold_devices(self, member: Member, pod: Pod | None) -> None:
        """Let every later decision but those for pods of higher priority count a member's devices as taken.

        Without any, they are those that it would get once every pod that is leaving is gone.
        """
        snapshot = self._state.snapshot
        with suppress(ClusterError):  # a look ends the plan of a pod that cannot be read
            if pod is not None and not member.devices and needs_devices(snapshot, compile_pod(pod)):
                member.devices = devices_on(snapshot, pod, member.node, without=snapshot.pods.leaving())
        self._state.hold_devices(member.key, member.uid, member.devices)

    def settle(self, plan: Plan) -> None:
        """Expect no more than a plan counts on by now: that victims leave, and that its members are nominated.

        Once it has ended only asked victims leave, and those of whom it is not clear whether they do. Plans that
        counted on the others are looked at.
        """
        if plan.ended is not None:
            plan.asking = {uid: pod for uid, pod in plan.asking.items() if uid in plan.unclear}
            plan.needed = set(plan.asking)
        leaving, nodes = plan.gone | plan.needed, [member.node for member in plan.members.values()]
        self.index.put(plan)
        self.noticed |= {victim.key: None for victim in plan.record.victims if plan.record.notice}
        self._state.pending.count_on(plan.id, plan.counted_on())
        for uid in plan.evictions.keys() - leaving:
            self.evaluator.log.give_back(plan.id, uid)
        for node in dict.fromkeys([*nodes, *(row.node for row in plan.evictions.values())]):
            self.unchecked |= dict.fromkeys(other for other in self.index.of(node) if other is not plan)

    def promised(self, pod: Pod) -> Promised:
        """What plans under way mean for a decision for this pod."""
        held: dict[str, list[Pod]] = {}
        planned: dict[str, None] = {}
        for plan in self.index.by_id.values():
            wanted = [] if plan.waiting else [row for row in plan.record.victims if row.uid in plan.needed]
            planned |= {row.key: None for row in wanted if stays(self._state.pod_of(row.key, row.uid))}
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
            holding = (plan for plan in self.index.by_id.values() if plan.devices)
            self.unchecked |= dict.fromkeys(self.index.of(key) if kind is NODES else holding)
            return None
        # 1. It came to a node or left it, so there is less room or more; or plans want it to go and have yet to ask it.
        here, before = set[str](), set[str]()
        for pod, nodes in (new, here), (old, before):
            if pod is not None and not is_terminal(pod):
                nodes |= {pod.spec.node_name, pod.status.nominated_node_name}
        uid, own = (new or old or Pod()).metadata.uid, self.plans.get(key)
        there = (plan for node in here ^ before for plan in self.index.of(node) if plan is not own)
        self.unchecked |= dict.fromkeys(there)
        self.unchecked |= dict.fromkeys(plan for plan in self.index.of(uid) if not here or uid in plan.needed)
        if new is not None and has_notice(new):
            self.noticed[key] = None
        # 2. Who came last to a node is told if its room is taken.
        if own is None:
            for plan in (plan for node in here - before for plan in self.index.of(node)):
                if new is not None and stays(new):
                    plan.newcomer = f"{key} of priority {priority_of(new)}"
            return None
        # 3. It may be over for a preemptor, or it may be nominated by what it is now.
        member = own.members[key]
        reserved, ending = member.reserved, over(own, member, new)
        if not member.nominated or member.reserved is not reserved:
            self.unchecked[own] = None
        return ending

    def note(self, plan: Plan, verb: Verb, pod: Pod, said: Effect | ApiError) -> None:
        """Take in what came of a request for a plan, which may have ended meanwhile.

        What came to nothing is tried again after a pause; a nomination as soon as the watch shows another version.
        """
        error = said if isinstance(said, ApiError) else None
        now, uid, key = self.clock.monotonic(), pod.metadata.uid, key_of(pod)
        # 1. When the next request about the pod may be made, and whether it may be on its way out.
        tries = plan.tries.setdefault(uid, Tries())
        tries.refused = said is Effect.REFUSED
        if error is not None or tries.refused:
            tries.failed(None if verb is Verb.READ else error, now)
        elif verb is not Verb.READ:
            del plan.tries[uid]
        tries.unclear = error is not None and may_pass(error) if verb is Verb.READ else tries.unclear
        tries.unclear &= uid in plan.asking
        if verb is Verb.NOMINATE and error is not None and error.status in {404, 409}:
            tries.conflicting = pod.metadata.resource_version
        if error is None or not (tries.begun or tries.unclear):
            plan.asking.pop(uid, None)
        # 2. How far the plan has come by that.
        if verb in {Verb.ASK, Verb.READ} and said in {Effect.DONE, Effect.GONE}:
            self.asked(plan, pod)
        elif verb is Verb.DISPLACE:
            if error is None or tries.over or tries.whatever:
                plan.displaced.add(uid)
            if said is Effect.DONE and (other := self.plans.get(key)) is not None:
                other.members[key].displaced = True
                self.unchecked[other] = None
        elif verb is Verb.NOMINATE and said is Effect.DONE:
            plan.members[key].nominated = True
        elif verb is Verb.TRY and said in {Effect.DONE, Effect.GONE, Effect.UNKNOWN}:
            plan.tried[uid] = said is not Effect.UNKNOWN
        elif verb is Verb.TELL and said is Effect.GONE:
            plan.note_told(uid, now)
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
        plan.asking.pop(uid, None)
        plan.needed.discard(uid)
        plan.gone.add(uid)
        plan.evicting = plan.evicting or self._state.newest

    def victim_left(self, victim: Pod) -> Plan | None:
        """The plan that told this victim, which leaves without having been asked: so it left because of that."""
        record, uid = notice_of(victim), victim.metadata.uid
        plan = self.index.by_id.get(record.plan) if record is not None else None
        if plan is None or uid not in plan.notices or uid in plan.asking or uid not in plan.needed:
            return None
        self.asked(plan, victim)
        return plan

    def look(self, plan: Plan) -> Do | Wait | End:
        """What to do next for a plan, by what there is now; victims that it does not need stay."""
        evaluator, snapshot, now = self.evaluator, self._state.snapshot, self.clock.monotonic()
        # 1. Who was on its way out has left, and others may have had to go. Those of a rehearsed plan may be gone, too.
        for uid, victim in list(plan.asking.items()) if not plan.busy else ():
            if not stays(self._state.pod_of(key_of(victim), uid)):
                self.asked(plan, victim)
        if plan.ended is not None:
            self.settle(plan)
        if plan.emptied <= now:
            plan.emptied = math.inf
            self.settle(plan)
        view = Look(plan, self.context, Now(self.clock.monotonic(), self.clock.wall()))
        try:
            # 2. Note since when there is room, and until when the plan may go on by that. Others may have to act first:
            #    kube-controller-manager has yet to take back what a victim held.
            awaited = not self._state.pending.awaited.isdisjoint(row.uid for row in plan.record.victims)
            nominated = all(member.nominated for member, _ in view.pods)
            waits = awaited or self.dry_run or bool(view.left) or not nominated
            for member, pod in view.pods if not waits else ():
                waits = waits or not (evaluator.fits_on(pod, member.node) or view.fits_elsewhere(member, pod))
            plan.roomy = math.inf if waits else min(plan.roomy, now)
            for member, pod in view.pods:
                taken = member.devices and claims_in_the_way(snapshot, plan, member)
                if taken and evaluator.has_room(pod, member.node):
                    member.devices = []
                    self._hold_devices(member, pod)
            policy = policy_for(view.pods[0][1], self.context.policy_set) if view.pods else None
            if not self.dry_run:
                timeout = policy.plan_timeout if policy else plan.timeout
                plan.deadline = math.inf if awaited else time_limit(plan, evaluator, self.index, timeout)
            # 3. By that it is said what to do.
            step = view.step()
        except ClusterError as error:
            step = End(Ending.OUTDATED, str(error))
        if isinstance(step, Spare):
            shown = ", ".join(victim.key for victim in plan.record.victims if victim.uid in step.uids)
            log.info("plan %s for %s: %s stay: %s", plan.id, plan.key, shown, step.why)
            plan.needed -= step.uids
            self.settle(plan)
            return self.look(plan)
        plan.waiting = isinstance(step, Wait) and step.all_asked
        return step

    def touched(self, end: float) -> Iterator[Plan]:
        """The plans that are to be looked at, until `end` (stopwatch): something happened to them, or they are due.

        After a while each is looked at again.
        """
        now, plans = self.clock.monotonic(), self.index.by_id
        self.unchecked |= {plan: None for plan in plans.values() if min(plan.deadline, plan.wake) <= now}
        while self.unchecked and self.clock.stopwatch() <= end:
            plan = next(iter(self.unchecked))
            del self.unchecked[plan]
            plan.wake = now + _CHECK_AGAIN
            if plan.id in plans and (not plan.busy or plan.deadline <= now):
                yield plan

    # How it ends.

    def end(self, plan: Plan, ending: Ending, because: Member | None = None) -> list[Member]:
        """End a plan, maybe `because` of one member, or have that leave it; returns for which members it is over now.

        These are none if it has ended before. Whether the others go on without one says the next look at the plan. A
        plan that ended because the lease is lost may be taken up again.
        """
        if plan.ended is not None:
            return []
        log_, now, leaves = self.evaluator.log, self.clock.monotonic(), ending in LEAVES
        members = [because] if because is not None and leaves else plan.unplaced
        if because is not None and not leaves and plan.gone:
            for owner in returning_owners(self.evaluator, plan, because, self.index):
                log_.returned(owner, now)
        for member in members:
            member.ended = ending
            del self.plans[member.key]
            self._state.hold_devices(member.key, member.uid, ())
            if ending is not Ending.DEPOSED:
                log_.plans.pop(member.uid, None)
                self.noticed[member.key] = None
        plan.unplaced = [member for member in plan.unplaced if member.ended is None]
        if plan.unplaced:
            self.unchecked[plan] = None
        else:
            plan.ended, plan.deadline, plan.wake, plan.waiting = ending, math.inf, now, False
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
        self._state.pending.forget_over()
        self.unchecked.clear()
        self.noticed.clear()
