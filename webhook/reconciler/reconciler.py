"""The control loop: from a change of the cluster to a preemptor that is bound.

A change moves preemptors in the queue (`queue`). Each one that is due is evaluated (`evaluate`); if evicting helps, a
plan is begun (`plans`) and carried out (`evict`), and watched until its preemptor is bound. Calls go down to
those; what they have to tell comes back as return values, and from tasks on one queue of news.

Deciding and bookkeeping happen between two awaits, so every decision sees all that was decided before it; acting
happens in tasks of its own, so that no slow answer of the API server holds up the next decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from webhook.kube.client import Client
from webhook.kube.informer import Change
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import Policies, PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES, PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.evaluate.evaluator import Asks, Evaluator, Evicts, Fits, Outcome, Unschedulable, Waits
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.extender_client import ExtenderAnswered, ExtenderClient
from webhook.reconciler.evict.executor import Concluded, Displaced, Executor, no_checkpoint
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.plans.adoption import Adopted, TakeOff, adopt, recall_evictions
from webhook.reconciler.plans.plan import Ending, Plan
from webhook.reconciler.plans.plan_manager import NominationCleared, PlanEnded, PlanManager, VictimsCountAsGone
from webhook.reconciler.preemptors import PolicySet, is_marked
from webhook.reconciler.queue.event_handlers import EventHandlers
from webhook.reconciler.queue.queue import Queue, QueuedPreemptor
from webhook.reconciler.reporting import Evaluation, Reporter
from webhook.reconciler.state.annotations import PLAN
from webhook.reconciler.state.state import State

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

News = Concluded | Displaced | ExtenderAnswered | PlanEnded | NominationCleared | VictimsCountAsGone
_TURN = 0.02
"""Seconds of decisions after which watch events and answers get their turn."""
_LONGEST_SLEEP = 5.0
_SHOWN = 5
_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""


class Reconciler:
    """Preempts for the pods of one cluster while `lead()` runs; `fence()` is as `Writer` asks it."""

    def __init__(
        self,
        client: Client,
        state: State,
        policy_set: PolicySet,
        reporter: Reporter,
        clock: MeasuringClock,
        *,
        fence: Callable[[], float],
        dry_run: bool = False,
        checkpoint: Callable[[str], Awaitable[None]] = no_checkpoint,
    ) -> None:
        self.state = state
        self.policy_set = policy_set
        self.reporter = reporter
        self.clock = clock
        self.leading = False
        self.queue = Queue()
        self.event_handlers = EventHandlers(state, self.queue, policy_set, clock)
        self.evaluator = Evaluator(state, EvictionLimiter(), clock)
        self.plan_manager = PlanManager(self.evaluator, dry_run=dry_run)
        self.plans = self.plan_manager.plans
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        """What tasks have to tell; None if there is other work."""
        self.extender_client = ExtenderClient(self._news)
        writer = Writer(client, fence, reporter.wrote)
        self.executor = Executor(
            writer, self.plan_manager, policy_set, reporter, news=self._news, checkpoint=checkpoint
        )
        for kind in SNAPSHOT_KINDS:
            state.caches[kind.resource].handlers.append(partial(self._changed, kind))

    # How a process begins and ends to lead.

    async def lead(self) -> None:
        """Act until cancelled: take up what an earlier leader left, then work."""
        await self.state.wait_for_sync()
        self.leading = True
        self.reporter.leading(True)
        try:
            # 1. The evictions of a moment ago count for the rates, whoever asked for them.
            recall_evictions(self.evaluator, self.policy_set)
            # 2. Every preemptor comes to the queue, and every plan found on a pod goes on or is taken off.
            self._offer_all()
            # 3. From now on changes of the cluster say what there is to do.
            await self.work()
        finally:
            self.leading = False
            self.reporter.leading(False)
            await self.stop()

    def use(self, policies: Policies) -> None:
        """Take other policies into use: every pod is looked at again. Raises ClusterError if one of them is wrong."""
        self.policy_set.use(policies)
        self.state.keep(self.policy_set.annotations())
        if self.leading:
            self._offer_all()
            self.queue.wake(self.clock.monotonic())
            self._wake()

    def _offer_all(self) -> None:
        for key, pod in list(self.state.pods.items().items()):
            if is_marked(pod):
                self.event_handlers.offer(key, pod, has_plan=key in self.plans)
            self._adopt(key, pod)

    def _adopt(self, key: str, pod: Pod | None) -> None:
        """Take over the plan that an earlier leader wrote on a pod, if there is one: go on with it, or take it off."""
        if pod is None or PLAN not in (pod.metadata.annotations or {}):
            return
        if self.plan_manager.dry_run or key in self.plans:
            return
        match adopt(pod, self.plan_manager, self.policy_set, self.executor.clearing):
            case TakeOff(plan_id, node):
                self.executor.clear(pod, plan_id, node)
            case Adopted(plan, policy, remaining, outdated):
                self.queue.hold(key, attempts=max(0, plan.record.attempt - 1))
                if outdated:
                    self._end(plan, Ending.OUTDATED, outdated)
                elif remaining:
                    self.executor.carry_out(plan, policy)

    async def stop(self) -> None:
        """End every plan and task without writing, and forget all that a later term reads off the pods."""
        for plan in list(self.plans.values()):
            self._end(plan, Ending.DEPOSED)
        await self.executor.stop()
        await self.extender_client.close()
        self.plan_manager.unchecked.clear()
        self.state.expectations.cleared.clear()
        while not self._news.empty():
            self._news.get_nowait()
        self.queue.clear()
        self.evaluator.limiter.clear()

    # What the watches show.

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """An object changed, and the state has taken it in."""
        if not self.leading:
            return
        work = self._take_news()  # what was done before the change counts before it
        if kind is PODS:
            key = change.key
            # 1. The pod's plan may be over by that: it is bound, for one.
            self._take(self.plan_manager.pod_changed(key, change.new))
            # 2. Who could be helped by the change is tried again, and the pod comes to the queue or leaves it.
            work |= self.event_handlers.pod_changed(change, has_plan=key in self.plans)
            # 3. An earlier leader may have written a plan on it.
            self._adopt(key, change.new)
            # 4. Plans for the node that it came to may have lost their room.
            self.plan_manager.came_to_node(change)
        else:
            work |= self.event_handlers.changed(kind, change)
        if kind is NODES:
            self.plan_manager.node_changed(change)
        if work or self.plan_manager.unchecked:
            self._wake()

    # The loop.

    async def work(self) -> None:
        """Work the queue until cancelled."""
        while True:
            self.turn()
            # Wait until there is news, or something is due.
            if not self._news.empty():
                await asyncio.sleep(0)
                continue
            now = self.clock.monotonic()
            dues = [plan.deadline for plan in self.plans.values()]
            if (due := self.queue.next_due()) is not None:
                dues.append(due)
            try:
                async with asyncio.timeout(max(0.0, min([*dues, now + _LONGEST_SLEEP]) - now)):
                    first = await self._news.get()
            except TimeoutError:
                continue
            self._take(first)

    def turn(self) -> None:
        """One turn of the loop."""
        # 1. Take in what tasks have told since the last turn.
        self._take_news()
        # 2. End the plans that are over, and those that have lost their room.
        try:
            for news in self.plan_manager.check():
                self._take(news)
        except Exception:
            log.exception("plans could not be looked at")
        if self.plan_manager.unchecked:
            self._wake()
        # 3. Preempt for those whose turn it is, for a moment.
        end = self.clock.stopwatch() + _TURN
        while (entry := self.queue.pop(self.clock.monotonic())) is not None:
            try:
                self._preempt(entry)
            except Exception as error:
                log.exception("%s could not be evaluated", entry.key)
                self.queue.park(entry.key, self.clock.monotonic(), reason=f"internal error: {error}")
            if self.clock.stopwatch() > end:
                self._wake()
                break
        self.reporter.depths(self.queue.depths(), len(self.plans))

    def _wake(self) -> None:
        """There is work to do, so the loop must not sleep."""
        if self._news.empty():
            self._news.put_nowait(None)

    def _take_news(self) -> bool:
        """Follow up all news; whether there was any, so that the loop has to take another turn."""
        found = not self._news.empty()
        while not self._news.empty():
            self._take(self._news.get_nowait())
        return found

    def _take(self, news: News | None) -> None:
        """Follow up one piece of news."""
        try:
            match news:
                case PlanEnded():
                    self._follow_up(news)
                case Concluded(plan, None):
                    self.plan_manager.all_asked(plan)
                    if (preemptor := self.state.pods.get(plan.key)) is not None:
                        self.reporter.evicted(plan, preemptor)
                case Concluded(plan, Ending() as ending):
                    self._end(plan, ending)
                case Displaced(pod) if (displaced := self.plans.get(key_of(pod))) is not None:
                    self._end(displaced, Ending.DISPLACED)
                case NominationCleared(plan, pod):
                    self.reporter.nomination_cleared(plan, pod)
                case VictimsCountAsGone():
                    self.queue.wake(self.clock.monotonic())
                case ExtenderAnswered(preemptor):
                    # Decide again, if the preemptor still waits for that.
                    key, uid = key_of(preemptor), preemptor.metadata.uid
                    entry = self.queue.get(key)
                    if entry is None or entry.uid != uid or key in self.plans:
                        self.extender_client.forget(uid)
                    else:
                        now = self.clock.monotonic()
                        self.queue.retry(key, now, after=0.0, reason="an extender has answered")
        except Exception:
            log.exception("news could not be taken in: %s", news)

    # The way of one preemptor.

    def _preempt(self, entry: QueuedPreemptor) -> None:
        """Do for one preemptor what can be done now, as kube-scheduler's `Preempt` does for a pod that did not fit."""
        # 1. Is it still a preemptor to act for?
        pod = self.state.pods.get(entry.key)
        policy = self.policy_set.policy_to_act_by(pod) if pod else None
        if pod is None or policy is None:
            self.queue.remove(entry.key)
            self.extender_client.forget(entry.uid)
            return
        # 2. What would help it?
        begun, now, told = self.clock.stopwatch(), self.clock.monotonic(), entry.reason
        outcome = self._evaluate(entry, pod, policy, now)
        seconds = self.clock.stopwatch() - begun
        # 3. Leave out nodes that it has fitted on for too long without being bound there.
        nodes = outcome.nodes if isinstance(outcome, Fits) else ()
        seen = self.event_handlers.schedulers_seen.get(pod.spec.scheduler_name)
        left, more_fits = entry.nodes.fitting(nodes, seen, now)
        for one in left:
            self.reporter.left_out(entry.key, one, now)
        # 4. Wait for an event that helps, ask an extender, or begin a plan.
        plan: Plan | None = None
        match outcome:
            case Fits(nodes):
                reason = f"it fits without preemption on {len(nodes)} nodes"
                self.queue.park(entry.key, now, reason=reason, due=now if left else more_fits)
            case Unschedulable(reason, _, due):
                self.queue.park(entry.key, now, reason=reason, due=due)
            case Asks(question):
                self.extender_client.ask(question)
            case Waits() | Evicts():
                out = [one.node for one in entry.nodes.left_out(now)]
                plan = self.plan_manager.begin(pod, policy, outcome, entry.attempts, out)
        if not isinstance(outcome, Asks):
            self.extender_client.forget(entry.uid)
        # 5. Report it, and carry the plan out.
        dry_run = self.plan_manager.dry_run
        evaluation = Evaluation(pod, outcome, plan, told, seconds, took=self.clock.stopwatch() - begun)
        decision = self.reporter.evaluated(evaluation, self.clock.wall(), dry_run=dry_run)
        if plan is not None and not dry_run:
            self.executor.carry_out(plan, policy, pod, decision)

    def _evaluate(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for a preemptor, given what was learned about it."""
        rules, left_out = self.policy_set.rules[policy.name], entry.nodes.left_out(now)
        nodes = [left.node for left in left_out]
        try:
            extenders = self.extender_client.extenders(policy, pod)
            outcome = self.evaluator.evaluate(pod, policy, rules, entry.attempts, extenders=extenders, left_out=nodes)
        except ClusterError as error:
            return Unschedulable(str(error))
        except ExtenderError as error:
            return Unschedulable(str(error), due=now + entry.back_off() + _EXTENDER_PAUSE)
        if isinstance(outcome, Fits) and (node := self.plan_manager.rehearsed_room(outcome.nodes)):
            return Waits(node, 0)
        if not left_out or not isinstance(outcome, Unschedulable):
            return outcome
        shown = ", ".join(nodes[:_SHOWN])
        reason = f"{outcome.reason}; left out for now, since its scheduler did not take them: {shown}"
        due = min(left.until for left in left_out)
        return replace(outcome, reason=reason, due=due if outcome.due is None else min(due, outcome.due))

    def _end(self, plan: Plan, ending: Ending, note: str = "") -> None:
        """End a plan if it has not ended yet."""
        if (ended := self.plan_manager.end(plan, ending, note)) is not None:
            self._follow_up(ended)

    def _follow_up(self, ended: PlanEnded) -> None:
        """A plan is over: tell, take it off its pod, and decide again for its preemptor if that is not bound."""
        plan, ending, note = ended
        # 1. Tell.
        now = self.clock.monotonic()
        if note:
            log.info("plan %s for %s: %s: %s", plan.record.id, plan.key, ending, note)
        self.reporter.ended(plan, ending, now - plan.started)
        # 2. Take plan and nomination off, as long as the pod exists and this process leads.
        pod = self.state.pod_of(plan.key, plan.uid)
        if ending is not Ending.DEPOSED and pod is not None:
            self.executor.clear(pod, plan.record.id, plan.record.node, ended=plan)
        # 3. If there is room on the node and it was not bound there in time, kube-scheduler does not want that node.
        entry = self.queue.get(plan.key)
        timed_out = entry is not None and ending is Ending.TIMED_OUT
        if entry is not None and timed_out and pod is not None and self.evaluator.fits_on(pod, plan.record.node):
            left = entry.nodes.timed_out(plan.record.node, now - plan.started, now)
            self.reporter.left_out(plan.key, left, now)
        # 4. Decide again, at once or after a while.
        if ending.ends_preemptor:
            self.queue.remove(plan.key)
        else:
            in_vain = bool(plan.gone) and ending.blames_preemptor
            reason = f"its last plan ended: {ending}"
            self.queue.plan_ended(plan.key, now, in_vain=in_vain, at_once=ending.allows_retry_at_once, reason=reason)
        self._wake()
