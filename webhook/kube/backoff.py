"""Exponential back-off with jitter."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """Delays in seconds that double from `first` to `longest`, each shortened by up to a half at random."""

    def __init__(self, first: float = 0.2, longest: float = 30.0) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many delays were taken since the last success."""
        return self._failures

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0

    def next(self) -> float:
        """Note a failure; how long to wait."""
        delay = min(self._longest, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients apart, guards nothing
