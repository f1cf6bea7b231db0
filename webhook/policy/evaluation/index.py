"""Which policies and reserved ranges a request could concern, found by look-up rather than by trying each."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

from webhook.policy.evaluation.request import PODS, RequestAttributes
from webhook.policy.model.globs import WILDCARD
from webhook.policy.model.match import RequestMatch

T = TypeVar("T")


class MatchIndex(Generic[T]):
    """Entries by the namespaces of their `match`, if it names them without globs; the others are candidates always.

    A candidate may still not match; an entry that is no candidate cannot match.
    """

    def __init__(self, rows: Iterable[tuple[RequestMatch, T]]) -> None:
        self._entries: list[T] = []
        self._always: list[int] = []
        self._by_namespace: dict[str, list[int]] = defaultdict(list)
        for place, (match, entry) in enumerate(rows):
            names = set(match.namespaces or (WILDCARD,))
            self._entries.append(entry)
            if any(WILDCARD in name for name in names):
                self._always.append(place)
            else:
                for name in names:
                    self._by_namespace[name].append(place)

    def candidates(self, attributes: RequestAttributes) -> Iterable[T]:
        """The entries that could match, in their order, each once; all of them about a PriorityClass."""
        if attributes.kind != PODS or not self._by_namespace:
            return self._entries
        named = self._by_namespace.get(attributes.request.namespace, ())
        return [self._entries[place] for place in sorted((*self._always, *named))]


class RangeIndex(Generic[T]):
    """Entries by closed ranges of integers, sorted. Overlaps are legal here, and linted elsewhere."""

    def __init__(self, rows: Iterable[tuple[int, int, T]]) -> None:
        self._rows = sorted(rows, key=lambda row: row[:2])
        self._starts = [row[0] for row in self._rows]
        self._reach: list[int] = []
        for _, end, _ in self._rows:
            self._reach.append(max(end, self._reach[-1]) if self._reach else end)

    def holding(self, value: int) -> list[T]:
        """The entries whose range holds the value; for ranges that do not overlap, one step after the search."""
        rows = []
        place = bisect_right(self._starts, value) - 1
        while place >= 0 and self._reach[place] >= value:
            if self._rows[place][1] >= value:
                rows.append(self._rows[place][2])
            place -= 1
        return rows[::-1]
