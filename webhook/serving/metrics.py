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
_TEXTS = {
    "giveway_admission_reviews": "Reviews answered, by verdict: allowed, patched, denied or error.",
    "giveway_admission_duration_seconds": "Time from a review's arrival to its answer.",
    "giveway_policy_violations": (
        "Requests that a rule refuses (enforce), warns of (warn), would refuse (audit) or lets in by an exception"
        " (excepted), by namespace."
    ),
    "giveway_policy_evaluations": "Rules evaluated, by verdict: allow, deny or error.",
    "giveway_certificate_reloads": "Certificate reloads, by result: success or failure.",
    "giveway_certificate_expiry_timestamp_seconds": "When the serving certificate expires, in seconds since the epoch.",
    "giveway_live_lookups": "Objects looked up live before an answer, by resource.",
    "giveway_connections_closed": (
        "Connections ended by the server, by reason: room (one gave way to a new one), head (no review came), lines"
        " (more at once than a request has) or unread (its client does not take what it is sent)."
    ),
    "giveway_requests_ended": "Unfinished requests ended by the server, by reason: slow or room (too many bytes).",
}
_IN_FORCE = "1 if both webhook configurations have their entries, 0 if nothing or not everything is sent here."
MOST_VIOLATION_SERIES = 2000
"""Series of `giveway_policy_violations_total` before further namespaces are counted together."""


class _Counts(Collector):
    """A counter by labels that costs an ordinary review no lock and no look-up of its child."""

    def __init__(self, name: str, *labels: str) -> None:
        self._name, self._labels = name, labels
        self.of: defaultdict[tuple[str, ...], int] = defaultdict(int)
        """The count by the values of the labels."""

    def collect(self) -> Iterator[Metric]:
        """The family, as of now."""
        name = self._name
        family = CounterMetricFamily(name, _TEXTS[name], labels=self._labels)
        for values, count in self.of.items():
            family.add_metric(values, count)
        yield family


class AdmissionMetrics:
    """What is counted. Labels come from closed sets, so that no request can make new series without end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        name, own = "giveway_admission_duration_seconds", ("policy", "rule")
        times = Histogram(name, _TEXTS[name], ["phase"], registry=registry, buckets=_BUCKETS)
        self._times_of = {phase: times.labels(phase) for phase in get_args(Phase)}
        labels = ("phase", "resource", "operation", "verdict")
        self._reviews = _Counts("giveway_admission_reviews", *labels)
        self._violations = _Counts("giveway_policy_violations", *own, "enforcement", "namespace")
        self._evaluations = _Counts("giveway_policy_evaluations", *own, "verdict")
        for counts in (self._reviews, self._violations, self._evaluations):
            registry.register(counts)
        known = ["success", "failure"]
        self.certificate_reloads = self._counter("certificate_reloads", "result", known)
        name = "giveway_certificate_expiry_timestamp_seconds"
        self.certificate_expiry = Gauge(name, _TEXTS[name], registry=registry)
        known = [CLASSES, NAMESPACES, POD_GROUPS]
        self.live_lookups = self._counter("live_lookups", "resource", known)
        known = ["room", "head", "lines", "unread"]
        self.connections_closed = self._counter("connections_closed", "reason", known)
        self.requests_ended = self._counter("requests_ended", "reason", ["slow", "room"])

    def _counter(self, what: str, label: str, known: Iterable[str]) -> Counter:
        name = f"giveway_{what}"
        made = Counter(name, _TEXTS[name], [label], registry=self.registry)
        for value in known:  # shown from the start
            made.labels(value)
        return made

    def configurations_in_force(self, holds: Callable[[], bool]) -> None:
        """Show whether the webhook configurations are in force, asked at each scrape."""
        name = "giveway_webhook_configurations_in_force"
        gauge = Gauge(name, _IN_FORCE, registry=self.registry)
        gauge.set_function(lambda: float(holds()))

    def observe(self, phase: str, reviewed: Reviewed, seconds: float, known: Callable[[str], object]) -> None:
        """Count an answered review; its namespace is told if it is `known`, and what nobody judges is `other`."""
        asked, answer = reviewed.asked, reviewed.answer
        resource = operation = _OTHER
        if asked is not None:
            resource = asked.resource if asked.kind in HANDLED else _OTHER
            operation = asked.operation if asked.operation in _OPERATIONS else _OTHER
        self._reviews.of[phase, resource, operation, answer.verdict] += 1
        self._times_of[phase].observe(seconds)
        violations = self._violations.of
        for said in answer.verdicts:
            self._evaluations.of[said.policy, said.rule, said.outcome] += 1
            if said.outcome == "allow":
                continue
            namespace = ""
            if asked is not None and known(asked.namespace):
                namespace = asked.namespace
            how = "excepted" if said.outcome == "excepted" else said.enforcement.value
            labels = (said.policy, said.rule, how, namespace)
            if labels not in violations and len(violations) >= MOST_VIOLATION_SERIES:
                labels = (said.policy, said.rule, how, _OTHER)
            violations[labels] += 1
