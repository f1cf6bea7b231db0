"""Whose turn it is: the highest priority first, and among equals the namespace that has had least.

A namespace has had so many tries and victims. One that had nothing to try for a while begins where the others are, so
nobody saves up turns; and every try counts, so a namespace with many pods for which nothing helps starves no other.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import NamedTuple

__all__ = ["FairOrder", "WaitingTurn"]

_TRY, _VICTIM = 1.0, 10.0
"""What a try and a victim count."""
_MOST_NAMESPACES = 10_000


class WaitingTurn(NamedTuple):
    """One that waits for its turn within its namespace: the longest untried first, then the oldest."""

    tried: float
    created: float
    turn: int
    key: str


class _Level:
    """Those of one priority: by namespace, and the namespaces in the order of what they have had."""

    def __init__(self) -> None:
        self.namespaces: dict[str, list[WaitingTurn]] = {}
        self.order: list[tuple[float, WaitingTurn, str]] = []


class FairOrder:
    """Who waits, by priority and namespace. What is put in is never taken out but by `pop`."""

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._priorities: list[int] = []
        self._had: OrderedDict[str, float] = OrderedDict()
        """What each namespace has had; one that is left out has had what `_least` says."""
        self._least = 0.0

    def clear(self) -> None:
        """Forget everything."""
        self._levels.clear()
        self._priorities.clear()
        self._had.clear()
        self._least = 0.0

    def push(self, priority: int, waiting: WaitingTurn) -> None:
        """It waits for its turn; its namespace stands before the slash of its key."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            heapq.heappush(self._priorities, -priority)
        namespace = waiting.key.partition("/")[0]
        rows = level.namespaces.setdefault(namespace, [])
        if not rows or waiting < rows[0]:
            heapq.heappush(level.order, (self._so_far(namespace), waiting, namespace))
        heapq.heappush(rows, waiting)

    def pop(self) -> WaitingTurn | None:
        """The next one; None if nobody waits."""
        while self._priorities:
            priority = -self._priorities[0]
            level = self._levels[priority]
            while level.order:
                had, head, namespace = level.order[0]
                rows, now = level.namespaces.get(namespace), self._so_far(namespace)
                if rows is None or rows[0] != head:
                    heapq.heappop(level.order)  # another one of its namespace stands for it
                elif now > had:
                    heapq.heapreplace(level.order, (now, head, namespace))
                else:
                    return self._take(level, namespace)
            del self._levels[priority]
            heapq.heappop(self._priorities)
        return None

    def _take(self, level: _Level, namespace: str) -> WaitingTurn:
        heapq.heappop(level.order)
        rows = level.namespaces[namespace]
        taken = heapq.heappop(rows)
        self._least = max(self._least, self._so_far(namespace))
        if rows:
            heapq.heappush(level.order, (self._so_far(namespace), rows[0], namespace))
        else:
            del level.namespaces[namespace]
        return taken

    def tried(self, namespace: str) -> None:
        """A pod of the namespace has had its turn."""
        self._count(namespace, _TRY)

    def took(self, namespace: str, victims: int) -> None:
        """So many pods go for one of the namespace."""
        self._count(namespace, _VICTIM * victims)

    def _so_far(self, namespace: str) -> float:
        return max(self._had.get(namespace, 0.0), self._least)

    def _count(self, namespace: str, amount: float) -> None:
        self._had[namespace] = self._so_far(namespace) + amount
        self._had.move_to_end(namespace)
        while len(self._had) > _MOST_NAMESPACES:
            self._had.popitem(last=False)
