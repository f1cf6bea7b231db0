"""The control loop: from a change of the cluster to a preemptor that is bound.

A change moves preemptors in the queue (`queue`). Who is due is evaluated (`evaluate`). If evicting helps, a
plan is begun (`plans`), carried out (`evict`), and watched until its preemptor is bound. Calls go down; news
comes back as return values, and from tasks on one queue.

Deciding and bookkeeping happen between two awaits, so every decision sees all earlier ones. Tasks act, so no
slow answer of the API server holds up the next decision.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from webhook.kube.client import Client
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import key_of
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import NOTICE, PLAN
from webhook.preemption.snapshot.kinds import PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.extender_client import ExtenderClient, Question, Said
from webhook.reconciler.evict.executor import Executor, Performed
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.evictions.store import NOTHING, EvictionStore
from webhook.reconciler.plans.actions import LOST_ROOM, End, Ending, Wait
from webhook.reconciler.plans.adoption import adopt, recall_evictions
from webhook.reconciler.plans.plan import Member, Plan, stays
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preempting import Preempting
from webhook.reconciler.preemptors import PolicySet, SchedulerActivity, lacks_post_filter
from webhook.reconciler.queue.queue import Queue
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.state import State

log = logging.getLogger(__name__)

News = Performed | Question
_TURN = 0.005
"""Seconds of work after which watch events and answers get their turn; no decision is cut short."""
_LONGEST_SLEEP = 5.0
_EARLIER = 30.0
"""Seconds of a term in which watches may still show what an earlier leader wrote."""


class Reconciler:
    """Preempts for the pods of one cluster while `lead()` runs.

    `fence()` and `in_doubt()` are as for `Writer`. A `lease` (namespace, name) keeps what has to outlive it.
    """

    def __init__(
        self,
        client: Client,
        state: State,
        policy_set: PolicySet,
        reporter: Reporter,
        clock: MeasuringClock,
        *,
        fence: Callable[[], float],
        in_doubt: Callable[[], bool] = bool,
        dry_run: bool = False,
        lease: tuple[str, str] | None = None,
    ) -> None:
        self.state = state
        self.policy_set = policy_set
        self.reporter = reporter
        self.clock = clock
        self.leading = False
        self._began = math.inf
        """When this process began to lead, in monotonic seconds."""
        self.queue = Queue()
        self.evaluator = Evaluator(state, EvictionLog(), clock)
        self.plan_manager = manager = PlanManager(self.evaluator, policy_set, dry_run=dry_run)
        self.plans = manager.plans
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        """What tasks have to tell; None if there is other work."""
        self.store = EvictionStore(client, lease, self.evaluator.log, clock, fence)
        self._unseen: dict[str, None] = {}
        """Pods that `_look_at` is yet to look at."""
        self.extender_client = ExtenderClient(self._news)
        self.preempting = Preempting(manager, self.queue, self._ask, reporter)
        wrote = reporter.metrics.write_seconds
        writer = Writer(client, fence, lambda write, took: wrote.labels(write).observe(took), in_doubt)
        self.executor = Executor(writer, manager, reporter, store=self.store, news=self._news)
        for kind in SNAPSHOT_KINDS:
            state.caches[kind.resource].handlers.append(partial(self._changed, kind))

    # How a process begins and ends to lead.

    async def lead(self) -> None:
        """Act until cancelled: take up what an earlier leader left, then work."""
        await self.state.wait_for_sync()
        record = NOTHING if self.plan_manager.dry_run else await self.store.read()
        keeping = asyncio.create_task(self.store.keep())
        self.leading, self._began = True, self.clock.monotonic()
        try:
            # 1. Earlier evictions count, whoever asked, and what they taught holds.
            recall_evictions(self.evaluator, self.policy_set, record)
            # 2. Every preemptor comes to the queue, every plan on a pod is found.
            self.look_at_all()
            # 3. From now on changes of the cluster say what to do.
            await self.work()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            self.leading = False
            await self.stop()

    def use(self, policies: Policies) -> None:
        """Take these into use: pods are looked at again. Raises ClusterError."""
        self.policy_set.use(policies)
        self.evaluator.log.remember(policy.limits for policy in policies.preemption)
        self.state.keep(self.policy_set.annotations())
        self.preempting.verdicts.clear()
        if self.leading:
            self.look_at_all()
            self.queue.wake(self.clock.monotonic())
            self._wake()

    def look_at_all(self) -> None:
        """Let every pod be looked at, bit by bit."""
        self._unseen |= dict.fromkeys(self.state.pods.items())

    def _look_at(self, key: str) -> None:
        """A preemptor is queued; an earlier leader's plan goes on, or is taken off."""
        manager, pod = self.plan_manager, self.state.pods.get(key)
        if pod is None:
            return
        written = pod.metadata.annotations or {}
        if NOTICE in written or PLAN in written:
            manager.noticed[key] = None
        self.preempting.offer(key, pod)
        is_over = self.state.pending.over(key, pod) is not None
        if manager.dry_run or key in self.plans or PLAN not in written or is_over:
            return
        if self.clock.monotonic() > self._began + _EARLIER:
            self.evaluator.log.earlier_plans.clear()
        if (plan := adopt(pod, manager)) is None:
            return
        for member in plan.unplaced:
            self.preempting.offer(member.key, self.state.pods.get(member.key))
            if entry := self.queue.entries.get(member.key):
                self.queue.hold((entry,), attempts=plan.record.attempt - 1)

    async def stop(self) -> None:
        """End every plan and task without writing; forget what pods tell a later term."""
        for plan in list(self.plan_manager.index.by_id.values()):
            self._end(plan, Ending.DEPOSED)
        await self.executor.stop()
        await self.store.write()
        self.plan_manager.forget()
        await self.extender_client.close()
        self._unseen.clear()
        while not self._news.empty():
            self._news.get_nowait()
        self.queue.clear()
        self.preempting.verdicts.clear()
        self.evaluator.log.clear()
        self.evaluator.schedulers = SchedulerActivity()

    # What the watches show.

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """An object changed, and the state has taken it in."""
        if not self.leading:
            return
        manager, work = self.plan_manager, self._take_news()  # what was done before counts first
        if kind is PODS:
            key, old, new = change.key, change.old, change.new
            # What a list shows of a pod may have been said long before.
            if new is None or self.state.pods.whole.is_set():
                self.evaluator.schedulers.observe(change, self.clock.monotonic())
            # 1. It may end the pod's plan, as a binding does, or its nomination.
            plan = self.plans.get(key)
            member = plan.members[key] if plan else None
            reserved = member is not None and member.reserved
            ending = manager.changed(kind, change)
            if plan and ending:
                self._end(plan, ending, because=member)
            elif new and reserved and member and not member.reserved and lacks_post_filter(new):
                self.reporter.nomination_cleared(new)
            # 2. It may help preemptors, come to the queue, or leave it.
            work |= self.preempting.pod_changed(change)
            # 3. An earlier leader may have written a plan on it.
            if new and PLAN in (new.metadata.annotations or ()):
                self._unseen[key] = None
            # 4. It may have a notice, and leave by itself.
            if old and not stays(new) and (told_by := manager.victim_left(old)):
                self.reporter.victim_left(told_by, old)
        else:
            work |= self.preempting.changed(kind, change)
            manager.changed(kind, change)
        if work or self._unseen or manager.unchecked or manager.noticed:
            self._wake()

    async def work(self) -> None:
        """Work the queue until cancelled."""
        plans = self.plan_manager.index.by_id
        while True:
            await self.state.wait_until_whole()
            self.turn()
            # Wait for news, or until something is due; others have their turn first.
            await asyncio.sleep(0)
            now = self.clock.monotonic()
            dues = [now + _LONGEST_SLEEP, self.queue.next_due()]
            if self._news.empty():
                dues += [min(plan.deadline, plan.wake) for plan in plans.values()]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(dues) - now)):
                    self._take_news(await self._news.get())

    def turn(self) -> None:
        """One turn of the loop, while no cache is taking in a list."""
        manager, clock = self.plan_manager, self.clock
        end = clock.stopwatch() + _TURN
        # 1. Take in what tasks have told.
        self._take_news()
        # 2. Take over what earlier leaders left before any decision.
        while self._unseen:
            key, _ = self._unseen.popitem()
            with _safely("%s could not be taken up", key):
                self._look_at(key)
            if self._unseen and clock.stopwatch() > end:
                self._wake()
                return
        # 3. Do what is next for each touched or due plan.
        for plan in manager.touched(end):
            with _safely("plan %s for %s could not be looked at", plan.id, plan.key):
                self._look(plan)
        # 4. Take off pods what no plan stands behind.
        while manager.noticed and clock.stopwatch() <= end:
            key, _ = manager.noticed.popitem()
            with _safely("what is written on %s could not be looked at", key):
                if not manager.dry_run:
                    self.executor.take_off(key)
        # 5. Preempt for those whose turn it is, for a moment.
        while (entry := self.queue.pop(clock.monotonic())) is not None:
            try:
                self.preempting.preempt(entry)
            except Exception as error:
                log.exception("%s could not be evaluated", entry.key)
                self.queue.park(entry, clock.monotonic(), reason=f"internal error: {error}")
            if clock.stopwatch() > end:
                break
        if manager.unchecked or manager.noticed:
            self._wake()

    def _wake(self) -> None:
        """There is work to do, so the loop must not sleep."""
        if self._news.empty():
            self._news.put_nowait(None)

    def _take_news(self, *news: News | None) -> bool:
        """Follow up all news, these first; whether there is any."""
        while not self._news.empty():
            news = *news, self._news.get_nowait()
        for piece in news:
            with _safely("news could not be taken in: %s", piece):
                if isinstance(piece, Performed):
                    plan = piece.plan
                    plan.busy = False
                    self.plan_manager.unchecked[plan] = None
                    if piece.ending:
                        self._end(plan, piece.ending)
                elif piece is not None:
                    # Decide again, if the preemptor still waits.
                    pod, now = piece.preemptor, self.clock.monotonic()
                    entry = self.queue.entries.get(key_of(pod))
                    if entry and entry.uid == pod.metadata.uid and entry.key not in self.plans:
                        self.queue.retry(entry, now, reason="an extender has answered")
        return bool(news)

    def _ask(self, question: Question, said: Said) -> None:
        self.executor.start(self.extender_client.ask(question, said))

    # The way of a plan.

    def _look(self, plan: Plan) -> None:
        """Do what is next for a plan: while a task acts for it only its end."""
        began = self.clock.stopwatch()
        step = self.plan_manager.look(plan)
        if isinstance(step, End):
            self._end(plan, step.ending, step.note, plan.members.get(step.member))
        elif isinstance(step, Wait):
            plan.wake = math.inf if plan.busy else min(step.until, plan.wake)
            if plan.announced or not step.all_asked:
                return
            plan.announced = True
            for member in plan.unplaced:
                if preemptor := self.state.pods.get(member.key):
                    self.reporter.evicted(plan, preemptor)
        elif not plan.busy:
            plan.busy, plan.wake = True, math.inf
            self.reporter.metrics.recheck_seconds.observe(self.clock.stopwatch() - began)
            self.executor.start(self.executor.perform(plan, step))

    def _end(self, plan: Plan, ending: Ending, note: str = "", because: Member | None = None) -> None:
        """End a plan, maybe `because` of a member, or have that leave; then decide again."""
        if not (members := self.plan_manager.end(plan, ending, because)):
            return
        if plan.ended is None:
            self.reporter.left(plan, members[0], ending)
        else:
            lost = self.state.pod_of(because.key, because.uid) if because else None
            self.reporter.ended(plan, ending, self.clock.monotonic() - plan.started, note, lost)
        if ending in LOST_ROOM:
            self.store.hurried.set()  # whose pods come back the next leader has to know
        self.preempting.plan_ended(plan, members, ending, because)
        self._wake()


@contextmanager
def _safely(failure: str, *about: object) -> Iterator[None]:
    """Go on with the others if it fails for one."""
    try:
        yield
    except Exception:
        log.exception(failure, *about)
