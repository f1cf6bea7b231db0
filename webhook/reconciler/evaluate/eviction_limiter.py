"""How much may be evicted in a while, by the rates of a policy: the recent evictions.

Counts are kept here for all policies together; a policy's limits say how many of them are too many. Time is an
argument, in monotonic seconds, so that a jump of the system clock opens no window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.limits import LabelRate, Limits, Rate, WorkloadLimit
from webhook.reconciler.evaluate.workload_history import WorkloadHistory

AnyRate = Rate | LabelRate | WorkloadLimit
_LEAST_HORIZON = 3600.0
"""Seconds, at least, for which evictions are remembered: longer than a plan is under way after them."""


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """One eviction as the rates see it: whose pod, on which node, and in which groups (`groups_of`) it counts.

    `plan` is the one that it is for, empty if that is not known.
    """

    owner: str
    node: str
    groups: tuple[str, ...] = ()
    plan: str = ""

    @property
    def names(self) -> set[str]:
        """Everything in which it counts, as `rates_of` has it: its owner, its node, the cluster and its groups."""
        owners = (f"owner {self.owner}", f"workload {self.owner}") if self.owner else ()
        return {*owners, f"node {self.node}", "cluster ", *self.groups}


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many evictions a policy's rates still allow now, by rate and name; who is not named has the whole rate.

    `until` is when the first eviction that counts leaves its window, None if none counts; `again` when the first of the
    rates that are used up leaves room, None if none is. Both are infinite if that depends on a plan under way.
    """

    left: dict[str, dict[str, int]]
    until: float | None
    again: float | None

    def used_up(self, rate: str) -> list[str]:
        """Who has no evictions left by this rate."""
        return [name for name, left in self.left.get(rate, {}).items() if left <= 0]

    @property
    def rates_used_up(self) -> str:
        """The rates that are used up for somebody, as the policy names them."""
        return " or ".join(f"limits.{rate}" for rate in self.left if self.used_up(rate))


class EvictionLimiter:
    """The recent evictions: as far back as the longest window that was asked about."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, dict[int, float]]] = {}
        """When the evictions were that count there, by ticket: by the first word of the name, and by the name."""
        self._label_keys: set[str] = set()
        self._tickets: dict[int, tuple[PlannedEviction, float]] = {}
        self._next = 0
        self._horizon = _LEAST_HORIZON
        self.history = WorkloadHistory()

    def plan(self, evictions: Iterable[PlannedEviction], now: float) -> list[int]:
        """Count evictions that are going to be: until they happen they count in every window."""
        self._forget(now)
        return self._count(evictions, math.inf)

    def asked(self, ticket: int | None, pod: Pod, plan: str, now: float) -> int:
        """A pod was asked to leave for this plan, planned with this ticket, or not any more; returns its ticket."""
        if ticket is None or ticket not in self._tickets:
            return self.note([self.eviction_of(pod, plan)], now)[0]
        self._put(ticket, replace(self._tickets[ticket][0], plan=plan), now)
        return ticket

    def eviction_of(self, pod: Pod, plan: str = "") -> PlannedEviction:
        """The eviction of this pod as the rates see it."""
        groups = groups_of(pod.metadata.namespace, at_creation(pod.metadata).labels or {}, self._label_keys)
        return PlannedEviction(workload_of(pod), pod.spec.node_name, groups, plan)

    def overdrawn(self, limits: Limits, tickets: Iterable[int], now: float, *, since: float = -math.inf) -> str:
        """Which rate the planned evictions of these tickets go beyond, by the limits of now; empty if none.

        Beside what is planned, evictions count that happened after `since`.
        """
        planned = [known[0] for ticket in tickets if (known := self._tickets.get(ticket)) is not None]
        names = {name for eviction in planned for name in eviction.names}
        for field, of, rate in rates_of(limits):
            times = self._times(of, min(rate.window, now - since), now)
            if any(len(times.get(name, ())) > rate.evictions for name in names):
                return f"limits.{field} does not allow so many evictions any more"
        return ""

    def note(self, evictions: Iterable[PlannedEviction], at: float) -> list[int]:
        """Count evictions at a time; returns tickets for those that will not happen after all."""
        self._forget(at)
        return self._count(evictions, at)

    def load(self, evictions: Iterable[tuple[PlannedEviction, float]]) -> None:
        """Count these evictions, each at its time."""
        for eviction, at in evictions:
            self._count([eviction], at)

    def _forget(self, now: float) -> None:
        self.take_back([ticket for ticket, (_, then) in self._tickets.items() if then + self._horizon <= now])

    def _count(self, evictions: Iterable[PlannedEviction], at: float) -> list[int]:
        tickets = []
        for eviction in evictions:
            self._next += 1
            tickets.append(self._next)
            self._put(self._next, eviction, at)
        return tickets

    def _put(self, ticket: int, eviction: PlannedEviction, at: float) -> None:
        self._tickets[ticket] = (eviction, at)
        for name in eviction.names:
            self._counters.setdefault(_kind(name), {}).setdefault(name, {})[ticket] = at

    def take_back(self, tickets: Iterable[int]) -> None:
        """These did not happen."""
        for ticket in tickets:
            eviction, _ = self._tickets.pop(ticket, (None, 0.0))
            for name in eviction.names if eviction is not None else ():
                counters = self._counters[_kind(name)]
                del counters[name][ticket]
                if not counters[name]:
                    del counters[name]

    def recent(self, now: float) -> Iterator[tuple[PlannedEviction, float]]:
        """The evictions that have happened, and that a rate may still count, each with its time."""
        for eviction, at in self._tickets.values():
            if now < at + self._horizon < math.inf:
                yield eviction, at

    def clear(self) -> None:
        """Forget everything."""
        self.take_back(list(self._tickets))

    def remaining(self, limits: Limits, now: float) -> Remaining:
        """What the rates still allow."""
        self.remember(limits)
        left, ends, again = dict[str, dict[str, int]](), list[float](), list[float]()
        for field, of, rate in rates_of(limits):
            times = self._times(of, rate.window, now)
            left[field] = {name: rate.evictions - len(recent) for name, recent in times.items()}
            ends += [recent[0] + rate.window for recent in times.values()]
            full = (recent for recent in times.values() if len(recent) >= rate.evictions)
            again += [recent[-rate.evictions] + rate.window for recent in full]
        return Remaining(left, min(ends, default=None), min(again, default=None))

    def _times(self, of: str, window: float, now: float) -> dict[str, list[float]]:
        """When the evictions within the window were, by each name that begins like this and in which some count.

        Those of workloads are remembered for longer by their history, which knows only what has happened.
        """
        kind = of.partition(" ")[0]
        recent = {
            name: sorted(at for at in times.values() if at + window > now and (kind != "workload" or math.isinf(at)))
            for name, times in self._counters.get(kind, {}).items()
            if name.startswith(of)
        }
        for workload, past in self.history.times(window, now) if kind == "workload" else ():
            name = f"workload {workload}"
            recent[name] = past + recent.get(name, [])
        return {name: times for name, times in recent.items() if times}

    def remember(self, limits: Limits) -> None:
        """Keep evictions for as long as these limits ask for them."""
        self._horizon = max([self._horizon, *(rate.window for rate in limits.rates.values())])
        if limits.per_label is not None:
            self._label_keys.add(limits.per_label.label)


def groups_of(namespace: str, labels: Mapping[str, str], keys: Iterable[str]) -> tuple[str, ...]:
    """The groups in which the eviction of a pod counts: its namespace, and its values of the labels `keys`."""
    return (f"namespace {namespace}", *(f"label {key}={labels[key]}" for key in sorted(keys) if key in labels))


def rates_of(limits: Limits) -> Iterator[tuple[str, str, AnyRate]]:
    """The rates that are set: the field's name, how the names begin that it counts by, and the rate.

    A rate for what lies within another one's comes first.
    """
    label = f"label {limits.per_label.label}=" if limits.per_label is not None else ""
    for field, of, rate in (
        ("perOwner", "owner ", limits.per_owner),
        ("perWorkload", "workload ", limits.per_workload),
        ("perNamespace", "namespace ", limits.per_namespace),
        ("perLabel", label, limits.per_label),
        ("perNode", "node ", limits.per_node),
        ("perCluster", "cluster ", limits.per_cluster),
    ):
        if rate is not None:
            yield field, of, rate


def has_rates(limits: Limits) -> bool:
    """Whether the limits hold back evictions at all."""
    return any(rates_of(limits))


def _kind(name: str) -> str:
    return name.partition(" ")[0]
