"""Where the evictions are written, and what was learned from them: in a Lease of its own beside the one that is led by.

It is written soon after each plan has asked or ended, and when a term ends. A plan stays on its pod until its evictions
are written (`wait_until_written`). So a new leader finds every eviction here or in a plan.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import NO_ANSWER, ApiError, unless_absent
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.reconciler.evaluate.eviction_record import NOTHING, EvictionRecord, decode, encode

log = logging.getLogger(__name__)

EVICTIONS = "giveway.dev/evictions"
"""The annotation of that Lease."""
_PATIENCE = 10.0
"""Seconds for a request, as long as a renewal of the lease may take."""
_LONGEST_WAIT = 20.0
"""Seconds for which a plan stays on its pod although what was evicted cannot be written."""
_RETRY = 1.0
"""Seconds before a request is made again that failed."""
_LEAST_GAP, _LONGEST_GAP = 0.25, 5.0
"""Seconds between two writes."""
_SHARE = 0.05
"""How much of the time is spent on making the text, at most: of 10 000 workloads it takes a while."""


def evictions_lease(lease_name: str) -> str:
    """The name of the Lease with the evictions, by that of the Lease that is led by."""
    return f"{lease_name}-evictions"


class EvictionStore:
    """Reads the record when a term begins, and writes what `known()` says while it lasts.

    `place` is the namespace and the name of the Lease, None for a process that keeps nothing. `fence()` is for how many
    seconds this process may write.
    """

    def __init__(
        self,
        client: Client,
        place: tuple[str, str] | None,
        known: Callable[[], EvictionRecord],
        fence: Callable[[], float],
    ) -> None:
        self._client, self._place, self._known, self._fence = client, place, known, fence
        self._lease: Lease | None = None
        """As it was last seen."""
        self._wanted = asyncio.Event()
        self._begun = self._written = 0
        """How many writes have begun, and the number of the last one that succeeded."""
        self._refused = False
        """Whether the server refuses to have it written: then nobody waits for that."""
        self._ended = asyncio.Event()
        """Set when the next write has ended."""
        self._took = 0.0
        """Seconds that the last text took to make."""

    async def read(self) -> EvictionRecord:
        """What earlier leaders have written; a server that is away is asked again.

        What none of them would have written is told, and counts for nothing.
        """
        if self._place is None:
            return NOTHING
        while True:
            try:
                self._lease = await self._get(*self._place)
                return decode((self._lease.metadata.annotations or {}).get(EVICTIONS, "") if self._lease else "")
            except ValueError as error:
                self._warn(error)
                return NOTHING
            except (ApiError, TimeoutError) as error:
                self._warn(error)
                if _is_refusal(error):
                    return NOTHING
                await asyncio.sleep(_RETRY)

    def write_soon(self) -> None:
        """Something is not written yet."""
        self._wanted.set()

    async def keep(self) -> None:
        """Write what is new, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self.write() and not self._refused:
                self._wanted.set()
                await asyncio.sleep(_RETRY)
            await asyncio.sleep(min(_LONGEST_GAP, max(_LEAST_GAP, self._took / _SHARE)))

    async def write(self) -> bool:
        """Write what is known now, if this process may; whether that succeeded. A failure is logged."""
        if self._place is None or self._fence() <= 0:
            return False
        self._begun += 1
        number, begun = self._begun, time.perf_counter()
        text = await asyncio.to_thread(encode, self._known())
        self._took = time.perf_counter() - begun
        try:
            async with asyncio.timeout(min(_PATIENCE, self._fence())):
                await self._put(*self._place, text)
        except (ApiError, TimeoutError) as error:
            self._lease, self._refused = None, _is_refusal(error)
            self._warn(error)
        else:
            self._written, self._refused = number, False
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
        return self._written == number

    async def wait_until_written(self) -> None:
        """Wait until all is written that was evicted so far; not for long if it cannot be."""
        begun = self._begun
        self.write_soon()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT):
                while self._place is not None and self._written <= begun and not self._refused:
                    await self._ended.wait()

    async def _put(self, namespace: str, name: str, text: str) -> None:
        lease = self._lease or await self._get(namespace, name)
        if lease is None and not text:
            return
        metadata = lease.metadata if lease is not None else ObjectMeta(name=name)
        metadata = msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), EVICTIONS: text})
        if lease is None:
            self._lease = await self._client.create(LEASE.path(namespace), Lease(metadata=metadata), Lease)
        else:
            wanted = msgspec.structs.replace(lease, metadata=metadata)
            self._lease = await self._client.replace(LEASE.path(namespace, name), wanted, Lease)

    async def _get(self, namespace: str, name: str) -> Lease | None:
        async with asyncio.timeout(_PATIENCE):
            return await unless_absent(self._client.get(LEASE.path(namespace, name), Lease))

    def _warn(self, error: Exception) -> None:
        log.warning("the evictions in Lease %s/%s: %s", *(self._place or ("", "")), error or type(error).__name__)


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered, and would not answer otherwise if it was asked again."""
    passes = {NO_ANSWER, 404, 409, 429}
    return isinstance(error, ApiError) and error.status not in passes and error.status < 500
