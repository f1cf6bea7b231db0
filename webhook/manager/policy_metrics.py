"""What is counted of the policies in use: reloads, what is held back, exceptions."""

import time
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.policy.model.policies import Policies
from webhook.policy.reports import exceptions


class PolicyMetrics:
    """How reloads went, what is held back, and the exceptions in use."""

    def __init__(self, registry: CollectorRegistry, in_use: Callable[[], Policies]) -> None:
        def number(*, ended: bool) -> int:
            return sum(exception.ended is ended for exception in exceptions(in_use(), time.time()))

        text = "Exceptions in the policies in use: active or ended."
        counted = Gauge("giveway_policy_exceptions", text, ["state"], registry=registry)
        for state in ("active", "ended"):
            counted.labels(state).set_function(partial(number, ended=state == "ended"))
        text = "Policy reloads, by result: success or failure."
        self.reloads = Counter("giveway_policy_reloads", text, ["result"], registry=registry)
        for result in ("success", "failure"):
            self.reloads.labels(result)
        text = "1 if the policies in use are those in the files, 0 if the files are broken."
        self.policies_current = Gauge("giveway_policies_current", text, registry=registry)
        text = "Rules, rights and verdicts that the policy files would give up, and that nobody has said may go."
        self.removals_held = Gauge("giveway_policy_removals_held", text, registry=registry)
        text = "Times the policies in force were found to give less protection than the files, by somebody's hand."
        self.restored = Counter("giveway_policies_in_force_restored", text, registry=registry)
