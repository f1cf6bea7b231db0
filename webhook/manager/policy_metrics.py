"""What is counted of the policies in use: reloads, what is held back, exceptions."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.policy.exceptions import exceptions
from webhook.policy.model.policies import Policies


class _Exceptions(Collector):
    """The exceptions of the policies in use, as of each scrape."""

    def __init__(self) -> None:
        self.policies = Policies()

    def collect(self) -> Iterator[Metric]:
        """The family, as of now."""
        gauge = GaugeMetricFamily(
            "giveway_policy_exceptions", "Exceptions in the policies in use: active or ended.", labels=["state"]
        )
        states = Counts(
            "ended" if exception.ended else "active" for exception in exceptions(self.policies, time.time())
        )
        for state in ("active", "ended"):
            gauge.add_metric([state], states[state])
        yield gauge


class PolicyMetrics:
    """How reloads went, what is held back, and the exceptions in use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._exceptions = _Exceptions()
        registry.register(self._exceptions)
        self.reloads = Counter(
            "giveway_policy_reloads", "Policy reloads, by result: success or failure.", ["result"], registry=registry
        )
        self.policies_current = Gauge(
            "giveway_policies_current",
            "1 if the policies in use are those in the files, 0 if the files are broken.",
            registry=registry,
        )
        self.removals_held = Gauge(
            "giveway_policy_removals_held",
            "Rules, rights and verdicts that the policy files would give up, and that nobody has said may go.",
            registry=registry,
        )
        self.restored = Counter(
            "giveway_policies_in_force_restored",
            "Times the policies in force were found to give less protection than the files, by somebody's hand.",
            registry=registry,
        )
        for result in ("success", "failure"):
            self.reloads.labels(result)

    def use(self, policies: Policies) -> None:
        """Count the exceptions of these policies from now on."""
        self._exceptions.policies = policies
