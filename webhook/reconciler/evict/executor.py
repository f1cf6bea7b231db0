"""Carrying plans out (docs/semantics.md E1 to E4), and taking them off their pods when they are over.

What the next step is says `plans.next_action`: nominate, displace lower nominations, try whether the victims would go,
tell them, ask them. Each is one task, which holds no decision: it makes one request for each victim and reports. A
request that came to nothing is made again by the next look, if that still wants it (`plans.plan`). Every step can be
the last one of this process: the plan written on the preemptor says to the next leader how to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from webhook.kube.errors import ApiError
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.reconciler.evict.victim_requests import VictimRequests
from webhook.reconciler.evict.writer import DeposedError, StaleError, Writer
from webhook.reconciler.evictions.store import EvictionStore
from webhook.reconciler.plans.actions import Displace, Ending, Nominate, Step, Try
from webhook.reconciler.plans.plan import Member, Plan, Tries
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import Reporter

log = logging.getLogger(__name__)

_CLEAR_RETRY = 5.0
"""Seconds before a nomination that could not be cleared is tried again."""
_CLEAR_PAUSE, _CLEAR_LOOKS = 0.5, 20
"""Seconds between two looks whether other plans are under way, and how many there are before a bound pod's is taken."""
_FOLLOWING_PAUSE, _FOLLOWING_LOOKS = 0.05, 100
"""Seconds between two looks whether the following plan is written, and how many there are."""
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
        self._victims = VictimRequests(writer, manager, reporter)
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[str, asyncio.Task[None]] = {}
        """Plan's id to the task that does a step of it."""
        self.clearing: set[tuple[str, str]] = set()
        """Ids of the plans that are being taken off their pods, and the uids of these."""

    def perform(self, plan: Plan, step: Step) -> None:
        """Do one step of a plan."""
        task = self._start(self._perform(plan, step))
        self._task_of[plan.id] = task
        task.add_done_callback(lambda _: self._task_of.pop(plan.id, None))

    def clear(self, pod: Pod, plan_id: str, node: str, ended: tuple[Plan, Member] | None = None) -> None:
        """Take the plan of that id off the pod, and its nomination to that node.

        For a member for which its plan has just `ended` that is done once its nomination is not on its way any more.
        """
        self.clearing.add((plan_id, pod.metadata.uid))
        self._state.pending.expect_cleared(plan_id, node, pod, done=False)
        self._start(self._clear(pod, plan_id, node, ended))

    def find_out(self, plan: Plan) -> None:
        """Find out what became of the victims of a plan that is over of whom no answer has come."""
        self._start(self._victims.find_out(plan))

    def withdraw(self, key: str) -> None:
        """Take the notice off a pod, unless that is being done."""
        if key not in self._victims.withdrawing:
            self._start(self._victims.withdraw(key))

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
            log.exception("plan %s for %s failed", plan.id, plan.key)
            endings = [Ending.FAILED]
        ending = min(endings, key=lambda ending: _WEIGHTS.get(ending, len(_WEIGHTS)), default=plan.ended)
        self._news.put_nowait(Performed(plan, ending))

    async def _results(self, plan: Plan, step: Step) -> list[Ending | None]:
        """Do one step of a plan; for each part of it why the plan must end, None if it goes on.

        Evictions wait rather than work, so victims are asked side by side.
        """
        match step:
            case Nominate(victims, notice):
                tries = [self._victims.request(plan, victim, Try(())) for victim in victims]
                if notice > plan.record.notice:  # it is written again on all
                    plan.record = plan.record.with_notice(notice)
                    for member in plan.unplaced:
                        member.nominated = False
                members = [member for member in plan.unplaced if not member.nominated]
                return await _each(*(self._nominate(plan, member) for member in members), *tries)
            case Displace(pods):
                return [await self._displace(plan, pods)]
            case _:
                if in_doubt := self._writer.is_in_doubt():
                    await self._writer.lease_left()
                if in_doubt or (not isinstance(step, Try) and await self._store.wait_until_written(plan.logged)):
                    return []  # by now something else may be to be done
                results = await _each(*(self._victims.request(plan, victim, step) for victim in step.victims))
        # One of whose group another has gone is asked again later if it is refused.
        bound, now = plan.bound_to_go(), self._manager.clock.monotonic()
        for place, victim in enumerate(step.victims):
            if results[place] is Ending.REFUSED and victim.uid in bound:
                plan.tries.setdefault(victim.uid, Tries()).rest(now)
                results[place] = None
        return results

    async def _nominate(self, plan: Plan, member: Member) -> Ending | None:
        """Write nomination, plan and decision on a member; why the plan must end, None if it goes on."""
        pod = self._state.pod_of(member.key, member.uid)
        if pod is None or member.ended is not None:
            return plan.ended  # the next look finds whether the others are enough
        record, noted = plan.written_on(member), partial(self._note_written, plan, member)
        try:
            await self._writer.nominate(pod, record, member.decision, self._policy_set.policy_to_act_by, noted)
            member.nominated = True
        except (ApiError, StaleError) as error:
            log.warning("plan %s for %s: not nominated: %s", plan.id, member.key, error)
            if member not in plan.unplaced:
                return plan.ended
            return Ending.OUTDATED if isinstance(error, StaleError) else Ending.FAILED
        return plan.ended

    def _note_written(self, plan: Plan, member: Member, digest: str) -> None:
        """A text with this digest is about to be written: the store has it, and the victims, before they are asked."""
        self._evaluator.log.believe(member.uid, digest)
        plan.logged = self._evaluator.log.version
        self._store.hurry()

    async def _displace(self, plan: Plan, pods: tuple[Pod, ...]) -> Ending | None:
        """Clear lower nominations; why the plan must end, None if it goes on.

        A failure is reported, not fatal: kube-scheduler gives room to the higher priority anyway.
        """
        plan.displaced = True
        for pod in pods:
            try:
                displaced = await self._writer.displace(pod)
            except StaleError as error:
                log.info("plan %s for %s: dropped before evicting: %s", plan.id, plan.key, error)
                return Ending.OUTDATED
            except ApiError as error:
                log.warning("plan %s: nomination of %s stays: %s", plan.id, key_of(pod), error)
            else:
                if displaced:
                    self._news.put_nowait(Displaced(pod))
        return None

    async def _let_plans_pass(self) -> None:
        """Wait while plans are under way, for some seconds: what a bound pod carries is in nobody's way."""
        for _ in range(_CLEAR_LOOKS):
            if self._manager.plans:
                await asyncio.sleep(_CLEAR_PAUSE)

    async def _clear(self, pod: Pod, plan_id: str, node: str, ended: tuple[Plan, Member] | None) -> None:
        """Take plan and nomination off; on an error that will not pass by itself, tried again every few seconds."""
        known: Pod | None = pod
        try:
            if ended is not None:
                plan, member = ended
                nominating = self._task_of.get(plan_id)
                if not member.nominated and nominating is not None:
                    await asyncio.wait((nominating,))  # what is written last must be the clearing
                if member.ended is Ending.BOUND:
                    await self._let_plans_pass()
                for _ in range(_CLEAR_LOOKS):
                    if plan.asking and plan.ended is not None:  # the answer may be that it goes
                        await asyncio.sleep(_CLEAR_PAUSE)
                replaced = await _is_replaced(member, self._manager.plans)
                known = None if replaced else self._state.pod_of(member.key, member.uid)
            while known is not None:
                try:
                    without = await self._writer.clear(known, plan_id, node)
                except ApiError as error:
                    log.warning("nomination of %s cannot be cleared yet: %s", key_of(known), error)
                    await asyncio.sleep(_CLEAR_RETRY)
                else:
                    if without is not None:
                        self._state.pending.expect_cleared(plan_id, node, without, done=True)
                        return
                    known = None
        except DeposedError:
            return
        except Exception:
            log.exception("plan %s could not be taken off %s", plan_id, key_of(pod))
        finally:
            self.clearing.discard((plan_id, pod.metadata.uid))
        self._state.pending.expect_not_cleared((key_of(pod),))


async def _each(*parts: Coroutine[Any, Any, Ending | None]) -> list[Ending | None]:
    """What comes of all parts of a step. If one fails the others are waited for: none may write after the step."""
    results = await asyncio.gather(*parts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _is_replaced(member: Member, plans: Mapping[str, Plan]) -> bool:
    """Whether the following plan for the preemptor was written in the place of one whose node went.

    `plans` are those under way, by preemptor. An autoscaler that looks between two patches adds a node for a pod
    without a nomination.
    """
    following = plans.get(member.key)
    if following is None or member.ended is not Ending.NODE_GONE:
        return False
    own = following.member(member.key)
    for _ in range(_FOLLOWING_LOOKS):
        if not own.nominated and following.ended is None:
            await asyncio.sleep(_FOLLOWING_PAUSE)
    return own.nominated
