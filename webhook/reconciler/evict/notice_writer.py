"""Telling victims before they are asked to leave, and taking notices off behind which no plan stands (docs/notice.md).

Both are one PATCH of a pod's status with its resourceVersion. So a notice that another plan has written meanwhile is
not taken off, and one that is taken off late is not written again. For a pod that has changed meanwhile it is one with
its uid alone: nobody keeps a pod, or a notice, by changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from weakref import WeakValueDictionary

from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.reconciler.evict.fenced_requests import TRIES, DeposedError, FencedRequests, StaleError
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.plans.plan import Plan, is_there
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.notices import (
    NoticeRecord,
    has_notice,
    notice_annotations,
    notice_condition,
    notice_of,
    withdrawn_condition,
)
from webhook.reconciler.state.plan_victims import PlanVictim

log = logging.getLogger(__name__)

_AGAIN = 5.0
"""Seconds before a notice that could not be taken off is tried again."""


class NoticeWriter:
    """Writes notices through `requests`, and takes them off."""

    def __init__(
        self,
        requests: FencedRequests,
        manager: PlanManager,
        reporter: Reporter,
    ) -> None:
        self._requests = requests
        self._manager = manager
        self._state = manager.evaluator.state
        self._clock = manager.clock
        self._reporter = reporter
        self.withdrawing: set[str] = set()
        """Pods, by `namespace/name`, whose notice is being taken off."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _alone(self, key: str) -> asyncio.Lock:
        """Held while the notice of a pod is written or taken off, so that neither undoes the other."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def tell(self, plan: Plan, victim: PlanVictim, seconds: float) -> Ending | None:
        """Tell a victim that it is asked to leave in so many seconds; why the plan must end, None if it goes on."""
        pod = self._state.pod_of(victim.key, victim.uid)
        if pod is None:
            return None
        try:
            until = await self._told(plan, victim, pod, seconds)
        except StaleError:
            # It is gone, though no watch has shown that: whoever asks it next finds that, too
            plan.note_told(victim.uid, self._clock.monotonic())
            return plan.ended
        except DeposedError:
            return Ending.DEPOSED
        except ApiError as error:
            log.warning("plan %s: %s has no notice: %s", plan.record.id, victim.key, error)
            self._manager.evaluator.eviction_backoff.refused(pod, self._clock.monotonic())
            return Ending.FAILED
        if until is None:
            return plan.ended
        plan.note_told(victim.uid, until - self._clock.wall() + self._clock.monotonic())
        return plan.ended

    async def _told(self, plan: Plan, victim: PlanVictim, pod: Pod, seconds: float) -> float | None:
        """Write the notice; returns until when, in seconds since the epoch, or None if the victim need not go.

        A pod whose annotations have no room for it is told by the Event alone, and one that changes meanwhile is told
        whatever it is by then: nobody keeps a pod by changing it.
        Raises StaleError if it is gone, ApiError if the API refuses.
        """
        changed = False
        for attempt in range(TRIES):
            if plan.ended is not None or not is_there(self._state, plan, victim):
                return None
            now = self._clock.wall()
            until = float(math.ceil(now + seconds))  # an instant of whole seconds, and not one too few
            whom = self._reporter.preemptor_shown(plan, pod)
            record = NoticeRecord(
                plan=plan.record.id, by=rfc3339(until), preemptor=whom, uid=plan.uid, priority=plan.priority
            )
            text = f"asked to leave by {record.by} for pod {whom or plan.uid} of priority {plan.priority}"
            annotations = notice_annotations(record)
            condition = notice_condition(text, now)
            try:
                async with self._alone(victim.key):
                    await self._requests.patch_as_it_is("notice", pod, annotations, condition, whatever=changed)
            except ApiError as error:
                if error.status == 404:
                    raise StaleError(f"{victim.key} is gone") from error
                if error.status == 422:
                    log.warning("plan %s: only an Event tells %s: %s", plan.record.id, victim.key, error)
                    self._reporter.told(plan, pod, record)
                    return until
                await self._requests.pause(error, attempt, also=(409,))
                changed = error.status == 409
            else:
                self._reporter.told(plan, pod, record)
                return until
            pod = await self._requests.read(victim)
            known = notice_of(pod)
            if known is not None and known.plan == plan.record.id:  # only the answer was lost
                self._reporter.told(plan, pod, known)
                return epoch(known.by)
        raise ApiError(409, "Conflict", f"{victim.key} keeps changing")

    async def withdraw(self, key: str) -> None:
        """Take a notice off a pod as long as no plan stands behind it; on an error tried again every few seconds."""
        known = self._state.pods.get(key)
        if known is None:
            return
        self.withdrawing.add(key)
        try:
            await self._take_off(known)
        except (StaleError, DeposedError):
            return
        except Exception:
            log.exception("the notice of %s could not be taken off", key)
        finally:
            self.withdrawing.discard(key)

    async def _take_off(self, pod: Pod) -> None:
        """Take the notice off this pod. Raises StaleError if it is gone."""
        current: Pod | None = pod
        off = notice_annotations(None)
        changed = False
        for attempt in itertools.count():
            try:
                async with self._alone(key_of(pod)):
                    current = current or await self._requests.read(pod.metadata)
                    if not has_notice(current) or self._manager.notices.stands(current):
                        return
                    condition = withdrawn_condition(self._clock.wall())
                    await self._requests.patch_as_it_is("withdraw", current, off, condition, whatever=changed)
            except ApiError as error:
                if error.status == 404:
                    return
                await self._pause(key_of(pod), error, attempt)
                changed = error.status == 409
            else:
                self._reporter.withdrawn(current)
                return
            current = None

    async def _pause(self, key: str, error: ApiError, attempt: int) -> None:
        try:
            await self._requests.pause(error, min(attempt, TRIES - 2), also=(409,))
        except ApiError:
            log.warning("the notice of %s cannot be taken off yet: %s", key, error)
            await asyncio.sleep(_AGAIN)
