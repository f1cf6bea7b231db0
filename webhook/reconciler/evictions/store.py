"""Where the log of evictions outlives a leader: in a Lease of its own beside the one that is led by.

It is written within a second of whatever changes in it, and before anybody is told or asked to leave: so a new leader,
which reads it before it decides anything, finds every eviction and every plan there.
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
from webhook.kube.transport import BEFORE_SENDING
from webhook.reconciler.evictions.record import NOTHING, EvictionRecord, decode, encode

log = logging.getLogger(__name__)

EVICTIONS = "giveway.dev/evictions"
"""The annotation of that Lease."""
_PATIENCE = 10.0
"""Seconds for a request, as long as a renewal of the lease may take."""
_RETRY = 1.0
"""Seconds before a request is made again that failed."""
_GAP = 0.05
"""Seconds, at least, between two writes. It is as long as the text took to make, if that is longer."""
_UNHURRIED = 0.95
"""Seconds for which what nobody waits for gathers."""
_AGAIN = 30.0
"""Seconds after which it is written again though nothing has changed, since evictions have become older."""


def evictions_lease(lease_name: str) -> str:
    """The name of the Lease with the evictions, by that of the Lease that is led by."""
    return f"{lease_name}-evictions"


class EvictionStore:
    """Reads the record when a term begins, and writes what is `known()`, by its version, while it lasts.

    `place` is the namespace and the name of the Lease, None for a process that keeps nothing. `fence()` is for how many
    seconds this process may write.
    """

    def __init__(
        self,
        client: Client,
        place: tuple[str, str] | None,
        known: Callable[[], tuple[int, EvictionRecord]],
        fence: Callable[[], float],
    ) -> None:
        self._client, self._place, self._known, self._fence = client, place, known, fence
        self._lease: Lease | None = None
        """As it was last seen."""
        self._wanted, self._awaited = asyncio.Event(), asyncio.Event()
        self._written = self._begun = -1
        """The version that was written last, and the one whose write was begun last, unless that has failed."""
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

    def write_soon(self, *, awaited: bool = False) -> None:
        """Something is not written yet; that is done within a second, or at once if somebody waits for it."""
        self._wanted.set()
        if awaited:
            self._awaited.set()

    async def keep(self) -> None:
        """Write what is new, and what there is now and then, until cancelled."""
        while self._place is not None:
            for event, seconds in ((self._wanted, _AGAIN), (self._awaited, _UNHURRIED)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await event.wait()
            self._wanted.clear()
            self._awaited.clear()
            if not await self.write() and not self._refused:
                self.write_soon(awaited=True)
                await asyncio.sleep(_RETRY)
            await asyncio.sleep(max(_GAP, self._took))

    async def write(self) -> bool:
        """Write what is known now, if this process may; whether that succeeded. A failure is logged."""
        if self._place is None or self._fence() <= 0:
            return False
        begun, written, before = time.perf_counter(), False, BEFORE_SENDING.set(self._check)
        try:
            version, record = self._known()
            self._begun = version
            text = await asyncio.to_thread(encode, record)
            self._took = time.perf_counter() - begun
            async with asyncio.timeout(min(_PATIENCE, self._fence())):
                await self._put(*self._place, text)
        except (ApiError, TimeoutError) as error:
            self._refused = _is_refusal(error)
            self._warn(error)
        except Exception:
            log.exception("the evictions cannot be written")
        else:
            self._written, self._refused, written = version, False, True
        finally:
            BEFORE_SENDING.reset(before)
            self._begun = self._written
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
        return written

    async def wait_until_written(self, version: int) -> bool:
        """Wait until what was known at that version is written, unless the server refuses to have it written.

        Returns whether that took any time.
        """
        waited = False
        while self._place is not None and self._written < version and not self._refused:
            if self._begun < version:
                self.write_soon(awaited=True)
            await self._ended.wait()
            waited = True
        return waited

    async def _put(self, namespace: str, name: str, text: str) -> None:
        lease, self._lease = self._lease or await self._get(namespace, name), None  # until there is an answer
        known = (lease.metadata.annotations or {}).get(EVICTIONS, "") if lease is not None else ""
        if not text and not known:
            self._lease = lease
            return
        metadata = lease.metadata if lease is not None else ObjectMeta(name=name)
        metadata = msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), EVICTIONS: text})
        if lease is None:
            self._lease = await self._client.create(LEASE.path(namespace), Lease(metadata=metadata), Lease)
        else:
            wanted = msgspec.structs.replace(lease, metadata=metadata)
            self._lease = await self._client.replace(LEASE.path(namespace, name), wanted, Lease)

    def _check(self) -> None:
        """Until there was a connection this process may have stood still, and lost the lease."""
        if self._fence() <= 0:
            raise ApiError(NO_ANSWER, "Deposed", "this process does not hold the lease any more")

    async def _get(self, namespace: str, name: str) -> Lease | None:
        async with asyncio.timeout(_PATIENCE):
            return await unless_absent(self._client.get(LEASE.path(namespace, name), Lease))

    def _warn(self, error: Exception) -> None:
        log.warning("the evictions in Lease %s/%s: %s", *(self._place or ("", "")), error or type(error).__name__)


def _is_refusal(error: Exception) -> bool:
    """Whether the server has answered, and would not answer otherwise if it was asked again."""
    passes = {NO_ANSWER, 404, 409, 429}
    return isinstance(error, ApiError) and error.status not in passes and error.status < 500
