"""How much may be evicted in a while, by the rates of a policy.

Counts are kept here for all policies together; a policy's limits say how many of them are too many. Time is an
argument, in monotonic seconds, so that a jump of the system clock opens no window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from webhook.policy.model import Limits, Rate

__all__ = ["EvictionLimiter", "ExhaustedLimits", "PlannedEviction", "Remaining", "has_rates"]


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """One eviction as the rates see it: whose pod, on which node."""

    owner: str
    node: str


@dataclass(frozen=True, slots=True)
class ExhaustedLimits:
    """What a policy's rates leave no more room for now; `until` is when the first of them does again."""

    owners: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    cluster: bool = False
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many evictions a policy's rates still allow now; an owner or node that is not named has its whole rate.

    `until` is when the first eviction that counts leaves its window, None if none counts.
    """

    owners: dict[str, int]
    nodes: dict[str, int]
    cluster: int
    until: float | None


@dataclass(slots=True)
class _Counter:
    """When the evictions of one owner, node or cluster were, by ticket."""

    times: dict[int, float] = field(default_factory=dict)

    def within(self, window: float, now: float) -> list[float]:
        return sorted(at for at in self.times.values() if at > now - window)


class EvictionLimiter:
    """The recent evictions: as far back as the longest window that was asked about."""

    def __init__(self) -> None:
        self._owners: dict[str, _Counter] = {}
        self._nodes: dict[str, _Counter] = {}
        self._cluster = _Counter()
        self._tickets: dict[int, tuple[PlannedEviction, float]] = {}
        self._next = 0
        self._horizon = 0.0

    def note(self, evictions: Iterable[PlannedEviction], at: float) -> list[int]:
        """Count evictions at a time; returns tickets for those that will not happen after all."""
        self.take_back([ticket for ticket, (_, then) in self._tickets.items() if then <= at - self._horizon])
        tickets = []
        for eviction in evictions:
            self._next += 1
            tickets.append(self._next)
            self._tickets[self._next] = (eviction, at)
            if eviction.owner:
                self._owners.setdefault(eviction.owner, _Counter()).times[self._next] = at
            self._nodes.setdefault(eviction.node, _Counter()).times[self._next] = at
            self._cluster.times[self._next] = at
        return tickets

    def take_back(self, tickets: Iterable[int]) -> None:
        """These did not happen."""
        for ticket in tickets:
            self._drop(ticket)

    def clear(self) -> None:
        """Forget everything."""
        self.take_back(list(self._tickets))

    def exhausted(self, limits: Limits, now: float) -> ExhaustedLimits:
        """Owners and nodes that have had their evictions."""
        self.remember(limits)
        owners = _used_up(self._owners, limits.per_owner, now)
        nodes = _used_up(self._nodes, limits.per_node, now)
        cluster = _used_up({"": self._cluster}, limits.per_cluster, now)
        ends = [*owners.values(), *nodes.values(), *cluster.values()]
        return ExhaustedLimits(frozenset(owners), frozenset(nodes), bool(cluster), min(ends, default=None))

    def remaining(self, limits: Limits, now: float) -> Remaining:
        """What the rates still allow; numbers of a rate that the limits do not set mean nothing."""
        self.remember(limits)
        owners, owners_end = _remaining(self._owners, limits.per_owner, now)
        nodes, nodes_end = _remaining(self._nodes, limits.per_node, now)
        cluster, cluster_end = _remaining({"": self._cluster}, limits.per_cluster, now)
        whole = limits.per_cluster.evictions if limits.per_cluster else 0
        ends = [end for end in (owners_end, nodes_end, cluster_end) if end is not None]
        return Remaining(owners, nodes, cluster.get("", whole), min(ends, default=None))

    def remember(self, limits: Limits) -> None:
        """Keep evictions for as long as these limits ask for them."""
        rates = (limits.per_owner, limits.per_node, limits.per_cluster)
        self._horizon = max(self._horizon, *(rate.window if rate else 0.0 for rate in rates))

    def _drop(self, ticket: int) -> None:
        eviction, _ = self._tickets.pop(ticket, (None, 0.0))
        if eviction is None:
            return
        self._cluster.times.pop(ticket, None)
        for counters, name in ((self._owners, eviction.owner), (self._nodes, eviction.node)):
            counter = counters.get(name)
            if counter is not None:
                counter.times.pop(ticket, None)
                if not counter.times:
                    del counters[name]


def has_rates(limits: Limits) -> bool:
    """Whether the limits hold back evictions at all."""
    return bool(limits.per_owner or limits.per_node or limits.per_cluster)


def _used_up(counters: dict[str, _Counter], rate: Rate | None, now: float) -> dict[str, float]:
    """Names that have had their evictions, and when the oldest that counts leaves the window."""
    if rate is None:
        return {}
    ends = {}
    for name, counter in counters.items():
        recent = counter.within(rate.window, now)
        if len(recent) >= rate.evictions:
            ends[name] = recent[len(recent) - rate.evictions] + rate.window if rate.evictions else now + rate.window
    return ends


def _remaining(counters: dict[str, _Counter], rate: Rate | None, now: float) -> tuple[dict[str, int], float | None]:
    """What is left of the rate for every name that has used some of it, and when the first eviction stops counting."""
    if rate is None:
        return {}, None
    recent = {name: times for name, counter in counters.items() if (times := counter.within(rate.window, now))}
    left = {name: rate.evictions - len(times) for name, times in recent.items()}
    return left, min((times[0] + rate.window for times in recent.values()), default=None)
