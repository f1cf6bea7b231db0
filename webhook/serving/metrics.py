"""The server's Prometheus metrics, in a registry of their own."""

from __future__ import annotations

import time
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from webhook.admission.lookup import CLASSES, NAMESPACES
from webhook.admission.webhook import Reviewed

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_OPERATIONS = frozenset(("CREATE", "UPDATE", "DELETE", "CONNECT"))
_OTHER = "other"


class Metrics:
    """What is counted. Labels come from closed sets, so that no request can make new series without end."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._reviews = Counter(
            "giveway_admission_reviews",
            "Reviews answered, by verdict: allowed, patched, denied or error.",
            ["phase", "resource", "operation", "verdict"],
            registry=registry,
        )
        self._seconds = Histogram(
            "giveway_admission_duration_seconds",
            "Time from a review's arrival to its answer.",
            ["phase"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._evaluations = Counter(
            "giveway_policy_evaluations",
            "Rules evaluated, by verdict: allow, deny or error.",
            ["policy", "rule", "verdict"],
            registry=registry,
        )
        self.reloads = Counter(
            "giveway_policy_reloads", "Policy reloads, by result: success or failure.", ["result"], registry=registry
        )
        self.certificate_reloads = Counter(
            "giveway_certificate_reloads",
            "Certificate reloads, by result: success or failure.",
            ["result"],
            registry=registry,
        )
        self.policies_current = Gauge(
            "giveway_policies_current",
            "1 if the policies in use are those in the files, 0 if the files are broken.",
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "giveway_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since the epoch.",
            registry=registry,
        )
        self.cache_age = Gauge(
            "giveway_cache_age_seconds",
            "Seconds since the API server was last heard from, by resource.",
            ["resource"],
            registry=registry,
        )
        self.live_lookups = Counter(
            "giveway_live_lookups",
            "Objects looked up live before an answer, by resource.",
            ["resource"],
            registry=registry,
        )
        self.lines_dropped = Counter(
            "giveway_log_lines_dropped", "Log lines dropped because nobody read them.", registry=registry
        )
        for result in ("success", "failure"):
            self.reloads.labels(result)
            self.certificate_reloads.labels(result)
        for resource in (CLASSES, NAMESPACES):
            self.live_lookups.labels(resource)
        self._review_of = lru_cache(4096)(self._reviews.labels)
        self._evaluation_of = lru_cache(16384)(self._evaluations.labels)
        self._seconds_of = {phase: self._seconds.labels(phase) for phase in ("mutate", "validate")}

    def observe(self, phase: str, reviewed: Reviewed, seconds: float, *, known: bool) -> None:
        """Count one answered review; `known` says that its resource is one that admission handles."""
        asked, answer = reviewed.review, reviewed.answer
        resource = asked.resource if asked and known else _OTHER
        operation = asked.operation if asked and asked.operation in _OPERATIONS else _OTHER
        self._review_of(phase, resource, operation, answer.verdict).inc()
        self._seconds_of[phase].observe(seconds)
        for verdict in answer.verdicts:
            self._evaluation_of(verdict.policy, verdict.rule, verdict.outcome).inc()

    def expose(self, ages: dict[str, float]) -> bytes:
        """The exposition text, with cache ages as of now."""
        for resource, age in ages.items():
            self.cache_age.labels(resource).set(age)
        return generate_latest(self.registry)

    def certificate(self, expires: float) -> None:
        """Note the certificate in use."""
        self.certificate_expiry.set(expires)

    @staticmethod
    def now() -> float:
        """Seconds of a monotonic clock, for durations."""
        return time.perf_counter()
