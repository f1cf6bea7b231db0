"""What is counted of the policies in use: reloads, what is held back, exceptions."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.policy.exceptions import exceptions
from webhook.policy.model.policies import Policies


class PolicyMetrics:
    """How reloads went, what is held back, and the exceptions in use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._policies = Policies()
        counted = Gauge(
            "giveway_policy_exceptions",
            "Exceptions in the policies in use: active or ended.",
            ["state"],
            registry=registry,
        )
        counted.labels("active").set_function(lambda: self._exceptions(ended=False))
        counted.labels("ended").set_function(lambda: self._exceptions(ended=True))
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
        self._policies = policies

    def _exceptions(self, *, ended: bool) -> int:
        return sum(exception.ended is ended for exception in exceptions(self._policies, time.time()))
