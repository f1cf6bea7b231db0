"""Waits that cost no time: when all that a test has to do is wait, the clocks are set on to the end of the wait.

Everything else is as usual: real sockets on loopback, and what is done takes the processor time that it takes. So 30 s
are 30 s by every clock that the code under test asks, but not by the one on the wall, and how busy the machine is makes
no difference. Not for tests with other processes: nobody sets their clocks on.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

_MOMENT = 0.001
"""Seconds without an event after which nothing is on its way any more: loopback delivers at once."""

_CLOCKS = ("time", "monotonic", "perf_counter", "clock_gettime")
_REAL: dict[str, Callable[..., Any]] = {name: getattr(time, name) for name in (*_CLOCKS, "sleep")}


class _SkippingSelector(selectors.DefaultSelector):
    loop: SkippingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after a wait that only the clocks see."""
        ready = super().select(_MOMENT if timeout is None else min(timeout, _MOMENT))
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None and not self.loop.in_threads:
            self.loop.skipped += timeout
            return super().select(0)
        begun = _REAL["monotonic"]()
        ready = super().select(timeout)
        self.loop.skipped += _REAL["monotonic"]() - begun
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop that skips waits. While there is one, it answers for the module `time`."""

    def __init__(self) -> None:
        self.skipped = 0.0
        """Seconds that somebody has waited for."""
        self.in_threads = 0
        """Jobs that threads do at present: the loop really waits for them."""
        self._worked = time.process_time()
        self._thread = threading.get_ident()
        for name in _CLOCKS:
            setattr(time, name, self._clock(_REAL[name]))
        time.sleep = self._sleep
        selector = _SkippingSelector()
        selector.loop = self
        super().__init__(selector)

    def _clock(self, real: Callable[..., float]) -> Callable[..., float]:
        started: dict[tuple[int, ...], float] = {}

        def clock(*which: int) -> float:
            passed = time.process_time() - self._worked + self.skipped
            if which not in started:
                started[which] = real(*which) - passed
            return started[which] + passed

        return clock

    def _sleep(self, seconds: float) -> None:
        if threading.get_ident() == self._thread:
            self.skipped += seconds
        else:
            _REAL["sleep"](seconds)

    def close(self) -> None:
        """Give the clocks back."""
        super().close()
        for name, function in _REAL.items():
            setattr(time, name, function)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run it in a thread, during which no wait is skipped."""
        job = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        job.add_done_callback(self._thread_is_done)
        return job

    def _thread_is_done(self, _job: asyncio.Future[Any]) -> None:
        self.in_threads -= 1

    async def subprocess_exec(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refused."""
        raise NotImplementedError("another process does not see that the clocks are set on")
