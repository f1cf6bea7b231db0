"""Budgets that never let anybody go, by which a tenant keeps preemptible pods forever."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.kube.pods import sync_failure
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.pod_view import Profile
from webhook.preemption.victims.rules import compile_rules


def never_allows(budget: PodDisruptionBudget) -> str:
    """Why the budget lets no pod go even when all of them are healthy; empty if it lets one go then.

    What the disruption controller has counted decides. Before it has, and for the values that need no count, the spec.
    """
    spec, status = budget.spec, budget.status
    if failure := sync_failure(status):
        return f"its pods cannot be counted ({failure.message})"
    if spec.max_unavailable in (0, "0", "0%"):
        return f"its maxUnavailable is {spec.max_unavailable}"
    if spec.min_available == "100%":
        return "its minAvailable is 100%"
    if status.expected_pods == 0 < status.current_healthy:
        return "none of its pods has a controller, by whose scale it would count"
    if status.desired_healthy >= status.expected_pods > 0:
        return f"it wants {status.desired_healthy} of {status.expected_pods} pods healthy"
    return ""


class Preemptible:
    """Whether some policy may evict a pod by what it and its class say; each kind of pod is asked once."""

    def __init__(self, policies: tuple[PreemptionPolicy, ...], classes: Mapping[str, PriorityClass]) -> None:
        self._rules = [compile_rules(policy) for policy in policies]
        self._read = frozenset[str]().union(*(rules.annotations for rules in self._rules))
        self._classes = classes
        self._known: dict[Profile, bool] = {}

    def __call__(self, class_name: str, priority: int, scheduler_name: str, annotations: Mapping[str, str]) -> bool:
        """The answer for a pod of this class, priority and scheduler with these annotations."""
        kept = tuple(sorted((key, text) for key, text in annotations.items() if key in self._read))
        profile = Profile(class_name, priority, scheduler_name, kept)
        if profile not in self._known:
            self._known[profile] = any(rules.reason(profile, self._classes).may_go for rules in self._rules)
        return self._known[profile]
