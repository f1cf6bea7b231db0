"""Virtual time: an event loop that does not wait. When nothing is ready it is at once the time of the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting it sets the loop's time to when the wait would have ended."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, at once."""
        if timeout is None or timeout > 0:
            self.loop.jump(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0, in seconds. `before_jump` is asked before time goes on; if it says no, it does not."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self.before_jump: Callable[[], bool] = lambda: True
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since the loop was made, as far as anything in it knows."""
        return self._virtual

    def jump(self, seconds: float | None) -> None:
        """Nothing is ready: go to the next timer, so many seconds away. Raises RuntimeError if there is none."""
        if not self.before_jump():
            return
        if seconds is None:
            raise RuntimeError("nothing will ever happen again, and somebody waits for it")
        self._virtual += seconds


class VirtualClock:
    """The time of a virtual loop; the wall clock begins at `start`, in seconds since the epoch."""

    def __init__(self, loop: VirtualLoop, start: float) -> None:
        self.start = start
        self.monotonic = self.stopwatch = loop.time
        """Seconds since the start: deciding takes no time."""
        self.call_later = loop.call_later
        """Do something when this much time has passed."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self.start + self.monotonic()
