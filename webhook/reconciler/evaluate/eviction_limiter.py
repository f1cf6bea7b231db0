"""How much may be evicted in a while, by the rates of a policy: the recent evictions.

Counts are kept here for all policies together; a policy's limits say how many of them are too many. Time is an
argument, in monotonic seconds, so that a jump of the system clock opens no window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model import LabelRate, Limits, Rate
from webhook.reconciler.evaluate.workload_history import WorkloadHistory

__all__ = [
    "EvictionLimiter",
    "ExhaustedLimits",
    "PlannedEviction",
    "Remaining",
    "WorkloadsLeft",
    "group_rates",
    "groups_of",
    "has_rates",
]

_LEAST_HORIZON = 180.0
"""Seconds, at least, for which evictions are remembered: longer than between two writes of the history."""


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """One eviction as the rates see it: whose pod, on which node, and in which groups (`groups_of`) it counts."""

    owner: str
    node: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExhaustedLimits:
    """For whom a policy's rates leave no room now; `until` is when the first of them leaves room again."""

    owners: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    cluster: bool = False
    until: float | None = None
    workloads: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    @property
    def names(self) -> str:
        """The rates that are used up for somebody, as the policy names them."""
        used = (
            ("perOwner", self.owners),
            ("perWorkload", self.workloads),
            ("perNode", self.nodes),
            ("perCluster", self.cluster),
            ("perNamespace", any(name.startswith("namespace ") for name in self.groups)),
            ("perLabel", any(name.startswith("label ") for name in self.groups)),
        )
        return " or ".join(f"limits.{name}" for name, full in used if full)


class WorkloadsLeft(NamedTuple):
    """What `perWorkload` still allows of a workload, worked out when it is asked for: there may be 10 000 of them."""

    history: WorkloadHistory
    planned: dict[str, int]
    most: int
    window: float
    now: float

    def get(self, name: str, default: int) -> int:
        """How many more evictions of this workload, negative if too many are planned; `default` is the limit."""
        del default
        return self.most - len(self.history.of(name, self.now, self.window)) - self.planned.get(name, 0)


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many evictions a policy's rates still allow now; an owner or node that is not named has its whole rate.

    `until` is when the first eviction that counts leaves its window, None if none counts.
    """

    owners: dict[str, int]
    nodes: dict[str, int]
    cluster: int
    until: float | None
    workloads: WorkloadsLeft | None = None
    groups: dict[str, int] = field(default_factory=dict)


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
        self._groups: dict[str, _Counter] = {}
        self._cluster = _Counter()
        self._label_keys: set[str] = set()
        self._tickets: dict[int, tuple[PlannedEviction, float]] = {}
        self._next = 0
        self._horizon = _LEAST_HORIZON
        self.history = WorkloadHistory()

    def plan(self, evictions: Iterable[PlannedEviction], now: float) -> list[int]:
        """Count evictions that are going to be: until they happen they count in every window."""
        self._forget(now)
        return self._count(evictions, math.inf)

    def asked(self, ticket: int | None, pod: Pod, now: float) -> int:
        """A pod was asked to leave, by the ticket of the plan for that or by none; returns its ticket."""
        if ticket is None:
            return self.note([self.eviction_of(pod)], now)[0]
        self.happened(ticket, now)
        return ticket

    def happened(self, ticket: int, now: float) -> None:
        """What was planned has happened now."""
        eviction, _ = self._tickets.get(ticket, (None, 0.0))
        if eviction is None:
            return
        self._tickets[ticket] = (eviction, now)
        groups = [self._groups.get(name) for name in eviction.groups]
        for counter in (self._owners.get(eviction.owner), self._nodes.get(eviction.node), self._cluster, *groups):
            if counter is not None:
                counter.times[ticket] = now

    def eviction_of(self, pod: Pod) -> PlannedEviction:
        """The eviction of this pod as the rates see it."""
        groups = groups_of(pod.metadata.namespace, pod.metadata.labels or {}, self._label_keys)
        return PlannedEviction(workload_of(pod), pod.spec.node_name, groups)

    def overdrawn(self, limits: Limits, tickets: Iterable[int], now: float, *, since: float = -math.inf) -> str:
        """Which rate the planned evictions of these tickets go beyond, by the limits of now; empty if none.

        Beside what is planned, evictions count that happened after `since`.
        """
        planned = [known[0] for ticket in tickets if (known := self._tickets.get(ticket)) is not None]
        grouped = [
            (
                name,
                rate,
                [self._groups.get(each) for eviction in planned for each in eviction.groups if each.startswith(of)],
            )
            for name, of, rate in group_rates(limits)
        ]
        rates: list[tuple[str, Rate | LabelRate | None, list[_Counter | None]]] = [
            ("perOwner", limits.per_owner, [self._owners.get(eviction.owner) for eviction in planned]),
            ("perNode", limits.per_node, [self._nodes.get(eviction.node) for eviction in planned]),
            ("perCluster", limits.per_cluster, [self._cluster] if planned else []),
            *grouped,
        ]
        for name, rate, counters in rates:
            if rate is None:
                continue
            window = min(rate.window, now - since)
            if any(counter is not None and len(counter.within(window, now)) > rate.evictions for counter in counters):
                return f"limits.{name} does not allow so many evictions any more"
        left = self._workloads_left(limits, now, since)
        if left is not None and any(left.get(eviction.owner, 0) < 0 for eviction in planned if eviction.owner):
            return "limits.perWorkload does not allow so many evictions any more"
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
            for name in eviction.groups:
                self._groups.setdefault(name, _Counter()).times[self._next] = at
        return tickets

    def take_back(self, tickets: Iterable[int]) -> None:
        """These did not happen."""
        for ticket in tickets:
            eviction, _ = self._tickets.pop(ticket, (None, 0.0))
            if eviction is None:
                continue
            self._cluster.times.pop(ticket, None)
            groups = ((self._groups, name) for name in eviction.groups)
            for counters, name in ((self._owners, eviction.owner), (self._nodes, eviction.node), *groups):
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
        workloads: dict[str, float] = {}
        if (limit := limits.per_workload) is not None:
            workloads = self.history.used_up(limit.evictions, limit.window, now, self._planned())
        ends = [*owners.values(), *nodes.values(), *cluster.values(), *workloads.values()]
        groups: dict[str, float] = {}
        for _, of, rate in group_rates(limits):
            groups |= _used_up(
                {name: counter for name, counter in self._groups.items() if name.startswith(of)}, rate, now
            )
        until = min([*ends, *groups.values()], default=None)
        return ExhaustedLimits(
            frozenset(owners), frozenset(nodes), bool(cluster), until, frozenset(workloads), frozenset(groups)
        )

    def _planned(self) -> dict[str, int]:
        """How many evictions of each workload are planned and have not happened."""
        planned = {name: sum(map(math.isinf, counter.times.values())) for name, counter in self._owners.items()}
        return {name: some for name, some in planned.items() if some}

    def _workloads_left(self, limits: Limits, now: float, since: float = -math.inf) -> WorkloadsLeft | None:
        limit = limits.per_workload
        if limit is None:
            return None
        return WorkloadsLeft(self.history, self._planned(), limit.evictions, min(limit.window, now - since), now)

    def remaining(self, limits: Limits, now: float) -> Remaining:
        """What the rates still allow; numbers of a rate that the limits do not set mean nothing."""
        self.remember(limits)
        owners, owners_end = _remaining(self._owners, limits.per_owner, now)
        nodes, nodes_end = _remaining(self._nodes, limits.per_node, now)
        cluster, cluster_end = _remaining({"": self._cluster}, limits.per_cluster, now)
        whole = limits.per_cluster.evictions if limits.per_cluster else 0
        left = self._workloads_left(limits, now)
        ends = [end for end in (owners_end, nodes_end, cluster_end) if end is not None]
        if left is not None:
            first = self.history.first_end(left.window, now)
            ends += [first] if math.isfinite(first) else [now + left.window] if left.planned else []
        groups: dict[str, int] = {}
        for _, of, rate in group_rates(limits):
            counters = {name: counter for name, counter in self._groups.items() if name.startswith(of)}
            of_group, end = _remaining(counters, rate, now)
            groups |= of_group
            ends += [] if end is None else [end]
        return Remaining(owners, nodes, cluster.get("", whole), min(ends, default=None), left, groups)

    def remember(self, limits: Limits) -> None:
        """Keep evictions for as long as these limits ask for them."""
        self._horizon = max([self._horizon, *(rate.window for rate in limits.rates.values())])
        if limits.per_label is not None:
            self._label_keys.add(limits.per_label.label)


def groups_of(namespace: str, labels: Mapping[str, str], keys: Iterable[str]) -> tuple[str, ...]:
    """The groups in which the eviction of a pod counts: its namespace, and its values of the labels `keys`."""
    return (f"namespace {namespace}", *(f"label {key}={labels[key]}" for key in sorted(keys) if key in labels))


def group_rates(limits: Limits) -> Iterator[tuple[str, str, Rate | LabelRate]]:
    """The rates by groups: the field's name, how the names of its groups begin, and the rate."""
    if limits.per_namespace is not None:
        yield "perNamespace", "namespace ", limits.per_namespace
    if limits.per_label is not None:
        yield "perLabel", f"label {limits.per_label.label}=", limits.per_label


def has_rates(limits: Limits) -> bool:
    """Whether the limits hold back evictions at all."""
    return bool(limits.rates) or limits.per_workload is not None


def _used_up(counters: dict[str, _Counter], rate: Rate | LabelRate | None, now: float) -> dict[str, float]:
    """Names that have had their evictions, and when the oldest that counts leaves the window."""
    if rate is None:
        return {}
    ends = {}
    for name, counter in counters.items():
        recent = counter.within(rate.window, now)
        if len(recent) >= rate.evictions:
            ends[name] = recent[len(recent) - rate.evictions] + rate.window if rate.evictions else now + rate.window
    return ends


def _remaining(
    counters: dict[str, _Counter], rate: Rate | LabelRate | None, now: float
) -> tuple[dict[str, int], float | None]:
    """What is left of the rate for every name that has used some of it, and when the first eviction stops counting."""
    if rate is None:
        return {}, None
    recent = {name: times for name, counter in counters.items() if (times := counter.within(rate.window, now))}
    left = {name: rate.evictions - len(times) for name, times in recent.items()}
    return left, min((times[0] + rate.window for times in recent.values()), default=None)
