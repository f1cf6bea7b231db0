"""What is counted of reviews, in Prometheus' terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from webhook.admission.context import CLASSES, NAMESPACES, POD_GROUPS
from webhook.admission.webhook import HANDLED, Phase, Reviewed
from webhook.policy.evaluation.rules import Verdict

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATIONS = frozenset(("CREATE", "UPDATE", "DELETE", "CONNECT"))
_OTHER = "other"
MOST_VIOLATION_SERIES = 2000
"""Series of `giveway_policy_violations_total` before further namespaces are counted together."""


class AdmissionMetrics:
    """What is counted. Labels come from closed sets, so that no request can make new series without end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, text: str, *labels: str, known: Iterable[str] = ()) -> Counter:
            made = Counter(name, text, labels, registry=registry)
            for value in known:  # shown from the start
                made.labels(value)
            return made

        reviews = "Reviews answered, by verdict: allowed, patched, denied or error."
        self._reviews = counter("giveway_admission_reviews", reviews, "phase", "resource", "operation", "verdict")
        times = "Time from a review's arrival to its answer."
        self._times = Histogram(
            "giveway_admission_duration_seconds", times, ["phase"], registry=registry, buckets=_BUCKETS
        )
        self._times_of = {phase: self._times.labels(phase) for phase in get_args(Phase)}
        violations = (
            "Requests that a rule refuses (enforce), warns of (warn), would refuse (audit) or lets in by an exception"
            " (excepted), by namespace."
        )
        self._violations = counter(
            "giveway_policy_violations", violations, "policy", "rule", "enforcement", "namespace"
        )
        self._violating: set[tuple[str, str, str, str]] = set()
        evaluations = "Rules evaluated, by verdict: allow, deny or error."
        self._evaluations = counter("giveway_policy_evaluations", evaluations, "policy", "rule", "verdict")
        reloads = "Certificate reloads, by result: success or failure."
        self.certificate_reloads = counter(
            "giveway_certificate_reloads", reloads, "result", known=("success", "failure")
        )
        expiry = "When the serving certificate expires, in seconds since the epoch."
        self.certificate_expiry = Gauge("giveway_certificate_expiry_timestamp_seconds", expiry, registry=registry)
        lookups = "Objects looked up live before an answer, by resource."
        self.live_lookups = counter(
            "giveway_live_lookups", lookups, "resource", known=(CLASSES, NAMESPACES, POD_GROUPS)
        )
        closed = (
            "Connections ended by the server, by reason: room (one gave way to a new one), head (no review came), lines"
            " (more at once than a request has) or unread (its client does not take what it is sent)."
        )
        reasons = ("room", "head", "lines", "unread")
        self.connections_closed = counter("giveway_connections_closed", closed, "reason", known=reasons)
        ended = "Unfinished requests ended by the server, by reason: slow or room (too many bytes)."
        self.requests_ended = counter("giveway_requests_ended", ended, "reason", known=("slow", "room"))
        # To make a child of its labels takes longer than to look one up
        self._reviews_of = lru_cache(4096)(self._reviews.labels)
        self._evaluation_of = lru_cache(16384)(self._evaluations.labels)

    def configurations_in_force(self, holds: Callable[[], bool]) -> None:
        """Show whether the webhook configurations are in force, asked at each scrape."""
        text = "1 if both webhook configurations have their entries, 0 if nothing or not everything is sent here."
        self._show("giveway_webhook_configurations_in_force", text, holds)

    def entries_old(self, holds: Callable[[], bool]) -> None:
        """Show whether the entries that an administrator applied are old, asked at each scrape."""
        text = "1 if the entries that an administrator applied are not those that the policies in force need."
        self._show("giveway_webhook_entries_old", text, holds)

    def _show(self, name: str, text: str, holds: Callable[[], bool]) -> None:
        Gauge(name, text, registry=self.registry).set_function(lambda: float(holds()))

    def observe(self, phase: str, reviewed: Reviewed, verdict: str, seconds: float, namespace: str) -> None:
        """Count one answered review by its verdict.

        `namespace` is its namespace, empty if it has none or one that does not exist, so that nobody can make up
        series. Resources and operations that admission does not know count as `other`.
        """
        asked = reviewed.facts
        resource = asked.resource if asked and (asked.group, asked.resource) in HANDLED else _OTHER
        operation = asked.operation if asked and asked.operation in _OPERATIONS else _OTHER
        self._reviews_of(phase, resource, operation, verdict).inc()
        self._times_of[phase].observe(seconds)
        for said in reviewed.answer.verdicts:
            self._evaluation_of(said.policy, said.rule, said.outcome).inc()
            if said.outcome != "allow":
                self._violation(said, namespace)

    def _violation(self, verdict: Verdict, namespace: str) -> None:
        """Count one violation; when there is no room for a further series, under the namespace `other`."""
        how = "excepted" if verdict.outcome == "excepted" else verdict.enforcement.value
        labels = (verdict.policy, verdict.rule, how, namespace)
        if labels not in self._violating and len(self._violating) >= MOST_VIOLATION_SERIES:
            labels = (verdict.policy, verdict.rule, how, _OTHER)
        self._violating.add(labels)
        self._violations.labels(*labels).inc()
