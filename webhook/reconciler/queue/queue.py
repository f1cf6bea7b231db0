"""The preemptors to try (docs/semantics.md F), in a fair order; backing off; waiting for a change; busy.

Pure: time is an argument, in monotonic seconds. An entry that failed waits until an event that could help, a time it
named, or the periodic flush; if it failed a moment ago, an event lets it back only when its back-off is over. So one
unschedulable pod costs a bounded number of decisions and never holds up another.

The highest priority goes first, and among equals the namespace that has had least. What it has had are victims. A
namespace that comes back begins where the others are, and nobody is more than ten victims behind, so nobody saves up
turns. Tries in vain count, too, until all of the namespace that are ready have had theirs: so a namespace with many
pods for which nothing helps starves no other, and who waited for a limit loses nothing by it.
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
"""Seconds after which a waiting pod is tried again though no event moved it."""
_SHORTEST_WAIT = 0.05
"""Seconds before one that failed is tried again, if nothing happens: whatever it waits for, the loop does not spin."""
_FAILURE_BACK_OFF = (0.25, 10.0)
"""Seconds, at first and at most, before a pod for which nothing helped is tried again."""
_ATTEMPT_BACK_OFF = (1.0, 300.0)
"""The same after plans that evicted pods for it in vain."""
_FORGIVEN = 900.0
"""Seconds after which one attempt counts no more."""
_VICTIM = 10.0
"""How many tries a victim counts as."""
_MOST_BEHIND = 100.0
"""By how much a namespace may have had less than another one."""
_MOST_NAMESPACES = 10_000
PATIENCE = 60.0
"""Seconds for which a pod may fit on a node, while its scheduler is seen at work, before the node is left out.

An event that makes room gets the pod tried after a back-off of at most 10 s.
"""
_NODE_BACK_OFF = (60.0, 14_400.0)
"""Seconds, at least at first and at most, for which a node is left out."""
MOST_FITTING = 100
"""Nodes whose fit is followed at a time. If so many are left out no node is to blame: the pod fits nowhere."""
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
    """Those that took nothing, since it was last without anybody ready."""
    pods: int = 0
    """How many are in the queue."""
    ready: int = 0
    """How many of them are active."""
    turns: defaultdict[int, list[_Turn]] = field(default_factory=lambda: defaultdict(list))
    """By priority, a heap of those that wait for their turn."""


class LeftOut(NamedTuple):
    """A node that is left out until then, and why, in words for people; `times` is how often it was in a row."""

    node: str
    because: str
    times: int
    until: float
    seconds: float
    """For how long, and for as long again it is remembered."""


class NodeBackoff(Struct):
    """Nodes that kube-scheduler does not bind a preemptor to though there is room, left out for a growing while.

    What keeps kube-scheduler from a node need not show in the objects a decision looks at: a plugin or an extender of
    its own, a filter of a later version. Such a node must neither end every decision with "it fits", nor be emptied
    again and again. Each time a node is left out for twice as long, and after as long again it is forgotten. Once many
    are left out at a time, it is the pod that kube-scheduler does not take: then it fits nowhere for a while. What is
    learned here is known to this process only: after a restart it is learned again.
    """

    _known: Newest[str, LeftOut] = field(default_factory=lambda: Newest(_MOST_NODES))
    _fitting: dict[str, float] = {}

    def fitting(
        self, nodes: Iterable[str], chance: Callable[[float, float], float], now: float
    ) -> tuple[list[LeftOut], float]:
        """The pod fits on these nodes, which are not left out, and is not bound; none if it fits nowhere.

        `chance` is as `SchedulerActivity.chance` for the pod. Returns the nodes on which the scheduler has not bound
        it for too long, which are left out from now on, and when there may be more of them, infinite for not before
        the scheduler is seen.
        """
        before, self._fitting = self._fitting, {}
        left: list[LeftOut] = []
        due = math.inf
        for node in list(nodes)[:MOST_FITTING]:
            since = before.get(node, now)
            end = chance(since, PATIENCE) + PATIENCE
            if end <= now:
                because = f"it fits there, but kube-scheduler has not bound it for {now - since:.0f} s"
                left.append(self.leave_out(node, because, now - since, now))
            else:
                self._fitting[node] = since
                due = min(due, end)
        return left, due

    def left_out(self, now: float) -> list[LeftOut]:
        """The nodes to leave out now."""
        return [known for known in self._known.values() if now < known.until]

    def leave_out(self, node: str, because: str, lasted: float, now: float) -> LeftOut:
        """Leave a node out from now on; what it is `because` of has `lasted` so many seconds."""
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
    """One preemptor; `created` is seconds since the epoch, `due` and `tried` monotonic seconds."""

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
    """Seconds after the last try before an event may move it again; grows with every failure in a row."""
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
    said: dict[str, Any] = {}
    """What extenders have said since it was decided last."""
    nodes: NodeBackoff = field(default_factory=NodeBackoff)
    """What was learned of nodes that kube-scheduler does not take."""


_Turn = tuple[float, float, int, QueuedPreemptor]
"""One that waits for its turn, which was its own at that number: the longest untried first, then the oldest."""


class Queue:
    """At most one entry for each pod, found by its key.

    Every move of an entry takes a new turn, which makes what the heaps hold of its old state stale.
    """

    def __init__(self) -> None:
        self.entries: dict[str, QueuedPreemptor] = {}
        """By key, for others to read."""
        self.behind: dict[str, None] = {}
        """Keys of those that pods of higher priority keep from a plan until they are placed, for others to read."""
        self.events = 0
        """Changes so far that could help anybody."""
        self._waiting: dict[str, QueuedPreemptor] = {}
        """Those that wait for an event."""
        self._timers: list[tuple[float, int, QueuedPreemptor]] = []
        self._shares: Newest[str, _Share] = Newest(_MOST_NAMESPACES)
        """By namespace; what one without pods has had is remembered for a while."""
        self._order: list[tuple[int, float, _Turn, _Share]] = []
        """A heap of what namespaces have had, at least, by descending priority, with the first turn of each."""
        self._last, self._most = 0.0, 0.0
        """What the namespace whose turn was last has had, and the one that has had most."""
        self._turn = 0

    def offer(
        self, key: str, *, uid: str, priority: int, created: float, now: float, due: float = 0.0
    ) -> QueuedPreemptor:
        """Take in a preemptor, to be tried at `due` or at once; it takes the place of another pod of its name."""
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
        """Forget a preemptor; what the heaps still hold of it is passed over."""
        if (entry := self.entries.pop(key, None)) is not None:
            self._move(entry, QueueState.BUSY)
            entry.share.pods -= 1

    def pop(self, now: float) -> QueuedPreemptor | None:
        """The next one to try, marked busy; None if nothing is due."""
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
            is_next = entry.turn == turn and share.had + share.tries <= had
            if is_next or entry.turn != turn:
                heapq.heappop(turns)
            self._stand(share, -level)
            if is_next:
                self._move(entry, QueueState.BUSY)
                self._last = share.had
                share.tries += 1
                entry.tried = now
                forgiven = int(max(0.0, now - entry.attempted) // _FORGIVEN)
                entry.attempts = max(0, entry.attempts - forgiven)
                entry.attempted += forgiven * _FORGIVEN
                return entry
        return None

    def park(
        self, entry: QueuedPreemptor, now: float, *, reason: str, due: float | None = None, behind: bool = False
    ) -> None:
        """It failed: wait for an event that helps, for `due` if that is earlier than the flush, or the flush.

        It is `behind` if pods that are placed first keep it from a plan.
        """
        entry.failures, entry.reason = entry.failures + 1, reason
        entry.back_off = exponential(entry.failures, *_FAILURE_BACK_OFF)
        again = now + FLUSH
        if due is not None:
            again = min(again, max(due, now + _SHORTEST_WAIT))
        self._move(entry, QueueState.UNSCHEDULABLE, again)
        if behind:
            self.behind[entry.key] = None

    def retry(self, entry: QueuedPreemptor, now: float, *, due: float = 0.0, reason: str | None = None) -> None:
        """Try it again at `due` whatever happens, at once if that is past; for another reason than before."""
        entry.reason = entry.reason if reason is None else reason
        self._move(entry, QueueState.BACKOFF if due > now else QueueState.ACTIVE, due)

    def hold(self, entries: Sequence[QueuedPreemptor], attempts: int, victims: int = 0) -> None:
        """Mark these of one namespace busy: a plan is being carried out for them, after so many attempts.

        If so many pods go by it, the try of their namespace was not in vain.
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
        """Its plan came to nothing: try it again after a while, or at once if another decision may do better.

        `in_vain` if victims had been asked to leave: that uses up one of its attempts. So does a nomination `lost` to
        somebody else right after another one: two that nominate the same pod must not fight. It is tried `at_once` only
        the first time.
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
        """Move back the waiting ones that an event could help, maybe those of these keys; whether there are any.

        Nobody is moved before its back-off is over, and nobody's own time is put off.
        """
        self.events += 1
        keys = self._waiting if keys is None else keys
        woken = [entry for key in keys if (entry := self._waiting.get(key)) is not None]
        for entry in woken:
            self.retry(entry, now, due=min(entry.due, entry.tried + entry.back_off))
        return bool(woken)

    def next_due(self) -> float:
        """When the next one is to be tried, the past if somebody waits for its turn; infinite for never."""
        while self._timers and self._timers[0][2].turn != self._timers[0][1]:
            heapq.heappop(self._timers)
        if self._order:
            return 0.0
        return self._timers[0][0] if self._timers else math.inf

    def _move(self, entry: QueuedPreemptor, state: QueueState, due: float = 0.0) -> None:
        """Put an entry to others of its state, until it is `due` if that has a timer."""
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
        """The first one of a namespace has its place by what that has had so far."""
        if turns := share.turns[priority]:
            heapq.heappush(self._order, (-priority, share.had + share.tries, turns[0], share))
