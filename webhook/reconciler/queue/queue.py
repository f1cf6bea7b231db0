"""The preemptors to try (docs/semantics.md F): by priority, then age; backing off; waiting for a change; busy.

Pure: time is an argument, in monotonic seconds. An entry that failed waits until an event that could help, a time it
named, or the periodic flush; if it failed a moment ago, an event lets it back only when its back-off is over. So one
unschedulable pod costs a bounded number of decisions and never holds up another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.kube.backoff import exponential

__all__ = ["FLUSH", "PATIENCE", "UNSEEN_PATIENCE", "LeftOut", "NodeBackoff", "Queue", "QueueState", "QueuedPreemptor"]

FLUSH = 30.0
"""Seconds after which a waiting pod is tried again though no event moved it."""
_FAILURE_BACK_OFF = (0.25, 10.0)
"""Seconds, at first and at most, before a pod for which nothing helped is tried again."""
_ATTEMPT_BACK_OFF = (1.0, 300.0)
"""The same after plans that evicted pods for it in vain."""
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""
PATIENCE = 60.0
"""Seconds for which a pod may fit on a node, while its scheduler is seen at work, before the node is left out.

An event that makes room gets the pod tried after a back-off of at most 10 s.
"""
UNSEEN_PATIENCE = 600.0
"""The same in seconds while its scheduler is not seen at work.

It may be down: then no node is to blame. If it runs, it has tried the pod at least once more by then, since it tries
every pod again that has been unschedulable for 5 min.
"""
_NODE_BACK_OFF = (60.0, 14_400.0)
"""Seconds, at least at first and at most, for which a node is left out."""
_MOST_FITTING = 100
"""Nodes whose fit is followed at a time; further ones have their turn once these are left out."""
_MOST_NODES = 1000
"""Nodes that are remembered for one preemptor."""


class QueueState(StrEnum):
    """Where in the queue a preemptor is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node that is left out until then, and why, in words for people; `times` is how often it was in a row."""

    node: str
    because: str
    times: int
    until: float


class NodeBackoff:
    """Nodes that kube-scheduler does not bind one preemptor to although there is room, left out for a growing while.

    What keeps kube-scheduler from a node need not show in the objects a decision looks at: a plugin or an extender of
    its own, a filter of a later version. Such a node must neither end every decision with "it fits", nor be emptied
    again and again. Each time a node is left out for twice as long, and after as long again it is forgotten. What is
    learned here is known to this process only: after a restart it is learned again.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[LeftOut, float]] = {}
        self._fitting: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._fitting)

    def timed_out(self, node: str, lasted: float, now: float) -> LeftOut:
        """A plan that took so many seconds timed out on the node although the room was there."""
        return self._note(node, "a plan timed out there although there was room", lasted, now)

    def fitting(self, nodes: Iterable[str], scheduler_seen: float | None, now: float) -> tuple[list[LeftOut], float]:
        """The pod fits on these nodes, which are not left out, and is not bound; none if it fits nowhere.

        `scheduler_seen` is when its scheduler was last seen at work. Returns the nodes where that has gone on for too
        long, which are left out from now on, and when there may be more of them, infinite for never.
        """
        before, self._fitting = self._fitting, {}
        left: list[LeftOut] = []
        due = float("inf")
        for node in list(nodes)[:_MOST_FITTING]:
            since = before.get(node, now)
            seen = scheduler_seen is not None and scheduler_seen > since
            if now - since >= (PATIENCE if seen else UNSEEN_PATIENCE):
                because = f"it fits there, but kube-scheduler has not bound it for {now - since:.0f} s"
                left.append(self._note(node, because, now - since, now))
            else:
                self._fitting[node] = since
                due = min(due, since + (PATIENCE if now - since < PATIENCE else UNSEEN_PATIENCE))
        return left, due

    def left_out(self, now: float) -> list[LeftOut]:
        """The nodes to leave out now."""
        return [known for known, _ in self._known.values() if now < known.until]

    def _note(self, node: str, because: str, lasted: float, now: float) -> LeftOut:
        self._known = {
            name: (known, noted) for name, (known, noted) in self._known.items() if now < 2 * known.until - noted
        }
        before = self._known.pop(node, None)
        times = before[0].times + 1 if before else 1
        first, longest = _NODE_BACK_OFF
        seconds = exponential(times, max(first, 2 * lasted), longest)
        left = LeftOut(node, because, times, now + seconds)
        self._known[node] = (left, now)
        if len(self._known) > _MOST_NODES:
            del self._known[next(iter(self._known))]
        return left


@dataclass(slots=True)
class QueuedPreemptor:
    """One preemptor; `created` is seconds since the epoch, `due` and `tried` monotonic seconds."""

    key: str
    uid: str
    priority: int
    created: float
    state: QueueState = QueueState.ACTIVE
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
        return exponential(self.failures, *_FAILURE_BACK_OFF)


class Queue:
    """At most one entry for each pod, found by its key."""

    def __init__(self) -> None:
        self._entries: dict[str, QueuedPreemptor] = {}
        self._in_state: dict[QueueState, dict[str, QueuedPreemptor]] = {state: {} for state in QueueState}
        """The same entries by their state: every change of the cluster asks who waits for one."""
        self._active: list[tuple[int, float, int, str]] = []
        self._timers: list[tuple[float, int, str]] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def entries(self) -> list[QueuedPreemptor]:
        """Every entry, in no order."""
        return list(self._entries.values())

    def get(self, key: str) -> QueuedPreemptor | None:
        """The entry of that pod."""
        return self._entries.get(key)

    def depths(self) -> dict[QueueState, int]:
        """How many entries are in each state."""
        return {state: len(entries) for state, entries in self._in_state.items()}

    def offer(
        self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0
    ) -> QueuedPreemptor:
        """Take in a preemptor, to be tried at `due` or at once; one that is known already keeps its state."""
        known = self._entries.get(key)
        if known is not None and known.uid == uid:
            known.priority = priority
            return known
        self.remove(key)
        entry = QueuedPreemptor(key, uid, priority, created)
        self._entries[key] = entry
        if due > now:
            self._set_timer(entry, QueueState.BACKOFF, due)
        else:
            self._activate(entry)
        return entry

    def clear(self) -> None:
        """Forget every preemptor."""
        self._entries.clear()
        for entries in self._in_state.values():
            entries.clear()

    def remove(self, key: str) -> None:
        """Forget a preemptor; what the heaps still hold of it is passed over."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._in_state[entry.state].pop(key, None)

    def pop(self, now: float) -> QueuedPreemptor | None:
        """The next one to try, marked busy; None if nothing is due."""
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._timers)
            self._activate(self._entries[key])
        while self._active:
            _, _, turn, key = heapq.heappop(self._active)
            entry = self._entries.get(key)
            if entry is not None and entry.turn == turn and entry.state is QueueState.ACTIVE:
                self._move(entry, QueueState.BUSY)
                entry.tried = now
                entry.decay(now)
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
        self._set_timer(entry, QueueState.UNSCHEDULABLE, flush if due is None else min(flush, max(due, now)))

    def retry(self, key: str, now: float, *, after: float, reason: str) -> None:
        """Try it again `after` seconds from now whatever happens, at once if that is 0."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.reason = reason
        if after <= 0:
            self._activate(entry)
        else:
            self._set_timer(entry, QueueState.BACKOFF, now + after)

    def hold(self, key: str, attempts: int) -> None:
        """Mark it busy: a plan of an earlier leader is being carried out for it, after so many attempts."""
        entry = self._entries.get(key)
        if entry is not None:
            self._move(entry, QueueState.BUSY)
            entry.attempts = attempts

    def plan_ended(self, key: str, now: float, *, in_vain: bool, at_once: bool, reason: str) -> None:
        """Its plan came to nothing: try it again after a while, or at once if another decision may do better.

        `in_vain` if victims had been asked to leave: that uses up one of its attempts. It is tried `at_once` only the
        first time.
        """
        entry = self._entries.get(key)
        if entry is None:
            return
        first = entry.plan_failures == 0
        entry.plan_failures += 1
        if in_vain:
            entry.attempt_failed(now)
            pause = exponential(entry.attempts, *_ATTEMPT_BACK_OFF)
        else:
            pause = exponential(entry.plan_failures, *_FAILURE_BACK_OFF)
        self.retry(key, now, after=0.0 if first and at_once else pause, reason=reason)

    def wake(self, now: float, helps: Callable[[QueuedPreemptor], bool] | None = None) -> int:
        """Move back the waiting ones an event could help, each not before its back-off is over; how many moved."""
        waiting = self._in_state[QueueState.UNSCHEDULABLE].values()
        moved = [entry for entry in waiting if helps is None or helps(entry)]
        for entry in moved:
            ready = entry.tried + entry.back_off()
            if ready > now:
                self._set_timer(entry, QueueState.BACKOFF, ready)
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

    def _activate(self, entry: QueuedPreemptor) -> None:
        self._move(entry, QueueState.ACTIVE)
        heapq.heappush(self._active, (-entry.priority, entry.created, entry.turn, entry.key))

    def _set_timer(self, entry: QueuedPreemptor, state: QueueState, due: float) -> None:
        self._move(entry, state)
        entry.due = due
        heapq.heappush(self._timers, (due, entry.turn, entry.key))

    def _move(self, entry: QueuedPreemptor, state: QueueState) -> None:
        """Every move takes a new turn, which makes what the heaps hold of the old state stale."""
        self._turn += 1
        entry.turn = self._turn
        self._in_state[entry.state].pop(entry.key, None)
        entry.state = state
        self._in_state[state][entry.key] = entry
