"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods.

`plans.look` says what to do. Each step is a task that decides nothing: it makes one request for
each pod and notes the answer on the plan. What came to nothing is asked again if the next look
wants it. Any step can be the last of this process: the plan on the preemptor tells the next leader
how to go on.

What a plan has written is taken off once nothing stands behind it (docs/notice.md), by one PATCH
with the resourceVersion that is known: what another plan writes meanwhile stays. After a failure
the pod is read before, and a notice goes by the uid alone: nobody keeps a pod, or a notice, by
changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch_or, rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.evict.writer import CLEARED, Writer
from webhook.reconciler.evictions.store import DeposedError, EvictionStore
from webhook.reconciler.plans.actions import Do, Effect, Ending, Tries, Verb, may_pass
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import policy_for
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import (
    NoticeRecord,
    digest_of,
    encode,
    has_notice,
    notice_of,
    notice_patch,
)

log = logging.getLogger(__name__)

_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
"""Seconds between two tries to take something off, and for how long plans come first."""


class Performed(NamedTuple):
    """A step of a plan is done; `ending` says if the plan must end."""

    plan: Plan
    ending: Ending | None = None


class Executor:
    """Does the steps of plans, and takes plans off their pods, each in a task.

    Nobody is told or asked before the `store` has written the plan. `news` gets what is done.
    """

    def __init__(
        self,
        writer: Writer,
        manager: PlanManager,
        reporter: Reporter,
        store: EvictionStore,
        news: asyncio.Queue[Any],
    ) -> None:
        self._writer, self._manager, self._reporter = writer, manager, reporter
        self._state, self._clock = manager.evaluator.state, manager.clock
        self._store, self._news = store, news
        self._tasks = set[asyncio.Task[Any]]()
        self._taking_off = set[str]()
        """Pods, `namespace/name`, that something is being taken off."""
        self._alone = WeakValueDictionary[str, asyncio.Lock]()
        """By pod: held while its notice is written or taken off."""

    def take_off(self, key: str) -> None:
        """Take off a pod what nothing stands behind, unless that is being done."""
        if key not in self._taking_off and self._in_vain(self._state.pods.get(key)):
            self._taking_off.add(key)
            self.start(self._take_off(key))

    def _in_vain(self, pod: Pod | None) -> str:
        """How to take off what nothing stands behind; empty if there is nothing.

        A plan that another one follows is written over: without a nomination an autoscaler
        would add a node.
        """
        if pod is None:
            return ""
        key, manager = key_of(pod), self._manager
        if key not in manager.plans and self._state.pending.over(key, pod) is not None:
            return "clear"
        return "withdraw" if has_notice(pod) and not manager.index.stands(pod) else ""

    async def stop(self) -> None:
        """End every task without writing: this process leads no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._taking_off.clear()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do this in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The steps of a plan.

    async def perform(self, plan: Plan, do: Do) -> None:
        """Do one step of a plan, and tell when all is done: nothing is written later.

        If it had to wait until it is sure who leads, or until the plan is stored, nothing
        is done: the next look says what is.
        """
        ending: Ending | None = None
        waited = False
        if do.verb not in {Verb.NOMINATE, Verb.DISPLACE}:
            waited = await self._writer.wait_while_in_doubt()
            if not waited:
                waited = await self._store.wait_until_written(plan.logged)
        work = (self._request(plan, do.verb, pod) for pod in do.pods if not waited)
        for failure in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(failure, DeposedError):
                ending = Ending.DEPOSED
            elif isinstance(failure, Exception):
                log.error("plan %s for %s failed", plan.id, plan.key, exc_info=failure)
                ending = ending or Ending.FAILED
        self._news.put_nowait(Performed(plan, ending))

    async def _request(self, plan: Plan, verb: Verb, pod: Pod) -> None:
        """Make one request, and note what came of it."""
        if plan.ended is not None and verb is not Verb.READ:
            return
        try:
            said: Effect | ApiError = await self._said(plan, verb, pod)
        except ApiError as error:
            said = Effect.GONE if error.status == 404 and verb is not Verb.NOMINATE else error
            log.warning("plan %s: to %s %s failed: %s", plan.id, verb, key_of(pod), error)
        self._manager.note(plan, verb, pod, said)
        if said is Effect.DONE and verb in {Verb.ASK, Verb.READ}:
            self._reporter.victim_asked(plan, pod)
        elif said is Effect.REFUSED:
            self._reporter.budget_refused(plan, key_of(pod))

    async def _said(self, plan: Plan, verb: Verb, pod: Pod) -> Effect:
        """What the server says to a request. Raises ApiError."""
        meta, version = pod.metadata, pod.metadata.resource_version
        if verb is Verb.NOMINATE:  # the store has it before the victims are asked
            member = plan.members[key_of(pod)]
            record = plan.written_on(member)
            texts = {PLAN: encode(record)}
            if member.decision is not None:
                texts[DECISION] = encode(member.decision)
            evictions = self._manager.evaluator.log
            evictions.plans[member.uid] |= {digest_of(pod, texts)}
            evictions.version += 1
            plan.logged = evictions.version
            self._store.hurried.set()
            # One patch for all of it (docs/kubernetes-behaviour.md K20).
            status = {} if record.resize else {"nominatedNodeName": record.node}
            body = {"metadata": {"annotations": texts}, "status": status}
            await self._writer.patch_status("nominate", pod, body, version)
            return Effect.DONE
        if verb is Verb.DISPLACE:
            await self._writer.patch_status("displace", pod, CLEARED, version)
            return Effect.DONE
        if verb is Verb.READ:
            known = await self._writer.read(meta)
            return Effect.DONE if known.metadata.deletion_timestamp else Effect.UNKNOWN
        by = self._state.pods.get(plan.member_for(pod).key)
        policy = policy_for(by, self._manager.context.policy_set)
        if policy is None:
            return Effect.UNKNOWN
        whatever = meta.uid in plan.tries and plan.tries[meta.uid].whatever
        version = "" if whatever else version
        if verb is Verb.TELL:
            seconds = min(policy.victims.notice, plan.record.notice)
            async with self._alone.setdefault(key_of(pod), asyncio.Lock()):  # before its time begins
                await self._tell(plan, pod, seconds, version)
            return Effect.DONE
        delete, grace = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds
        if verb is Verb.TRY:
            return await self._writer.evict(pod, grace, "", delete=delete, dry_run=True)
        # One whose version will not be compared is read before. So is one under a budget: the
        # API spends a disruption, then compares versions (docs/kubernetes-behaviour.md K17).
        known = pod
        if whatever or (not delete and self._state.pending.covering(pod)):
            version, known = "", self._judged(plan, await self._writer.read(meta))
        if delete and not known.metadata.deletion_timestamp:
            known = await self._writer.mark(pod, self._clock.wall(), version)
            self._judged(plan, known)
            version = version and known.metadata.resource_version
        if known.metadata.deletion_timestamp:
            return Effect.DONE
        plan.evicting = plan.evicting or self._state.newest
        plan.asking[meta.uid] = pod
        return await self._writer.evict(pod, grace, version, delete=delete)

    def _judged(self, plan: Plan, victim: Pod) -> Pod:
        """The victim of an answer. Raises ApiError if nobody asks it by now."""
        self._state.pods.written(victim)
        step, meta = self._manager.look(plan), victim.metadata
        asked = step.pods if isinstance(step, Do) and step.verb is Verb.ASK else ()
        if not (meta.deletion_timestamp or meta.uid in {row.metadata.uid for row in asked}):
            raise ApiError(409, "Conflict", "it is not to be asked by now")
        return victim

    async def _tell(self, plan: Plan, pod: Pod, seconds: float, version: str) -> None:
        """Write on a victim that it is asked to leave in so many seconds.

        After a lost answer the watch has shown the notice: its time gets no longer. If its
        annotations have no room, the Event alone tells it.
        """
        clock, uid, record = self._clock, pod.metadata.uid, notice_of(pod)
        until = float(math.ceil(clock.wall() + seconds))  # whole seconds, not one too few
        if record is not None and record.plan == plan.id:
            until = min(epoch_or(record.by, until), until)
        else:
            member, whom = plan.member_for(pod), self._reporter.preemptor_shown(plan, pod)
            record = NoticeRecord(
                plan=plan.id,
                by=rfc3339(until),
                preemptor=whom,
                uid=member.uid,
                priority=member.priority,
            )
            try:
                await self._write_notice(pod, version, record)
            except ApiError as error:
                if error.status != 422:
                    raise
                log.warning("plan %s: only an Event tells %s: %s", plan.id, key_of(pod), error)
        self._reporter.told(plan, pod, record)
        self._manager.index.untold(uid)
        plan.note_told(uid, until + clock.monotonic() - clock.wall())

    async def _write_notice(self, pod: Pod, version: str, record: NoticeRecord | None) -> None:
        """Give a pod of that resourceVersion this notice, or take its notice off."""
        what, body = "notice" if record else "withdraw", notice_patch(record, self._clock.wall())
        self._state.pods.written(await self._writer.patch_status(what, pod, body, version))

    async def _take_off(self, key: str) -> None:
        """Take off a pod what nothing stands behind, however long that takes.

        A plan on a bound pod is in nobody's way: others come first for some seconds.
        """
        clock, tries = self._clock, Tries()
        until, alone = clock.monotonic() + _LONGEST_PAUSE, self._alone.setdefault(key, asyncio.Lock())
        try:
            while self._in_vain(self._state.pods.get(key)):
                try:
                    async with alone:
                        await self._take_off_now(key, until, afresh=tries.pause > 0)
                    tries = Tries()
                except ApiError as error:
                    tries.failed(error, clock.monotonic())
                    if error.status not in {404, 409} and not may_pass(error):
                        log.warning("what is written on %s cannot be taken off yet: %s", key, error)
                await asyncio.sleep(max(_PAUSE, tries.due - clock.monotonic()))
        except DeposedError:
            pass  # the next leader takes it off
        finally:
            self._taking_off.discard(key)

    async def _take_off_now(self, key: str, until: float, *, afresh: bool) -> None:
        """Take it off, unless plans come first."""
        pods, manager = self._state.pods, self._manager
        if afresh and (known := pods.get(key)) is not None:
            pods.written(await self._writer.read(known.metadata))
        if (pod := pods.get(key)) is None:
            return
        what = self._in_vain(pod)
        if what == "withdraw":
            manager.index.untold(pod.metadata.uid)
            await self._write_notice(pod, "" if afresh else pod.metadata.resource_version, None)
            self._reporter.withdrawn(pod)
        elif what == "clear":
            waits = pod.spec.node_name and manager.plans and self._clock.monotonic() < until
            if is_deferred(pod) or not waits:
                pods.written(await self._writer.clear(pod, self._state.pending.over(key, pod)))
