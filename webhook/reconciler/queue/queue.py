"""The preemptors to try, in a fair order (docs/semantics.md F).

Pure: time is an argument, in monotonic seconds. An entry that failed waits for an event
that could help, a time that it named, or the periodic flush. No event brings it back
before its back-off is over. So one unschedulable pod costs a bounded number of decisions
and never holds up another.

The highest priority goes first, among equals the namespace that has had fewest victims.
A namespace that comes back begins where the others are, and nobody is more than ten
victims behind, so nobody saves up turns. Tries in vain count until all of the namespace
that are ready have had theirs. So a namespace with many hopeless pods starves no other,
and who waited for a limit loses nothing.
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
"""Seconds after which a waiting pod is tried again without an event."""
_SHORTEST_WAIT = 0.05
"""Seconds, at least, before one that failed is tried again: the loop does not spin."""
_FAILURE_BACK_OFF = (0.25, 10.0)
"""Seconds, at first and at most, before a pod is tried again that nothing helped."""
_ATTEMPT_BACK_OFF = (1.0, 300.0)
"""The same after plans that evicted pods for it in vain."""
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""
_VICTIM = 10.0
"""Tries that a victim counts as."""
_MOST_BEHIND = 100.0
"""By how much a namespace may have had less than another one, in tries."""
_MOST_NAMESPACES = 10_000
PATIENCE = 60.0
"""Seconds for which a pod may fit on a node before the node is left out.

Its scheduler is at work meanwhile, and tries it at most 10 s after an event that makes room.
"""
_NODE_BACK_OFF = (60.0, 14_400.0)
"""Seconds, at least at first and at most, for which a node is left out."""
MOST_FITTING = 100
"""Nodes whose fit is followed. If so many are left out, the pod fits nowhere."""
_MOST_NODES = 1000
"""Nodes that are remembered for one preemptor."""


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
    seconds: float
    """How long it is left out, and remembered after that."""


class NodeBackoff(Struct):
    """Nodes that kube-scheduler does not bind a preemptor to though there is room.

    A decision does not see all that keeps kube-scheduler from a node: a plugin or an
    extender of its own, a filter of a later version. Such a node must neither end every
    decision with "it fits", nor be emptied again and again. Each time it is left out for
    twice as long, and forgotten after as long again. Once many are left out, it is the
    pod that kube-scheduler does not take: it fits nowhere for a while. After a restart
    all this is learned again.
    """

    _known: Newest[str, LeftOut] = field(default_factory=lambda: Newest(_MOST_NODES))
    _fitting: dict[str, float] = {}

    def fitting(
        self, nodes: Sequence[str], chance: Callable[[float, float], float], now: float
    ) -> tuple[list[LeftOut], float]:
        """The pod fits on these nodes, which are not left out, and is not bound.

        `chance` is `SchedulerActivity.chance` of the pod. Returns the nodes that are left
        out from now on, on which the scheduler has not bound it for too long, and when
        there may be more: infinite if the scheduler has to be seen first.
        """
        before, self._fitting = self._fitting, {}
        left, due = list[LeftOut](), math.inf
        for node in nodes[:MOST_FITTING]:
            since = before.get(node, now)
            end = chance(since, PATIENCE) + PATIENCE
            if end > now:
                self._fitting[node] = since
                due = min(due, end)
                continue
            lasted = now - since
            because = f"it fits there, but kube-scheduler has not bound it for {lasted:.0f} s"
            left.append(self.leave_out(node, because, lasted, now))
        return left, due

    def left_out(self, now: float) -> list[LeftOut]:
        """The nodes to leave out now."""
        return [known for known in self._known.values() if now < known.until]

    def leave_out(self, node: str, because: str, lasted: float, now: float) -> LeftOut:
        """Leave a node out from now on; its cause has `lasted` so many seconds."""
        times = 1
        for known in list(self._known.values()):
            if now >= known.until + known.seconds:
                del self._known[known.node]
            elif known.node == node:
                times += known.times
        first, longest = _NODE_BACK_OFF
        seconds = exponential(times, max(first, 2 * lasted), longest)
        left = self._known[node] = LeftOut(node, because, times, now + seconds, seconds)
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
    """Plans in vain: victims had been asked, or the nomination was lost again."""
    attempted: float = 0.0
    """When the last of them ended, or one was forgiven."""
    losses: int = 0
    """Plans in a row whose nomination somebody else took."""
    reason: str = ""
    turn: int = 0
    said: dict[str, Any] = {}
    """What extenders have said since the last decision."""
    nodes: NodeBackoff = field(default_factory=NodeBackoff)


_Turn = tuple[float, float, int, QueuedPreemptor]
"""One that waits since the turn of this number: longest untried first, then the oldest."""


class Queue:
    """At most one entry for each pod, `namespace/name`.

    An entry that moves takes a new turn. What the heaps hold of earlier turns is stale.
    """

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPreemptor] = {}
        """For others to read."""
        self.behind: dict[str, None] = {}
        """Those that pods which are placed first keep from a plan, for others to read."""
        self.events = 0
        """How many could help anybody."""
        self._waiting: dict[str, QueuedPreemptor] = {}
        """For an event."""
        self._timers: list[tuple[float, int, QueuedPreemptor]] = []
        self._shares: Newest[str, _Share] = Newest(_MOST_NAMESPACES)
        """By namespace, for a while also of one without pods."""
        self._order: list[tuple[int, float, _Turn, _Share]] = []
        """A heap by descending priority: what a namespace has had, at least, and its first turn."""
        self._last, self._most = 0.0, 0.0
        """What the namespace has had that was tried last, and the one that has had most."""
        self._turn = 0

    def offer(
        self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0
    ) -> QueuedPreemptor:
        """Take in a preemptor, to be tried at `due`, in place of another pod of its name."""
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
            level, had, first, share = heapq.heappop(self._order)
            turns, (_, _, turn, entry) = share.turns[-level], first
            if not turns or turns[0] is not first:
                continue  # another one of its namespace stands for it
            share.had = max(share.had, self._most - _MOST_BEHIND)
            is_stale, has_had_more = entry.turn != turn, share.had + share.tries > had
            if is_stale or not has_had_more:
                heapq.heappop(turns)
            self._stand(share, -level)
            if is_stale or has_had_more:
                continue
            self._move(entry, QueueState.BUSY)
            self._last = share.had
            share.tries += 1
            entry.tried = now
            forgiven = int((now - entry.attempted) // _FORGIVEN)
            entry.attempts = max(0, entry.attempts - forgiven)
            entry.attempted += forgiven * _FORGIVEN
            return entry
        return None

    def park(
        self, entry: QueuedPreemptor, now: float, *, reason: str, due: float | None = None, behind: bool = False
    ) -> None:
        """It failed: wait for an event that helps, for `due`, or for the flush.

        It is `behind` if pods that are placed first keep it from a plan.
        """
        entry.failures, entry.reason = entry.failures + 1, reason
        entry.back_off = exponential(entry.failures, *_FAILURE_BACK_OFF)
        flush = now + FLUSH
        again = flush if due is None else max(due, now + _SHORTEST_WAIT)
        self._move(entry, QueueState.UNSCHEDULABLE, min(flush, again))
        if behind:
            self.behind[entry.key] = None

    def retry(self, entry: QueuedPreemptor, now: float, *, due: float = 0.0, reason: str = "") -> None:
        """Try it again at `due`, at once if that is past; without a `reason` it keeps its own."""
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
        """Its plan came to nothing: try it again after a while, the first time maybe `at_once`.

        `in_vain` if victims had been asked to leave: that is an attempt. So is a
        nomination `lost` to somebody else right after another one: two that nominate
        the same pod must not fight.
        """
        entry.losses = entry.losses + 1 if lost else 0
        if entry.losses > 1:
            reason = f"somebody else nominates it, too: {entry.losses} plans in a row have lost their nomination"
        first = entry.plan_failures == 0
        entry.plan_failures += 1
        if in_vain or entry.losses > 1:
            entry.attempts, entry.attempted = entry.attempts + 1, now
            pause = exponential(entry.attempts, *_ATTEMPT_BACK_OFF)
        else:
            pause = exponential(entry.plan_failures, *_FAILURE_BACK_OFF)
        self.retry(entry, now, due=now if first and at_once else now + pause, reason=reason)

    def wake(self, now: float, keys: Iterable[str] | None = None) -> bool:
        """An event could help those that wait, or those of these keys; whether there are any.

        Nobody is tried before its back-off is over, and nobody's own time is put off.
        """
        self.events += 1
        waiting = self._waiting
        woken = [waiting[key] for key in (waiting if keys is None else keys) if key in waiting]
        for entry in woken:
            self.retry(entry, now, due=min(entry.due, entry.tried + entry.back_off))
        return bool(woken)

    def next_due(self) -> float:
        """When the next one is to be tried: 0 for at once, infinite for never."""
        while self._timers and self._timers[0][2].turn != self._timers[0][1]:
            heapq.heappop(self._timers)
        if self._order:
            return 0.0
        return self._timers[0][0] if self._timers else math.inf

    def _move(self, entry: QueuedPreemptor, state: QueueState, due: float = 0.0) -> None:
        """Put an entry among those of a state, until it is `due` if that has a timer."""
        share, before, self._turn = entry.share, entry.state, self._turn + 1
        entry.turn, entry.state = self._turn, state
        self._waiting.pop(entry.key, None)
        self.behind.pop(entry.key, None)
        share.ready -= before is QueueState.ACTIVE
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
        """Give the first one of a namespace its place, by what that has had so far."""
        if turns := share.turns[priority]:
            heapq.heappush(self._order, (-priority, share.had + share.tries, turns[0], share))
