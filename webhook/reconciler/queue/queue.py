"""The preemptors to try, in a fair order (docs/semantics.md F).

Pure: time is an argument, in monotonic seconds. An entry that failed waits for an event
that could help, a time that it named, or the flush. No event brings it back before its
back-off is over: an unschedulable pod costs few decisions and holds up nobody.

The highest priority goes first, then the namespace that has had fewest victims. One that
comes back begins where the others are, and nobody is more than ten victims behind: so
nobody saves up turns. Tries in vain count, too, until all of the namespace that are ready
have had theirs: many hopeless pods starve no other namespace.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from webhook.kube.backoff import exponential
from webhook.kube.bounded import Newest

FLUSH = 30.0
"""Seconds after which a pod is tried again without an event."""
_SHORTEST_WAIT = 0.05
"""Seconds before one that failed is tried again: the loop does not spin."""
_FAILURE_BACK_OFF = (0.25, 10.0)
"""Seconds, at first and at most, to the next try if nothing helped."""
_ATTEMPT_BACK_OFF = (1.0, 300.0)
"""The same after a plan in vain."""
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""
_VICTIM = 10.0
"""Tries that a victim counts as."""
_MOST_BEHIND = 100.0
"""By how much a namespace may have had less than another one, in tries."""
_MOST_NAMESPACES = 10_000
PATIENCE = 60.0
"""Seconds for a scheduler at work, which backs off for 10 s, to bind a pod that fits."""
_NODE_BACK_OFF = (60.0, 14_400.0)
"""Seconds, at first and at most, for which a node is left out."""
MOST_FITTING = 100
"""Nodes that are followed. With so many left out, a pod fits nowhere."""
_MOST_NODES = 1000
"""Nodes that are remembered for a preemptor."""


class QueueState(StrEnum):
    """Where in the queue a preemptor is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    BUSY = "busy"


class _Share(Struct):
    """What a namespace has had, counted in tries."""

    had: float = 0.0
    """Its victims."""
    tries: int = 0
    """Those that took nothing since nobody was ready last."""
    pods: int = 0
    """Those in the queue."""
    ready: int = 0
    """Those of them that are active."""
    turns: defaultdict[int, list[_Turn]] = field(default_factory=lambda: defaultdict(list))
    """By priority, a heap of those that wait for their turn."""


class LeftOut(NamedTuple):
    """A node that is left out, for the `times`-th time in a row, and why, for people."""

    node: str
    because: str
    times: int
    until: float
    forgotten: float
    """When the next time is the first one again."""


class NodeBackoff(Struct):
    """Nodes that kube-scheduler does not bind a preemptor to though there is room.

    What keeps kube-scheduler from a node may be nothing that a decision sees: a plugin
    or an extender of its own, a filter of a later version. Such a node must neither end
    every decision with "it fits", nor be emptied again and again. Each time it is left
    out for twice as long, and forgotten after as long again. After a restart this is
    learned again.
    """

    _known: Newest[str, LeftOut] = field(default_factory=lambda: Newest(_MOST_NODES))
    _fitting: dict[str, float] = {}

    def fitting(
        self, nodes: Sequence[str], chance: Callable[[float, float], float], now: float
    ) -> tuple[list[LeftOut], float]:
        """The pod fits on these nodes, which are not left out, and is not bound.

        `chance` is `SchedulerActivity.chance` of the pod. Returns the nodes that are left
        out from now on, and when there may be more: infinite for not before the scheduler
        is seen.
        """
        before, self._fitting = self._fitting, {}
        left, due = list[LeftOut](), math.inf
        for node in nodes[:MOST_FITTING]:
            since = before.get(node, now)
            end, lasted = chance(since, PATIENCE) + PATIENCE, now - since
            if end <= now:
                because = f"it fits there, but kube-scheduler has not bound it for {lasted:.0f} s"
                left.append(self.leave_out(node, because, lasted, now))
            else:
                self._fitting[node] = since
                due = min(due, end)
        return left, due

    def left_out(self, now: float) -> list[LeftOut]:
        """The nodes to leave out now."""
        return [known for known in self._known.values() if now < known.until]

    def leave_out(self, node: str, because: str, lasted: float, now: float) -> LeftOut:
        """Leave a node out from now on; its cause `lasted` so many seconds."""
        known, (first, longest) = self._known.get(node), _NODE_BACK_OFF
        times = known.times + 1 if known and now < known.forgotten else 1
        seconds = exponential(times, max(first, 2 * lasted), longest)
        left = self._known[node] = LeftOut(node, because, times, now + seconds, now + 2 * seconds)
        return left


class QueuedPreemptor(Struct):
    """One preemptor; `created` is in seconds since the epoch, other times are monotonic."""

    key: str
    uid: str
    priority: int
    created: float
    share: _Share
    state: QueueState = QueueState.BUSY
    due: float = 0.0
    tried: float = -math.inf
    failures: int = 0
    """Times in a row that nothing helped."""
    back_off: float = _FAILURE_BACK_OFF[0]
    """Seconds after the last try before an event may move it."""
    plan_failures: int = 0
    """Plans that came to nothing."""
    attempts: int = 0
    """Plans in vain: victims were asked, or a nomination was lost again."""
    attempted: float = 0.0
    """When the last of them ended, or one was forgiven."""
    losses: int = 0
    """Plans in a row that lost their nomination."""
    reason: str = ""
    turn: int = 0
    said: dict[str, Any] = {}
    """What extenders have said since the last decision."""
    nodes: NodeBackoff = field(default_factory=NodeBackoff)


_Turn = tuple[float, float, int, QueuedPreemptor]
"""One that waits since this turn: the longest untried first, then the oldest."""


class Queue:
    """At most one entry for each pod, `namespace/name`.

    An entry that moves takes a new turn: what heaps hold of earlier ones is stale.
    """

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPreemptor] = {}
        """For others to read."""
        self.behind: dict[str, None] = {}
        """Those kept from a plan by pods placed first, for others to read."""
        self.events = 0
        """Those that could help somebody."""
        self._waiting: dict[str, QueuedPreemptor] = {}
        """For an event."""
        self._timers: list[tuple[float, int, QueuedPreemptor]] = []
        self._shares: Newest[str, _Share] = Newest(_MOST_NAMESPACES)
        """By namespace, for a while also of one without pods."""
        self._order: list[tuple[int, float, _Turn, _Share]] = []
        """A heap: descending priority, what a namespace had at least, its first turn."""
        self._last, self._most = 0.0, 0.0
        """What the namespace tried last has had, and the one with most."""
        self._turn = 0

    def offer(
        self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0
    ) -> QueuedPreemptor:
        """Take in a preemptor, to be tried at `due`, in place of one of its name."""
        self.remove(key)
        share = self._shares.made(key.partition("/")[0], _Share)
        share.had = share.had if share.pods else max(share.had, self._last)
        share.pods += 1
        entry = self.entries[key] = QueuedPreemptor(key, uid, priority, created, share)
        self.retry(entry, now, due=due)
        return entry

    def clear(self) -> None:
        """Forget every preemptor, and what namespaces have had."""
        for key in list(self.entries):
            self.remove(key)
        self._shares.clear()

    def remove(self, key: str) -> None:
        """Forget a preemptor."""
        if (entry := self.entries.pop(key, None)) is not None:
            self._move(entry, QueueState.BUSY)
            entry.share.pods -= 1

    def pop(self, now: float) -> QueuedPreemptor | None:
        """The next one to try, which is busy then; None if nothing is due."""
        while self._timers and self._timers[0][0] <= now:
            _, turn, entry = heapq.heappop(self._timers)
            if entry.turn == turn:
                self._move(entry, QueueState.ACTIVE)
        while self._order:
            _, had, first, share = heapq.heappop(self._order)
            *_, turn, entry = first
            turns = share.turns[entry.priority]
            if not turns or turns[0] is not first:
                continue  # another one of its namespace stands for it
            share.had = max(share.had, self._most - _MOST_BEHIND)
            if entry.turn != turn or share.had + share.tries > had:
                self._stand(share, entry.priority)
                continue
            self._move(entry, QueueState.BUSY)
            self._last = share.had
            share.tries += 1
            self._stand(share, entry.priority)
            entry.tried = now
            forgiven = int((now - entry.attempted) // _FORGIVEN)
            entry.attempts = max(0, entry.attempts - forgiven)
            entry.attempted += forgiven * _FORGIVEN
            return entry
        return None

    def park(
        self, entry: QueuedPreemptor, now: float, *, reason: str, due: float | None = None, behind: bool = False
    ) -> None:
        """It failed: wait for an event that helps, `due` or the flush.

        It is `behind` if pods placed first keep it from a plan.
        """
        entry.failures, entry.reason = entry.failures + 1, reason
        entry.back_off = exponential(entry.failures, *_FAILURE_BACK_OFF)
        again = math.inf if due is None else max(due, now + _SHORTEST_WAIT)
        self._move(entry, QueueState.UNSCHEDULABLE, min(now + FLUSH, again))
        if behind:
            self.behind[entry.key] = None

    def retry(self, entry: QueuedPreemptor, now: float, *, due: float = 0.0, reason: str = "") -> None:
        """Try it again at `due`, at once if that is past; a `reason` replaces its own."""
        entry.reason = reason or entry.reason
        self._move(entry, QueueState.BACKOFF if due > now else QueueState.ACTIVE, due)

    def hold(self, entries: Sequence[QueuedPreemptor], attempts: int, victims: int = 0) -> None:
        """A plan begins for these of one namespace, after so many attempts.

        If it has victims, the try of their namespace was not in vain.
        """
        for entry in entries:
            self._move(entry, QueueState.BUSY)
            entry.attempts = attempts
        if entries and victims:
            share = entries[0].share
            share.tries -= 1
            share.had += _VICTIM * victims
            self._most = max(self._most, share.had)

    def plan_ended(
        self, entry: QueuedPreemptor, now: float, *, in_vain: bool, at_once: bool, reason: str, lost: bool = False
    ) -> None:
        """Its plan came to nothing: try it again later, or the first time `at_once`.

        It is an attempt if it was `in_vain`: victims were asked. So is the second
        nomination in a row that was `lost`: two that nominate a pod must not fight.
        """
        entry.losses = entry.losses + 1 if lost else 0
        if entry.losses > 1:
            reason = f"somebody else nominates it, too: {entry.losses} plans in a row"
            reason += " have lost their nomination"
        first = entry.plan_failures == 0
        entry.plan_failures += 1
        if in_vain or entry.losses > 1:
            entry.attempts, entry.attempted = entry.attempts + 1, now
            pause = exponential(entry.attempts, *_ATTEMPT_BACK_OFF)
        else:
            pause = exponential(entry.plan_failures, *_FAILURE_BACK_OFF)
        self.retry(entry, now, due=now if first and at_once else now + pause, reason=reason)

    def wake(self, now: float, keys: Iterable[str] | None = None) -> bool:
        """An event could help those that wait, or these keys; whether there are any.

        Nobody is tried before its back-off is over, and nobody's own time is put off.
        """
        self.events += 1
        waiting = self._waiting
        keys = waiting if keys is None else keys
        woken = [waiting[key] for key in keys if key in waiting]
        for entry in woken:
            self.retry(entry, now, due=min(entry.due, entry.tried + entry.back_off))
        return bool(woken)

    def next_due(self) -> float:
        """When the next one is tried: 0 for at once, infinite for never."""
        while self._timers and self._timers[0][2].turn != self._timers[0][1]:
            heapq.heappop(self._timers)
        if self._order:
            return 0.0
        return self._timers[0][0] if self._timers else math.inf

    def _move(self, entry: QueuedPreemptor, state: QueueState, due: float = 0.0) -> None:
        """Put an entry among those of a state, until `due` if that has a timer."""
        share = entry.share
        share.ready -= entry.state is QueueState.ACTIVE
        self._turn += 1
        entry.turn, entry.state = self._turn, state
        self._waiting.pop(entry.key, None)
        self.behind.pop(entry.key, None)
        if state is QueueState.ACTIVE:
            share.tries = share.tries if share.ready else 0
            share.ready += 1
            heapq.heappush(share.turns[entry.priority], (entry.tried, entry.created, entry.turn, entry))
            self._stand(share, entry.priority)
        elif state is not QueueState.BUSY:
            entry.due = due
            heapq.heappush(self._timers, (due, entry.turn, entry))
        if state is QueueState.UNSCHEDULABLE:
            self._waiting[entry.key] = entry

    def _stand(self, share: _Share, priority: int) -> None:
        """Give the first one of a namespace its place, by what that had so far."""
        turns = share.turns[priority]
        while turns and turns[0][3].turn != turns[0][2]:
            heapq.heappop(turns)
        if turns:
            heapq.heappush(self._order, (-priority, share.had + share.tries, turns[0], share))
