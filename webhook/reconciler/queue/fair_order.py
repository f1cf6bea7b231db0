"""Whose turn it is: the highest priority first, and among equals the namespace that has had least.

What it has had are victims. A namespace that comes back begins where the others are, and nobody is more than ten
victims behind, so nobody saves up turns. Tries in vain count, too, until all of the namespace that are ready have had
theirs: so a namespace with many pods for which nothing helps starves no other, and who waited for a limit loses nothing
by it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple

from webhook.kube.bounded import Newest

_VICTIM = 10.0
"""How many tries a victim counts as."""
_MOST_BEHIND = 100.0
"""By how much a namespace may have had less than another one."""
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
        self._ready: Counter[str] = Counter()
        """How many of each namespace are put in."""
        self._had: Newest[str, float] = Newest(_MOST_NAMESPACES)
        self._tries: Counter[str] = Counter()
        """Tries of each namespace that took nothing, since it was last without anybody ready."""
        self._last, self._most = 0.0, 0.0
        """What the namespace whose turn was last has had, and the one that has had most."""

    def join(self, namespace: str) -> None:
        """A namespace that had no pod has one: it begins where the others are, and not with what it did not take."""
        self._note(namespace, max(self._had.get(namespace, 0.0), self._last))

    def leave(self, namespace: str) -> None:
        """A namespace has no pod any more; what it has had is remembered for a while."""
        del self._tries[namespace]

    def push(self, priority: int, waiting: WaitingTurn) -> None:
        """It waits for its turn; its namespace stands before the slash of its key."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            heapq.heappush(self._priorities, -priority)
        namespace = waiting.key.partition("/")[0]
        if not self._ready[namespace]:
            del self._tries[namespace]
        self._ready[namespace] += 1
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
        self._last = self._had.get(namespace, 0.0)
        self._ready[namespace] -= 1
        if not self._ready[namespace]:
            del self._ready[namespace]
        if rows:
            heapq.heappush(level.order, (self._so_far(namespace), rows[0], namespace))
        else:
            del level.namespaces[namespace]
        return taken

    def tried(self, namespace: str) -> None:
        """A pod of the namespace has had its turn."""
        self._tries[namespace] += 1

    def took(self, namespace: str, victims: int) -> None:
        """So many pods go for one of the namespace: then its try was not in vain."""
        if not victims:
            return
        self._tries[namespace] -= 1
        self._note(namespace, max(self._had.get(namespace, 0.0), self._most - _MOST_BEHIND) + _VICTIM * victims)

    def _note(self, namespace: str, had: float) -> None:
        self._had[namespace] = had
        self._most = max(self._most, had)

    def _so_far(self, namespace: str) -> float:
        return max(self._had.get(namespace, 0.0), self._most - _MOST_BEHIND) + self._tries[namespace]
