"""Exponential back-off: one formula for all of them, and delays with jitter for retries against a server."""

import random


def exponential(failures: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Seconds to wait after so many failures in a row: 0, `first`, then `factor` times as long, up to `longest`."""
    if failures <= 0:
        return 0.0
    return min(longest, first * factor ** min(failures - 1, 32))


class Backoff:
    """Delays in seconds that double from `first` to `longest`, less up to a half at random; `failures` are in a row."""

    def __init__(self, first: float = 0.2, longest: float = 30.0) -> None:
        self._first = first
        self._longest = longest
        self.failures = 0

    def reset(self) -> None:
        """Note a success."""
        self.failures = 0

    def next(self) -> float:
        """Note a failure; how long to wait."""
        self.failures += 1
        delay = exponential(self.failures, self._first, self._longest)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients apart, guards nothing
