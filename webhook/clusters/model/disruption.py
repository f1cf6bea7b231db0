"""Disruption budgets: what their controller writes, and what the Eviction API asks of them.

Mirrors `pkg/controller/disruption` and `registry/core/pod/storage/eviction.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from webhook.clusters.model.deployments import share
from webhook.clusters.model.pods import is_ready
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.meta import Condition
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from webhook.kube.pods import SYNC_FAILED, sync_failure

CONFIRMATION_SECONDS = 120.0
"""How long a pod counts as gone whose eviction was granted, although it is there still and not leaving."""
BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MOST_UNCONFIRMED = 2000
"""Evictions whose pods are not gone yet that a budget's status may hold."""
_PROCESSING_SECONDS = 10
_COUNTED = ("observedGeneration", "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class BudgetRefusalError(Exception):
    """The Eviction API keeps a pod: the HTTP status, what it says, and after how many seconds to ask again."""

    def __init__(self, code: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.retry_after = code, text, retry_after


class NoScaleError(ValueError):
    """The controller of a budget's pod has no scale; the text is the disruption controller's."""


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether a budget depends on how many pods their controllers are to have; a number of `minAvailable` does not."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def unconfirmed(disrupted: Mapping[str, Any], there: Collection[str], now: float) -> dict[str, float]:
    """For how many seconds more the granted evictions of these pods count; `there` are pods that do not leave yet."""
    left = {name: epoch(str(since)) + CONFIRMATION_SECONDS - now for name, since in disrupted.items() if name in there}
    return {name: seconds for name, seconds in left.items() if seconds > 0}


def budget_status(
    budget: PodDisruptionBudget, covered: int, healthy: int, scale: Callable[[], int], disrupted: dict[str, Any]
) -> PodDisruptionBudgetStatus:
    """The status of a budget over so many pods (`trySync`).

    `healthy` counts the ready pods that do not leave and are not `disrupted`. `scale()` tells how many pods the
    workloads are to have, or raises NoScaleError; it is asked if the budget depends on that. If it raises, or an amount
    cannot be read, nobody may go, and a condition says so (`failSafe`).
    """
    try:
        expected, desired = _desired(budget.spec, covered, scale)
    except ValueError as error:
        failed = Condition(type="DisruptionAllowed", status="False", reason=SYNC_FAILED, message=str(error))
        return msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=[failed])
    return msgspec.structs.replace(
        budget.status,
        conditions=None if sync_failure(budget.status) else budget.status.conditions,
        disruptions_allowed=max(0, healthy - desired) if expected > 0 else 0,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disrupted_pods=disrupted or None,
        observed_generation=budget.metadata.generation,
    )


def written(status: PodDisruptionBudgetStatus, now: str) -> dict[str, Any]:
    """A status as it is written, with the condition DisruptionAllowed as of `now`, RFC 3339."""
    allowed, failure = status.disruptions_allowed > 0, sync_failure(status)
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": status.observed_generation or 0,
        "lastTransitionTime": now,
        "reason": SYNC_FAILED if failure else "SufficientPods" if allowed else "InsufficientPods",
        "message": failure.message if failure else "",
    }
    return {**dict.fromkeys(_COUNTED, 0), **msgspec.to_builtins(status), "conditions": [condition]}


def _desired(spec: PodDisruptionBudgetSpec, covered: int, scale: Callable[[], int]) -> tuple[int, int]:
    """How many pods are expected, and how many of them must be healthy. Raises ValueError."""
    expected = scale() if needs_scale(spec) else covered
    if spec.max_unavailable is not None:
        return expected, max(0, expected - share(spec.max_unavailable, expected))
    return expected, share(spec.min_available or 0, expected)


def asks_no_budget(pod: Pod) -> bool:
    """Whether evicting the pod asks no budget: it is leaving already, or does not run (`canIgnorePDB`)."""
    return bool(pod.metadata.deletion_timestamp) or pod.status.phase in ("Pending", "Succeeded", "Failed")


def budget_to_spend(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> PodDisruptionBudget | None:
    """Which of the budgets that cover a pod must have a disruption left; None if its eviction costs none.

    Raises BudgetRefusalError (500) if several cover it.
    """
    if asks_no_budget(pod) or not budgets:
        return None
    if len(budgets) > 1:
        raise BudgetRefusalError(500, _SEVERAL)
    [budget] = budgets
    status = budget.status
    enough = 0 < status.desired_healthy <= status.current_healthy
    if not is_ready(pod) and (enough or budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"):
        return None
    return budget


def spent(budget: PodDisruptionBudget, pod: str, now: float) -> PodDisruptionBudgetStatus:
    """A budget's status after the eviction of a pod (`checkAndDecrement`). Raises BudgetRefusalError (429, 403)."""
    status, name = budget.status, budget.metadata.name
    if (status.observed_generation or 0) < (budget.metadata.generation or 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise BudgetRefusalError(429, text, _PROCESSING_SECONDS)
    if status.disruptions_allowed < 0:
        raise BudgetRefusalError(403, "pdb disruptions allowed is negative")
    if len(status.disrupted_pods or ()) > _MOST_UNCONFIRMED:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise BudgetRefusalError(403, text)
    if status.disruptions_allowed == 0:
        text = "does not allow evicting pods currently"
        if failure := sync_failure(status):
            text += f" because it failed sync: {failure.message}"
        elif status.current_healthy <= status.desired_healthy:
            text = f"needs {status.desired_healthy} healthy pods and has {status.current_healthy} currently"
        raise BudgetRefusalError(429, f"The disruption budget {name} {text}")
    disrupted = {**(status.disrupted_pods or {}), pod: rfc3339(now)}
    return msgspec.structs.replace(status, disruptions_allowed=status.disruptions_allowed - 1, disrupted_pods=disrupted)
