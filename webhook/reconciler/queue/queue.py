"""The preemptors to try (docs/semantics.md F), in a fair order; backing off; waiting for a change; busy.

Pure: time is an argument, in monotonic seconds. An entry that failed waits until an event that could help, a time it
named, or the periodic flush; if it failed a moment ago, an event lets it back only when its back-off is over. So one
unschedulable pod costs a bounded number of decisions and never holds up another.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from webhook.kube.backoff import exponential
from webhook.reconciler.queue.fair_order import FairOrder, WaitingTurn
from webhook.reconciler.queue.node_backoff import NodeBackoff

FLUSH = 30.0
"""Seconds after which a waiting pod is tried again though no event moved it."""
_SHORTEST_WAIT = 0.05
"""Seconds before one that failed is tried again, if nothing happens: whatever it waits for, the loop does not spin."""
_FAILURE_BACK_OFF = (0.25, 10.0)
"""Seconds, at first and at most, before a pod for which nothing helped is tried again."""
_ATTEMPT_BACK_OFF = (1.0, 300.0)
"""The same after plans that evicted pods for it in vain."""
_AT_ONCE = 100
"""Entries that are moved in one go."""
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""


class QueueState(StrEnum):
    """Where in the queue a preemptor is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    BUSY = "busy"


@dataclass(slots=True)
class QueuedPreemptor:
    """One preemptor; `created` is seconds since the epoch, `due` and `tried` monotonic seconds."""

    key: str
    uid: str
    priority: int
    created: float
    state: QueueState = QueueState.ACTIVE
    due: float = 0.0
    tried: float = -math.inf
    failures: int = 0
    """Times in a row that nothing helped."""
    plan_failures: int = 0
    """Plans that came to nothing."""
    attempts: int = 0
    """Plans that came to nothing though victims had been asked to leave, or whose nomination was lost again.

    One counts no more every 15 min.
    """
    attempted: float = 0.0
    """When the last of them ended, or one stopped to count."""
    losses: int = 0
    """Plans in a row whose nomination somebody else took."""
    reason: str = ""
    turn: int = 0
    nodes: NodeBackoff = field(default_factory=NodeBackoff)
    """What was learned of nodes that kube-scheduler does not take."""

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.key.partition("/")[0]

    def decay(self, now: float) -> None:
        """Let attempts that were long ago count no more."""
        forgiven = int(max(0.0, now - self.attempted) // _FORGIVEN)
        self.attempts = max(0, self.attempts - forgiven)
        self.attempted += forgiven * _FORGIVEN

    def back_off(self) -> float:
        """Seconds after the last try before an event may move it again; grows with every failure in a row."""
        return exponential(self.failures, *_FAILURE_BACK_OFF)


class Queue:
    """At most one entry for each pod, found by its key."""

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPreemptor] = {}
        """By key, for others to read."""
        self._waiting: dict[str, QueuedPreemptor] = {}
        """Those that wait for an event, in the order in which they began to."""
        self._behind: set[str] = set()
        """Keys of preemptors that pods of higher priority keep from a plan until they are placed."""
        self._active = FairOrder()
        self._timers: list[tuple[float, int, str]] = []
        self._turn = 0
        self._woken = 0
        """Who has waited since this turn or longer is to be moved back: all of them at once would take too long."""
        self.events = 0
        """Changes so far that could help anybody."""

    def offer(
        self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0
    ) -> QueuedPreemptor:
        """Take in a preemptor, to be tried at `due` or at once; it takes the place of another pod of its name."""
        self.remove(key)
        entry = self.entries[key] = QueuedPreemptor(key, uid, priority, created)
        self._active.join(entry.namespace)
        self._back_off(entry, due, now)
        return entry

    def clear(self) -> None:
        """Forget every preemptor."""
        self._active = FairOrder()
        for kept in (self.entries, self._waiting, self._behind):
            kept.clear()

    def remove(self, key: str) -> None:
        """Forget a preemptor; what the heaps still hold of it is passed over."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self._waiting.pop(key, None)
            self._active.leave(entry.namespace)

    def pop(self, now: float) -> QueuedPreemptor | None:
        """The next one to try, marked busy; None if nothing is due."""
        self._move_woken(now)
        for _ in range(_AT_ONCE):
            if self._next_timer() > now:
                break
            _, _, key = heapq.heappop(self._timers)
            self._activate(self.entries[key])
        while (next_one := self._active.pop()) is not None:
            entry = self.entries.get(next_one.key)
            if entry is not None and entry.turn == next_one.turn and entry.state is QueueState.ACTIVE:
                self._active.tried(entry.namespace)
                self._move(entry, QueueState.BUSY)
                entry.tried = now
                entry.decay(now)
                return entry
        return None

    def took(self, key: str, victims: int) -> None:
        """A plan was begun for it, by which so many pods go: its namespace has had that much."""
        self._active.took(key.partition("/")[0], victims)

    def park(self, key: str, now: float, *, reason: str, due: float | None = None, behind: bool = False) -> None:
        """It failed: wait for an event that helps, for `due` if that is earlier than the flush, or the flush.

        It is `behind` if pods that are placed first keep it from a plan.
        """
        entry = self.entries.get(key)
        if entry is None:
            return
        entry.failures += 1
        entry.reason = reason
        if behind:
            self._behind.add(key)
        flush = now + FLUSH
        again = flush if due is None else min(flush, max(due, now + _SHORTEST_WAIT))
        self._set_timer(entry, QueueState.UNSCHEDULABLE, again)

    def retry(self, key: str, now: float, *, after: float, reason: str) -> None:
        """Try it again `after` seconds from now whatever happens, at once if that is 0."""
        entry = self.entries.get(key)
        if entry is None:
            return
        entry.reason = reason
        self._back_off(entry, now + after, now)

    def hold(self, key: str, attempts: int) -> None:
        """Mark it busy: a plan of an earlier leader is being carried out for it, after so many attempts."""
        entry = self.entries.get(key)
        if entry is not None:
            self._move(entry, QueueState.BUSY)
            entry.attempts = attempts

    def plan_ended(
        self, key: str, now: float, *, in_vain: bool, at_once: bool, reason: str, lost: bool = False
    ) -> None:
        """Its plan came to nothing: try it again after a while, or at once if another decision may do better.

        `in_vain` if victims had been asked to leave: that uses up one of its attempts. So does a nomination `lost` to
        somebody else right after another one: two that nominate the same pod must not fight. It is tried `at_once` only
        the first time.
        """
        entry = self.entries.get(key)
        if entry is None:
            return
        entry.losses = entry.losses + 1 if lost else 0
        if entry.losses > 1:
            reason = f"somebody else nominates it, too: {entry.losses} plans in a row have lost their nomination"
        first = entry.plan_failures == 0
        entry.plan_failures += 1
        if in_vain or entry.losses > 1:
            entry.decay(now)
            entry.attempts, entry.attempted = entry.attempts + 1, now
            pause = exponential(entry.attempts, *_ATTEMPT_BACK_OFF)
        else:
            pause = exponential(entry.plan_failures, *_FAILURE_BACK_OFF)
        self.retry(key, now, after=0.0 if first and at_once else pause, reason=reason)

    def wake(self, now: float, keys: Iterable[str] | None = None) -> int:
        """Move back the waiting ones, or those of these keys, that an event could help; how many are concerned.

        Nobody is moved before its back-off is over, and nobody's own time is put off. Many are moved bit by bit, by
        `pop`.
        """
        self.events += 1
        if keys is None:
            count, self._woken = len(self._waiting), self._turn
            if count <= _AT_ONCE:
                self._move_woken(now)
            return count
        entries = [entry for key in keys if (entry := self._waiting.get(key)) is not None]
        for entry in entries:
            self._move_back(entry, now)
        return len(entries)

    def _move_woken(self, now: float) -> None:
        for entry in list(islice(self._waiting.values(), _AT_ONCE)):
            if entry.turn <= self._woken:
                self._move_back(entry, now)

    def _move_back(self, entry: QueuedPreemptor, now: float) -> None:
        self._back_off(entry, min(entry.due, entry.tried + entry.back_off()), now)

    def _back_off(self, entry: QueuedPreemptor, due: float, now: float) -> None:
        if due > now:
            self._set_timer(entry, QueueState.BACKOFF, due)
        else:
            self._activate(entry)

    def wake_those_behind(self, now: float) -> int:
        """A pod that is placed first waits no more: move back those that it may have kept from a plan."""
        behind, self._behind = self._behind, set()
        return self.wake(now, behind) if behind else 0

    def next_due(self) -> float:
        """When the next timer runs out, the past if there is work left; infinite without timers.

        Ones already in `pop`'s reach are not counted.
        """
        first = next(iter(self._waiting.values()), None)
        return 0.0 if first is not None and first.turn <= self._woken else self._next_timer()

    def _next_timer(self) -> float:
        while self._timers:
            due, turn, key = self._timers[0]
            entry = self.entries.get(key)
            if entry is not None and entry.turn == turn:
                return due
            heapq.heappop(self._timers)
        return math.inf

    def _activate(self, entry: QueuedPreemptor) -> None:
        self._move(entry, QueueState.ACTIVE)
        self._active.push(entry.priority, WaitingTurn(entry.tried, entry.created, entry.turn, entry.key))

    def _set_timer(self, entry: QueuedPreemptor, state: QueueState, due: float) -> None:
        self._move(entry, state)
        entry.due = due
        heapq.heappush(self._timers, (due, entry.turn, entry.key))

    def _move(self, entry: QueuedPreemptor, state: QueueState) -> None:
        """Every move takes a new turn, which makes what the heaps hold of the old state stale."""
        self._turn += 1
        entry.turn = self._turn
        self._waiting.pop(entry.key, None)
        entry.state = state
        if state is QueueState.UNSCHEDULABLE:
            self._waiting[entry.key] = entry
