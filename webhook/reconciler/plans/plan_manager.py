"""The plans under way: how they begin, what changes and answers mean, how they end. Acts on nothing.

Which notices there are only the pods tell that carry them. One that no plan stands behind is
taken off, whoever wrote it, and however its plan ended.
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
from webhook.reconciler.plans import actions
from webhook.reconciler.plans.actions import Do, Effect, End, Ending, Spare, Tries, Verb, Wait
from webhook.reconciler.plans.look import Look, PlanContext
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, over, stays
from webhook.reconciler.plans.room import claims_in_the_way, returning_owners, time_limit
from webhook.reconciler.preemptors import PolicySet, grace_under, policy_for
from webhook.reconciler.state.annotations import PlanMember, PlanRecord, PlanVictim, has_notice, notice_of
from webhook.reconciler.state.pending import CountedOn

log = logging.getLogger(__name__)

_CHECK_AGAIN = 5.0
"""Seconds between two looks at a plan that nothing seems to have happened to."""


class PlanManager:
    """Owns the plans under way, and what decisions count of them. In a dry run they are rehearsed."""

    def __init__(self, evaluator: Evaluator, policy_set: PolicySet, *, dry_run: bool = False) -> None:
        self.index = PlanIndex()
        self.plans = self.index.by_preemptor
        self.unchecked: dict[Plan, None] = {}
        """Plans touched since the last look."""
        self.evaluator, self.clock = evaluator, evaluator.clock
        self._state, self._log = evaluator.state, evaluator.log
        self.dry_run = dry_run
        self.noticed: dict[str, None] = {}
        """Pods to look at for plan and notice after earlier plans are taken over."""
        self.context = PlanContext(evaluator, policy_set, self.index)

    # How a plan begins, and what later decisions count of it.

    def begin(self, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits, attempts: int) -> Plan:
        """Make a plan of an outcome, for the pod or the placed members of its gang.

        From now on decisions count on it. So many plans, `attempts`, evicted in vain.
        """
        victims, places = outcome.victims, outcome.places or ((pod, outcome.node),)
        now, wall, notice = self.clock.monotonic(), self.clock.wall(), policy.victims.notice
        # Victims have their time anyway, or they would end for nothing.
        ends = {row.metadata.uid: wall + notice + grace_under(policy, row) for row in victims}
        emptied = max(ends.values(), default=wall)
        numbers, rows = {"": 0}, list[PlanVictim]()
        for victim in victims:
            meta = victim.metadata
            group = numbers.setdefault(outcome.groups.get(key_of(victim), ""), len(numbers))
            rows.append(PlanVictim(meta.namespace, meta.name, meta.uid, group))
        gang = (PlanMember(row.metadata.name, row.metadata.uid, node) for row, node in outcome.places)
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
            members=tuple(gang) or msgspec.UNSET,
            notice=notice,
        )
        members = (Member(key_of(row), row.metadata.uid, priority_of(row), node) for row, node in places)
        grounds = zip(victims, outcome.decided, strict=False)
        plan = Plan(
            record,
            {row.key: row for row in members},
            now,
            timeout=policy.plan_timeout,
            left_out=outcome.left_out,
            grounds={victim.metadata.uid: decided for victim, decided in grounds},
            groups={number: group for group, number in numbers.items() if number},
            room=outcome.room,
        )
        self.take_up(plan, victims, ends)
        if self.dry_run:
            self._rehearse(plan, now)
            plan.emptied = now + emptied - wall
        plan.approved = self.context.judged_by(policy, now)
        return plan

    def _rehearse(self, plan: Plan, now: float) -> None:
        """It is held while its preemptor is pending and its room is there."""
        for member in plan.unplaced:
            member.nominated = True
        plan.announced = plan.rehearsed = True
        for uid, eviction in plan.evictions.items():
            self._log.asked(uid, eviction, now)

    def take_up(self, plan: Plan, victims: Iterable[Pod], ends: Mapping[str, float]) -> None:
        """Have decisions count on it: who leaves or is nominated, rates and devices.

        Each victim will be gone at its end, by uid, in seconds since the epoch.
        """
        state = self._state
        self.index.put(plan)
        for pod in victims:
            uid, key = pod.metadata.uid, plan.member_for(pod).key
            by = state.pods.get(key)
            plan.evictions[uid] = self._log.eviction_of(pod, name_of(by) if by else f"{BARE}{key}")
            plan.leaves[key_of(pod)] = CountedOn(uid, rfc3339(ends[uid]))
        plan.owners |= {row.workload for row in plan.evictions.values()}
        state.pending.count_on(plan.id, plan.counted_on())
        self._log.intend(plan.id, plan.evictions)
        plan.logged = self._log.version
        for member in plan.unplaced:
            self._hold_devices(member)
        self.unchecked[plan] = None

    def _hold_devices(self, member: Member) -> None:
        """Have decisions, but for higher pods, count a member's devices as taken.

        If it has none, they are those that it gets once all pods that leave are gone.
        """
        state, snapshot = self._state, self._state.snapshot
        pod = state.pods.get(member.key)
        with suppress(ClusterError):  # a look ends an unreadable pod's plan
            if pod and not member.devices and needs_devices(snapshot, compile_pod(pod)):
                member.devices = devices_on(snapshot, pod, member.node, without=snapshot.pods.leaving())
        state.hold_devices(member.key, member.uid, member.devices)

    def settle(self, plan: Plan) -> None:
        """Count only on what of a plan is to come, and look at plans that counted on more.

        Once it has ended only victims leave that were asked, or may have been.
        """
        if plan.ended:
            plan.asking = {uid: pod for uid, pod in plan.asking.items() if uid in plan.unclear}
            plan.needed = set(plan.asking)
        self.index.put(plan)
        if plan.record.notice:
            self.noticed |= {row.key: None for row in plan.record.victims}
        self._state.pending.count_on(plan.id, plan.counted_on())
        for uid in plan.evictions.keys() - plan.gone - plan.needed:
            self._log.give_back(plan.id, uid)
        nodes = dict.fromkeys(row.node for row in plan.members.values())
        for node in nodes | dict.fromkeys(row.node for row in plan.evictions.values()):
            self.unchecked |= dict.fromkeys(other for other in self.index.of(node) if other is not plan)

    def promised(self, pod: Pod) -> Promised:
        """What plans under way mean for a decision for this pod."""
        state, held, planned = self._state, dict[str, list[Pod]](), dict[str, None]()
        for plan in self.index.by_id.values():
            for row in plan.record.victims if not plan.waiting else ():
                if row.uid in plan.needed and stays(state.pod_of(row.key, row.uid)):
                    planned[row.key] = None
            for member in plan.unplaced if plan.gone else ():
                below = state.pods.get(member.key)
                if below is None or member.priority >= priority_of(pod):
                    continue
                if below.spec.scheduler_name == pod.spec.scheduler_name:
                    held.setdefault(member.node, []).append(below)
        return Promised(planned, held)

    # What happens to it.

    def changed(self, kind: SnapshotKind, change: Change[Any]) -> Ending | None:
        """The watch showed something new: the plans it concerns are looked at.

        Returns why it is over for a preemptor that has changed. If a scheduler has cleared
        its nomination, decisions count that as standing. If it did so to preempt there for
        a pod of higher priority, the next look finds that the room is lost.
        """
        key, old, new = change.key, change.old, change.new
        if kind is not PODS:
            holding = (plan for plan in self.index.by_id.values() if plan.devices)
            self.unchecked |= dict.fromkeys(self.index.of(key) if kind is NODES else holding)
            return None
        # 1. It came to a node or left it; or plans want it to go.
        here, before = set[str](), set[str]()
        for pod, nodes in (new, here), (old, before):
            if pod is not None and not is_terminal(pod):
                nodes |= {pod.spec.node_name, pod.status.nominated_node_name}
        uid, own = (new or old or Pod()).metadata.uid, self.plans.get(key)
        for node in here ^ before:
            self.unchecked |= dict.fromkeys(plan for plan in self.index.of(node) if plan is not own)
        for plan in self.index.of(uid):
            if not here or uid in plan.needed:
                self.unchecked[plan] = None
        if new is not None and has_notice(new):
            self.noticed[key] = None
        # 2. If room is taken, people are told who came last.
        if own is None and stays(new):
            for plan in (plan for node in here - before for plan in self.index.of(node)):
                plan.newcomer = f"{key} of priority {priority_of(new)}"
        if own is None:
            return None
        # 3. It may be over for a preemptor, or its nomination may have come or gone.
        member = own.members[key]
        reserved, ending = member.reserved, over(own, member, new)
        if not member.nominated or member.reserved is not reserved:
            self.unchecked[own] = None
        return ending

    def note(self, plan: Plan, verb: Verb, pod: Pod, said: Effect | ApiError) -> None:
        """Take in what came of a request for a plan, which may have ended meanwhile.

        In vain, it is made again after a pause, a nomination with the pod's next version.
        """
        error = said if isinstance(said, ApiError) else None
        now, uid, key = self.clock.monotonic(), pod.metadata.uid, key_of(pod)
        # 1. When to ask about the pod next, and whether it may be on its way out.
        tries = plan.tries.setdefault(uid, Tries())
        tries.refused = said is Effect.REFUSED
        if error or tries.refused:
            tries.failed(None if verb is Verb.READ else error, now)
        elif verb is not Verb.READ:
            del plan.tries[uid]
        if verb is Verb.READ:
            tries.unclear = error is not None and actions.may_pass(error)
        tries.unclear &= uid in plan.asking
        if verb is Verb.NOMINATE and error and error.status in {404, 409}:
            tries.conflicting = pod.metadata.resource_version
        if not (error and (tries.begun or tries.unclear)):
            plan.asking.pop(uid, None)
        # 2. How far the plan has come by that.
        match verb, said:
            case ((Verb.ASK | Verb.READ), (Effect.DONE | Effect.GONE)):
                self.asked(plan, pod)
            case Verb.NOMINATE, Effect.DONE:
                plan.members[key].nominated = True
            case Verb.TRY, (Effect.DONE | Effect.GONE | Effect.UNKNOWN):
                plan.tried[uid] = said is not Effect.UNKNOWN
            case Verb.TELL, Effect.GONE:
                plan.note_told(uid, now)
            case Verb.DISPLACE, _ if error is None or tries.over or tries.whatever:
                plan.displaced.add(uid)
                if said is Effect.DONE and (other := self.plans.get(key)):
                    other.members[key].displaced = True
                    self.unchecked[other] = None
        if tries.over and not tries.unclear and verb not in {Verb.NOMINATE, Verb.DISPLACE}:
            self._log.refused(pod, now)
        if plan.ended:
            self.settle(plan)

    def asked(self, plan: Plan, victim: Pod) -> None:
        """A victim was asked to leave: its time to end begins, and rates count it."""
        uid, now = victim.metadata.uid, self.clock.monotonic()
        by = self._state.pods.get(plan.member_for(victim).key)
        policy = policy_for(by, self.context.policy_set)
        grace = grace_under(policy, victim) if policy else grace_of(victim)
        self.index.leaving[uid] = now + grace
        self._log.asked(uid, plan.evictions[uid], now)
        plan.asking.pop(uid, None)
        plan.needed.discard(uid)
        plan.gone.add(uid)
        plan.evicting = plan.evicting or self._state.newest

    def victim_left(self, victim: Pod) -> Plan | None:
        """The plan that told this victim, which leaves before it is asked."""
        record, uid = notice_of(victim), victim.metadata.uid
        plan = self.index.by_id.get(record.plan) if record else None
        if plan and uid in plan.notices and uid in plan.needed and uid not in plan.asking:
            self.asked(plan, victim)
            return plan
        return None

    def look(self, plan: Plan) -> Do | Wait | End:
        """What to do next for a plan; victims that are not needed stay."""
        state, evaluator, now = self._state, self.evaluator, self.clock.monotonic()
        # 1. Who was on its way out has left, or victims are imagined to be gone.
        for uid, victim in list(plan.asking.items()) if not plan.busy else ():
            if not stays(state.pod_of(key_of(victim), uid)):
                self.asked(plan, victim)
        if plan.ended or plan.emptied <= now:
            plan.emptied = math.inf
            self.settle(plan)
        view = Look(plan, self.context, Now(now, self.clock.wall()))
        try:
            # 2. Note since when there is room, and the deadline unless claims are awaited.
            awaited = any(row.uid in state.pending.awaited for row in plan.record.victims)
            there = not (awaited or plan.rehearsed or view.left) and all(
                member.nominated and (evaluator.fits_on(pod, member.node) or view.fits_elsewhere(member, pod))
                for member, pod in view.pods
            )
            plan.roomy = min(plan.roomy, now) if there else math.inf
            plan.had_room = now if there else plan.had_room
            for member, pod in view.pods:
                taken = member.devices and claims_in_the_way(state.snapshot, plan, member)
                if taken and evaluator.has_room(pod, member.node):
                    member.devices = []
                    self._hold_devices(member)
            if not plan.rehearsed:
                timeout = view.policy.plan_timeout if view.policy else plan.timeout
                plan.deadline = math.inf if awaited else time_limit(plan, evaluator, self.index, timeout)
            # 3. By that it is said what to do.
            step = view.step()
        except ClusterError as error:
            step = End(Ending.OUTDATED, str(error))
        if isinstance(step, Spare):
            keys = [row.key for row in plan.record.victims if row.uid in step.uids]
            log.info("plan %s for %s: %s stay: %s", plan.id, plan.key, ", ".join(keys), step.why)
            plan.needed -= step.uids
            self.settle(plan)
            return self.look(plan)
        plan.waiting = isinstance(step, Wait) and step.all_asked
        return step

    def touched(self, end: float) -> Iterator[Plan]:
        """The plans that are due or touched, until `end` (stopwatch)."""
        now, plans = self.clock.monotonic(), self.index.by_id
        for plan in plans.values():
            if min(plan.deadline, plan.wake) <= now:
                self.unchecked[plan] = None
        while self.unchecked and self.clock.stopwatch() <= end:
            plan = next(iter(self.unchecked))
            del self.unchecked[plan]
            plan.wake = now + _CHECK_AGAIN
            if plan.id in plans and (not plan.busy or plan.deadline <= now):
                yield plan

    # How it ends.

    def end(self, plan: Plan, ending: Ending, because: Member | None = None) -> list[Member]:
        """End a plan, maybe `because` of a member, or have that leave it.

        Returns for whom it is over now: for nobody if it has ended before. The next look
        says whether others go on. If the lease is lost it may be taken up again.
        """
        if plan.ended:
            return []
        now, leaves = self.clock.monotonic(), ending in actions.LEAVES
        members = [because] if because and leaves else plan.unplaced
        if because and not leaves and plan.gone:
            for owner in returning_owners(self.evaluator, plan, because, self.index):
                self._log.returned(owner, now)
        for member in members:
            member.ended = ending
            del self.plans[member.key]
            self._state.hold_devices(member.key, member.uid, ())
            if ending is not Ending.DEPOSED:
                self._log.plans.pop(member.uid, None)
                self.noticed[member.key] = None
        plan.unplaced = [row for row in plan.unplaced if not row.ended]
        if plan.unplaced:
            self.unchecked[plan] = None
        else:
            plan.ended, plan.deadline, plan.wake, plan.waiting = ending, math.inf, now, False
        if ending is Ending.TIMED_OUT:  # who does not leave in all that time may stay
            for uid, pod in plan.asking.items():
                if self._state.pod_of(key_of(pod), uid):
                    self._log.refused(pod, now)
            plan.asking.clear()
        self.settle(plan)
        return members

    def forget(self) -> None:
        """This process leads no more: the next reads what became of those being asked."""
        for plan in list(self.index.by_id.values()):
            plan.asking.clear()
            self.settle(plan)
        self._state.pending.forget_over()
        self.unchecked.clear()
        self.noticed.clear()
