"""The control loop: watch events move preemptors through the queue, each one due is considered, plans are begun.

Deciding and bookkeeping happen between two awaits, so every decision sees all that was decided before it; acting
happens in tasks of its own, so that no slow answer of the API server holds up the next decision.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from webhook.kube.client import Client
from webhook.kube.informer import Change
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler.clock import Clock
from webhook.reconciler.evaluate.evaluator import Evaluator, evaluate
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.extender_client import ExtenderClient
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Unschedulable, Waits
from webhook.reconciler.evict.executor import Executor, no_checkpoint
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.plans.nominations import to_displace
from webhook.reconciler.plans.plan import Plan, Plans
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.rechecking import Unneeded, unneeded
from webhook.reconciler.plans.recovery import recalled
from webhook.reconciler.policy_set import PolicySet
from webhook.reconciler.queue.event_handlers import EventHandlers
from webhook.reconciler.queue.queue import Entry, Queue
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PLAN, PlanVictim
from webhook.reconciler.state.preemptors import ineligible_reason, is_marked
from webhook.reconciler.state.state import State

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

_TURN = 0.02
"""Seconds of decisions after which watch events and answers get their turn."""
_LONGEST_SLEEP = 5.0
_SHOWN = 5
_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""


class Reconciler:
    """Preempts for the pods of one cluster while `lead()` runs; `fence()` is as `writing.Writer` asks it."""

    def __init__(
        self,
        client: Client,
        state: State,
        policy_set: PolicySet,
        reporter: Reporter,
        clock: Clock,
        *,
        fence: Callable[[], float],
        dry_run: bool = False,
        checkpoint: Callable[[str], Awaitable[None]] = no_checkpoint,
    ) -> None:
        self.state = state
        self.queue = Queue()
        self.plans = Plans()
        self.policy_set = policy_set
        self.reporter = reporter
        self.clock = clock
        self.leading = False
        self._work_arrived = asyncio.Event()
        self.evaluator = Evaluator(state, EvictionLimiter(), clock)
        self.extender_client = ExtenderClient(self._answered)
        writer = Writer(client, fence, reporter.wrote)
        executor = Executor(writer, self, reporter, clock, checkpoint)
        self.plan_manager = PlanManager(
            self.evaluator,
            self.plans,
            self.queue,
            executor=executor,
            writer=writer,
            reporter=reporter,
            policy_set=lambda: self.policy_set,
            wake=self._work_arrived.set,
            dry_run=dry_run,
        )
        self.event_handlers = EventHandlers(
            state,
            self.queue,
            self.plans,
            plan_manager=self.plan_manager,
            clock=clock,
            policy_set=lambda: self.policy_set,
            wake=self._work_arrived.set,
        )
        state.listeners.append(self._changed)

    def use(self, policy_set: PolicySet) -> None:
        """Take other policies into use: every pod is looked at again."""
        self.policy_set = policy_set
        if self.leading:
            self._take_all()
            self.queue.wake(self.clock.monotonic())
            self._work_arrived.set()

    async def lead(self) -> None:
        """Act until cancelled: take up what an earlier leader left, then work the queue."""
        await self.state.wait_for_sync()
        self.leading = True
        self.reporter.leading(True)
        try:
            self._recall()
            self._take_all()
            await self._work()
        finally:
            self.leading = False
            self.reporter.leading(False)
            await self.plan_manager.stop()
            await self.extender_client.close()
            self._forget()

    def pod(self, key: str) -> Pod | None:
        """The pod as the watch last showed it."""
        return self.state.pod(key)

    def has_budget(self, pod: Pod) -> bool:
        """Whether a disruption budget covers the pod."""
        return self.state.has_budget(pod)

    def to_displace(self, plan: Plan) -> list[Pod]:
        """Pods nominated to the plan's node that have to give way to its preemptor."""
        return to_displace(self.state, plan)

    def displaced(self, pod: Pod) -> None:
        """The pod's nomination was taken."""
        self.plan_manager.displaced(pod)

    def refused(self, victim: PlanVictim) -> None:
        """The API server does not let the victim be removed."""
        self.evaluator.eviction_backoff.note(victim.key, self.clock.monotonic())

    def answered(self, plan: Plan) -> None:
        """What came of asking a victim is known."""
        if plan.ended is not None:
            self.plan_manager.settle(plan)

    def objection(self, plan: Plan) -> str:
        """Why the plan should not go on, by the newest state."""
        begun = time.perf_counter()
        objection = self.evaluator.objection(plan)
        self.reporter.rechecked(time.perf_counter() - begun)
        return objection

    def unneeded(self, plan: Plan, policy: PreemptionPolicy, asking: frozenset[str]) -> Unneeded:
        """Which victims may stay, by the newest state, but for those that have been asked or are being asked."""
        begun = time.perf_counter()
        left = plan.deadline - self.clock.monotonic()
        found = unneeded(self.evaluator, plan, min(policy.wait_for_terminating, left), asking)
        self.reporter.rechecked(time.perf_counter() - begun)
        return found

    def spared(self, plan: Plan) -> None:
        """Further victims of the plan stay."""
        self.plan_manager.spare(plan)

    def still_wanted(self, pod: Pod) -> bool:
        """Whether the pod is still one to act for."""
        return not ineligible_reason(pod, self.policy_set.policy_of(pod))

    def _recall(self) -> None:
        """Learn from what is written on the pods: the recent evictions, and plans under way."""
        now, wall = self.clock.monotonic(), self.clock.wall()
        for policy in self.policy_set.policies():
            self.evaluator.limiter.full(policy.limits, now)
        pods = self.state.pods.items()
        marked = [pod for pod in pods.values() if is_marked(pod) and self.policy_set.policy_of(pod)]
        for age, evictions in recalled(marked, pods, wall):
            self.evaluator.limiter.note(evictions, now - age)

    def _take_all(self) -> None:
        for key, pod in list(self.state.pods.items().items()):
            self.event_handlers.offer(key, pod)
            if PLAN in (pod.metadata.annotations or {}) and self.plans.get(key) is None:
                self.plan_manager.adopt(pod)

    def _forget(self) -> None:
        """Start afresh: what a later term needs it reads off the pods."""
        for entry in self.queue.entries():
            self.queue.remove(entry.key)
        self.evaluator.limiter.clear()

    async def _work(self) -> None:
        while True:
            self._work_arrived.clear()
            try:
                self.plan_manager.tend()
            except Exception:
                log.exception("plans could not be looked at")
            self._turn()
            self.reporter.depths(self.queue.depths(), len(self.plans))
            await self._sleep()

    def _turn(self) -> None:
        """Decide for what is due, for a moment."""
        end = time.perf_counter() + _TURN
        while True:
            entry = self.queue.pop(self.clock.monotonic())
            if entry is None:
                return
            try:
                self._evaluate(entry)
            except Exception as error:
                log.exception("%s could not be considered", entry.key)
                self.queue.park(entry.key, self.clock.monotonic(), reason=f"internal error: {error}")
            if time.perf_counter() > end:
                self._work_arrived.set()
                return

    async def _sleep(self) -> None:
        now = self.clock.monotonic()
        dues = (self.queue.next_due(), self.plans.next_deadline())
        due = min((due for due in dues if due is not None), default=now + _LONGEST_SLEEP)
        if self._work_arrived.is_set():
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(max(0.0, min(due - now, _LONGEST_SLEEP))):
                await self._work_arrived.wait()
        except TimeoutError:
            pass

    def _evaluate(self, entry: Entry) -> None:
        pod = self.state.pod(entry.key)
        policy = self.policy_set.policy_of(pod) if pod else None
        if pod is None or policy is None or ineligible_reason(pod, policy):
            self.queue.remove(entry.key)
            self.extender_client.forget(entry.uid)
            return
        begun = time.perf_counter()
        outcome = self._outcome(entry, pod, policy)
        seconds = time.perf_counter() - begun
        now = self.clock.monotonic()
        if isinstance(outcome, Fits) and (made := self.plan_manager.rehearsed_room(outcome.nodes)):
            outcome = Waits(made, 0)
        ends = self._watch_fit(entry, pod, outcome, now)
        match outcome:
            case Fits(nodes):
                self.queue.park(entry.key, now, reason=f"it fits without preemption on {len(nodes)} nodes", due=ends)
            case Unschedulable(reason, _, due):
                if reason != entry.reason:
                    self.reporter.unschedulable(pod, outcome)
                self.queue.park(entry.key, now, reason=reason, due=due)
            case Waits() | Evicts():
                self.plan_manager.begin(entry, pod, policy, outcome, seconds)
            case Asks(question):
                self.extender_client.ask(question)
        if not isinstance(outcome, Asks):
            self.extender_client.forget(entry.uid)
        self.reporter.evaluated(entry.key, outcome, time.perf_counter() - begun)

    def _outcome(self, entry: Entry, pod: Pod, policy: PreemptionPolicy) -> Outcome:
        """What to do for a preemptor, given what was learned about it."""
        now = self.clock.monotonic()
        entry.decay(now)
        left_out = entry.nodes.left_out(now)
        nodes = [left.node for left in left_out]
        rules = self.policy_set.rules_of(policy)
        try:
            extenders = self.extender_client.extenders(policy, pod)
            outcome = evaluate(self.evaluator, pod, policy, rules, entry.attempts, extenders=extenders, left_out=nodes)
        except ClusterError as error:
            return Unschedulable(str(error))
        except ExtenderError as error:
            return Unschedulable(str(error), due=now + entry.back_off() + _EXTENDER_PAUSE)
        if not left_out or not isinstance(outcome, Unschedulable):
            return outcome
        shown = ", ".join(nodes[:_SHOWN])
        reason = f"{outcome.reason}; left out for now, since its scheduler did not take them: {shown}"
        due = min(left.until for left in left_out)
        return replace(outcome, reason=reason, due=due if outcome.due is None else min(due, outcome.due))

    def _watch_fit(self, entry: Entry, pod: Pod, outcome: Outcome, now: float) -> float:
        """Leave out nodes that the pod has fitted on for too long; when there may be more of them."""
        nodes = outcome.nodes if isinstance(outcome, Fits) else ()
        left, due = entry.nodes.fitting(nodes, self.evaluator.scheduled.get(pod.spec.scheduler_name), now)
        for one in left:
            self.reporter.left_out(entry.key, one, now)
        return now if left else due

    def _answered(self, preemptor: Pod) -> None:
        """An extender has answered what had to be known to decide for this pod, if it still waits for that."""
        key, uid = key_of(preemptor), preemptor.metadata.uid
        entry = self.queue.get(key)
        if entry is None or entry.uid != uid or self.plans.get(key) is not None:
            self.extender_client.forget(uid)
            return
        self.queue.retry(key, self.clock.monotonic(), after=0.0, reason="an extender has answered")
        self._work_arrived.set()

    def _changed(self, kind: str, change: Change[Any]) -> None:
        if self.leading:
            if kind == "pod":
                self.evaluator.note_scheduling(change)
            self.event_handlers.changed(kind, change)
