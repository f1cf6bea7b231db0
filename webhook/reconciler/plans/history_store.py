"""Where the history of evictions lies: in a Lease of its own, beside the one that is led by.

It is written once a minute at most and when a term ends, not with every eviction. What a leader that is killed has not
written its successor reads in the ledger (`eviction_ledger`) and on pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.evaluate.workload_history import WorkloadHistory, WrittenHistory, read_history, written_text

log = logging.getLogger(__name__)

HISTORY = "giveway.dev/workload-evictions"
"""The annotation of that Lease."""
_PERIOD = 60.0
"""Seconds between two writes, at least."""
_RETRY = 5.0
"""Seconds until the history is read again that could not be read."""
_PATIENCE = 5.0


def history_lease(lease_name: str) -> str:
    """The name of the Lease with the history, by that of the Lease that is led by."""
    return f"{lease_name}-evictions"


class HistoryStore:
    """Reads the history when a term begins, and writes it while it lasts and when it ends.

    `fence()` is for how many seconds this process may write.
    """

    def __init__(
        self,
        client: Client,
        place: tuple[str, str],
        history: WorkloadHistory,
        clock: MeasuringClock,
        fence: Callable[[], float],
    ) -> None:
        self._client, self._history, self._clock, self._fence = client, history, clock, fence
        self._namespace, self._name = place
        self._written = 0
        self._unread = False

    async def read(self) -> None:
        """Remember what earlier leaders have written, and no more; if that cannot be read, what this process knows."""
        try:
            known = self._history_in(await self._get())
        except (ApiError, TimeoutError) as error:
            self._warn(error)
            self._unread = True
        else:
            self._unread = False
            if known is not None:
                self._history.load(known, self._clock.monotonic(), self._clock.wall())
            self._written = self._history.changes

    async def keep(self) -> None:
        """Write what is new, until cancelled."""
        while True:
            await asyncio.sleep(_RETRY if self._unread else _PERIOD)
            await self.write()

    async def write(self) -> None:
        """Write the history if there is something new and this process may write; a failure is logged.

        What could not be read when the term began is read first, so that nothing of it is lost.
        """
        if (self._history.changes == self._written and not self._unread) or self._fence() <= 0:
            return
        try:
            lease = await self._get()
            now, wall = self._clock.monotonic(), self._clock.wall()
            if self._unread and (known := self._history_in(lease)) is not None:
                self._history.load(known, now, wall, keep_later=True)
            self._unread = False
            changes, rows = self._history.changes, self._history.rows(now)
            text = await asyncio.to_thread(written_text, rows, now, wall)  # of 10 000 workloads it takes a while
            metadata = lease.metadata if lease is not None else ObjectMeta(name=self._name)
            metadata = msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), HISTORY: text})
            async with asyncio.timeout(min(_PATIENCE, self._fence())):
                if lease is None:
                    await self._client.create(LEASE.path(self._namespace), Lease(metadata=metadata), Lease)
                else:
                    wanted = msgspec.structs.replace(lease, metadata=metadata)
                    await self._client.replace(LEASE.path(self._namespace, self._name), wanted, Lease)
        except (ApiError, TimeoutError) as error:
            self._warn(error)
        else:
            self._written = changes

    def _history_in(self, lease: Lease | None) -> WrittenHistory | None:
        """What the Lease tells; None if no leader would have written it."""
        text = (lease.metadata.annotations or {}).get(HISTORY, "") if lease is not None else ""
        try:
            return read_history(text)
        except ValueError as error:
            self._warn(error)
            return None

    def _warn(self, error: Exception) -> None:
        why = error or type(error).__name__
        log.warning("the history of evictions in Lease %s/%s: %s", self._namespace, self._name, why)

    async def _get(self) -> Lease | None:
        async with asyncio.timeout(_PATIENCE):
            return await unless_absent(self._client.get(LEASE.path(self._namespace, self._name), Lease))
