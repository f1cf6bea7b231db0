"""The disruption controller: what every PodDisruptionBudget's status says, and which budgets cover a pod.

It counts as `webhook.clusters.model.disruption` says; the pods of each budget are counted as they change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, Controller, ControllerContext, Json
from webhook.clusters.model.disruption import WorkloadScale, budget_status, expected_pods, unconfirmed
from webhook.clusters.model.pods import is_ready
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import Condition
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus
from webhook.kube.pods import controller_of, sync_failure
from webhook.kube.resources import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

SCALED = (REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER, DEPLOYMENT)
_AGAIN_SECONDS = 0.05
Owner = tuple[str, str]
"""Kind and key of a controller."""


@dataclass(slots=True)
class Covered:
    """The pods of one budget: those that are healthy, how many there are, and of which controllers."""

    matches: Matcher
    healthy: dict[str, bool] = field(default_factory=dict)
    owners: Counter[Owner] = field(default_factory=Counter)
    owner_of: dict[str, Owner] = field(default_factory=dict)
    versions: dict[Owner, str] = field(default_factory=dict)
    """`apiVersion` of the controllers."""

    def put(self, key: str, pod: Pod) -> None:
        """Count a pod."""
        self.drop(key)
        self.healthy[key] = is_ready(pod) and not pod.metadata.deletion_timestamp
        owner = controller_of(pod.metadata)
        if owner is not None:
            own = self.owner_of[key] = owner.kind, f"{pod.metadata.namespace}/{owner.name}"
            self.owners[own] += 1
            self.versions[own] = owner.api_version

    def drop(self, key: str) -> None:
        """Count a pod no more."""
        self.healthy.pop(key, None)
        owner = self.owner_of.pop(key, None)
        if owner is not None:
            self.owners[owner] -= 1
            if not self.owners[owner]:
                del self.owners[owner]


class DisruptionController(Controller):
    """Keeps the status of every budget.

    `check_scale(apiVersion, kind, orphan)` raises NoScaleError for a controller whose scale nobody knows; `orphan` is
    the name of one of its pods if there is no such workload, else empty.
    """

    name = "disruption"

    def __init__(
        self, context: ControllerContext, client: Client, check_scale: Callable[[str, str, str], None]
    ) -> None:
        super().__init__(context)
        self._client = client
        self._check_scale = check_scale
        self._pods = context.pods.cache
        self._scales: dict[str, ObjectCache[Any]] = {row.kind: context.workloads(row) for row in SCALED}
        self._covered: dict[str, dict[str, Covered]] = {}
        """Namespace to budgets by key."""
        self.budgets = context.informers.cache(POD_DISRUPTION_BUDGET, PodDisruptionBudget)
        self.budgets.handlers.append(self._budget_changed)
        self._pods.handlers.append(self._pod_changed)
        for cache in self._scales.values():
            cache.handlers.append(self._scale_changed)

    def covering(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that cover a pod."""
        labels = pod.metadata.labels or {}
        rows = self._covered.get(pod.metadata.namespace, {})
        known = (self.budgets.get(key) for key, covered in rows.items() if covered.matches(labels))
        return [budget for budget in known if budget is not None]

    def covered_by(self, key: str) -> Covered:
        """The pods of the budget of that key."""
        return self._covered[key.partition("/")[0]][key]

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        old, new = change.old, change.new
        rows = self._covered.setdefault(change.key.partition("/")[0], {})
        if new is None:
            rows.pop(change.key, None)
            return
        if old is None or old.spec != new.spec:
            try:
                matches = label_matcher(new.spec.selector)
            except SelectorError:
                matches = nothing
            covered = rows[change.key] = Covered(matches)
            prefix = f"{new.metadata.namespace}/"
            for key, pod in self._pods.items().items():
                if key.startswith(prefix) and matches(pod.metadata.labels or {}):
                    covered.put(key, pod)
        elif old.metadata.generation == new.metadata.generation and (
            old.status.disrupted_pods == new.status.disrupted_pods
        ):
            return
        self.queue.add(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for key, covered in self._covered.get(change.key.partition("/")[0], {}).items():
            if change.new is not None and covered.matches(change.new.metadata.labels or {}):
                covered.put(change.key, change.new)
            elif change.key in covered.healthy:
                covered.drop(change.key)
            else:
                continue
            self.queue.add(key)

    def _scale_changed(self, change: Change[Any]) -> None:
        if change.old is None or change.new is None or change.old.spec.wanted != change.new.spec.wanted:
            for key in self._covered.get(change.key.partition("/")[0], ()):
                self.queue.add(key)

    async def sync(self, key: str) -> None:
        """Write the status of one budget, if it changed."""
        budget = self.budgets.get(key)
        if budget is None:
            return
        namespace, now = budget.metadata.namespace, self.context.clock.wall()
        covered = self.covered_by(key)
        granted = budget.status.disrupted_pods or {}
        pods = {name: self._pods.get(f"{namespace}/{name}") for name in granted}
        there = [name for name, pod in pods.items() if pod is not None and not pod.metadata.deletion_timestamp]
        waiting = unconfirmed(granted, there, now)
        if waiting:
            self.queue.add_after(key, min(waiting.values()) + 1)
        disrupted = {name: granted[name] for name in waiting}
        healthy = sum(covered.healthy.values())
        healthy -= sum(covered.healthy.get(f"{namespace}/{name}", False) for name in disrupted)
        counted = budget_status(budget, len(covered.healthy), healthy, lambda: self._scale(covered), disrupted)
        if _says(counted) == _says(budget.status) and (budget.status.conditions or not self.context.reports):
            return
        body = {
            "metadata": {"resourceVersion": budget.metadata.resource_version},
            "status": written_status(counted, budget.status, rfc3339(now)),
        }
        try:
            path = POD_DISRUPTION_BUDGET.path(namespace, budget.metadata.name, "status")
            await self._client.patch(path, body, kind="merge")
        except ApiError as error:
            if error.status == CONFLICT:
                self.queue.add_after(key, _AGAIN_SECONDS)
            elif error.status != NOT_FOUND:
                raise

    def _scale(self, covered: Covered) -> int:
        """The sum of the scales of the controllers (`getExpectedScale`). Raises NoScaleError."""
        for owner in covered.owners:
            orphan = ""
            if self._scale_of(*owner) is None:
                orphan = next(pod for pod, own in covered.owner_of.items() if own == owner).partition("/")[2]
            self._check_scale(covered.versions[owner], owner[0], orphan)
        return expected_pods(covered.owners, self._scale_of)

    def _scale_of(self, kind: str, key: str) -> WorkloadScale | None:
        cache = self._scales.get(kind)
        workload = cache.get(key) if cache is not None else None
        return None if workload is None else WorkloadScale(workload.spec.wanted, controller_of(workload.metadata))


def _says(status: PodDisruptionBudgetStatus) -> Json:
    """What a status says, but for times: two that say the same are not written twice."""
    failure = sync_failure(status)
    return status_fields(status) | {"failure": failure.message if failure else ""}


def written_status(status: PodDisruptionBudgetStatus, before: PodDisruptionBudgetStatus, now: str) -> Json:
    """A budget's status as a merge patch of the one before; `now` is RFC 3339."""
    gone = dict.fromkeys(name for name in before.disrupted_pods or () if name not in (status.disrupted_pods or {}))
    failure = sync_failure(status)
    fields = status_fields(status) | {"disruptedPods": {**(status.disrupted_pods or {}), **gone} or None}
    return {**fields, "conditions": [budget_condition(status, now, failure)]}


def status_fields(status: PodDisruptionBudgetStatus) -> Json:
    """A budget's status as it is written, but for its conditions."""
    fields: Json = {
        "observedGeneration": status.observed_generation or 0,
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    }
    if status.disrupted_pods:
        fields["disruptedPods"] = status.disrupted_pods
    return fields


def budget_condition(status: PodDisruptionBudgetStatus, now: str, failure: Condition | None = None) -> Json:
    """The condition DisruptionAllowed for a budget's status; `failure` says why the budget could not be counted."""
    allowed = status.disruptions_allowed > 0
    return {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": status.observed_generation or 0,
        "lastTransitionTime": now,
        "reason": failure.reason if failure else "SufficientPods" if allowed else "InsufficientPods",
        "message": failure.message if failure else "",
    }
