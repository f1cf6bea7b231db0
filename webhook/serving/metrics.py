"""What is counted of reviews, in Prometheus' terms."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.admission.context import CLASSES, NAMESPACES, POD_GROUPS
from webhook.admission.webhook import HANDLED, Phase, Reviewed
from webhook.policy.evaluation.rules import Verdict

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATIONS = frozenset(("CREATE", "UPDATE", "DELETE", "CONNECT"))
_PHASES = get_args(Phase)
_OTHER = "other"
MOST_VIOLATION_SERIES = 2000
"""Series of `giveway_policy_violations_total` before further namespaces are counted together."""


class _Reviews(Collector):
    """Number and time of reviews. Counted in plain integers on the event loop, which is all that touches them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str], int] = defaultdict(int)
        self._buckets = {phase: [0] * (len(_BUCKETS) + 1) for phase in _PHASES}
        self._sums = dict.fromkeys(_PHASES, 0.0)

    def add(self, labels: tuple[str, str, str, str], seconds: float) -> None:
        """Count one review by phase, resource, operation and verdict."""
        self._counts[labels] += 1
        phase = labels[0]
        self._buckets[phase][bisect_left(_BUCKETS, seconds)] += 1
        self._sums[phase] += seconds

    def collect(self) -> Iterator[Metric]:
        """The two families, as of now."""
        reviews = CounterMetricFamily(
            "giveway_admission_reviews",
            "Reviews answered, by verdict: allowed, patched, denied or error.",
            labels=["phase", "resource", "operation", "verdict"],
        )
        for labels, count in self._counts.items():
            reviews.add_metric(labels, count)
        yield reviews
        times = HistogramMetricFamily(
            "giveway_admission_duration_seconds", "Time from a review's arrival to its answer.", labels=["phase"]
        )
        for phase in _PHASES:
            bounds = [*map(str, _BUCKETS), "+Inf"]
            times.add_metric(
                [phase], list(zip(bounds, accumulate(self._buckets[phase]), strict=True)), self._sums[phase]
            )
        yield times


class _Violations(Collector):
    """Violations by rule, enforcement and namespace, in a bounded number of series."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str], int] = defaultdict(int)

    def add(self, verdict: Verdict, namespace: str) -> None:
        """Count one violation; when there is no room for a further series, under the namespace `other`."""
        how = "excepted" if verdict.outcome == "excepted" else verdict.enforcement.value
        rule = (verdict.policy, verdict.rule, how)
        labels = (*rule, namespace)
        if labels not in self._counts and len(self._counts) >= MOST_VIOLATION_SERIES:
            labels = (*rule, _OTHER)
        self._counts[labels] += 1

    def collect(self) -> Iterator[Metric]:
        """The family, as of now."""
        family = CounterMetricFamily(
            "giveway_policy_violations",
            "Requests that a rule refuses (enforce), warns of (warn), would refuse (audit) or lets in by an exception"
            " (excepted), by namespace.",
            labels=["policy", "rule", "enforcement", "namespace"],
        )
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class AdmissionMetrics:
    """What is counted. Labels come from closed sets, so that no request can make new series without end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._reviews = _Reviews()
        registry.register(self._reviews)
        self._violations = _Violations()
        registry.register(self._violations)
        self._evaluations = Counter(
            "giveway_policy_evaluations",
            "Rules evaluated, by verdict: allow, deny or error.",
            ["policy", "rule", "verdict"],
            registry=registry,
        )
        self.certificate_reloads = Counter(
            "giveway_certificate_reloads",
            "Certificate reloads, by result: success or failure.",
            ["result"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "giveway_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since the epoch.",
            registry=registry,
        )
        self.live_lookups = Counter(
            "giveway_live_lookups",
            "Objects looked up live before an answer, by resource.",
            ["resource"],
            registry=registry,
        )
        self.connections_closed = Counter(
            "giveway_connections_closed",
            "Connections ended by the server, by reason: room (one gave way to a new one) or head (no request came).",
            ["reason"],
            registry=registry,
        )
        self.requests_ended = Counter(
            "giveway_requests_ended",
            "Unfinished requests ended by the server, by reason: slow, peer (too many from one address) or room (too"
            " many bytes).",
            ["reason"],
            registry=registry,
        )
        for result in ("success", "failure"):
            self.certificate_reloads.labels(result)
        for reason in ("room", "head"):
            self.connections_closed.labels(reason)
        for reason in ("slow", "peer", "room"):
            self.requests_ended.labels(reason)
        for resource in (CLASSES, NAMESPACES, POD_GROUPS):
            self.live_lookups.labels(resource)
        self._evaluation_of = lru_cache(16384)(self._evaluations.labels)

    def configurations_in_force(self, holds: Callable[[], bool]) -> None:
        """Show whether the webhook configurations are in force, asked at each scrape."""
        Gauge(
            "giveway_webhook_configurations_in_force",
            "1 if both webhook configurations have their entries, 0 if nothing or not everything is sent here.",
            registry=self.registry,
        ).set_function(lambda: float(holds()))

    def entries_old(self, holds: Callable[[], bool]) -> None:
        """Show whether the entries that an administrator applied are old, asked at each scrape."""
        Gauge(
            "giveway_webhook_entries_old",
            "1 if the entries that an administrator applied are not those that the policies in force need.",
            registry=self.registry,
        ).set_function(lambda: float(holds()))

    def observe(self, phase: str, reviewed: Reviewed, verdict: str, seconds: float, namespace: str) -> None:
        """Count one answered review by its verdict.

        `namespace` is its namespace, empty if it has none or one that does not exist, so that nobody can make up
        series. Resources and operations that admission does not know count as `other`.
        """
        asked = reviewed.facts
        resource = asked.resource if asked and (asked.group, asked.resource) in HANDLED else _OTHER
        operation = asked.operation if asked and asked.operation in _OPERATIONS else _OTHER
        self._reviews.add((phase, resource, operation, verdict), seconds)
        for said in reviewed.answer.verdicts:
            self._evaluation_of(said.policy, said.rule, said.outcome).inc()
            if said.outcome != "allow":
                self._violations.add(said, namespace)
