"""What the reconciler counts, in Prometheus' terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
        self.attempts = Counter(
            "giveway_preemption_attempts",
            "Preemptors evaluated, by result: fits, waits, evicts, asks, unschedulable, limited",
            ["result"],
            registry=registry,
        )
        self.gangs = Counter(
            "giveway_preemption_gangs",
            "Gangs decided for, by result: together, fits, unschedulable, limited",
            ["result"],
            registry=registry,
        )
        self.gangs_ended = Counter(
            "giveway_gangs_ended",
            "Gangs of which no plan is left, by how the last one ended",
            ["ending"],
            registry=registry,
        )
        self.plans = Counter("giveway_preemption_plans", "Plans that ended, by how", ["ending"], registry=registry)
        self.victims = Histogram("giveway_preemption_victims", "Victims of a plan", buckets=_VICTIMS, registry=registry)
        self.evictions = Counter(
            "giveway_evictions",
            "Victims asked to leave, by policy, its rule and the victim's namespace",
            ["policy", "rule", "namespace"],
            registry=registry,
        )
        self.group_evictions = Counter(
            "giveway_group_evictions",
            "Victims asked to leave that belong to a group, by what defines the group",
            ["group"],
            registry=registry,
        )
        self.notices = Counter(
            "giveway_preemption_notices",
            "Victims told before they are asked to leave, and what came of it: told, ready, expired, left, withdrawn",
            ["outcome"],
            registry=registry,
        )
        self._rules, self._namespaces = set[str](), set[str]()
        self.budget_refusals = Counter(
            "giveway_budget_refusals", "Evictions a disruption budget refused", registry=registry
        )
        self.nominations_cleared = Counter(
            "giveway_nominations_cleared",
            "Plans whose nomination the scheduler cleared, as a profile without PostFilter plugins does",
            ["scheduler"],
            registry=registry,
        )
        self.events_dropped = Counter(
            "giveway_events_dropped",
            "Events that could not be written or had to make room, by their reason",
            ["reason"],
            registry=registry,
        )
        self.decision_seconds = Histogram(
            "giveway_decision_seconds",
            "Seconds from taking a preemptor off the queue to its plan being under way",
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self.recheck_seconds = Histogram(
            "giveway_recheck_seconds",
            "Seconds it takes to look again just before evicting",
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self.write_seconds = Histogram(
            "giveway_write_seconds",
            "Seconds the API server takes to answer a write, by kind of write",
            ["write"],
            buckets=_WRITE_SECONDS,
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "giveway_plan_seconds",
            "Seconds from a decision to the preemptor being bound",
            buckets=_PLAN_SECONDS,
            registry=registry,
        )
        self.queue_depth = Gauge(
            "giveway_queue_depth", "Preemptors by their state in the queue", ["state"], registry=registry
        )
        self.nominations = Gauge("giveway_nominations", "Nominations held", registry=registry)
        self.leader = Gauge("giveway_leader", "1 while this process holds the lease", registry=registry)

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
