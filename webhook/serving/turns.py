"""The time of the event loop, and of what else can do one thing at a time, in fair shares.

As long as there is time for everybody, nobody waits and nothing is queued.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from webhook.serving.fair_queue import FairQueue, Flow

__all__ = ["FairSemaphore", "Turns"]

T = TypeVar("T")

_SLICE = 0.008
"""Seconds of work in one round of the event loop. What is more waits for the next one, and others get in between."""
_FOR_OTHERS = 2 * _SLICE
"""Seconds of work in a round until also those wait who have had less than their share."""


class Turns:
    """The event loop's time: work is done at once while a round has time for it, and by fair shares if it has not."""

    def __init__(self) -> None:
        self._queue: FairQueue[Callable[[], object]] = FairQueue()
        self._used, self._round = 0.0, False

    @property
    def busy(self) -> bool:
        """Whether what comes now has to wait, whosever it is."""
        return self._used > _SLICE or self._queue.count > 0

    def must_wait(self, flow: Flow) -> bool:
        """Whether what comes now on this connection has to wait.

        A peer that has had less than its share would be next anyway. Each wait costs it a round, and a review has two.
        """
        if not self.busy:
            return False
        return self._used > _FOR_OTHERS or not self._queue.behind(flow)

    @property
    def contended(self) -> bool:
        """Whether others wait for their turn."""
        return self._queue.count > 0

    def spend(self, flow: Flow, seconds: float) -> None:
        """Count time that was used for a connection."""
        if self._queue.count:  # if nobody waits, nobody comes short
            self._queue.charge(flow, seconds)
        self._used += seconds
        if self._used > _SLICE / 3 and not self._round:  # a round is not begun for less than it costs
            self._begin_round()

    def later(self, flow: Flow, work: Callable[[], object], estimate: float) -> None:
        """Do this when it is the connection's turn; it takes about so many seconds, and raises nothing."""
        self._queue.put(flow, work, estimate)
        if not self._round:
            self._begin_round()

    async def run(self, flow: Flow, work: Callable[[], T], estimate: float) -> T:
        """Do this at once, or when it is the connection's turn. Raises what it raises."""
        if not self.must_wait(flow):
            began = time.perf_counter()
            try:
                return work()
            finally:
                self.spend(flow, time.perf_counter() - began)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            if done.done():  # nobody waits for it any more
                return
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)

        self.later(flow, carry_out, estimate)
        return await done

    def _next_round(self) -> None:
        """Do what waits, for so long as a round may take."""
        self._used, self._round = 0.0, False
        while self._used <= _SLICE and self._queue.count:
            flow, work = self._queue.pop()
            # By the processor's clock: what another process takes of it meanwhile is not this connection's doing
            began, ran = time.perf_counter(), time.thread_time()
            work()
            cost = time.thread_time() - ran
            self._used += time.perf_counter() - began
            self._queue.charge(flow, cost)
        if (self._queue.count or self._used) and not self._round:
            self._begin_round()

    def _begin_round(self) -> None:
        self._round = True
        asyncio.get_running_loop().call_soon(self._next_round)


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
