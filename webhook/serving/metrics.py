"""What is counted of reviews, in Prometheus' terms."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.admission.context import CLASSES, NAMESPACES, POD_GROUPS
from webhook.admission.webhook import HANDLED, Phase, Reviewed

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATIONS = frozenset(("CREATE", "UPDATE", "DELETE", "CONNECT"))
_OTHER = "other"
_VIOLATIONS = (
    "Requests that a rule refuses (enforce), warns of (warn), would refuse (audit) or lets in by an exception"
    " (excepted), by namespace."
)
_CLOSED = (
    "Connections ended by the server, by reason: room (one gave way to a new one), head (no review came), lines"
    " (more at once than a request has) or unread (its client does not take what it is sent)."
)
MOST_VIOLATION_SERIES = 2000
"""Series of `giveway_policy_violations_total` before further namespaces are counted together."""


class _Counts(Collector):
    """A counter by labels that costs an ordinary review no lock and no look-up of its child."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._family = name, text, labels
        self.of: defaultdict[tuple[str, ...], int] = defaultdict(int)
        """The count by the values of the labels."""

    def collect(self) -> Iterator[Metric]:
        """The family, as of now."""
        name, text, labels = self._family
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self.of.items():
            family.add_metric(values, count)
        yield family


class AdmissionMetrics:
    """What is counted. Labels come from closed sets, so that no request can make new series without end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, text: str, label: str, known: Iterable[str]) -> Counter:
            made = Counter(name, text, [label], registry=registry)
            for value in known:  # shown from the start
                made.labels(value)
            return made

        text = "Reviews answered, by verdict: allowed, patched, denied or error."
        labels = ("phase", "resource", "operation", "verdict")
        self._reviews = _Counts("giveway_admission_reviews", text, *labels)
        name, text = "giveway_admission_duration_seconds", "Time from a review's arrival to its answer."
        times = Histogram(name, text, ["phase"], registry=registry, buckets=_BUCKETS)
        self._times_of = {phase: times.labels(phase) for phase in get_args(Phase)}
        labels = ("policy", "rule", "enforcement", "namespace")
        self._violations = _Counts("giveway_policy_violations", _VIOLATIONS, *labels)
        text = "Rules evaluated, by verdict: allow, deny or error."
        self._evaluations = _Counts("giveway_policy_evaluations", text, "policy", "rule", "verdict")
        for counts in (self._reviews, self._violations, self._evaluations):
            registry.register(counts)
        text, known = "Certificate reloads, by result: success or failure.", ["success", "failure"]
        self.certificate_reloads = counter("giveway_certificate_reloads", text, "result", known)
        name = "giveway_certificate_expiry_timestamp_seconds"
        text = "When the serving certificate expires, in seconds since the epoch."
        self.certificate_expiry = Gauge(name, text, registry=registry)
        text, known = "Objects looked up live before an answer, by resource.", [CLASSES, NAMESPACES, POD_GROUPS]
        self.live_lookups = counter("giveway_live_lookups", text, "resource", known)
        known = ["room", "head", "lines", "unread"]
        self.connections_closed = counter("giveway_connections_closed", _CLOSED, "reason", known)
        text = "Unfinished requests ended by the server, by reason: slow or room (too many bytes)."
        self.requests_ended = counter("giveway_requests_ended", text, "reason", ("slow", "room"))

    def configurations_in_force(self, holds: Callable[[], bool]) -> None:
        """Show whether the webhook configurations are in force, asked at each scrape."""
        text = "1 if both webhook configurations have their entries, 0 if nothing or not everything is sent here."
        gauge = Gauge("giveway_webhook_configurations_in_force", text, registry=self.registry)
        gauge.set_function(lambda: float(holds()))

    def observe(self, phase: str, reviewed: Reviewed, seconds: float, known: Callable[[str], object]) -> None:
        """Count one answered review by its verdict.

        Its namespace is told if it is `known`, so that nobody can make up series. Resources and operations that
        admission does not know count as `other`.
        """
        asked, resource, operation, namespace = reviewed.asked, _OTHER, _OTHER, ""
        if asked is not None:
            resource = asked.resource if asked.kind in HANDLED else _OTHER
            operation = asked.operation if asked.operation in _OPERATIONS else _OTHER
        self._reviews.of[phase, resource, operation, reviewed.answer.verdict] += 1
        self._times_of[phase].observe(seconds)
        for said in reviewed.answer.verdicts:
            self._evaluations.of[said.policy, said.rule, said.outcome] += 1
            if said.outcome == "allow":
                continue
            if asked is not None and known(asked.namespace):
                namespace = asked.namespace
            how = "excepted" if said.outcome == "excepted" else said.enforcement.value
            labels, violations = (said.policy, said.rule, how, namespace), self._violations.of
            if labels not in violations and len(violations) >= MOST_VIOLATION_SERIES:
                labels = (said.policy, said.rule, how, _OTHER)
            violations[labels] += 1
