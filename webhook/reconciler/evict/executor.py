"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods when they are over.

What is to be done next says `plans.look`. Each step is one task, which holds no decision: it makes one request for each
pod and notes what came of it on the plan. A request that came to nothing is made again by the next look, if that still
wants it. Every step can be the last one of this process: the plan written on the preemptor says to the next leader how
to go on.

A notice is written, and taken off once no plan stands behind it (docs/notice.md), by one PATCH of a pod's status with
its resourceVersion. So one that another plan has written meanwhile is not taken off, and one that is taken off late is
not written again. For a pod that has changed meanwhile it is one with its uid alone: nobody keeps a pod, or a notice,
by changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import EvictionMode
from webhook.reconciler.evict.writer import DeposedError, StaleError, Writer
from webhook.reconciler.evictions.store import EvictionStore
from webhook.reconciler.plans.actions import Do, Effect, Ending, PodAnswer, PodRequest, Verb
from webhook.reconciler.plans.look import policy_for
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import (
    NoticeRecord,
    has_notice,
    not_own,
    notice_annotations,
    notice_condition,
    notice_of,
)

log = logging.getLogger(__name__)

_CLEAR_PAUSE, _CLEAR_LOOKS = 0.5, 20
"""Seconds between two looks whether other plans are under way, and how many there are before a bound pod's is taken."""
_FOLLOWING_PAUSE, _FOLLOWING_LOOKS = 0.05, 100
"""Seconds between two looks whether the following plan is written, and how many there are."""


class Performed(NamedTuple):
    """A step of a plan is done; why the plan must end, None if the next look says how it goes on."""

    plan: Plan
    ending: Ending | None = None


class Executor:
    """Does the steps of plans and takes them off their pods, each in a task of its own.

    Nobody is told or asked before the `store` has written the plan and its victims. What is done is put on `news`.
    """

    def __init__(
        self,
        writer: Writer,
        manager: PlanManager,
        reporter: Reporter,
        *,
        store: EvictionStore,
        news: asyncio.Queue[Any],
    ) -> None:
        self._writer, self._manager, self._reporter = writer, manager, reporter
        self._evaluator, self._state = manager.evaluator, manager.evaluator.state
        self._store, self._news = store, news
        self._tasks: set[asyncio.Task[None]] = set()
        self._withdrawing: set[str] = set()
        """Pods, by `namespace/name`, whose notice is being taken off."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def perform(self, plan: Plan, do: Do) -> None:
        """Do one step of a plan."""
        self._start(self._perform(plan, do))

    def clear(self, pod: Pod, plan_id: str, node: str, ended: tuple[Plan, Member] | None = None) -> None:
        """Take the plan of that id off the pod, and its nomination to that node.

        For a member for which its plan has just `ended` that is done once its nomination is not on its way any more.
        """
        self._state.pending.expect_cleared(plan_id, node, pod)
        task = self._start(self._clear(pod, plan_id, node, ended))
        task.add_done_callback(lambda _: self._state.pending.expect_not_cleared(plan_id, key_of(pod)))

    def withdraw(self, key: str) -> None:
        """Take the notice off a pod, unless that is being done."""
        if key not in self._withdrawing and (pod := self._state.pods.get(key)) is not None:
            self._start(self._withdraw(key, pod))

    async def stop(self) -> None:
        """End every task without writing: this process leads no more. One may not even have begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The steps of a plan.

    async def _perform(self, plan: Plan, do: Do) -> None:
        """Do one step of a plan, and tell that it is done: when all of it is, none may write after it."""
        ending: Ending | None = None
        requests = do.requests if await self._may_ask(plan, do) else ()
        work = (self._request(plan, request) for request in requests)
        for failure in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(failure, DeposedError):
                ending = Ending.DEPOSED
            elif isinstance(failure, Exception):
                log.error("plan %s for %s failed", plan.id, plan.key, exc_info=failure)
                ending = ending or Ending.FAILED
        self._news.put_nowait(Performed(plan, ending))

    async def _may_ask(self, plan: Plan, do: Do) -> bool:
        """Whether it was sure all the time who leads, and the store has written the plan if somebody is told or asked.

        Else something else may be to be done by then.
        """
        verbs = {request.verb for request in do.requests}
        if verbs & {Verb.NOMINATE, Verb.DISPLACE}:
            return True
        if self._writer.is_in_doubt():
            await self._writer.lease_left()
            return False
        return verbs == {Verb.TRY} or not await self._store.wait_until_written(plan.logged)

    async def _request(self, plan: Plan, request: PodRequest) -> None:
        """Make one request, and note what came of it."""
        if plan.ended is not None and request.verb is not Verb.READ:
            return
        try:
            answer = await self._answer(plan, request)
        except ApiError as error:
            gone = error.status == 404 and request.verb is not Verb.NOMINATE
            answer = PodAnswer(request, Effect.GONE if gone else error)
            log.warning("plan %s: to %s %s failed: %s", plan.id, request.verb, key_of(request.pod), error)
        except StaleError:
            answer = PodAnswer(request, Effect.GONE)
        self._manager.note(plan, answer)
        if answer.goes and answer.said is Effect.DONE:
            self._reporter.victim_asked(plan, request.pod)
        elif answer.said is Effect.REFUSED:
            self._reporter.budget_refused(plan, key_of(request.pod))

    async def _answer(self, plan: Plan, request: PodRequest) -> PodAnswer:
        """What the server says to a request. Raises ApiError, StaleError if the pod is gone."""
        verb, pod = request
        if verb is Verb.NOMINATE:
            await self._nominate(plan, plan.member(key_of(pod)), pod)
            return PodAnswer(request, Effect.DONE)
        if verb is Verb.DISPLACE:
            return PodAnswer(request, await self._writer.displace(pod))
        if verb is Verb.READ:
            known = await self._writer.read(pod.metadata)
            return PodAnswer(request, Effect.DONE if known.metadata.deletion_timestamp else Effect.UNKNOWN)
        by = self._state.pods.get(plan.member_for(pod).key)
        policy = policy_for(by, self._manager.context.policy_set) if by is not None else None
        if policy is None:
            return PodAnswer(request, Effect.UNKNOWN)
        delete, grace = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds
        match verb:
            case Verb.TRY:
                return PodAnswer(request, await self._writer.evict(pod, grace, "", delete=delete, dry_run=True))
            case Verb.TELL:
                return await self._tell(plan, request, min(policy.victims.notice, plan.record.notice))
            case Verb.PREPARE:
                wall, version = self._manager.clock.wall(), _version(plan, pod)
                marking = self._writer.mark(pod, wall, version) if delete else self._writer.read(pod.metadata)
                known = await marking
                return PodAnswer(request, Effect.DONE, None if known.metadata.deletion_timestamp else known)
            case _:
                return await self._ask(plan, request, grace, delete=delete)

    async def _nominate(self, plan: Plan, member: Member, pod: Pod) -> None:
        """Write nomination, plan and decision on a member: the store has it, and the victims, before they are asked."""
        log_ = self._evaluator.log

        def note(digest: str) -> None:
            if digest not in log_.plans.get(member.uid, ()):
                log_.believe(member.uid, digest)
            plan.logged = log_.version
            self._store.hurry()

        await self._writer.nominate(pod, plan.written_on(member), member.decision, note)

    async def _ask(self, plan: Plan, request: PodRequest, grace: int | None, *, delete: bool) -> PodAnswer:
        """Ask one victim to leave: as it was prepared, if it is still as it was then."""
        pod = request.pod
        known, version = plan.prepared.pop(pod.metadata.uid, pod), ""
        if delete or known is pod:
            version = _version(plan, known)
        elif _version(plan, pod) and (known.metadata.labels, not_own(known)) != (pod.metadata.labels, not_own(pod)):
            # The API spends a disruption before it compares versions (docs/kubernetes-behaviour.md K17)
            return PodAnswer(request, ApiError(409, "Conflict", "it has changed since it was judged"))
        plan.evicting = plan.evicting or self._state.creations.now()
        plan.asking[pod.metadata.uid] = pod
        return PodAnswer(request, await self._writer.evict(pod, grace, version, delete=delete))

    async def _tell(self, plan: Plan, request: PodRequest, seconds: float) -> PodAnswer:
        """Write on a victim that it is asked to leave in so many seconds.

        If it is tried again the pod is read before: it may have the notice though the answer was lost, and it is told
        whatever it is by then; what it says itself makes its time no longer. One whose annotations have no room for it
        is told by the Event alone.
        """
        pod, clock, again = request.pod, self._manager.clock, request.pod.metadata.uid in plan.tries
        ahead = clock.monotonic() - clock.wall()
        if again:
            pod = await self._writer.read(pod.metadata)
        until = float(math.ceil(clock.wall() + seconds))  # an instant of whole seconds, and not one too few
        if again and (known := notice_of(pod)) is not None and known.plan == plan.id:
            self._reporter.told(plan, pod, known)
            return PodAnswer(request, Effect.DONE, until=min(epoch(known.by), until) + ahead)
        member, whom = plan.member_for(pod), self._reporter.preemptor_shown(plan, pod)
        record = NoticeRecord(plan=plan.id, by=rfc3339(until), preemptor=whom, uid=member.uid, priority=member.priority)
        text = f"asked to leave by {record.by} for pod {whom or member.uid} of priority {member.priority}"
        annotations, condition = notice_annotations(record), notice_condition(clock.wall(), text)
        try:
            async with self._alone(key_of(pod)):
                await self._writer.patch_as_it_is("notice", pod, annotations, condition, whatever=again)
        except ApiError as error:
            if error.status != 422:
                raise
            log.warning("plan %s: only an Event tells %s: %s", plan.id, key_of(pod), error)
        self._reporter.told(plan, pod, record)
        return PodAnswer(request, Effect.DONE, until=until + ahead)

    def _alone(self, key: str) -> asyncio.Lock:
        """Held while the notice of a pod is written or taken off, so that neither undoes the other."""
        return self._locks.setdefault(key, asyncio.Lock())

    # What is taken off pods.

    async def _clear(self, pod: Pod, plan_id: str, node: str, ended: tuple[Plan, Member] | None) -> None:
        """Take plan and nomination off, however long that takes."""
        known: Pod | None = pod
        try:
            if ended is not None:
                await self._until_idle(*ended)
                known = self._state.pod_of(ended[1].key, ended[1].uid)
            without = await self._writer.clear(known, plan_id, node) if known is not None else None
            if without is not None:
                self._state.pods.written(without)
        except DeposedError:
            return
        except Exception:
            log.exception("plan %s could not be taken off %s", plan_id, key_of(pod))

    async def _until_idle(self, plan: Plan, member: Member) -> None:
        """Wait until nothing of a plan that has ended is on its way: what is written last must be the clearing.

        What a bound pod carries is in nobody's way, so other plans pass for some seconds. A plan whose node went is
        followed by another one, which is written in its place: an autoscaler that looks between two patches adds a node
        for a pod without a nomination.
        """
        while plan.busy:  # noqa: ASYNC110 - a clock
            await asyncio.sleep(_FOLLOWING_PAUSE)
        for _ in range(_CLEAR_LOOKS if member.ended is Ending.BOUND else 0):
            if self._manager.plans:
                await asyncio.sleep(_CLEAR_PAUSE)
        for _ in range(_FOLLOWING_LOOKS if member.ended is Ending.NODE_GONE else 0):
            following = self._manager.plans.get(member.key)
            if following is not None and not following.member(member.key).nominated:
                await asyncio.sleep(_FOLLOWING_PAUSE)

    async def _withdraw(self, key: str, pod: Pod) -> None:
        """Take the notice off a pod as long as no plan stands behind it."""
        off = notice_annotations(None)

        async def write(current: Pod) -> None:
            if has_notice(current) and not self._manager.stands(current):
                condition, whatever = notice_condition(self._manager.clock.wall()), current is not pod
                await self._writer.patch_as_it_is("withdraw", current, off, condition, whatever=whatever)
                self._reporter.withdrawn(current)

        self._withdrawing.add(key)
        try:
            await self._writer.until_written(pod, write, patient=True, alone=self._alone(key))
        except (StaleError, DeposedError):
            return
        except Exception:
            log.exception("the notice of %s could not be taken off", key)
        finally:
            self._withdrawing.discard(key)


def _version(plan: Plan, pod: Pod) -> str:
    """The resourceVersion of a victim as it is known, to ask with; empty if it is asked whatever it is by now."""
    tries = plan.tries.get(pod.metadata.uid)
    return "" if tries is not None and tries.whatever else pod.metadata.resource_version
