"""The requests about victims: whether they would go, what they are told, and that they leave (docs/semantics.md E3).

Each is made once. What it came to is noted on the plan, and the next look at that says whether it is made again.

A notice is written, and taken off once no plan stands behind it (docs/notice.md), by one PATCH of a pod's status with
its resourceVersion. So one that another plan has written meanwhile is not taken off, and one that is taken off late is
not written again. For a pod that has changed meanwhile it is one with its uid alone: nobody keeps a pod, or a notice,
by changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.reconciler.evict.writer import DeposedError, EvictionResult, StaleError, Writer
from webhook.reconciler.plans.actions import AboutVictims, Ask, Ending, Notify, Prepare, Try
from webhook.reconciler.plans.next_action import policy_for
from webhook.reconciler.plans.plan import Plan, Tries, is_leaving, is_there, may_pass
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PlanVictim, not_own
from webhook.reconciler.state.notices import (
    NoticeRecord,
    has_notice,
    notice_annotations,
    notice_condition,
    notice_of,
    withdrawn_condition,
)

log = logging.getLogger(__name__)

_AGAIN = 5.0
"""Seconds before a server that did not say what became of a victim, or take off its notice, is asked again."""


class VictimRequests:
    """Asks the API server about victims; methods raise DeposedError if this process does not lead."""

    def __init__(self, writer: Writer, manager: PlanManager, reporter: Reporter) -> None:
        self._writer, self._manager = writer, manager
        self._state, self._evaluator = manager.evaluator.state, manager.evaluator
        self._reporter = reporter
        self.withdrawing: set[str] = set()
        """Pods, by `namespace/name`, whose notice is being taken off."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def request(self, plan: Plan, victim: PlanVictim, step: AboutVictims) -> Ending | None:
        """Make one request about a victim; why the plan must end, None if it goes on."""
        pod = self._state.pod_of(victim.key, victim.uid)
        by = self._state.pods.get(plan.member_for(pod).key) if pod is not None else None
        policy = policy_for(by, self._manager.context.policy_set) if by is not None else None
        if plan.ended is not None or pod is None or policy is None or not is_there(self._state, plan, victim):
            return plan.ended
        try:
            match step:
                case Try():
                    said = await self._try(plan, victim, policy)
                case Notify():
                    said = await self._tell(plan, victim, pod, step.seconds)
                case Prepare():
                    said = await self._prepare(plan, victim, pod, policy)
                case Ask():
                    said = await self._ask(plan, victim, pod, policy)
        except ApiError as error:
            what = "told" if isinstance(step, Notify) else "removed"
            log.warning("plan %s: %s was not %s: %s", plan.id, victim.key, what, error)
            self._evaluator.log.refused(pod, self._manager.clock.monotonic())
            return Ending.FAILED
        if said is EvictionResult.REFUSED:
            self._reporter.budget_refused(plan, victim)
            return Ending.REFUSED
        return None

    async def _try(self, plan: Plan, victim: PlanVictim, policy: PreemptionPolicy) -> EvictionResult | None:
        """Ask without effect whether a victim would go."""
        delete, grace = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds
        said = await self._said(
            plan, victim, lambda: self._writer.evict(victim, grace, "", delete=delete, dry_run=True)
        )
        if said is not None and said is not EvictionResult.REFUSED:
            plan.tries.pop(victim.uid, None)
            plan.tried[victim.uid] = said is not EvictionResult.UNKNOWN
        return said

    async def _tell(self, plan: Plan, victim: PlanVictim, pod: Pod, seconds: float) -> EvictionResult | None:
        """Tell a victim that it is asked to leave in so many seconds."""
        clock, again = self._manager.clock, victim.uid in plan.tries

        async def tell() -> EvictionResult:
            until = await self._notify(plan, victim, pod, seconds, again=again)
            plan.note_told(victim.uid, until - clock.wall() + clock.monotonic())
            return EvictionResult.UNKNOWN

        said = await self._said(plan, victim, tell, pod.metadata.resource_version)
        if said is not None:
            plan.tries.pop(victim.uid, None)
        if said is EvictionResult.GONE:
            # No watch has shown that yet: whoever asks it next finds that, too
            plan.note_told(victim.uid, clock.monotonic())
        return said

    async def _prepare(
        self, plan: Plan, victim: PlanVictim, pod: Pod, policy: PreemptionPolicy
    ) -> EvictionResult | None:
        """Mark a victim that is to be deleted, or read one that is to be evicted."""
        delete, version = policy.eviction is EvictionMode.DELETE, _version(plan, pod)

        async def prepare() -> EvictionResult:
            wall = self._manager.clock.wall()
            known = await (self._writer.mark(victim, wall, version) if delete else self._writer.read(victim))
            if known.metadata.deletion_timestamp:
                return EvictionResult.ASKED
            plan.prepared[victim.uid] = known
            return EvictionResult.UNKNOWN

        return await self._have_leave(plan, victim, pod, prepare, version)

    async def _ask(self, plan: Plan, victim: PlanVictim, pod: Pod, policy: PreemptionPolicy) -> EvictionResult | None:
        """Ask one victim to leave."""
        known = plan.prepared.pop(victim.uid, pod)
        delete, grace, version = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds, ""
        if delete or known is pod:
            version = _version(plan, known)
        elif _version(plan, pod) and (known.metadata.labels, not_own(known)) != (pod.metadata.labels, not_own(pod)):
            plan.tries.setdefault(victim.uid, Tries()).changed(self._manager.clock.monotonic())
            return None  # the API spends a disruption before it compares versions (docs/kubernetes-behaviour.md K17)
        plan.evicting = plan.evicting or self._state.creations.now()
        ask = partial(self._writer.evict, victim, grace, version, delete=delete)
        return await self._have_leave(plan, victim, pod, ask, version)

    async def _said(
        self, plan: Plan, victim: PlanVictim, ask: Callable[[], Awaitable[EvictionResult]], version: str = ""
    ) -> EvictionResult | None:
        """What comes of one request about a victim, of that resourceVersion; None if another one is to be made later.

        If it failed and trying again would not help, the server is asked for the pod. Raises ApiError if that stays.
        """
        tries = plan.tries.setdefault(victim.uid, Tries())
        try:
            said = await ask()
        except ApiError as error:
            if tries.failed(error, self._manager.clock.monotonic()):
                return None
            away = error.reason == "Unreachable"
            try:
                fate = None if away else await self._writer.fate(victim)
            except ApiError as another:
                if not may_pass(another):
                    raise error from another
                fate, away = None, True
            now = self._manager.clock.monotonic()
            if fate is None and away:
                tries.rest(now)
            elif fate is None and error.status == 409 and version:
                tries.changed(now)
            elif fate is None:
                raise
            return fate
        except StaleError:
            return EvictionResult.GONE
        return said

    async def _have_leave(
        self,
        plan: Plan,
        victim: PlanVictim,
        pod: Pod,
        ask: Callable[[], Awaitable[EvictionResult]],
        version: str,
    ) -> EvictionResult | None:
        """Make a request after which a victim may leave, and note if it does."""
        plan.asking[victim.uid], unclear = pod, False
        try:
            said = await self._said(plan, victim, ask, version)
            unclear = said is None and plan.tries[victim.uid].may_have_left
            self._note_left(plan, pod, said)
        except asyncio.CancelledError:
            unclear = True  # the next leader has to know that it may go
            raise
        else:
            return said
        finally:
            if not unclear:
                plan.asking.pop(victim.uid, None)
            if plan.ended is not None:
                self._manager.settle(plan)

    def _note_left(self, plan: Plan, pod: Pod, said: EvictionResult | None) -> None:
        """Note that a victim leaves or is gone, if that is what the API server says."""
        if said in {EvictionResult.ASKED, EvictionResult.GONE}:
            self._manager.asked(plan, pod)
        if said is EvictionResult.ASKED:
            self._reporter.victim_asked(plan, pod)

    async def find_out(self, plan: Plan) -> None:
        """Find out what became of the victims of a plan that is over of whom no answer has come.

        As long as the server says nothing of one it counts as if it went.
        """
        for uid, pod in list(plan.asking.items()):
            try:
                self._note_left(plan, pod, await self._became(plan, pod))
            except (ApiError, DeposedError) as error:
                log.warning("plan %s: what became of %s is not known: %s", plan.id, key_of(pod), error)
            plan.asking.pop(uid, None)
        self._manager.settle(plan)

    async def _became(self, plan: Plan, pod: Pod) -> EvictionResult | None:
        """What became of a victim that was asked; None if it stays. Raises ApiError if asking again would not help."""
        victim = next(victim for victim in plan.record.victims if victim.uid == pod.metadata.uid)
        while (known := self._state.pod_of(victim.key, victim.uid)) is not None and not is_leaving(known):
            if not plan.tries[victim.uid].unclear:
                return None
            try:
                return await self._writer.fate(victim)
            except ApiError as error:
                if not may_pass(error):
                    raise
            await asyncio.sleep(_AGAIN)
        return EvictionResult.GONE

    def _alone(self, key: str) -> asyncio.Lock:
        """Held while the notice of a pod is written or taken off, so that neither undoes the other."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def _notify(self, plan: Plan, victim: PlanVictim, pod: Pod, seconds: float, *, again: bool) -> float:
        """Write on a victim that it is asked to leave in so many seconds; until when, in seconds since the epoch.

        If it is tried `again` the pod is read before: it may have the notice though the answer was lost, and it is told
        whatever it is by then. One whose annotations have no room for it is told by the Event alone.
        Raises StaleError if it is gone, ApiError if the API refuses.
        """
        if again:
            pod = await self._writer.read(victim)
            if (known := notice_of(pod)) is not None and known.plan == plan.id:
                self._reporter.told(plan, pod, known)
                return epoch(known.by)
        now = self._manager.clock.wall()
        until = float(math.ceil(now + seconds))  # an instant of whole seconds, and not one too few
        member, whom = plan.member_for(pod), self._reporter.preemptor_shown(plan, pod)
        record = NoticeRecord(plan=plan.id, by=rfc3339(until), preemptor=whom, uid=member.uid, priority=member.priority)
        text = f"asked to leave by {record.by} for pod {whom or member.uid} of priority {member.priority}"
        annotations, condition = notice_annotations(record), notice_condition(text, now)
        try:
            async with self._alone(victim.key):
                await self._writer.patch_as_it_is("notice", pod, annotations, condition, whatever=again)
        except ApiError as error:
            if error.status != 422:
                raise
            log.warning("plan %s: only an Event tells %s: %s", plan.id, victim.key, error)
        self._reporter.told(plan, pod, record)
        return until

    async def withdraw(self, key: str) -> None:
        """Take a notice off a pod as long as no plan stands behind it; on an error tried again every few seconds."""
        known = self._state.pods.get(key)
        if known is None:
            return
        self.withdrawing.add(key)
        try:
            await self._take_notice_off(known)
        except (StaleError, DeposedError):
            return
        except Exception:
            log.exception("the notice of %s could not be taken off", key)
        finally:
            self.withdrawing.discard(key)

    async def _take_notice_off(self, pod: Pod) -> None:
        """Take the notice off this pod. Raises StaleError if it is gone."""
        off = notice_annotations(None)

        async def write(current: Pod) -> None:
            if has_notice(current) and not self._manager.notices.stands(current):
                condition, whatever = withdrawn_condition(self._manager.clock.wall()), current is not pod
                await self._writer.patch_as_it_is("withdraw", current, off, condition, whatever=whatever)
                self._reporter.withdrawn(current)

        while True:
            try:
                async with self._alone(key_of(pod)):
                    return await self._writer.until_written(pod, write, patient=True)
            except ApiError as error:
                log.warning("the notice of %s cannot be taken off yet: %s", key_of(pod), error)
                await asyncio.sleep(_AGAIN)


def _version(plan: Plan, pod: Pod) -> str:
    """The resourceVersion of a victim as it is known, to ask with; empty if it is asked whatever it is by now."""
    tries = plan.tries.get(pod.metadata.uid)
    return "" if tries is not None and tries.whatever else pod.metadata.resource_version
