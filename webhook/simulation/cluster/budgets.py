"""Disruption budgets: what the Eviction API asks of them, and what their controller writes.

Mirrors `registry/core/pod/storage/eviction.go` and `pkg/controller/disruption` as far as they decide.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus
from webhook.kube.pods import controller_of
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.simulation.cluster.tracker import ObjectTracker

__all__ = ["Budgets", "share"]

_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_SCALED = ("ReplicaSet", "StatefulSet", "ReplicationController", "Deployment")


@dataclass(slots=True)
class _Covered:
    """The pods of one budget: those that are healthy, how many there are, and of which controllers."""

    matches: Matcher
    healthy: dict[str, bool] = field(default_factory=dict)
    owners: Counter[tuple[str, str]] = field(default_factory=Counter)
    owner_of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, key: str, pod: Pod) -> None:
        self.drop(key)
        self.healthy[key] = _is_ready(pod) and not pod.metadata.deletion_timestamp
        owner = controller_of(pod.metadata)
        if owner is not None:
            self.owner_of[key] = owner.kind, f"{pod.metadata.namespace}/{owner.name}"
            self.owners[self.owner_of[key]] += 1

    def drop(self, key: str) -> None:
        self.healthy.pop(key, None)
        owner = self.owner_of.pop(key, None)
        if owner is not None:
            self.owners[owner] -= 1
            if not self.owners[owner]:
                del self.owners[owner]


class Budgets:
    """Follows the pods of every budget and keeps its status, one turn of the loop after what changes it."""

    def __init__(self, tracker: ObjectTracker) -> None:
        self._tracker = tracker
        self._covered: dict[str, dict[str, _Covered]] = {}
        """Namespace to budgets by key."""
        self._due: dict[str, None] = {}
        tracker.hook("Pod", self._pod_changed)
        tracker.hook("PodDisruptionBudget", self._budget_changed)

    def fill(self) -> None:
        """Take in the budgets that are there, and their pods. Their status stays as it was told."""
        namespaces: dict[str, dict[str, Pod]] = {}
        for key, pod in self._tracker.all("Pod").items():
            namespaces.setdefault(pod.metadata.namespace, {})[key] = pod
        for key, budget in self._tracker.all("PodDisruptionBudget").items():
            self._cover(key, budget, namespaces.get(budget.metadata.namespace, {}))

    def spend(self, pod: Pod, now: float, *, dry_run: bool = False) -> None:
        """Take one disruption of the pod's budget, if it has one. Raises ApiError (429, 500) if it may not go."""
        if pod.metadata.deletion_timestamp or pod.status.phase in {"Pending", "Succeeded", "Failed"}:
            return
        labels = pod.metadata.labels or {}
        keys = [key for key, one in self._covered.get(pod.metadata.namespace, {}).items() if one.matches(labels)]
        if len(keys) > 1:
            raise ApiError(500, "InternalError", _SEVERAL)
        if not keys:
            return
        budget: PodDisruptionBudget = self._tracker.get("PodDisruptionBudget", keys[0])
        status, name = budget.status, budget.metadata.name
        enough = 0 < status.desired_healthy <= status.current_healthy
        if not _is_ready(pod) and (enough or budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"):
            return
        if (status.observed_generation or 0) < (budget.metadata.generation or 0):
            raise _refusal(f"The disruption budget {name} is still being processed by the server.")
        if status.disruptions_allowed <= 0:
            has = f"needs {status.desired_healthy} healthy pods and has {status.current_healthy} currently"
            raise _refusal(f"The disruption budget {name} {has}")
        if dry_run:
            return
        disrupted = {**(status.disrupted_pods or {}), pod.metadata.name: rfc3339(now)}
        self._write(budget, disruptions_allowed=status.disruptions_allowed - 1, disrupted_pods=disrupted)

    def refresh(self, namespace: str) -> None:
        """Count again in a namespace: a workload was scaled."""
        for key in self._covered.get(namespace, ()):
            self._plan(key)

    def _budget_changed(self, change: Change[Any]) -> None:
        if change.new is None:
            self._covered.get(change.key.partition("/")[0], {}).pop(change.key, None)
        elif change.old is None or change.old.spec != change.new.spec:
            namespace = change.new.metadata.namespace
            pods = {key: pod for key, pod in self._tracker.all("Pod").items() if pod.metadata.namespace == namespace}
            self._cover(change.key, change.new, pods)
            self._plan(change.key)

    def _cover(self, key: str, budget: PodDisruptionBudget, pods: dict[str, Pod]) -> None:
        """Follow a budget; `pods` are those of its namespace."""
        try:
            matches = label_matcher(budget.spec.selector)
        except SelectorError:
            matches = nothing
        covered = self._covered.setdefault(budget.metadata.namespace, {})[key] = _Covered(matches)
        for pod_key, pod in pods.items():
            if covered.matches(pod.metadata.labels or {}):
                covered.put(pod_key, pod)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for key, covered in self._covered.get(change.key.partition("/")[0], {}).items():
            if change.new is not None and covered.matches(change.new.metadata.labels or {}):
                covered.put(change.key, change.new)
            elif change.key in covered.healthy:
                covered.drop(change.key)
            else:
                continue
            self._plan(key)

    def _plan(self, key: str) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._sync)
        self._due[key] = None

    def _sync(self) -> None:
        """Count the pods of the budgets for which something has changed (`trySync`)."""
        due, self._due = self._due, {}
        for key in due:
            budget = self._tracker.get("PodDisruptionBudget", key)
            if budget is None:
                continue
            spec, namespace = budget.spec, budget.metadata.namespace
            covered = self._covered[namespace][key]
            try:
                if spec.max_unavailable is not None:
                    expected = self._scale(covered)
                    desired = max(0, expected - share(spec.max_unavailable, expected))
                elif isinstance(spec.min_available, str):
                    expected = self._scale(covered)
                    desired = share(spec.min_available, expected)
                else:
                    expected, desired = len(covered.healthy), spec.min_available or 0
            except ValueError:
                self._write(budget, disruptions_allowed=0)  # an amount that cannot be read lets nobody go (`failSafe`)
                continue
            disrupted = {}
            for name, since in (budget.status.disrupted_pods or {}).items():
                pod = self._tracker.pod(f"{namespace}/{name}")
                if pod is not None and not pod.metadata.deletion_timestamp:
                    disrupted[name] = since
            healthy = sum(covered.healthy.values())
            healthy -= sum(covered.healthy.get(f"{namespace}/{name}", False) for name in disrupted)
            self._write(
                budget,
                disruptions_allowed=max(0, healthy - desired) if expected > 0 else 0,
                current_healthy=healthy,
                desired_healthy=desired,
                expected_pods=expected,
                disrupted_pods=disrupted or None,
                observed_generation=budget.metadata.generation,
            )

    def _write(self, budget: PodDisruptionBudget, **fields: Any) -> None:
        status: PodDisruptionBudgetStatus = msgspec.structs.replace(budget.status, **fields)
        if status != budget.status:
            self._tracker.put("PodDisruptionBudget", msgspec.structs.replace(budget, status=status))

    def _scale(self, covered: _Covered) -> int:
        """The sum of the scales of the pods' controllers; of one that is not known as many as there are pods."""
        counted: dict[tuple[str, str], int] = {}
        for (kind, key), pods in covered.owners.items():
            known, seen = self._tracker.get(kind, key) if kind in _SCALED else None, pods
            while known is not None:
                seen = 1 if known.spec.replicas is None else known.spec.replicas
                above = controller_of(known.metadata)
                if above is None or above.kind not in _SCALED:
                    break
                kind, key = above.kind, f"{known.metadata.namespace}/{above.name}"  # noqa: PLW2901
                known = self._tracker.get(kind, key)
            counted[kind, key] = max(counted.get((kind, key), 0), seen)
        return sum(counted.values())


def _is_ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def _refusal(why: str) -> ApiError:
    details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    return ApiError(429, "TooManyRequests", f"{_BLOCKED} {why}", details=details)


def share(amount: int | str, of: int) -> int:
    """An absolute number, or a percentage rounded up. Raises ValueError for a text that is neither."""
    try:
        if isinstance(amount, str) and amount.endswith("%"):
            return math.ceil(int(amount[:-1]) * of / 100)
        return int(amount)
    except ValueError:
        raise ValueError(f"{amount!r} is neither a number nor a percentage") from None
