"""Pods the API server would not remove, so that a preemptor looks elsewhere instead of asking for the same one again.

A webhook that denies the eviction, a namespace without the right, a pod under two budgets (which the Eviction API does
not support): none of it shows in the objects a decision looks at. Time is an argument, in monotonic seconds. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EvictionBackoff"]

_FIRST = 15.0
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    times: int
    until: float


class EvictionBackoff:
    """Refused pods by key: each is spared for a while, twice as long after every further refusal."""

    def __init__(self) -> None:
        self._by_key: dict[str, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def note(self, key: str, now: float) -> None:
        """The pod could not be removed."""
        self._by_key = {key: it for key, it in self._by_key.items() if now < it.until + _LONGEST}
        known = self._by_key.get(key)
        times = known.times + 1 if known else 1
        self._by_key[key] = _Refusal(times, now + min(_LONGEST, _FIRST * 2 ** min(times - 1, 10)))

    def spared(self, now: float) -> list[str]:
        """The pods that are not to be asked for now."""
        return [key for key, it in self._by_key.items() if now < it.until]

    def next_end(self, now: float) -> float | None:
        """When the first of them may be asked for again."""
        return min((it.until for it in self._by_key.values() if now < it.until), default=None)
