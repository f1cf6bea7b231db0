"""What is counted of any process, in Prometheus' terms."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

__all__ = ["CONTENT_TYPE", "ProcessMetrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


class ProcessMetrics:
    """The metrics of the process itself, and the registry to which its parts add theirs."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.cache_age = Gauge(
            "giveway_cache_age_seconds",
            "Seconds since the API server was last heard from, by resource.",
            ["resource"],
            registry=registry,
        )
        self.lines_dropped = Counter(
            "giveway_log_lines_dropped", "Log lines dropped because nobody read them.", registry=registry
        )
        self.task_failures = Counter(
            "giveway_task_failures",
            "Background tasks that ended and were started again, by task.",
            ["task"],
            registry=registry,
        )

    def expose(self, ages: dict[str, float]) -> bytes:
        """The exposition text, with cache ages (seconds, by resource) as of now."""
        for resource, age in ages.items():
            self.cache_age.labels(resource).set(age)
        return generate_latest(self.registry)
