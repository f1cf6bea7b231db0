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


class FairOrder:
    """Who waits, by priority and namespace. What is put in is never taken out but by `pop`."""

    def __init__(self) -> None:
        self._levels: dict[int, dict[str, list[WaitingTurn]]] = {}
        """By priority and namespace, a heap of those that wait for their turn."""
        self._turns: dict[int, list[tuple[float, WaitingTurn, str]]] = {}
        """By priority, a heap of what namespaces have had, at least, with the first of those that wait there."""
        self._pods: Counter[str] = Counter()
        """How many pods each namespace has."""
        self._ready: Counter[str] = Counter()
        """How many of each namespace are put in."""
        self._had: Newest[str, float] = Newest(_MOST_NAMESPACES)
        self._tries: Counter[str] = Counter()
        """Tries of each namespace that took nothing, since it was last without anybody ready."""
        self._last, self._most = 0.0, 0.0
        """What the namespace whose turn was last has had, and the one that has had most."""

    def join(self, namespace: str) -> None:
        """A namespace has one more pod. With its first it begins where the others are, and not with what it left."""
        self._pods[namespace] += 1
        if self._pods[namespace] == 1:
            self._note(namespace, max(self._had.get(namespace, 0.0), self._last))

    def leave(self, namespace: str) -> None:
        """A namespace has one pod less; what it has had is remembered for a while."""
        if _take_one(self._pods, namespace):
            del self._tries[namespace]
            for priority, level in self._levels.items():
                if namespace in level:
                    self._stands(priority, namespace)

    def push(self, priority: int, waiting: WaitingTurn) -> None:
        """It waits for its turn; its namespace stands before the slash of its key."""
        namespace = waiting.key.partition("/")[0]
        if not self._ready[namespace]:
            del self._tries[namespace]
        self._ready[namespace] += 1
        rows = self._levels.setdefault(priority, {}).setdefault(namespace, [])
        heapq.heappush(rows, waiting)
        if rows[0] is waiting:
            self._stands(priority, namespace)

    def pop(self) -> WaitingTurn | None:
        """The next one; None if nobody waits."""
        if not self._levels:
            return None
        level, turns = self._levels[priority := max(self._levels)], self._turns[priority]
        while True:
            had, first, namespace = heapq.heappop(turns)
            if namespace not in level or level[namespace][0] is not first:
                continue  # another one of its namespace stands for it
            if self._so_far(namespace) <= had:
                break
            self._stands(priority, namespace)
        taken = heapq.heappop(level[namespace])
        if level[namespace]:
            self._stands(priority, namespace)
        else:
            del level[namespace]
        if not level:
            del self._levels[priority], self._turns[priority]
        self._last = self._had.get(namespace, 0.0)
        _take_one(self._ready, namespace)
        return taken

    def _stands(self, priority: int, namespace: str) -> None:
        """The first one of a namespace has its place by what that has had so far."""
        standing = self._so_far(namespace), self._levels[priority][namespace][0], namespace
        heapq.heappush(self._turns.setdefault(priority, []), standing)

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


def _take_one(counts: Counter[str], name: str) -> bool:
    """Count one less; whether that was the last one, which leaves nothing behind."""
    counts[name] -= 1
    if last := counts[name] <= 0:
        del counts[name]
    return last
