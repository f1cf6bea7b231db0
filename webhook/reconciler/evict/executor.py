"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods when they are over.

What is to be done next says `plans.look`. Each step is one task, which holds no decision: it makes one request for each
pod and notes what came of it on the plan. A request that came to nothing is made again by the next look, if that still
wants it. Every step can be the last one of this process: the plan written on the preemptor says to the next leader how
to go on.

What a plan has written is taken off once nothing stands behind it (docs/notice.md), by one PATCH of a pod's status with
its resourceVersion, as the pod is known by then. So what another plan has written meanwhile is not taken off. From the
second try on the pod is read before, and a notice is taken off by its uid alone: nobody keeps a pod, or a notice, by
changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from typing import Any, Literal, NamedTuple
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
from webhook.reconciler.plans.look import policy_for
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import (
    NoticeRecord,
    digest_of,
    encode,
    has_notice,
    not_own,
    notice_annotations,
    notice_condition,
    notice_of,
)

log = logging.getLogger(__name__)

_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
"""Seconds between two looks whether what a plan has written can be taken off, and for how long others come first."""


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
        self._state, self._clock = manager.evaluator.state, manager.clock
        self._store, self._news = store, news
        self._tasks: set[asyncio.Task[Any]] = set()
        self._taking_off: set[str] = set()
        """Pods, by `namespace/name`, that something is being taken off."""
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while the notice of a pod is written or taken off, so that neither undoes the other."""

    def take_off(self, key: str) -> None:
        """Take off a pod what nothing stands behind any more, unless that is being done."""
        pod = self._state.pods.get(key)
        if pod is not None and key not in self._taking_off and self._in_vain(pod):
            self._taking_off.add(key)
            self.start(self._take_off(key))

    def _in_vain(self, pod: Pod) -> Literal["clear", "withdraw", ""]:
        """What a pod carries that nothing stands behind any more: a plan, or a notice.

        A plan that another one of the preemptor follows is written over: an autoscaler that looks between two patches
        adds a node for a pod without a nomination.
        """
        key = key_of(pod)
        if key not in self._manager.plans and self._state.pending.over(key, pod) is not None:
            return "clear"
        return "withdraw" if has_notice(pod) and not self._manager.index.stands(pod) else ""

    async def stop(self) -> None:
        """End every task without writing: this process leads no more. One may not even have begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._taking_off.clear()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do this in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The steps of a plan.

    async def perform(self, plan: Plan, do: Do) -> None:
        """Do one step of a plan, and tell that it is done: when all of it is, none may write after it.

        Nobody is told or asked unless it was sure all the time who leads, and the store has written the plan: else
        something else may be to be done by then.
        """
        ending: Ending | None = None
        verbs = {verb for verb, _ in do.requests}
        waited = False
        if not verbs & {Verb.NOMINATE, Verb.DISPLACE}:
            waited = await self._writer.wait_while_in_doubt()
            if not waited and verbs != {Verb.TRY}:
                waited = await self._store.wait_until_written(plan.logged)
        work = (self._request(plan, verb, pod) for verb, pod in do.requests if not waited)
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
        version, tries = pod.metadata.resource_version, plan.tries.get(pod.metadata.uid)
        whatever = tries is not None and tries.whatever
        if verb is Verb.NOMINATE:  # the store has it, and the victims, before they are asked
            member = plan.members[key_of(pod)]
            record = plan.written_on(member)
            told = encode(member.decision) if member.decision else (pod.metadata.annotations or {}).get(DECISION, "")
            texts = {PLAN: encode(record)} | ({DECISION: told} if told else {})
            evictions = self._manager.evaluator.log
            digests = dict.fromkeys((*evictions.plans.get(member.uid, ()), digest_of(pod, texts)))
            evictions.plans[member.uid] = tuple(digests)
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
            known = await self._writer.read(pod.metadata)
            return Effect.DONE if known.metadata.deletion_timestamp else Effect.UNKNOWN
        by = self._state.pods.get(plan.member_for(pod).key)
        policy = policy_for(by, self._manager.context.policy_set) if by is not None else None
        if policy is None:
            return Effect.UNKNOWN
        if verb is Verb.TELL:
            async with self._alone.setdefault(key_of(pod), asyncio.Lock()):  # before its time begins
                await self._tell(plan, pod, min(policy.victims.notice, plan.record.notice), whatever=whatever)
            return Effect.DONE
        delete, grace = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds
        if verb is Verb.TRY:
            return await self._writer.evict(pod, grace, "", delete=delete, dry_run=True)
        # One that is deleted is marked before; one that a budget covers is read before, since the API spends a
        # disruption before it compares versions (docs/kubernetes-behaviour.md K17).
        known = pod
        if delete:
            known = await self._writer.mark(pod, self._clock.wall(), "" if whatever else version)
            version = known.metadata.resource_version
        elif self._state.pending.covering(pod):
            known, version = await self._writer.read(pod.metadata), ""
            if not whatever and (known.metadata.labels, not_own(known)) != (pod.metadata.labels, not_own(pod)):
                raise ApiError(409, "Conflict", "it has changed since it was judged")
        if known.metadata.deletion_timestamp:
            return Effect.DONE
        if known is not pod:  # that took its time
            step = self._manager.look(plan)
            asked = step.requests if isinstance(step, Do) else ()
            if (verb, pod.metadata.uid) not in [(other, about.metadata.uid) for other, about in asked]:
                raise ApiError(409, "Conflict", "it is not to be asked by now")
        plan.evicting = plan.evicting or self._state.creations.now()
        plan.asking[pod.metadata.uid] = pod
        return await self._writer.evict(known, grace, "" if whatever else version, delete=delete)

    async def _tell(self, plan: Plan, pod: Pod, seconds: float, *, whatever: bool) -> None:
        """Write on a victim that it is asked to leave in so many seconds.

        If an answer was lost the watch has shown the notice by now; what the pod says itself makes its time no longer.
        One whose annotations have no room for it is told by the Event alone.
        """
        clock, uid, record = self._clock, pod.metadata.uid, notice_of(pod)
        until = float(math.ceil(clock.wall() + seconds))  # an instant of whole seconds, and not one too few
        member, whom = plan.member_for(pod), self._reporter.preemptor_shown(plan, pod)
        if record is not None and record.plan == plan.id:
            until = min(epoch_or(record.by, until), until)
        else:
            record = NoticeRecord(
                plan=plan.id, by=rfc3339(until), preemptor=whom, uid=member.uid, priority=member.priority
            )
            text = f"asked to leave by {record.by} for pod {whom or member.uid} of priority {member.priority}"
            try:
                await self._write_notice("notice", pod, record, text, whatever=whatever)
            except ApiError as error:
                if error.status != 422:
                    raise
                log.warning("plan %s: only an Event tells %s: %s", plan.id, key_of(pod), error)
        self._reporter.told(plan, pod, record)
        self._manager.index.untold(uid)
        plan.note_told(uid, until + clock.monotonic() - clock.wall())

    async def _write_notice(
        self, what: str, pod: Pod, record: NoticeRecord | None, text: str = "", *, whatever: bool
    ) -> None:
        """Give a pod as it is known, or whatever it is by now, a notice that says this, or take the one it has off."""
        condition = notice_condition(self._clock.wall(), text)
        body = {"metadata": {"annotations": notice_annotations(record)}, "status": {"conditions": [condition]}}
        version = "" if whatever else pod.metadata.resource_version
        self._state.pods.written(await self._writer.patch_status(what, pod, body, version, kind="strategic"))

    async def _take_off(self, key: str) -> None:
        """Take off a pod what nothing stands behind any more, however long that takes.

        What a bound pod carries of a plan is in nobody's way, so other plans pass for some seconds.
        """
        pods, manager, clock, tries = self._state.pods, self._manager, self._clock, Tries()
        until, alone = clock.monotonic() + _LONGEST_PAUSE, self._alone.setdefault(key, asyncio.Lock())
        try:
            while True:
                async with alone:
                    try:
                        if tries.pause and (pod := pods.get(key)) is not None:
                            pods.written(await self._writer.read(pod.metadata))
                        if (pod := pods.get(key)) is None or not (what := self._in_vain(pod)):
                            break
                        if what == "withdraw":
                            manager.index.untold(pod.metadata.uid)
                            await self._write_notice(what, pod, None, whatever=tries.pause > 0)
                            self._reporter.withdrawn(pod)
                        elif is_deferred(pod) or not (
                            pod.spec.node_name and manager.plans and clock.monotonic() < until
                        ):
                            pods.written(await self._writer.clear(pod, self._state.pending.over(key, pod)))
                    except ApiError as error:
                        tries.failed(error, clock.monotonic())
                        if error.status not in {404, 409} and not may_pass(error):
                            log.warning("what is written on %s cannot be taken off yet: %s", key, error)
                    else:
                        tries = Tries()
                await asyncio.sleep(max(_PAUSE, tries.due - clock.monotonic()))
        except DeposedError:
            pass  # the next leader takes it off
        finally:
            self._taking_off.discard(key)
