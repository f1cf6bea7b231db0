"""The life of plans: begin, adopt what an earlier leader left, notice that one has become pointless, end it cleanly."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from webhook.kube.errors import ApiError
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import PreemptionPolicy
from webhook.reconciler.evaluate.evaluator import Evaluator, still_allowed
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction, attempts_back_off, owner_of
from webhook.reconciler.evaluate.outcomes import Evicts, Waits
from webhook.reconciler.evict.executor import Executor
from webhook.reconciler.evict.writer import DeposedError, Writer
from webhook.reconciler.plans.plan import Ending, Plan, Plans, Step, ending_of, was_cleared
from webhook.reconciler.plans.plan_builder import adopted, decided, drafted, grace_under
from webhook.reconciler.policy_set import PolicySet
from webhook.reconciler.queue.queue import Entry, Queue, failure_back_off
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PLAN, PlanRecord, PlanVictim, UnreadableError, carries, encode, plan_of
from webhook.reconciler.state.preemptors import ineligible_reason, is_over, lacks_post_filter

__all__ = ["PlanManager"]

log = logging.getLogger(__name__)

_CLEAR_PAUSE = 5.0
_PATROL = 5.0
"""Seconds between two looks at plans that nothing seems to have happened to."""
_TURN = 0.01
"""Seconds of looking at plans after which everything else gets its turn."""
_NOBODYS_FAULT = frozenset((Ending.DISPLACED, Ending.LOST, Ending.NODE_GONE))
"""Endings that say nothing of whether evicting helps this preemptor: they use up none of its attempts."""
_RIGHT_AWAY = _NOBODYS_FAULT | {Ending.FAILED, Ending.OUTDATED, Ending.SPACE_TAKEN}


class PlanManager:
    """Owns the plans under way and the tasks that carry them out."""

    def __init__(
        self,
        evaluator: Evaluator,
        plans: Plans,
        queue: Queue,
        *,
        executor: Executor,
        writer: Writer,
        reporter: Reporter,
        policy_set: Callable[[], PolicySet],
        wake: Callable[[], None],
        dry_run: bool = False,
    ) -> None:
        self._evaluator = evaluator
        self._state = evaluator.state
        self._plans = plans
        self._queue = queue
        self._executor = executor
        self._writer = writer
        self._reporter = reporter
        self._clock = evaluator.clock
        self._policy_set = policy_set
        self._wake = wake
        self._dry_run = dry_run
        self._tasks: set[asyncio.Task[None]] = set()
        self._dirty: dict[str, None] = {}
        self._clearing: set[str] = set()
        self._cleared: dict[str, str] = {}
        """Pod's key to the plan that was taken off it, until the watch shows the pod without a plan."""
        self._patrol = 0.0

    def begin(self, entry: Entry, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits, seconds: float) -> None:
        """Make a plan of an outcome and start carrying it out, or rehearse it; `seconds` is what the decision took."""
        plan = drafted(entry, pod, policy, outcome, self._clock)
        decision = decided(plan, outcome, seconds, self._clock)
        self._plans.add(plan)
        self._queue.hold(plan.key)
        victims = outcome.victims if isinstance(outcome, Evicts) else ()
        self._expect(plan, policy, victims)
        self._reporter.decided(plan, decision, dry_run=self._dry_run)
        if self._dry_run:
            self._rehearse(plan, policy, victims)
        else:
            plan.task = self._start(self._carry_out(plan, pod, policy, encode(decision)))

    def _rehearse(self, plan: Plan, policy: PreemptionPolicy, victims: Iterable[Pod]) -> None:
        """Hold the plan as if it were carried out: for as long as its preemptor is pending and its room is there.

        So every later decision is what it would be, and there is no more to remember than one plan a preemptor.
        """
        plan.step, plan.deadline = Step.WAITING, math.inf
        plan.emptied = self._clock.monotonic() + max((grace_under(policy, victim) for victim in victims), default=0)

    def rehearsed_room(self, nodes: Iterable[str]) -> str:
        """One of the nodes if only rehearsed plans make the room on them: kube-scheduler will bind nothing there."""
        if not self._dry_run:
            return ""
        made = {plan.node for plan in self._plans if math.isinf(plan.emptied)}
        found = list(nodes)
        return found[0] if found and made.issuperset(found) else ""

    def adopt(self, pod: Pod) -> None:
        """Take over the plan an earlier leader wrote on a pod: go on with it, or take it back."""
        if self._dry_run:
            return
        key = key_of(pod)
        try:
            record = plan_of(pod)
        except UnreadableError as error:
            log.warning("%s: %s; taking it off", key, error)
            said = (pod.metadata.annotations or {})[PLAN]
            self._start(self._clear(pod, said, pod.status.nominated_node_name))
            return
        if record is None or record.id in self._clearing or self._cleared.get(key) == record.id:
            return
        if self._plans.has_ended(record.id):
            self._start(self._clear(pod, record.id, record.node))
            return
        policy = self._policy_set().policy_of(pod)
        if not _holds(pod, record) or ineligible_reason(pod, policy) or policy is None:
            self._start(self._clear(pod, record.id, record.node))
            return
        self._take_over(pod, record, policy)

    def _take_over(self, pod: Pod, record: PlanRecord, policy: PreemptionPolicy) -> None:
        there = [known for victim in record.victims if (known := self._victim(victim)) is not None]
        remaining = [victim for victim in there if not (victim.metadata.deletion_timestamp or is_over(victim))]
        plan = adopted(pod, record, policy, there, self._clock)
        plan.gone = {victim.uid for victim in record.victims} - {victim.metadata.uid for victim in remaining}
        self._plans.add(plan)
        self._queue.hold(plan.key)
        entry = self._queue.get(plan.key)
        if entry is not None:
            entry.attempts = max(0, record.attempt - 1)
        self._hold(plan, pod)
        if not remaining:
            plan.step = Step.WAITING
            return
        objection = still_allowed(self._evaluator, pod, self._policy_set().rules_of(policy), record)
        if objection:
            self.finish(plan, Ending.OUTDATED, note=objection)
            return
        log.info("plan %s for %s: going on with it, %d victims remain", record.id, plan.key, len(remaining))
        self._expect(plan, policy, remaining)
        plan.task = self._start(self._go_on(plan, policy))

    def pod_changed(self, key: str, pod: Pod | None) -> None:
        """The watch showed something new of a pod."""
        plan, carries_plan = self._plans.get(key), pod is not None and PLAN in (pod.metadata.annotations or {})
        if not carries_plan:
            self._cleared.pop(key, None)
        if plan is None:
            if pod is not None and carries_plan:
                self.adopt(pod)
            return
        if pod is not None and pod.status.nominated_node_name == plan.node and carries(pod, plan.record.id):
            plan.seen = True
        ending = ending_of(plan, pod, self._clock.monotonic())
        if ending is not None:
            self.finish(plan, ending)
        elif pod is not None and plan.seen:
            self._hold(plan, pod)

    def _hold(self, plan: Plan, pod: Pod) -> None:
        """Go on without the nomination if the scheduler has cleared it; decisions count it as standing.

        A pod of higher priority may be behind that, for which kube-scheduler preempts there: then the room is taken,
        or will be, and the next look at the node finds that.
        """
        plan.reserved, before = not was_cleared(plan, pod), plan.reserved
        if plan.reserved:
            return
        self._state.hold(plan.record.id, (plan.key, plan.uid), plan.node)
        if before:
            if lacks_post_filter(pod):
                self._reporter.nomination_cleared(plan, pod)
            plan.touched = True
            self._dirty[plan.key] = None
            self._wake()

    def touch(self, node: str, newcomer: Pod | None = None) -> None:
        """Something, or a pod, came to a node or happened to it: the plans there are to be looked at."""
        for plan in self._plans.on_node(node):
            plan.touched = True
            if newcomer is not None and key_of(newcomer) != plan.key:
                plan.newcomer = f"{key_of(newcomer)} of priority {newcomer.spec.priority or 0}"
            self._dirty[plan.key] = None
        self._wake()

    def tend(self) -> None:
        """Look at the plans whose time is over, and for a moment at those that something happened to."""
        now = self._clock.monotonic()
        for overdue in self._plans.overdue(now):
            self.finish(overdue, Ending.TIMED_OUT)
        for rehearsed in self._plans if self._dry_run else ():
            if rehearsed.emptied <= now:
                rehearsed.emptied = math.inf
                self._state.count_as_gone(rehearsed.record.id)
                self._queue.wake(now)
        if now >= self._patrol:
            self._patrol = now + _PATROL
            self._dirty |= {plan.key: None for plan in self._plans if plan.started < now - _PATROL}
        end = time.perf_counter() + _TURN
        while self._dirty:
            plan = self._plans.get(next(iter(self._dirty)))
            del self._dirty[next(iter(self._dirty))]
            if plan is not None and plan.step is Step.WAITING:
                self._check_room(plan)
            if time.perf_counter() > end:
                self._wake()
                return

    def finish(self, plan: Plan, ending: Ending, *, note: str = "") -> None:
        """End a plan: nothing of it is expected any more, its nomination goes, its preemptor is considered again."""
        if not self._plans.end(plan, ending):
            return
        now = self._clock.monotonic()
        if note:
            log.info("plan %s for %s: %s: %s", plan.record.id, plan.key, ending, note)
        self._reporter.ended(plan, ending, now - plan.started)
        self.settle(plan)
        if ending is not Ending.DEPOSED and self._is_there(plan):
            self._clearing.add(plan.record.id)
            self._start(self._clear_after(plan))
        self._requeue(plan, ending, now)
        self._wake()

    def settle(self, plan: Plan) -> None:
        """Expect nothing of a plan that has ended but that those it asked, or is asking, leave."""
        if self._dry_run:
            self._state.give_up(plan.record.id, ())
        else:
            self._expect_only(plan, plan.gone | plan.asking, nominated=False)

    def spare(self, plan: Plan) -> None:
        """Expect of a plan that goes on that its victims leave, but for those that are spared."""
        self._expect_only(plan, {victim.uid for victim in plan.record.victims} - plan.spared, nominated=True)

    def displaced(self, pod: Pod) -> None:
        """A pod of higher priority took this one's nomination."""
        plan = self._plans.get(key_of(pod))
        if plan is not None:
            self.finish(plan, Ending.DISPLACED)

    async def stop(self) -> None:
        """End every task and plan without writing: this process leads no more."""
        for plan in self._plans:
            self.finish(plan, Ending.DEPOSED)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _expect(self, plan: Plan, policy: PreemptionPolicy, victims: tuple[Pod, ...] | list[Pod]) -> None:
        """Let every later decision count the victims as leaving and the preemptor as nominated."""
        plan.decided = {pod.metadata.uid: pod.metadata for pod in victims}
        now = self._clock.wall()
        ends = {pod.metadata.uid: now + grace_under(policy, pod) for pod in victims}
        self._state.expect(plan.record.id, (plan.key, plan.uid), plan.node, victims, ends)
        plan.looked = self._state.snapshot.version
        evictions = [PlannedEviction(owner_of(pod), plan.node) for pod in victims]
        tickets = self._evaluator.limiter.note(evictions, self._clock.monotonic())
        plan.tickets = dict(zip((pod.metadata.uid for pod in victims), tickets, strict=True))

    def _expect_only(self, plan: Plan, leaving: set[str], *, nominated: bool) -> None:
        """Expect of a plan that the victims of these uids leave, and that it is `nominated` if so."""
        asked = [victim for victim in plan.record.victims if victim.uid in leaving]
        self._state.give_up(plan.record.id, asked, nominated=nominated)
        self._evaluator.limiter.take_back(ticket for uid, ticket in plan.tickets.items() if uid not in leaving)

    def _victim(self, victim: PlanVictim) -> Pod | None:
        """The victim as the watch last showed it; None if it is gone, whoever has its name now."""
        pod = self._state.pod(victim.key)
        return pod if pod is not None and pod.metadata.uid == victim.uid else None

    def _is_there(self, plan: Plan) -> bool:
        """Whether the preemptor exists; one that is being deleted does for as long as it has finalizers."""
        pod = self._state.pod(plan.key)
        return pod is not None and pod.metadata.uid == plan.uid

    def _check_room(self, plan: Plan) -> None:
        pod = self._state.pod(plan.key)
        ending = ending_of(plan, pod, self._clock.monotonic())
        if ending is None and self._state.nodes.get(plan.node) is None:
            ending = Ending.NODE_GONE
        if ending is None and pod is not None and not self._evaluator.has_room(pod, plan.node):
            ending = Ending.SPACE_TAKEN
        if ending is not None:
            self.finish(plan, ending, note=_taker(plan) if ending is Ending.SPACE_TAKEN else "")

    def _requeue(self, plan: Plan, ending: Ending, now: float) -> None:
        entry = self._queue.get(plan.key)
        if entry is None:
            return
        if ending in (Ending.BOUND, Ending.DELETED, Ending.DEPOSED):
            self._queue.remove(plan.key)
            return
        if ending is Ending.TIMED_OUT:
            self._learn(entry, plan, now)
        first = entry.plan_failures == 0
        entry.plan_failures += 1
        in_vain = bool(plan.gone) and ending not in _NOBODYS_FAULT
        if in_vain:
            entry.attempt_failed(now)
        pause = attempts_back_off(entry.attempts) if in_vain else failure_back_off(entry.plan_failures)
        after = 0.0 if first and ending in _RIGHT_AWAY else pause
        self._queue.retry(plan.key, now, after=after, reason=f"its last plan ended: {ending}")

    def _learn(self, entry: Entry, plan: Plan, now: float) -> None:
        """A plan has timed out: if there is room on its node, kube-scheduler does not want that node."""
        pod = self._state.pod(plan.key)
        if pod is not None and self._evaluator.fits_on(pod, plan.node):
            left = entry.nodes.timed_out(plan.node, now - plan.started, now)
            self._reporter.left_out(plan.key, left, now)

    async def _carry_out(self, plan: Plan, pod: Pod, policy: PreemptionPolicy, decision: str) -> None:
        await self._conclude(plan, self._executor.carry_out(plan, pod, policy, decision))

    async def _go_on(self, plan: Plan, policy: PreemptionPolicy) -> None:
        await self._conclude(plan, self._executor.evict(plan, policy))

    async def _conclude(self, plan: Plan, execution: Awaitable[Ending | None]) -> None:
        try:
            ending = await execution
        except Exception:
            log.exception("plan %s for %s failed", plan.record.id, plan.key)
            ending = Ending.FAILED
        if ending is not None:
            self.finish(plan, ending)
            return
        pod = self._state.pod(plan.key)
        if pod is not None:
            self._reporter.evicted(plan, pod)
        if plan.touched:
            self._dirty[plan.key] = None
            self._wake()

    async def _clear_after(self, plan: Plan) -> None:
        """Clear once the nomination is not on its way any more: what is written last must be the clearing."""
        try:
            if plan.task is not None and plan.step is Step.NOMINATING:
                await asyncio.wait((plan.task,))
            if plan.ended is Ending.BOUND:
                await self._executor.checkpoint("bound")
            pod = self._state.pod(plan.key)
            if pod is not None and self._is_there(plan):
                await self._clear(pod, plan.record.id, plan.node)
        finally:
            self._clearing.discard(plan.record.id)

    async def _clear(self, pod: Pod, plan_id: str, node: str) -> None:
        """Take plan and nomination off; on an error that will not pass by itself, tried again every few seconds."""
        self._clearing.add(plan_id)
        try:
            while True:
                try:
                    await self._writer.clear(pod, plan_id, node)
                except ApiError as error:
                    log.warning("nomination of %s cannot be cleared yet: %s", key_of(pod), error)
                    await asyncio.sleep(_CLEAR_PAUSE)
                else:
                    seen = self._state.pod(key_of(pod))
                    if seen is not None and PLAN in (seen.metadata.annotations or {}):
                        self._cleared[key_of(pod)] = plan_id
                    return
        except DeposedError:
            return
        finally:
            self._clearing.discard(plan_id)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a plan's task failed", exc_info=error)


def _holds(pod: Pod, record: PlanRecord) -> bool:
    """Whether a plan found on a pod is under way: its nomination stands, or is one that the scheduler clears.

    A plan without a nomination is believed only if the scheduler's own words say that: anybody can annotate a pod.
    """
    nominated = pod.status.nominated_node_name
    return nominated == record.node or (not nominated and lacks_post_filter(pod))


def _taker(plan: Plan) -> str:
    """Who took the room, as far as that is known."""
    if not plan.newcomer:
        return ""
    why = "" if plan.reserved else "; the scheduler cleared the nomination, so nothing was reserved"
    return f"{plan.newcomer} came to the node{why}"
