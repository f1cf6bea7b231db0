"""Reserved ranges, sorted, so that a value finds its own without trying the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Ranges"]

T = TypeVar("T")


class Ranges(Generic[T]):
    """Entries by closed ranges of integers. Overlaps are legal here, and linted elsewhere."""

    def __init__(self, rows: Iterable[tuple[int, int, T]]) -> None:
        self._rows = sorted(rows, key=lambda row: row[:2])
        self._starts = [row[0] for row in self._rows]
        self._reach: list[int] = []
        for _, end, _ in self._rows:
            self._reach.append(max(end, self._reach[-1]) if self._reach else end)

    def holding(self, value: int) -> list[T]:
        """The entries whose range holds the value; for ranges that do not overlap, one step after the search."""
        found = []
        place = bisect_right(self._starts, value) - 1
        while place >= 0 and self._reach[place] >= value:
            if self._rows[place][1] >= value:
                found.append(self._rows[place][2])
            place -= 1
        return found[::-1]
