"""Bodies of requests: bounded in bytes and in time, each and together.

If there is no room, the largest body goes of the address that has most; one of an API server is whole in milliseconds.
"""

import asyncio
import ctypes
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import StreamReader

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes of a review that is read: two objects of 3 MB, the most that an API server takes in a request, and room."""
BUDGET = 32 * 1024 * 1024
"""Bytes of all bodies that are not finished, or wait for their turn or for the API server."""
_PAUSE = 2.0
"""Seconds without a byte after which a body is given up."""
_RATE = 64 * 1024
"""Bytes a second that a body must come at on average, apart from the first `_PAUSE` seconds."""
_DRAINED = 32 * 1024 * 1024
"""Bytes of an oversized body that are read and dropped before it is answered: more than an API server sends (two
objects of 1.5 MiB and 3 MiB, six times as long in JSON at most). A client that still writes may not see an answer."""
_BEGINNING = 1024
"""Bytes of an oversized body that are kept."""
_SLOW = f"the body came too slowly: nothing for {_PAUSE:g} s, or less than {_RATE} bytes a second"
_NO_ROOM = f"more than {BUDGET} bytes of reviews are under way, most of them from this address"
_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024
"""The parameter M_MMAP_THRESHOLD of mallopt(3), and the bytes from which a piece of memory is mapped by itself."""


def give_back_large_memory() -> None:
    """Let what is large go back once it is free: else glibc keeps it, in each thread's heap."""
    with suppress(AttributeError):  # another C library has no such parameter
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


class OversizedError(Exception):
    """The body is larger than BODY_LIMIT; these are its first bytes."""


class BodyError(Exception):
    """The body was not whole in time, or found no room: the HTTP status of the answer, and why."""


@dataclass(eq=False, slots=True)
class Held:
    """What is held of one body until its request is answered."""

    address: str
    timer: asyncio.Timeout
    bytes: int = 0
    ended: bool = False


class Bodies:
    """The bodies under way on one server. `ended(reason)` is called for each request that is ended here."""

    def __init__(self, ended: Callable[[str], object]) -> None:
        self._ended = ended
        self._held: dict[Held, None] = {}
        self.bytes = 0

    @asynccontextmanager
    async def held(self, address: str, seconds: float) -> AsyncIterator[Held]:
        """Hold a body for so many seconds at most. Raises BodyError."""
        held = Held(address, asyncio.timeout(seconds))
        self._held[held] = None
        try:
            async with held.timer:
                yield held
        except TimeoutError as late:
            if held.ended:
                raise BodyError(503, _NO_ROOM) from None
            over = f"the review was not finished within {seconds:g} s, its share of the timeout"
            raise BodyError(504, str(late) or over) from None
        finally:
            del self._held[held]
            self.bytes -= held.bytes

    async def read(self, held: Held, content: StreamReader) -> bytes:
        """Read a body. Raises OversizedError, TimeoutError, and what the stream raises."""
        loop = asyncio.get_running_loop()
        began, received, body = loop.time(), 0, bytearray()
        while received <= _DRAINED and not content.at_eof():
            due = min(loop.time(), began + received / _RATE)
            try:
                async with asyncio.timeout_at(due + _PAUSE):
                    chunk = await content.readany()
            except TimeoutError:
                # This process was held up, and more has come meanwhile
                if content.total_bytes > received:
                    continue
                self._ended("slow")
                raise TimeoutError(_SLOW) from None
            received += len(chunk)
            if received <= BODY_LIMIT:
                body += chunk
                self.charge(held, len(chunk))
            elif held.bytes:
                body = (body + chunk)[:_BEGINNING]
                self.charge(held, -held.bytes)
        if received > BODY_LIMIT:
            raise OversizedError(bytes(body))
        return bytes(body)

    def charge(self, held: Held, count: int) -> None:
        """Count bytes, and make room if need be. Raises TimeoutError if the body itself has to go."""
        held.bytes += count
        self.bytes += count
        while self.bytes > BUDGET:
            of_address: Counter[str] = Counter()
            for other in self._held:
                of_address[other.address] += other.bytes
            largest = max(self._held, key=lambda other: (of_address[other.address], other.bytes))
            largest.ended = True
            self.bytes -= largest.bytes
            largest.bytes = 0
            if not largest.timer.expired():
                largest.timer.reschedule(asyncio.get_running_loop().time())
            self._ended("room")
        if held.ended:
            raise TimeoutError
