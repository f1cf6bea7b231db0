"""Carrying a plan out (docs/semantics.md E1 to E4): nominate, displace lower nominations, evict, the last victim last.

What to do next is decided here step by step; every step can be the last one of this process, and the plan written on
the preemptor says to the next leader how to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from webhook.kube.errors import ApiError
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import EvictionMode, PreemptionPolicy
from webhook.reconciler.clock import Clock
from webhook.reconciler.evict.writer import DeposedError, Left, StaleError, Writer
from webhook.reconciler.plans.plan import Ending, Plan, Step
from webhook.reconciler.plans.rechecking import Unneeded
from webhook.reconciler.state.annotations import PlanVictim

__all__ = ["FAULT_POINTS", "Executor", "View", "no_checkpoint"]

log = logging.getLogger(__name__)

FAULT_POINTS = ("decided", "nominated", "displaced", "first-victim", "all-but-last", "evicted", "bound")
"""The steps between which a process can end, in their order."""


class View(Protocol):
    """What the executor needs to see of the cluster while it acts."""

    def pod(self, key: str) -> Pod | None:
        """The pod as the watch last showed it."""
        ...

    def to_displace(self, plan: Plan) -> list[Pod]:
        """Pods nominated to the plan's node that have to give way to its preemptor."""
        ...

    def displaced(self, pod: Pod) -> None:
        """The pod's nomination was taken."""
        ...

    def objection(self, plan: Plan) -> str:
        """Why the plan should not go on, by the newest state; empty if it should."""
        ...

    def unneeded(self, plan: Plan, policy: PreemptionPolicy, asking: frozenset[str]) -> Unneeded:
        """Which victims may stay, by the newest state, but for those that have been asked or are being asked (uids)."""
        ...

    def spared(self, plan: Plan) -> None:
        """Further victims stay: `Plan.spared`."""
        ...

    def has_budget(self, pod: Pod) -> bool:
        """Whether a disruption budget covers the pod."""
        ...

    def refused(self, victim: PlanVictim) -> None:
        """The API server does not let the victim be removed."""
        ...

    def answered(self, plan: Plan) -> None:
        """It is known now what came of asking a victim; the plan may have ended meanwhile."""
        ...

    def still_wanted(self, pod: Pod) -> bool:
        """Whether the pod, read again, is still a preemptor to act for."""
        ...


class Reports(Protocol):
    """Who is told what was done."""

    def victim_asked(self, plan: Plan, pod: Pod) -> None:
        """A victim was asked to leave."""
        ...

    def budget_refused(self, plan: Plan, victim: PlanVictim) -> None:
        """A budget kept a victim."""
        ...


async def no_checkpoint(step: str) -> None:
    """Let every step pass."""
    del step


class Executor:
    """Carries out plans, each in its own task. `checkpoint` is awaited after every step."""

    def __init__(
        self,
        writer: Writer,
        view: View,
        reports: Reports,
        clock: Clock,
        checkpoint: Callable[[str], Awaitable[None]] = no_checkpoint,
    ) -> None:
        self._writer = writer
        self._view = view
        self._reports = reports
        self._clock = clock
        self.checkpoint = checkpoint

    async def carry_out(self, plan: Plan, pod: Pod, policy: PreemptionPolicy, decision: str) -> Ending | None:
        """From the nomination to the last victim; None if all victims have been asked to leave."""
        try:
            await self.checkpoint("decided")
            written = await self._writer.nominate(pod, plan.record, decision, self._view.still_wanted)
            plan.version = written.metadata.resource_version
            await self.checkpoint("nominated")
        except (ApiError, StaleError) as error:
            log.warning("plan %s for %s: not nominated: %s", plan.record.id, plan.key, error)
            return Ending.OUTDATED if isinstance(error, StaleError) else Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        return await self.evict(plan, policy)

    async def evict(self, plan: Plan, policy: PreemptionPolicy) -> Ending | None:
        """From a nomination that stands to the last victim; None if all have been asked to leave."""
        if plan.ended is not None:
            return plan.ended
        plan.step = Step.EVICTING
        try:
            await self._displace(plan)
            await self.checkpoint("displaced")
            ending = await self._remove(plan, policy)
            await self.checkpoint("evicted")
        except DeposedError:
            return Ending.DEPOSED
        if ending is None:
            plan.step = Step.WAITING
        return ending

    async def _displace(self, plan: Plan) -> None:
        """A failure here is reported, not fatal: kube-scheduler gives room to the higher priority anyway."""
        for pod in self._view.to_displace(plan):
            try:
                await self._writer.displace(pod)
            except ApiError as error:
                log.warning("plan %s: nomination of %s stays: %s", plan.record.id, key_of(pod), error)
            else:
                self._view.displaced(pod)

    async def _remove(self, plan: Plan, policy: PreemptionPolicy) -> Ending | None:
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
        objection = self._view.objection(plan)
        if objection:
            log.info("plan %s for %s: dropped before evicting: %s", plan.record.id, plan.key, objection)
            return False
        unneeded = self._view.unneeded(plan, policy, asking)
        if unneeded.uids:
            shown = ", ".join(victim.key for victim in plan.record.victims if victim.uid in unneeded.uids)
            log.info("plan %s for %s: %s stay: %s", plan.record.id, plan.key, shown, unneeded.why)
            plan.spared |= unneeded.uids
            self._view.spared(plan)
        return True

    def _waiting(self, plan: Plan) -> list[PlanVictim]:
        """The victims that have yet to be asked, in their order.

        All but one are asked side by side, since evictions wait rather than work; a failure spares the last.
        If a budget can keep some of them and others not, the last is one of the others.
        """
        waiting = [victim for victim in plan.record.victims if self._stays(plan, victim)]
        pods = {victim.uid: self._view.pod(victim.key) for victim in waiting}
        waiting.sort(key=lambda victim: not _covered(self._view, pods[victim.uid]))
        return waiting

    def _stays(self, plan: Plan, victim: PlanVictim) -> bool:
        """Whether the victim is still there and has not been asked to leave by anyone."""
        pod = self._view.pod(victim.key)
        if pod is None or pod.metadata.uid != victim.uid or not plan.needs(victim.uid):
            return False
        return not pod.metadata.deletion_timestamp and pod.status.phase not in ("Succeeded", "Failed")

    async def _ask(self, plan: Plan, victim: PlanVictim, policy: PreemptionPolicy) -> Ending | None:
        pod = self._view.pod(victim.key)
        if plan.ended is not None:
            return plan.ended
        if pod is None or not self._stays(plan, victim):
            return None
        plan.asking.add(victim.uid)
        try:
            left = await self._leave(plan, victim, pod, policy)
        except ApiError as error:
            log.warning("plan %s: %s was not removed: %s", plan.record.id, victim.key, error)
            self._view.refused(victim)
            return Ending.FAILED
        except DeposedError:
            return Ending.DEPOSED
        else:
            return await self._left(plan, victim, pod, left)
        finally:
            plan.asking.discard(victim.uid)
            self._view.answered(plan)

    async def _leave(self, plan: Plan, victim: PlanVictim, pod: Pod, policy: PreemptionPolicy) -> Left:
        def wanted() -> bool:
            """Before every try, since a server that is away or a pod that takes its time may go on for minutes."""
            if plan.ended is not None or not self._stays(plan, victim):
                return False
            return self._goes_on(plan, policy, frozenset(plan.asking - {victim.uid})) and plan.needs(victim.uid)

        if policy.eviction is EvictionMode.DELETE:
            return await self._writer.delete(victim, pod, policy.grace_period, self._clock.wall(), wanted)
        return await self._writer.evict(victim, policy.grace_period, wanted)

    async def _left(self, plan: Plan, victim: PlanVictim, pod: Pod, left: Left) -> Ending | None:
        if left is Left.REFUSED:
            self._reports.budget_refused(plan, victim)
            return Ending.REFUSED
        if left in {Left.BEGUN, Left.UNWANTED} and plan.ended is not None:
            if left is Left.BEGUN and plan.ended is Ending.TIMED_OUT:
                self._view.refused(victim)
            return plan.ended
        if victim.uid in plan.spared:
            return None
        if left in {Left.BEGUN, Left.UNWANTED} and self._stays(plan, victim):
            return Ending.OUTDATED
        plan.gone.add(victim.uid)
        if left is Left.ASKED:
            self._reports.victim_asked(plan, pod)
        await self._passed(plan)
        return None

    async def _passed(self, plan: Plan) -> None:
        asked = len(plan.gone)
        if asked == 1:
            await self.checkpoint("first-victim")
        if asked == len(plan.record.victims) - 1:
            await self.checkpoint("all-but-last")


def _covered(view: View, pod: Pod | None) -> bool:
    return pod is not None and view.has_budget(pod)


def _worst(results: Sequence[Ending | None]) -> Ending | None:
    """A lost lease weighs more than a refusal, a refusal more than a failure."""
    for ending in (Ending.DEPOSED, Ending.REFUSED, Ending.FAILED):
        if ending in results:
            return ending
    return next((ending for ending in results if ending is not None), None)
