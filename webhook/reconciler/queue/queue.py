"""The preemptors to try (docs/semantics.md F): by priority, then age; backing off; waiting for a change; busy.

Pure: time is an argument, in monotonic seconds. An entry that failed waits until an event that could help, a time it
named, or the periodic flush; if it failed a moment ago, an event lets it back only when its back-off is over. So one
unschedulable pod costs a bounded number of decisions and never holds up another.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.reconciler.queue.node_backoff import NodeBackoff

__all__ = ["FLUSH", "Entry", "Place", "Queue", "failure_back_off"]

FLUSH = 30.0
"""Seconds after which a waiting pod is tried again though no event moved it."""
_FIRST_BACK_OFF = 0.25
_LONGEST_BACK_OFF = 10.0
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""


class Place(StrEnum):
    """Where in the queue a preemptor is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    BUSY = "busy"


@dataclass(slots=True)
class Entry:
    """One preemptor; `created` is seconds since the epoch, `due` and `tried` monotonic seconds."""

    key: str
    uid: str
    priority: int
    created: float
    place: Place = Place.ACTIVE
    due: float = 0.0
    tried: float = 0.0
    failures: int = 0
    """Times in a row that nothing helped."""
    plan_failures: int = 0
    """Plans that came to nothing."""
    attempts: int = 0
    """Plans that came to nothing though victims had been asked to leave; one counts no more every 15 min."""
    attempted: float = 0.0
    """When the last of them ended, or one stopped to count."""
    reason: str = ""
    turn: int = 0
    nodes: NodeBackoff = field(default_factory=NodeBackoff)
    """What was learned of nodes that kube-scheduler does not take."""

    def attempt_failed(self, now: float) -> None:
        """A plan came to nothing though victims had been asked to leave."""
        self.decay(now)
        self.attempts += 1
        self.attempted = now

    def decay(self, now: float) -> None:
        """Let attempts that were long ago count no more."""
        forgiven = int(max(0.0, now - self.attempted) // _FORGIVEN)
        self.attempts = max(0, self.attempts - forgiven)
        self.attempted += forgiven * _FORGIVEN

    def back_off(self) -> float:
        """Seconds after the last try before an event may move it again; grows with every failure in a row."""
        return failure_back_off(self.failures)


def failure_back_off(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    if failures <= 0:
        return 0.0
    return float(min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2 ** min(failures - 1, 10)))


class Queue:
    """At most one entry for each pod, found by its key."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._active: list[tuple[int, float, int, str]] = []
        self._timers: list[tuple[float, int, str]] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def entries(self) -> list[Entry]:
        """Every entry, in no order."""
        return list(self._entries.values())

    def get(self, key: str) -> Entry | None:
        """The entry of that pod."""
        return self._entries.get(key)

    def depths(self) -> dict[Place, int]:
        """How many entries are in each place."""
        counts = Counter(entry.place for entry in self._entries.values())
        return {place: counts[place] for place in Place}

    def offer(self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0) -> Entry:
        """Take in a preemptor, to be tried at `due` or at once; one that is known already keeps its place."""
        known = self._entries.get(key)
        if known is not None and known.uid == uid:
            known.priority = priority
            return known
        entry = Entry(key, uid, priority, created)
        self._entries[key] = entry
        if due > now:
            self._set_timer(entry, Place.BACKOFF, due)
        else:
            self._activate(entry)
        return entry

    def remove(self, key: str) -> None:
        """Forget a preemptor; what the heaps still hold of it is passed over."""
        self._entries.pop(key, None)

    def pop(self, now: float) -> Entry | None:
        """The next one to try, marked busy; None if nothing is due."""
        self._promote(now)
        while self._active:
            _, _, turn, key = heapq.heappop(self._active)
            entry = self._entries.get(key)
            if entry is not None and entry.turn == turn and entry.place is Place.ACTIVE:
                self._move(entry, Place.BUSY)
                entry.tried = now
                return entry
        return None

    def park(self, key: str, now: float, *, reason: str, due: float | None = None) -> None:
        """It failed: wait for an event that helps, for `due` if that is earlier than the flush, or the flush."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.failures += 1
        entry.reason = reason
        flush = now + FLUSH
        self._set_timer(entry, Place.UNSCHEDULABLE, flush if due is None else min(flush, max(due, now)))

    def retry(self, key: str, now: float, *, after: float, reason: str) -> None:
        """Try it again `after` seconds from now whatever happens, at once if that is 0."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.reason = reason
        if after <= 0:
            self._activate(entry)
        else:
            self._set_timer(entry, Place.BACKOFF, now + after)

    def hold(self, key: str) -> None:
        """Mark it busy: a plan is being carried out for it."""
        entry = self._entries.get(key)
        if entry is not None:
            self._move(entry, Place.BUSY)

    def wake(self, now: float, helps: Callable[[Entry], bool] | None = None) -> int:
        """Move back the waiting ones an event could help, each not before its back-off is over; how many moved."""
        waiting = [entry for entry in self._entries.values() if entry.place is Place.UNSCHEDULABLE]
        moved = [entry for entry in waiting if helps is None or helps(entry)]
        for entry in moved:
            ready = entry.tried + entry.back_off()
            if ready > now:
                self._set_timer(entry, Place.BACKOFF, ready)
            else:
                self._activate(entry)
        return len(moved)

    def next_due(self) -> float | None:
        """When the next timer runs out; None without timers. Ones already in `pop`'s reach are not counted."""
        while self._timers:
            due, turn, key = self._timers[0]
            entry = self._entries.get(key)
            if entry is not None and entry.turn == turn:
                return due
            heapq.heappop(self._timers)
        return None

    def _promote(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._timers)
            self._activate(self._entries[key])

    def _activate(self, entry: Entry) -> None:
        self._move(entry, Place.ACTIVE)
        heapq.heappush(self._active, (-entry.priority, entry.created, entry.turn, entry.key))

    def _set_timer(self, entry: Entry, place: Place, due: float) -> None:
        self._move(entry, place)
        entry.due = due
        heapq.heappush(self._timers, (due, entry.turn, entry.key))

    def _move(self, entry: Entry, place: Place) -> None:
        """Every move takes a new turn, which makes what the heaps hold of the old place stale."""
        self._turn += 1
        entry.turn = self._turn
        entry.place = place
