"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods when they are over.

What the next step is says `plans.next_action`: nominate, displace lower nominations, try whether the victims would go,
tell them, ask them. Each is one task, which holds no decision: it does the step and reports. Every step can be the last
one of this process: the plan written on the preemptor says to the next leader how to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from webhook.kube.errors import ApiError
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.reconciler.evict.fenced_requests import DeposedError, StaleError
from webhook.reconciler.evict.notice_writer import NoticeWriter
from webhook.reconciler.evict.replacing import is_replaced
from webhook.reconciler.evict.writer import EvictionResult, Writer
from webhook.reconciler.evictions.store import EvictionStore
from webhook.reconciler.plans.actions import Action, Ask, Displace, End, Nominate, Notify, Step, Try
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.plans.next_action import policy_for
from webhook.reconciler.plans.plan import Plan, is_there
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.recheck import judgement_of
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.plan_victims import PlanVictim

log = logging.getLogger(__name__)

_CLEAR_RETRY = 5.0
"""Seconds before a nomination that could not be cleared is tried again."""
_REFUSED_PAUSE = 1.0
"""Seconds before a victim is asked again that a budget keeps, while others of its group have gone."""
_CLEAR_PAUSE, _CLEAR_LOOKS = 0.5, 20
"""Seconds between two looks whether other plans are under way, and how many there are before a bound pod's is taken."""
_WEIGHTS = {Ending.DEPOSED: 0, Ending.REFUSED: 1, Ending.FAILED: 2}
"""Of several endings of one plan, a lost lease weighs more than a refusal, a refusal more than a failure."""


class Performed(NamedTuple):
    """A step of a plan is done; why the plan must end, None if it goes on."""

    plan: Plan
    ending: Ending | None


class Displaced(NamedTuple):
    """The nomination of a pod of lower priority was taken, and a plan behind it."""

    pod: Pod


class Executor:
    """Does the steps of plans and takes them off their pods, each in a task of its own.

    Nobody is told or asked before the `store` has written the plan and its victims. What comes of it is put on `news`.
    """

    def __init__(
        self,
        writer: Writer,
        manager: PlanManager,
        policy_set: PolicySet,
        reporter: Reporter,
        *,
        store: EvictionStore,
        news: asyncio.Queue[Any],
    ) -> None:
        self._writer = writer
        self._manager = manager
        self._evaluator = manager.evaluator
        self._state = manager.evaluator.state
        self._policy_set = policy_set
        self._reporter = reporter
        self._store = store
        self._news = news
        self._notices = NoticeWriter(writer, manager, reporter)
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[str, asyncio.Task[None]] = {}
        """Plan's id to the task that does a step of it."""
        self.clearing: set[str] = set()
        """Ids of the plans that are being taken off their pods."""

    def perform(self, plan: Plan, step: Step) -> None:
        """Do one step of a plan."""
        task = self._start(self._perform(plan, step))
        self._task_of[plan.record.id] = task
        task.add_done_callback(lambda _: self._task_of.pop(plan.record.id, None))

    def clear(self, pod: Pod, plan_id: str, node: str, ended: Plan | None = None) -> None:
        """Take the plan of that id off the pod, and its nomination to that node.

        For a plan that has just `ended` it is done once its nomination is not on its way any more.
        """
        self.clearing.add(plan_id)
        self._state.expect_cleared(plan_id, node, pod, done=False)
        self._start(self._clear(pod, plan_id, node, ended))

    def withdraw(self, key: str) -> None:
        """Take the notice off a pod, unless that is being done."""
        if key not in self._notices.withdrawing:
            self._start(self._notices.withdraw(key))

    async def stop(self) -> None:
        """End every task without writing: this process leads no more. One may not even have begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.clearing.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _perform(self, plan: Plan, step: Step) -> None:
        """Do one step of a plan, and tell what came of it."""
        try:
            endings = [ending for ending in await self._results(plan, step) if ending is not None]
        except DeposedError:
            endings = [Ending.DEPOSED]
        except Exception:
            log.exception("plan %s for %s failed", plan.record.id, plan.key)
            endings = [Ending.FAILED]
        ending = min(endings, key=lambda ending: _WEIGHTS.get(ending, len(_WEIGHTS)), default=plan.ended)
        self._news.put_nowait(Performed(plan, ending))

    async def _results(self, plan: Plan, step: Step) -> list[Ending | None]:
        """Do one step of a plan; for each part of it why the plan must end, None if it goes on.

        Evictions wait rather than work, so victims are asked side by side.
        """
        match step:
            case Nominate(victims):
                return await _each(self._nominate(plan), *(self._try(plan, victim) for victim in victims))
            case Displace(pods):
                return [await self._displace(plan, pods)]
            case Try(victims):
                return await _each(*(self._try(plan, victim) for victim in victims))
            case Notify(victims, seconds):
                await self._store.wait_until_written(plan.logged)
                return await _each(*(self._notices.tell(plan, victim, seconds) for victim in victims))
            case Ask(victims):
                await self._store.wait_until_written(plan.logged)
                results = await _each(*(self._ask(plan, victim) for victim in victims))
                return await self._without_those_bound_to_go(plan, victims, results)

    async def _without_those_bound_to_go(
        self, plan: Plan, victims: tuple[PlanVictim, ...], results: list[Ending | None]
    ) -> list[Ending | None]:
        """The results of asking; one of whose group another has gone is asked again later if it is refused."""
        bound = plan.bound_to_go(())
        again = [
            result is Ending.REFUSED and victim.uid in bound for victim, result in zip(victims, results, strict=True)
        ]
        if any(again):
            await asyncio.sleep(_REFUSED_PAUSE)
        return [None if waits else result for waits, result in zip(again, results, strict=True)]

    async def _nominate(self, plan: Plan) -> Ending | None:
        """Write nomination, plan and decision; why the plan must end, None if it goes on."""
        pod = self._state.pod_of(plan.key, plan.uid)
        if pod is None:
            return Ending.OUTDATED
        try:
            wanted = self._policy_set.policy_to_act_by
            await self._writer.nominate(pod, plan.record, plan.decision, wanted, partial(self._note_written, plan))
            plan.nominated = True
        except (ApiError, StaleError) as error:
            log.warning("plan %s for %s: not nominated: %s", plan.record.id, plan.key, error)
            return Ending.OUTDATED if isinstance(error, StaleError) else Ending.FAILED
        return plan.ended

    def _note_written(self, plan: Plan, digest: str) -> None:
        """A text with this digest is about to be written: the store has it, and the victims, before they are asked."""
        self._manager.note_written(plan, digest)
        self._store.write_soon()

    def _look(self, plan: Plan, asking: frozenset[str]) -> Action:
        """What to do next by the newest state; victims of these uids are being asked, so it is too late for them."""
        began = self._manager.clock.stopwatch()
        action = self._manager.next_action(plan, asking)
        self._reporter.metrics.recheck_seconds.observe(self._manager.clock.stopwatch() - began)
        return action

    async def _displace(self, plan: Plan, pods: tuple[Pod, ...]) -> Ending | None:
        """Clear lower nominations; why the plan must end, None if it goes on.

        A failure is reported, not fatal: kube-scheduler gives room to the higher priority anyway.
        """
        plan.displaced = True
        for pod in pods:
            try:
                displaced = await self._writer.displace(pod)
            except StaleError as error:
                log.info("plan %s for %s: dropped before evicting: %s", plan.record.id, plan.key, error)
                return Ending.OUTDATED
            except ApiError as error:
                log.warning("plan %s: nomination of %s stays: %s", plan.record.id, key_of(pod), error)
            else:
                if displaced:
                    self._news.put_nowait(Displaced(pod))
        return None

    def _policy(self, plan: Plan) -> PreemptionPolicy | None:
        """The policy that the plan goes by now."""
        pod = self._state.pods.get(plan.key)
        return policy_for(pod, self._policy_set) if pod is not None else None

    def _was_judged(self, plan: Plan, victim: PlanVictim) -> bool:
        """Whether the victim may go by what was judged a moment ago: of hundreds asked together not each is looked at.

        A gang's plans go by one another, so they are always looked at again.
        """
        if plan.record.gang or (policy := self._policy(plan)) is None:
            return False
        now = self._manager.clock.monotonic()
        return plan.judgement.includes(judgement_of(self._manager.context, policy, (victim,), now))

    async def _try(self, plan: Plan, victim: PlanVictim) -> Ending | None:
        """Ask without effect whether a victim would go; why the plan must end, None if it goes on."""
        pod, policy = self._state.pods.get(victim.key), self._policy(plan)
        if pod is None or policy is None or not is_there(self._state, plan, victim):
            return None

        async def wanted() -> bool:
            return plan.ended is None

        try:
            delete, grace = policy.eviction is EvictionMode.DELETE, policy.grace_period_seconds
            result = await self._writer.would_leave(victim, grace, wanted, delete=delete)
        except ApiError as error:
            log.warning("plan %s: %s would not be removed: %s", plan.record.id, victim.key, error)
            self._evaluator.eviction_backoff.refused(pod, self._manager.clock.monotonic())
            return Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        if result is EvictionResult.REFUSED:
            self._reporter.budget_refused(plan, victim)
            return Ending.REFUSED
        plan.tried[victim.uid] = result is not EvictionResult.UNKNOWN
        return None

    async def _ask(self, plan: Plan, victim: PlanVictim) -> Ending | None:
        """Ask one victim to leave; why the plan must end, None if it goes on."""
        pod, policy = self._state.pods.get(victim.key), self._policy(plan)
        if plan.ended is not None or pod is None or policy is None or not is_there(self._state, plan, victim):
            return plan.ended
        grace, judged = policy.grace_period_seconds, pod

        async def wanted() -> bool:
            """Before every try, since a server that is away or a pod that takes its time may go on for minutes."""
            nonlocal judged
            await self._state.wait_until_whole()
            if plan.ended is not None or not is_there(self._state, plan, victim):
                return False
            judged = self._state.pods.get(victim.key) or judged
            if self._was_judged(plan, victim):
                return True
            action = self._look(plan, frozenset(plan.asking - {victim.uid}))
            return not isinstance(action, End) and plan.needs(victim.uid)

        clock = self._manager.clock
        plan.asking.add(victim.uid)
        plan.evicting = plan.evicting or self._state.creations.now()
        try:
            if policy.eviction is EvictionMode.DELETE:
                result = await self._writer.delete(victim, grace, clock.wall(), wanted, seen=lambda: judged)
            else:
                spends = bool(self._state.pending.covering(pod))
                result = await self._writer.evict(victim, grace, wanted, seen=lambda: judged, spends=spends)
            return await self._note_result(plan, victim, pod, result)
        except ApiError as error:
            log.warning("plan %s: %s was not removed: %s", plan.record.id, victim.key, error)
            self._evaluator.eviction_backoff.refused(pod, self._manager.clock.monotonic())
            return Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        finally:
            plan.asking.discard(victim.uid)
            self._manager.settle(plan)

    async def _note_result(self, plan: Plan, victim: PlanVictim, pod: Pod, left: EvictionResult) -> Ending | None:
        """What came of asking a victim: why the plan must end, None if it goes on."""
        if left is EvictionResult.REFUSED:
            self._reporter.budget_refused(plan, victim)
            return Ending.REFUSED
        if victim.uid in plan.unneeded and plan.ended is None:
            return None
        stays = is_there(self._state, plan, victim)
        if left in {EvictionResult.BEGUN, EvictionResult.UNWANTED} and (stays or plan.ended is not None):
            others = frozenset(plan.asking - {victim.uid})
            action = End(plan.ended) if plan.ended is not None else self._look(plan, others)
            ending = action.ending if isinstance(action, End) else Ending.OUTDATED
            if left is EvictionResult.BEGUN and ending is Ending.TIMED_OUT and plan.ended is None:
                self._evaluator.eviction_backoff.refused(pod, self._manager.clock.monotonic())
            return ending
        self._manager.asked(plan, pod)
        self._store.write_soon()
        if left is EvictionResult.ASKED:
            self._reporter.victim_asked(plan, pod)
        return None

    async def _let_plans_pass(self) -> None:
        """Wait while plans are under way, for some seconds: what a bound pod carries is in nobody's way."""
        for _ in range(_CLEAR_LOOKS):
            if self._manager.plans:
                await asyncio.sleep(_CLEAR_PAUSE)

    async def _clear(self, pod: Pod, plan_id: str, node: str, ended: Plan | None) -> None:
        """Take plan and nomination off; on an error that will not pass by itself, tried again every few seconds."""
        known: Pod | None = pod
        try:
            if ended is not None:
                nominating = self._task_of.get(plan_id)
                if not ended.nominated and nominating is not None:
                    await asyncio.wait((nominating,))  # what is written last must be the clearing
                if ended.ended is Ending.BOUND:
                    await self._let_plans_pass()
                for _ in range(_CLEAR_LOOKS):
                    if ended.asking:  # the answer may be that it goes
                        await asyncio.sleep(_CLEAR_PAUSE)
                replaced = await is_replaced(ended, self._manager.plans)
                known = None if replaced else self._state.pod_of(ended.key, ended.uid)
            while known is not None:
                try:
                    without = await self._writer.clear(known, plan_id, node)
                except ApiError as error:
                    log.warning("nomination of %s cannot be cleared yet: %s", key_of(known), error)
                    await asyncio.sleep(_CLEAR_RETRY)
                else:
                    if without is not None:
                        self._state.expect_cleared(plan_id, node, without, done=True)
                        return
                    known = None
        except DeposedError:
            return
        except Exception:
            log.exception("plan %s could not be taken off %s", plan_id, key_of(pod))
        finally:
            self.clearing.discard(plan_id)
        self._state.expect_not_cleared((key_of(pod),))


async def _each(*parts: Coroutine[Any, Any, Ending | None]) -> list[Ending | None]:
    """What comes of all parts of a step. If one fails the others are waited for: none may write after the step."""
    results = await asyncio.gather(*parts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
