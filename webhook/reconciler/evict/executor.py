"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods when they are over.

The steps of a plan: nominate, displace lower nominations, evict all victims but one side by side, evict the last one.
Every step can be the last one of this process: the plan written on the preemptor says to the next leader how to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from webhook.kube.errors import ApiError
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import EvictionMode, PreemptionPolicy
from webhook.reconciler.evict.writer import DeposedError, EvictionResult, StaleError, Writer
from webhook.reconciler.plans.plan import Ending, Plan, PlanStep
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.rechecking import is_there, objection, to_displace, unneeded
from webhook.reconciler.policy_set import PolicySet
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.preemptors import ineligible_reason

__all__ = ["FAULT_POINTS", "Concluded", "Displaced", "Executor", "no_checkpoint"]

log = logging.getLogger(__name__)

FAULT_POINTS = ("decided", "nominated", "displaced", "first-victim", "all-but-last", "evicted", "bound")
"""The steps between which a process can end, in their order."""
_CLEAR_PAUSE = 5.0
"""Seconds before a nomination that could not be cleared is tried again."""


class Concluded(NamedTuple):
    """Nothing more is done for a plan: all its victims have been asked to leave, or it must end."""

    plan: Plan
    ending: Ending | None


class Displaced(NamedTuple):
    """The nomination of a pod of lower priority was taken, and a plan behind it."""

    pod: Pod


async def no_checkpoint(step: str) -> None:
    """Let every step pass."""
    del step


class Executor:
    """Carries out plans and takes them off their pods, each in a task of its own.

    What comes of it is put on `news`. `checkpoint` is awaited after every step.
    """

    def __init__(
        self,
        writer: Writer,
        manager: PlanManager,
        policy_set: PolicySet,
        reporter: Reporter,
        *,
        news: asyncio.Queue[Any],
        checkpoint: Callable[[str], Awaitable[None]] = no_checkpoint,
    ) -> None:
        self._writer = writer
        self._manager = manager
        self._evaluator = manager.evaluator
        self._state = manager.evaluator.state
        self._policy_set = policy_set
        self._reporter = reporter
        self._news = news
        self._checkpoint = checkpoint
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[str, asyncio.Task[None]] = {}
        """Plan's id to the task that carries it out."""

    def carry_out(self, plan: Plan, pod: Pod, policy: PreemptionPolicy, decision: str) -> None:
        """Begin with the nomination, on which the `decision` is written, too."""
        self._begin(plan, self._nominate_and_evict(plan, pod, policy, decision))

    def go_on(self, plan: Plan, policy: PreemptionPolicy) -> None:
        """Begin with the victims: the nomination stands."""
        self._begin(plan, self._evict(plan, policy))

    def clear(self, pod: Pod, plan_id: str, node: str) -> None:
        """Take the plan of that id off the pod, and its nomination to that node."""
        self._manager.begin_clearing(plan_id)
        self._start(self._clear(pod, plan_id, node))

    def clear_after(self, plan: Plan) -> None:
        """The same for a plan that has just ended, once its nomination is not on its way any more."""
        self._manager.begin_clearing(plan.record.id)
        self._start(self._clear_after(plan))

    async def stop(self) -> None:
        """End every task without writing: this process leads no more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, plan: Plan, steps: Coroutine[Any, Any, Ending | None]) -> None:
        task = self._start(self._conclude(plan, steps))
        self._task_of[plan.record.id] = task
        task.add_done_callback(lambda _: self._task_of.pop(plan.record.id, None))

    async def _conclude(self, plan: Plan, steps: Coroutine[Any, Any, Ending | None]) -> None:
        try:
            ending = await steps
        except Exception:
            log.exception("plan %s for %s failed", plan.record.id, plan.key)
            ending = Ending.FAILED
        self._news.put_nowait(Concluded(plan, ending))

    async def _nominate_and_evict(self, plan: Plan, pod: Pod, policy: PreemptionPolicy, decision: str) -> Ending | None:
        """From the nomination to the last victim; None if all victims have been asked to leave."""
        try:
            await self._checkpoint("decided")
            await self._writer.nominate(pod, plan.record, decision, self._is_eligible)
            await self._checkpoint("nominated")
        except (ApiError, StaleError) as error:
            log.warning("plan %s for %s: not nominated: %s", plan.record.id, plan.key, error)
            return Ending.OUTDATED if isinstance(error, StaleError) else Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        return await self._evict(plan, policy)

    def _is_eligible(self, pod: Pod) -> bool:
        """Whether the pod, read again, is still a preemptor to act for."""
        return not ineligible_reason(pod, self._policy_set.policy_of(pod))

    async def _evict(self, plan: Plan, policy: PreemptionPolicy) -> Ending | None:
        """From a nomination that stands to the last victim; None if all have been asked to leave."""
        if plan.ended is not None:
            return plan.ended
        plan.step = PlanStep.EVICTING
        try:
            await self._displace(plan)
            await self._checkpoint("displaced")
            ending = await self._remove(plan, policy)
            await self._checkpoint("evicted")
        except DeposedError:
            return Ending.DEPOSED
        if ending is None:
            plan.step = PlanStep.WAITING
        return ending

    async def _displace(self, plan: Plan) -> None:
        """A failure here is reported, not fatal: kube-scheduler gives room to the higher priority anyway."""
        for pod in to_displace(self._state, plan):
            try:
                await self._writer.displace(pod)
            except ApiError as error:
                log.warning("plan %s: nomination of %s stays: %s", plan.record.id, key_of(pod), error)
            else:
                self._news.put_nowait(Displaced(pod))

    async def _remove(self, plan: Plan, policy: PreemptionPolicy) -> Ending | None:
        """Ask all victims but one, then the last one; each time only those that are still needed."""
        while self._waiting(plan):
            if plan.ended is not None:
                return plan.ended
            if not self._goes_on(plan, policy):
                return Ending.OUTDATED
            waiting = self._waiting(plan)
            wave = waiting[:-1] or waiting
            results = await asyncio.gather(*(self._ask(plan, victim, policy) for victim in wave))
            ending = _worst(results)
            if ending is not None:
                return ending
        return None

    def _goes_on(self, plan: Plan, policy: PreemptionPolicy, asking: frozenset[str] = frozenset()) -> bool:
        """Look at the newest state: whether the plan still makes sense; victims that it does not need stay.

        Those of these uids are being asked, so it is too late for them.
        """
        clock = self._manager.clock
        begun = clock.stopwatch()
        said = objection(self._evaluator, plan)
        wait = min(policy.wait_for_terminating, plan.deadline - clock.monotonic())
        found = unneeded(self._evaluator, plan, wait, asking) if not said else None
        self._reporter.rechecked(clock.stopwatch() - begun)
        if found is None:
            log.info("plan %s for %s: dropped before evicting: %s", plan.record.id, plan.key, said)
            return False
        if found.uids:
            shown = ", ".join(victim.key for victim in plan.victims if victim.uid in found.uids)
            log.info("plan %s for %s: %s stay: %s", plan.record.id, plan.key, shown, found.why)
            self._manager.exclude(plan, found.uids)
        return True

    def _waiting(self, plan: Plan) -> list[PlanVictim]:
        """The victims that have yet to be asked, in their order.

        All but one are asked side by side, since evictions wait rather than work; if one fails, the last one stays.
        If a budget can keep some of them and others not, the last is one of the others.
        """
        waiting = [victim for victim in plan.victims if is_there(self._state, plan, victim)]
        pods = {victim.uid: self._state.pod(victim.key) for victim in waiting}
        waiting.sort(key=lambda victim: not ((pod := pods[victim.uid]) is not None and self._state.has_budget(pod)))
        return waiting

    async def _ask(self, plan: Plan, victim: PlanVictim, policy: PreemptionPolicy) -> Ending | None:
        """Ask one victim to leave; why the plan must end, None if it goes on."""
        pod = self._state.pod(victim.key)
        if plan.ended is not None:
            return plan.ended
        if pod is None or not is_there(self._state, plan, victim):
            return None
        self._manager.begin_asking(plan, victim.uid)
        try:
            left = await self._leave(plan, victim, pod, policy)
        except ApiError as error:
            log.warning("plan %s: %s was not removed: %s", plan.record.id, victim.key, error)
            self._evaluator.note_refusal(victim.key)
            return Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        else:
            return await self._note_result(plan, victim, pod, left)
        finally:
            self._manager.end_asking(plan, victim.uid)

    async def _leave(self, plan: Plan, victim: PlanVictim, pod: Pod, policy: PreemptionPolicy) -> EvictionResult:
        def wanted() -> bool:
            """Before every try, since a server that is away or a pod that takes its time may go on for minutes."""
            if plan.ended is not None or not is_there(self._state, plan, victim):
                return False
            return self._goes_on(plan, policy, frozenset(plan.asking - {victim.uid})) and plan.needs(victim.uid)

        if policy.eviction is EvictionMode.DELETE:
            return await self._writer.delete(victim, pod, policy.grace_period, self._manager.clock.wall(), wanted)
        return await self._writer.evict(victim, policy.grace_period, wanted)

    async def _note_result(self, plan: Plan, victim: PlanVictim, pod: Pod, left: EvictionResult) -> Ending | None:
        """What came of asking a victim: why the plan must end, None if it goes on."""
        if left is EvictionResult.REFUSED:
            self._reporter.budget_refused(plan, victim)
            return Ending.REFUSED
        if left in {EvictionResult.BEGUN, EvictionResult.UNWANTED} and plan.ended is not None:
            if left is EvictionResult.BEGUN and plan.ended is Ending.TIMED_OUT:
                self._evaluator.note_refusal(victim.key)
            return plan.ended
        if victim.uid in plan.unneeded:
            return None
        if left in {EvictionResult.BEGUN, EvictionResult.UNWANTED} and is_there(self._state, plan, victim):
            return Ending.OUTDATED
        plan.gone.add(victim.uid)
        if left is EvictionResult.ASKED:
            self._reporter.victim_asked(plan, pod)
        if len(plan.gone) == 1:
            await self._checkpoint("first-victim")
        if len(plan.gone) == len(plan.victims) - 1:
            await self._checkpoint("all-but-last")
        return None

    async def _clear_after(self, plan: Plan) -> None:
        """Clear once the nomination is not on its way any more: what is written last must be the clearing."""
        try:
            if plan.step is PlanStep.NOMINATING and (nominating := self._task_of.get(plan.record.id)) is not None:
                await asyncio.wait((nominating,))
            if plan.ended is Ending.BOUND:
                await self._checkpoint("bound")
            pod = self._state.pod_of(plan.key, plan.uid)
            if pod is not None:
                await self._clear(pod, plan.record.id, plan.node)
        finally:
            self._manager.end_clearing(plan.record.id)

    async def _clear(self, pod: Pod, plan_id: str, node: str) -> None:
        """Take plan and nomination off; on an error that will not pass by itself, tried again every few seconds."""
        try:
            while True:
                try:
                    await self._writer.clear(pod, plan_id, node)
                except ApiError as error:
                    log.warning("nomination of %s cannot be cleared yet: %s", key_of(pod), error)
                    await asyncio.sleep(_CLEAR_PAUSE)
                else:
                    self._manager.note_cleared(key_of(pod), plan_id)
                    return
        except DeposedError:
            return
        finally:
            self._manager.end_clearing(plan_id)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a plan's task failed", exc_info=error)


def _worst(results: Sequence[Ending | None]) -> Ending | None:
    """A lost lease weighs more than a refusal, a refusal more than a failure."""
    for ending in (Ending.DEPOSED, Ending.REFUSED, Ending.FAILED):
        if ending in results:
            return ending
    return next((ending for ending in results if ending is not None), None)
