"""What the reconciler counts, in Prometheus' terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_DECISION_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_WRITE_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_PLAN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOST_VALUES = 50
"""Values of a label before further ones are counted together."""
OTHER = "other"
_VICTIMS = (0, 1, 2, 4, 8, 16, 32, 64)


class ReconcilerMetrics:
    """One set of instruments in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        results = "Preemptors evaluated, by result: fits, waits, evicts, asks, unschedulable, limited"
        self.attempts = counter("giveway_preemption_attempts", results, ["result"])
        results = "Gangs decided for, by result: together, fits, unschedulable, limited"
        self.gangs = counter("giveway_preemption_gangs", results, ["result"])
        ended = "Gangs of which no plan is left, by how the last one ended"
        self.gangs_ended = counter("giveway_gangs_ended", ended, ["ending"])
        self.plans = counter("giveway_preemption_plans", "Plans that ended, by how", ["ending"])
        self.victims = histogram("giveway_preemption_victims", "Victims of a plan", buckets=_VICTIMS)
        asked = "Victims asked to leave, by policy, its rule and the victim's namespace"
        self.evictions = counter("giveway_evictions", asked, ["policy", "rule", "namespace"])
        grouped = "Victims asked to leave that belong to a group, by what defines the group"
        self.group_evictions = counter("giveway_group_evictions", grouped, ["group"])
        told = "Victims told before they are asked to leave, and what came of it: told, ready, expired, left, withdrawn"
        self.notices = counter("giveway_preemption_notices", told, ["outcome"])
        self._rules, self._namespaces = set[str](), set[str]()
        self.budget_refusals = counter("giveway_budget_refusals", "Evictions a disruption budget refused")
        cleared = "Plans whose nomination the scheduler cleared, as a profile without PostFilter plugins does"
        self.nominations_cleared = counter("giveway_nominations_cleared", cleared, ["scheduler"])
        dropped = "Events that could not be written or had to make room, by their reason"
        self.events_dropped = counter("giveway_events_dropped", dropped, ["reason"])
        deciding = "Seconds from taking a preemptor off the queue to its plan being under way"
        self.decision_seconds = histogram("giveway_decision_seconds", deciding, buckets=_DECISION_SECONDS)
        again = "Seconds it takes to look again just before evicting"
        self.recheck_seconds = histogram("giveway_recheck_seconds", again, buckets=_DECISION_SECONDS)
        writing = "Seconds the API server takes to answer a write, by kind of write"
        self.write_seconds = histogram("giveway_write_seconds", writing, ["write"], buckets=_WRITE_SECONDS)
        planned = "Seconds from a decision to the preemptor being bound"
        self.plan_seconds = histogram("giveway_plan_seconds", planned, buckets=_PLAN_SECONDS)
        self.queue_depth = gauge("giveway_queue_depth", "Preemptors by their state in the queue", ["state"])
        self.nominations = gauge("giveway_nominations", "Nominations held")
        self.leader = gauge("giveway_leader", "1 while this process holds the lease")

    def show_workloads(self, most_evicted: Callable[[], list[tuple[str, int]]]) -> None:
        """Show these workloads, `Kind/namespace/name`, with how often each was evicted, whenever somebody looks."""
        self.registry.register(_WorkloadEvictions(most_evicted))

    def evicted(self, policy: str, rule: str, namespace: str) -> None:
        """Count a victim. Rules and namespaces beyond the first 50 that had one are counted together, as `other`."""
        self.evictions.labels(policy, _bounded(self._rules, rule), _bounded(self._namespaces, namespace)).inc()


class _WorkloadEvictions(Collector):
    """The workloads that are evicted most often: which of them there are changes, so they are counted on demand."""

    def __init__(self, most_evicted: Callable[[], list[tuple[str, int]]]) -> None:
        self._most_evicted = most_evicted

    def collect(self) -> Iterator[Metric]:
        """One gauge, a sample a workload."""
        text = "Evictions of a workload within 24 hours, of the 50 that were evicted most often"
        gauge = GaugeMetricFamily("giveway_workload_evictions", text, labels=["kind", "namespace", "name"])
        for workload, count in self._most_evicted():
            gauge.add_metric(workload.split("/", 2), count)
        yield gauge


def _bounded(known: set[str], value: str) -> str:
    """The value as a label, or `other` if there are too many."""
    if value not in known and len(known) >= _MOST_VALUES:
        return OTHER
    known.add(value)
    return value
