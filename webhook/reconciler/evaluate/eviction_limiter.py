"""How much may be evicted in a while, by the rates of a policy: the recent evictions, and what candidates they allow.

Counts are kept here for all policies together; a policy's limits say how many of them are too many. Time is an
argument, in monotonic seconds, so that a jump of the system clock opens no window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import workload_name
from webhook.policy.model import Limits, Rate
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.state.state import State

__all__ = [
    "NOT_NOW",
    "EvictionLimiter",
    "ExhaustedLimits",
    "PlannedEviction",
    "Rates",
    "Remaining",
    "has_rates",
    "too_large",
]

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

NOT_NOW = 1
"""Barred because of the recent evictions: it may stand once they have left their windows."""
_NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster"}
"""Barred permanently: these victims are more than the rate allows in a whole window."""


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

    @property
    def names(self) -> str:
        """The rates that are used up for somebody, as the policy names them."""
        used = (("perOwner", self.owners), ("perNode", self.nodes), ("perCluster", self.cluster))
        return " or ".join(f"limits.{name}" for name, full in used if full)


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

    def plan(self, evictions: Iterable[PlannedEviction], now: float) -> list[int]:
        """Count evictions that are going to be: until they happen they count in every window."""
        self._forget(now)
        return self._count(evictions, math.inf)

    def happened(self, ticket: int, now: float) -> None:
        """What was planned has happened now."""
        eviction, _ = self._tickets.get(ticket, (None, 0.0))
        if eviction is None:
            return
        self._tickets[ticket] = (eviction, now)
        for counter in (self._owners.get(eviction.owner), self._nodes.get(eviction.node), self._cluster):
            if counter is not None:
                counter.times[ticket] = now

    def overdrawn(self, limits: Limits, tickets: Iterable[int], now: float) -> str:
        """Which rate the planned evictions of these tickets go beyond, by the limits of now; empty if none."""
        planned = [known[0] for ticket in tickets if (known := self._tickets.get(ticket)) is not None]
        for name, rate, counters in (
            ("perOwner", limits.per_owner, [self._owners.get(one.owner) for one in planned]),
            ("perNode", limits.per_node, [self._nodes.get(one.node) for one in planned]),
            ("perCluster", limits.per_cluster, [self._cluster] if planned else []),
        ):
            if rate is not None and any(
                counter is not None and len(counter.within(rate.window, now)) > rate.evictions for counter in counters
            ):
                return f"limits.{name} does not allow so many evictions any more"
        return ""

    def note(self, evictions: Iterable[PlannedEviction], at: float) -> list[int]:
        """Count evictions at a time; returns tickets for those that will not happen after all."""
        self._forget(at)
        return self._count(evictions, at)

    def _forget(self, now: float) -> None:
        self.take_back([ticket for ticket, (_, then) in self._tickets.items() if then <= now - self._horizon])

    def _count(self, evictions: Iterable[PlannedEviction], at: float) -> list[int]:
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
            eviction, _ = self._tickets.pop(ticket, (None, 0.0))
            if eviction is None:
                continue
            self._cluster.times.pop(ticket, None)
            for counters, name in ((self._owners, eviction.owner), (self._nodes, eviction.node)):
                counter = counters.get(name)
                if counter is not None:
                    counter.times.pop(ticket, None)
                    if not counter.times:
                        del counters[name]

    def recent(self, now: float) -> Iterator[tuple[int, PlannedEviction, float]]:
        """The evictions that a rate may still count: ticket, eviction, time. A planned eviction has the time `now`."""
        for ticket, (eviction, at) in self._tickets.items():
            if now - self._horizon < at:
                yield ticket, eviction, min(at, now)

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
        self._horizon = max([self._horizon, *(rate.window for rate in limits.rates.values())])


def has_rates(limits: Limits) -> bool:
    """Whether the limits hold back evictions at all."""
    return bool(limits.rates)


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


class _Counted(NamedTuple):
    """What a rate counts, an entry a victim: its candidate, its row, the group it counts in, what is left for that."""

    candidate: Rows
    row: Rows
    group: Rows
    left: Ints


class Rates:
    """Which candidates the rates of a policy allow, for all of them at once, given what recent evictions have left.

    A decision selects the best candidate *within* the rates, so that one whose victims are too many for a rate does
    not keep the preemptor from the next best.

    Victims that are leaving anyway are not asked, so they do not count. `surplus` collects, of the candidates that are
    rejected for good, the victims beyond the rate, the least important ones: with these excluded, others may do.
    """

    def __init__(self, state: State, limits: Limits, left: Remaining) -> None:
        self._state, self._limits, self.left = state, limits, left
        self.surplus: list[Rows] = []

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate within the rates, else why it is rejected."""
        codes, limits = np.zeros(len(candidates.nodes), np.int8), self._limits
        pods = self._state.snapshot.pods
        candidate, row = candidates.all_victims()
        asked = ~pods.terminating[row]
        candidate, row = candidate[asked], row[asked]
        if limits.per_owner:
            owner, left = self._owners(row, limits.per_owner)
            some = owner > 0
            group = candidate[some] * (len(left) + 1) + owner[some]
            counted = _Counted(candidate[some], row[some], group, left[owner[some] - 1])
            self._reject(codes, 2, limits.per_owner, counted)
        if limits.per_node:
            nodes = self._state.snapshot.nodes
            of_node = np.full(nodes.rows, limits.per_node.evictions, np.int64)
            for name, number in self.left.nodes.items():
                if (at := nodes.find(name)) is not None:
                    of_node[at] = number
            node = pods.node[row]  # of a group that goes whole some are on other nodes
            counted = _Counted(candidate, row, candidate * nodes.rows + node, of_node[node])
            self._reject(codes, 3, limits.per_node, counted)
        if limits.per_cluster:
            counted = _Counted(candidate, row, candidate, np.full(len(row), self.left.cluster, np.int64))
            self._reject(codes, 4, limits.per_cluster, counted)
        return codes

    def _reject(self, codes: NDArray[np.int8], code: int, rate: Rate, victims: _Counted) -> None:
        """Reject the candidates with a group of victims larger than what is left of a rate, or than all of it."""
        candidate, group = victims.candidate, victims.group
        # How many victims of the same group come before each victim.
        order = np.argsort(group, kind="stable")
        firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
        place = np.empty(len(group), np.intp)
        place[order] = np.arange(len(group)) - np.repeat(firsts, np.diff(np.append(firsts, len(group))))
        codes[candidate[(place >= victims.left) & (codes[candidate] == 0)]] = NOT_NOW
        beyond = place >= rate.evictions
        codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = code
        if beyond.any():
            self.surplus.append(victims.row[beyond])

    def _owners(self, rows: Rows, rate: Rate) -> tuple[Rows, Ints]:
        """The number of each pod's owner from 1 on, 0 for none, and what is left of the rate of owner 1, 2 and so on.

        Pods that have controller and labels in common have the owner in common: it is worked out once for them.
        """
        pods = self._state.snapshot.pods
        kinds, kind_of = np.unique(pods.owner[rows].astype(np.int64) << 32 | pods.identity[rows], return_inverse=True)
        known: dict[str, int] = {}
        numbers = np.zeros(len(kinds), np.intp)
        for at, kind in enumerate(kinds.tolist()):
            owner, identity = pods.owners.values[kind >> 32], pods.identities.values[kind & 0xFFFFFFFF]
            assert owner is not None
            assert identity is not None
            name = workload_name(owner.kind, owner.name, identity.namespace, identity.labels)
            numbers[at] = known.setdefault(name, len(known) + 1) if name else 0
        left = np.array([self.left.owners.get(name, rate.evictions) for name in known], np.int64)
        return numbers[kind_of], left


def too_large(rejections: frozenset[int]) -> str:
    """Which rates no candidate can ever keep, if all of them are rejected by these codes; empty if one may yet."""
    names = [name for code, name in _NEVER.items() if code in rejections]
    return " and ".join(names) if rejections <= _NEVER.keys() else ""
