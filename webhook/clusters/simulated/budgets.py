"""Disruption budgets: what the Eviction API asks of them, and what their controller writes, in virtual time.

What they say is `webhook.clusters.model.disruption`; here the pods of each budget are counted as they change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from webhook.clusters.model.disruption import (
    BLOCKED,
    BudgetRefusalError,
    NoScaleError,
    WorkloadScale,
    budget_status,
    budget_to_spend,
    expected_pods,
    needs_scale,
    spent,
    unconfirmed,
)
from webhook.clusters.model.pods import is_ready
from webhook.clusters.simulated.clock import Timers
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus
from webhook.kube.pods import SCALED, controller_of, sync_failure
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

_WITHOUT_SCALE = frozenset({"DaemonSet", "Job", "Node"})


@dataclass(slots=True)
class _Covered:
    """The pods of one budget: those that are healthy, how many there are, and of which controllers."""

    matches: Matcher
    healthy: dict[str, bool] = field(default_factory=dict)
    owners: Counter[tuple[str, str]] = field(default_factory=Counter)
    owner_of: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, key: str, pod: Pod) -> None:
        self.drop(key)
        self.healthy[key] = is_ready(pod) and not pod.metadata.deletion_timestamp
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

    def __init__(self, tracker: ObjectTracker, timers: Timers) -> None:
        self._tracker, self._clock, self._timers = tracker, timers.clock, timers
        self._covered: dict[str, dict[str, _Covered]] = {}
        """Namespace to budgets by key."""
        self._scaled = set(SCALED)
        """Kinds of controllers with a scale: Kubernetes' own, and those whose pods a budget has counted."""
        self._due: dict[str, None] = {}
        tracker.hook("Pod", self._pod_changed)
        tracker.hook("PodDisruptionBudget", self._budget_changed)

    def fill(self) -> None:
        """Take in the budgets that are there, and their pods. Their status stays as it was told."""
        namespaces: dict[str, dict[str, Pod]] = {}
        for key, pod in self._tracker.all("Pod").items():
            namespaces.setdefault(pod.metadata.namespace, {})[key] = pod
        for key, budget in self._tracker.all("PodDisruptionBudget").items():
            covered = self._cover(key, budget, namespaces.get(budget.metadata.namespace, {}))
            if needs_scale(budget.spec) and budget.status.expected_pods and not sync_failure(budget.status):
                self._scaled |= {kind for kind, _ in covered.owners} - _WITHOUT_SCALE
            if budget.status.disrupted_pods:
                waiting = unconfirmed(budget.status.disrupted_pods, budget.status.disrupted_pods, self._clock.wall())
                self._timers.later(min(waiting.values(), default=0.0) + 1, self._plan, key)

    def spend(self, pod: Pod, now: float, *, dry_run: bool = False) -> None:
        """Take one disruption of the pod's budget, if it has one. Raises ApiError (403, 429, 500) if it may not go."""
        labels = pod.metadata.labels or {}
        keys = [
            key for key, covered in self._covered.get(pod.metadata.namespace, {}).items() if covered.matches(labels)
        ]
        try:
            budget = budget_to_spend(pod, [self._tracker.get("PodDisruptionBudget", key) for key in keys])
            if budget is not None:
                status = spent(budget, pod.metadata.name, now)
                if not dry_run:
                    self._write(budget, status)
        except BudgetRefusalError as refusal:
            raise _refusal(refusal) from refusal

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
        elif change.old.status.disrupted_pods != change.new.status.disrupted_pods:
            self._plan(change.key)

    def _cover(self, key: str, budget: PodDisruptionBudget, pods: dict[str, Pod]) -> _Covered:
        """Follow a budget; `pods` are those of its namespace."""
        try:
            matches = label_matcher(budget.spec.selector)
        except SelectorError:
            matches = nothing
        covered = self._covered.setdefault(budget.metadata.namespace, {})[key] = _Covered(matches)
        for pod_key, pod in pods.items():
            if covered.matches(pod.metadata.labels or {}):
                covered.put(pod_key, pod)
        return covered

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
            namespace = budget.metadata.namespace
            covered = self._covered[namespace][key]
            granted = budget.status.disrupted_pods or {}
            there = [name for name in granted if self._stays(f"{namespace}/{name}")]
            waiting = unconfirmed(granted, there, self._clock.wall())
            if waiting:
                self._timers.later(min(waiting.values()) + 1, self._plan, key)
            disrupted = {name: granted[name] for name in waiting}
            healthy = sum(covered.healthy.values())
            healthy -= sum(covered.healthy.get(f"{namespace}/{name}", False) for name in disrupted)
            scale = partial(self._scale, covered.owners)
            self._write(budget, budget_status(budget, len(covered.healthy), healthy, scale, disrupted))

    def _stays(self, key: str) -> bool:
        """Whether a pod is there and not leaving."""
        pod = self._tracker.pod(key)
        return pod is not None and not pod.metadata.deletion_timestamp

    def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status != budget.status:
            self._tracker.put("PodDisruptionBudget", msgspec.structs.replace(budget, status=status))

    def _scale(self, owners: Counter[tuple[str, str]]) -> int:
        for kind, _ in owners:
            if kind not in self._scaled:
                raise NoScaleError(f"{kind} does not implement the scale subresource")
        return expected_pods(owners, self._scale_of)

    def _scale_of(self, kind: str, key: str) -> WorkloadScale | None:
        known = self._tracker.get(kind, key)
        if known is None:
            return None
        return WorkloadScale(1 if known.spec.replicas is None else known.spec.replicas, controller_of(known.metadata))


def _refusal(refusal: BudgetRefusalError) -> ApiError:
    """As the API server answers it."""
    if refusal.code != 429:
        reason = {403: "Forbidden", 500: "InternalError"}[refusal.code]
        return ApiError(refusal.code, reason, refusal.text)
    details = {"causes": [{"reason": "DisruptionBudget", "message": refusal.text}]}
    return ApiError(429, "TooManyRequests", f"{BLOCKED} {refusal.text}", details=details)
