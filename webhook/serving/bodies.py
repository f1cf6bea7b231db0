"""Bodies of requests that come bit by bit: bounded in bytes, in time and for each sender.

What is bounded is what a body costs. Waiting itself costs nothing, so nobody queues for a place behind those who
send slowly. Whenever something runs out, it is taken from the address that has most of it: the request that has been
unfinished longest is ended, or, if all are whole, the largest. A body of an API server is whole within milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import StreamReader

from webhook.serving.fair_queue import Peer

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes of a review that is read; docs/webhook.md says why."""
BUDGET = 32 * 1024 * 1024
"""Bytes of all bodies that are not finished, or wait for the API server."""
_PER_PEER = 64
"""Unfinished bodies from one address. All reviews may come from one: a proxy between control plane and nodes."""
_PAUSE = 2.0
"""Seconds without a byte after which a body is given up."""
_RATE = 64 * 1024
"""Bytes a second that a body must come at on average, apart from the first `_PAUSE` seconds."""
_DRAINED = 32 * 1024 * 1024
"""Bytes of an oversized body that are read and dropped before it is answered: more than an API server sends (two
objects of 1.5 MiB and 3 MiB, six times as long in JSON at most). A client that still writes may not see an answer."""
_BEGINNING = 1024
"""Bytes of an oversized body that are kept."""


class OversizedError(Exception):
    """The body is larger than BODY_LIMIT; `beginning` holds its first bytes, and `drained` says that no more follow."""

    def __init__(self, beginning: bytes, *, drained: bool) -> None:
        super().__init__(f"larger than {BODY_LIMIT} bytes")
        self.beginning, self.drained = beginning, drained


class EndedError(Exception):
    """The request was ended: `reason` is `slow`, `peer` or `room`; the text says what that means."""

    def __init__(self, reason: str) -> None:
        super().__init__(_TEXTS[reason])
        self.reason = reason


_TEXTS = {
    "slow": f"the body came too slowly: nothing for {_PAUSE:g} s, or less than {_RATE} bytes a second",
    "peer": f"more than {_PER_PEER} unfinished requests came from this address, and this was the oldest of them",
    "room": f"more than {BUDGET} bytes of reviews are under way, most of them from this address",
}


class Waiting:
    """One request that waits: for its body, or, once that is `whole`, for the API server."""

    __slots__ = ("bytes", "ended", "peer", "timer", "whole")

    def __init__(self, peer: Peer, timer: asyncio.Timeout) -> None:
        self.peer, self.timer = peer, timer
        self.bytes, self.whole, self.ended = 0, False, ""


class Bodies:
    """The bodies under way on one server. `ended(reason)` is called for each request that is ended here."""

    def __init__(self, ended: Callable[[str], object]) -> None:
        self._ended = ended
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._unfinished: dict[Peer, OrderedDict[Waiting, None]] = {}
        self._held: dict[Peer, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def waiting(self, peer: Peer, deadline: float) -> AsyncIterator[Waiting]:
        """Let a request wait, until `deadline` by the loop's clock at most. Raises EndedError or TimeoutError."""
        timer = asyncio.timeout_at(deadline)
        entry = Waiting(peer, timer)
        self._waiting[entry] = None
        try:
            async with timer:
                yield entry
        except TimeoutError:
            if entry.ended:
                raise EndedError(entry.ended) from None
            raise
        finally:
            self._forget(entry)

    async def read(self, entry: Waiting, content: StreamReader) -> bytes:
        """Read a body. Raises EndedError, OversizedError, and what the stream raises."""
        # The oldest unfinished body of a peer goes if these are too many
        peers = self._unfinished.setdefault(entry.peer, OrderedDict())
        peers[entry] = None
        if len(peers) > _PER_PEER:
            self._end(next(iter(peers)), "peer")
        loop = asyncio.get_running_loop()
        began, received = loop.time(), 0
        chunks: list[bytes] = []
        while not content.at_eof():
            patience = min(loop.time(), began + received / _RATE) + _PAUSE
            late = loop.call_at(patience, self._end_if_late, entry, content, received)
            try:
                chunk = await content.readany()
            finally:
                late.cancel()
            if entry.ended:
                raise EndedError(entry.ended)
            received += len(chunk)
            if received <= BODY_LIMIT:
                chunks.append(chunk)
                self._charge(entry, len(chunk))
            elif received > _DRAINED:
                raise OversizedError(_beginning(chunks), drained=False)
            elif entry.bytes:
                chunks = [_beginning([*chunks, chunk])]
                self._charge(entry, -entry.bytes)
        self._leave(entry)
        if received > BODY_LIMIT:
            raise OversizedError(_beginning(chunks), drained=True)
        return b"".join(chunks)

    def hold(self, entry: Waiting, body: bytes) -> None:
        """Count a whole body while its request waits for the API server. Raises EndedError."""
        entry.whole = True
        self._charge(entry, len(body) - entry.bytes)

    def _leave(self, entry: Waiting) -> None:
        peers = self._unfinished.get(entry.peer)
        if peers is not None:
            peers.pop(entry, None)
            if not peers:
                del self._unfinished[entry.peer]

    def _charge(self, entry: Waiting, count: int) -> None:
        """Count bytes; while these are too many, one of whoever has most goes: the oldest unfinished or the largest."""
        self._count(entry, count)
        while self.bytes > BUDGET:
            peer = max(self._held, key=self._held.__getitem__)
            holders = [other for other in self._waiting if other.bytes and other.peer is peer]
            self._end(min(holders, key=lambda other: (other.whole, -other.bytes if other.whole else 0)), "room")
        if entry.ended:
            raise EndedError(entry.ended)

    def _count(self, entry: Waiting, count: int) -> None:
        self.bytes += count
        entry.bytes += count
        held = self._held.pop(entry.peer, 0) + count
        if held:
            self._held[entry.peer] = held

    def _end_if_late(self, entry: Waiting, content: StreamReader, received: int) -> None:
        """End a body of which no more has come; if this process was held up, more may have come meanwhile."""
        if content.total_bytes <= received and not entry.ended:
            self._end(entry, "slow")

    def _end(self, entry: Waiting, reason: str) -> None:
        entry.ended = reason
        self._forget(entry)
        if not entry.timer.expired():
            entry.timer.reschedule(asyncio.get_running_loop().time())
        self._ended(reason)

    def _forget(self, entry: Waiting) -> None:
        self._waiting.pop(entry, None)
        self._leave(entry)
        self._count(entry, -entry.bytes)


def _beginning(chunks: list[bytes]) -> bytes:
    """The first bytes; no chunk of a stream is empty, so no more chunks than bytes are needed."""
    return b"".join(chunks[:_BEGINNING])[:_BEGINNING]
