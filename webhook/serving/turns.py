"""The time of the event loop, and of what else can do one thing at a time, in fair shares.

As long as there is time for everybody, nobody waits and nothing is queued.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from webhook.serving.fair_queue import FairQueue, Flow

T = TypeVar("T")

_ROUND = 0.004
"""Seconds of work in one round of the event loop. What is more waits for the next one, and others get in between."""
_SLICE = 0.001
"""Seconds of a round for what has waited. It leads to more in the next rounds: what is read is reviewed."""
_ROUND_COST = 0.0003
"""Seconds of work for which no round is begun."""


class _Collector:
    """Seconds of the processor that the garbage collector has taken: whoever it interrupts has not used them."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __call__(self, phase: str, _: object) -> None:
        """Hear that it begins or ends."""
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


_collector = _Collector()
gc.callbacks.append(_collector)


class Turns:
    """The event loop's time: work is done at once while a round has time for it, and by fair shares if it has not.

    What is done for a connection is counted: decrypting, parsing and reviews by `do`, the rest of a request by `spend`.
    """

    def __init__(self) -> None:
        self._queue: FairQueue[Callable[[], object]] = FairQueue()
        self._used, self._waited = 0.0, 0.0
        self._round = self._in_round = self._working = False

    @property
    def busy(self) -> bool:
        """Whether what comes now has to wait, whosever it is."""
        return self._used > _ROUND or self._queue.count > 0

    @property
    def full(self) -> bool:
        """Whether the round has no time left even for what has had its turn, and goes on."""
        return self._used > _ROUND

    def must_wait(self, flow: Flow) -> bool:
        """Whether what comes now on this connection has to wait.

        A peer that has had less than its share would be next anyway. Each wait costs it a round.
        """
        if not self.busy:
            return False
        return self.full or not self._queue.behind(flow)

    @property
    def contended(self) -> bool:
        """Whether others wait for their turn."""
        return self._queue.count > 0

    def do(self, flow: Flow, work: Callable[..., T], *arguments: Any) -> T:
        """Do this now, and count its time for the connection. Raises what it raises."""
        if self._working:  # it is counted already
            return work(*arguments)
        contended = self._in_round or self._queue.count > 0
        # By the processor's clock: what another process takes of it meanwhile is not this connection's doing
        ran = _processor_time() if contended else 0.0
        self._working, began = True, time.perf_counter()
        try:
            return work(*arguments)
        finally:
            self._working = False
            self._used += time.perf_counter() - began
            if contended:  # if nobody waits, nobody comes short
                self._queue.charge(flow, _processor_time() - ran)
            if self._used > _ROUND_COST and not self._round:
                self._begin_round()

    def spend(self, flow: Flow, seconds: float) -> None:
        """Count time that is known without measuring."""
        self._used += seconds
        if self._queue.count:
            self._queue.charge(flow, seconds)
        if self._used > _ROUND_COST and not self._round:
            self._begin_round()

    def later(self, flow: Flow, work: Callable[[], object], estimate: float, *, begun: bool = False) -> None:
        """Do this when it is the connection's turn; it takes about so many seconds, and raises nothing.

        It has `begun` if it goes on with what has had its turn.
        """
        self._queue.put(flow, work, estimate, begun=begun)
        if not self._round:
            self._begin_round()

    async def run(self, flow: Flow, work: Callable[[], T], estimate: float, *, begun: bool) -> T:
        """Do this at once if there is time, or by fair shares. Raises what it raises.

        What goes on with the connection's turn has `begun`; what follows after it needs another one.
        """
        if not (self.full if begun else self.must_wait(flow)):
            return self.do(flow, work)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            if done.done():  # nobody waits for it any more
                return
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)

        self.later(flow, carry_out, estimate, begun=begun)
        return await done

    def _next_round(self) -> None:
        """Do what waits, for so long as a round may take; something of it in any case."""
        others = self._used - self._waited  # what has been done since the last round without waiting
        limit = min(others + _SLICE, _ROUND)
        self._used, self._in_round = others, True
        while self._queue.count:
            self.do(*self._queue.pop())
            if self._used > limit:
                break
        self._waited = self._used = self._used - others
        self._round = self._in_round = False
        if self._queue.count or self._used:
            self._begin_round()

    def _begin_round(self) -> None:
        self._round = True
        asyncio.get_running_loop().call_soon(self._next_round)


def _processor_time() -> float:
    """Seconds of the processor for this thread's own work."""
    return time.thread_time() - _collector.seconds


class FairSemaphore:
    """So many at a time; whoever waits is let in by fair shares of the time that it was held."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._queue: FairQueue[asyncio.Future[Any]] = FairQueue()

    @asynccontextmanager
    async def held(self, flow: Flow, estimate: float) -> AsyncIterator[None]:
        """Hold it, for about so many seconds."""
        if self._free and not self._queue.count:
            self._free -= 1
        else:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.put(flow, granted, estimate)
            try:
                await granted
            except asyncio.CancelledError:
                if granted.done() and not granted.cancelled():
                    self._let_in()
                raise
        began = time.monotonic()
        try:
            yield
        finally:
            self._queue.charge(flow, time.monotonic() - began)
            self._let_in()

    def _let_in(self) -> None:
        """Hand one place on."""
        while self._queue.count:
            _, granted = self._queue.pop()
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
