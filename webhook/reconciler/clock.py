"""Time: a monotonic clock for what this program promises itself, a steady wall clock for what others wrote.

Deadlines, back-off, delays and rates count on `monotonic()`. Protection windows and instants in objects need
the time of day; a jump of the system clock must neither end a window early nor keep it open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from webhook.kube.instants import Clock

_SLEW = 0.005
"""Seconds per second by which the steady clock follows the system's after a jump."""


class MeasuringClock(Clock, Protocol):
    """What the reconciler asks for the time; a simulation has its own."""

    def stopwatch(self) -> float:
        """Seconds of a watch that measures how long own work takes."""
        ...


class Now(NamedTuple):
    """One instant by both clocks."""

    monotonic: float
    wall: float


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """The time of day at the start plus what has really passed, drawn slowly to the system clock."""

    def __init__(self, system: Callable[[], float] = time.time, elapsed: Callable[[], float] = _since_boot) -> None:
        self.monotonic = elapsed
        """Seconds since boot, those asleep included."""
        self.stopwatch = time.perf_counter
        """Seconds of the most precise timer there is."""
        self._system = system
        self._last, self._wall = elapsed(), system()

    def wall(self) -> float:
        """Seconds since the epoch, free of jumps."""
        now = self.monotonic()
        passed, self._last = now - self._last, now
        self._wall += passed
        most = passed * _SLEW
        self._wall += max(-most, min(most, self._system() - self._wall))
        return self._wall
