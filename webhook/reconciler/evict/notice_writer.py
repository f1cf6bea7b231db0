"""Telling victims before they are asked to leave, and taking notices off behind which no plan stands (docs/notice.md).

Both are one PATCH of a pod's status with its resourceVersion. So a notice that another plan has written meanwhile is
not taken off, and one that is taken off late is not written again. For a pod that has changed meanwhile it is one with
its uid alone: nobody keeps a pod, or a notice, by changing the pod all the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from weakref import WeakValueDictionary

from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.reconciler.evict.fenced_requests import DeposedError, FencedRequests, StaleError
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.notices import (
    NoticeRecord,
    has_notice,
    notice_annotations,
    notice_condition,
    notice_of,
    withdrawn_condition,
)

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

    async def tell(self, plan: Plan, victim: PlanVictim, pod: Pod, seconds: float, *, again: bool) -> float:
        """Write on a victim that it is asked to leave in so many seconds; until when, in seconds since the epoch.

        If it is tried `again` the pod is read before: it may have the notice though the answer was lost, and it is told
        whatever it is by then. One whose annotations have no room for it is told by the Event alone.
        Raises StaleError if it is gone, ApiError if the API refuses.
        """
        if again:
            pod = await self._requests.read(victim)
            if (known := notice_of(pod)) is not None and known.plan == plan.record.id:
                self._reporter.told(plan, pod, known)
                return epoch(known.by)
        now = self._clock.wall()
        until = float(math.ceil(now + seconds))  # an instant of whole seconds, and not one too few
        whom = self._reporter.preemptor_shown(plan, pod)
        record = NoticeRecord(
            plan=plan.record.id, by=rfc3339(until), preemptor=whom, uid=plan.uid, priority=plan.priority
        )
        text = f"asked to leave by {record.by} for pod {whom or plan.uid} of priority {plan.priority}"
        annotations, condition = notice_annotations(record), notice_condition(text, now)
        try:
            async with self._alone(victim.key):
                await self._requests.patch_as_it_is("notice", pod, annotations, condition, whatever=again)
        except ApiError as error:
            if error.status != 422:
                raise
            log.warning("plan %s: only an Event tells %s: %s", plan.record.id, victim.key, error)
        self._reporter.told(plan, pod, record)
        return until

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
        off = notice_annotations(None)

        async def write(current: Pod) -> None:
            if has_notice(current) and not self._manager.notices.stands(current):
                condition, whatever = withdrawn_condition(self._clock.wall()), current is not pod
                await self._requests.patch_as_it_is("withdraw", current, off, condition, whatever=whatever)
                self._reporter.withdrawn(current)

        while True:
            try:
                async with self._alone(key_of(pod)):
                    return await self._requests.until_written(pod, write, patient=True)
            except ApiError as error:
                log.warning("the notice of %s cannot be taken off yet: %s", key_of(pod), error)
                await asyncio.sleep(_AGAIN)
