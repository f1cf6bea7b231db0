"""Nodes that come to nothing for one preemptor, left out of its decisions for a while (docs/semantics.md D8). Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from webhook.kube.backoff import exponential
from webhook.kube.bounded import Newest

PATIENCE = 60.0
"""Seconds for which a pod may fit on a node, while its scheduler is seen at work, before the node is left out.

An event that makes room gets the pod tried after a back-off of at most 10 s.
"""
_NODE_BACK_OFF = (60.0, 14_400.0)
"""Seconds, at least at first and at most, for which a node is left out."""
_MOST_FITTING = 100
"""Nodes whose fit is followed at a time, of which so many left out say enough of all."""
_MOST_NODES = 1000
"""Nodes that are remembered for one preemptor."""


class LeftOut(NamedTuple):
    """A node that is left out until then, and why, in words for people; `times` is how often it was in a row."""

    node: str
    because: str
    times: int
    until: float
    seconds: float
    """For how long, and for as long again it is remembered."""


class NodeBackoff:
    """Nodes that kube-scheduler does not bind one preemptor to although there is room, left out for a growing while.

    What keeps kube-scheduler from a node need not show in the objects a decision looks at: a plugin or an extender of
    its own, a filter of a later version. Such a node must neither end every decision with "it fits", nor be emptied
    again and again. Each time a node is left out for twice as long, and after as long again it is forgotten. Once many
    are left out at a time, it is the pod that kube-scheduler does not take: then it fits nowhere for a while. What is
    learned here is known to this process only: after a restart it is learned again.
    """

    def __init__(self) -> None:
        self._known: Newest[str, LeftOut] = Newest(_MOST_NODES)
        self._fitting: dict[str, float] = {}

    def wherever_it_fits(self, now: float) -> float | None:
        """Until when nodes are left out wherever the pod fits: too many were, so no node is to blame; None if not."""
        ends = [known.until for known in self.left_out(now)]
        return max(ends) if len(ends) >= _MOST_FITTING else None

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
        for node in list(nodes)[:_MOST_FITTING]:
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
