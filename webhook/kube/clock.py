"""What a program asks for the time, so that a simulation can answer with another one."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic(self) -> float:
        """Seconds since some instant; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    """The machine's clocks as they are."""

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch by the machine's clock, jumps included."""
        return time.time()
