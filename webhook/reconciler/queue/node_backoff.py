"""Nodes that kube-scheduler does not bind one preemptor to although there is room, left out for a growing while.

What keeps kube-scheduler from a node need not show in the objects a decision looks at: a plugin or an extender of its
own, a filter of a later version. Such a node must neither end every decision with "it fits", nor be emptied again and
again. What is learned here is known to this process only: after a restart it is learned again. Time is an argument, in
monotonic seconds. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.kube.backoff import exponential

__all__ = ["PATIENCE", "UNSEEN_PATIENCE", "LeftOut", "NodeBackoff"]

PATIENCE = 60.0
"""Seconds for which a pod may fit on a node, while its scheduler is seen at work, before the node is left out.

An event that makes room gets the pod tried after a back-off of at most 10 s.
"""
UNSEEN_PATIENCE = 600.0
"""The same in seconds while its scheduler is not seen at work.

It may be down: then no node is to blame. If it runs, it has tried the pod at least once more by then, since it tries
every pod again that has been unschedulable for 5 min.
"""
_FIRST = 60.0
_LONGEST = 14_400.0
_MOST_FITTING = 100
"""Nodes whose fit is followed at a time; further ones have their turn once these are left out."""
_MOST = 1000
"""Nodes that are remembered for one preemptor."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node that is left out until then, and why, in words for people; `times` is how often it was in a row."""

    node: str
    because: str
    times: int
    until: float


class NodeBackoff:
    """What one preemptor has learned of nodes: each is left out for a while, twice as long every further time.

    A node that is left out no more is forgotten after as long again.
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
        seconds = exponential(times, max(_FIRST, 2 * lasted), _LONGEST)
        left = LeftOut(node, because, times, now + seconds)
        self._known[node] = (left, now)
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return left
