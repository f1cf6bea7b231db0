"""The disruption controller: what every PodDisruptionBudget's status says.

It counts as `webhook.clusters.model.disruption` says, and writes what has changed.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

from webhook.clusters.embedded.apiserver.eviction import budget_condition, status_fields
from webhook.clusters.embedded.protocol.api_resources import by_kind
from webhook.clusters.embedded.standins.controller import (
    CONFLICT,
    NOT_FOUND,
    Controller,
    StandInInformers,
    Unstructured,
)
from webhook.clusters.model.disruption import (
    NoScaleError,
    WorkloadScale,
    budget_status,
    expected_pods,
    unconfirmed,
)
from webhook.clusters.model.pods import is_ready
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.informer import Informer
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import controller_of, sync_failure
from webhook.kube.resources import (
    DEPLOYMENT,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

SCALED = (REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER, DEPLOYMENT)


class DisruptionController(Controller):
    """Keeps the status of every budget."""

    name = "disruption"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._budgets = informers.cache(POD_DISRUPTION_BUDGET, PodDisruptionBudget)
        self._pods = informers.cache(POD, Pod)
        self._scales: dict[str, Informer[Any]] = {row.kind: informers.cache(row, Unstructured) for row in SCALED}
        self._selectors: dict[str, dict[str, Matcher]] = {}
        """Namespace to budget key to what it selects."""
        self._in_namespace: dict[str, dict[str, Pod]] = {}
        self._pods.handlers.append(self._pod_changed)
        self._budgets.handlers.append(self._budget_changed)
        for cache in self._scales.values():
            cache.handlers.append(self._scale_changed)

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        namespace = change.key.partition("/")[0]
        rows = self._selectors.setdefault(namespace, {})
        if change.new is None:
            rows.pop(change.key, None)
            return
        try:
            rows[change.key] = label_matcher(change.new.spec.selector)
        except SelectorError:
            rows[change.key] = nothing
        self._queue.add(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        pods = self._in_namespace.setdefault(namespace, {})
        if change.new is None:
            pods.pop(change.key, None)
        else:
            pods[change.key] = change.new
        states = [pod.metadata.labels or {} for pod in (change.old, change.new) if pod is not None]
        for key, matches in self._selectors.get(namespace, {}).items():
            if any(matches(labels) for labels in states):
                self._queue.add(key)

    def _scale_changed(self, change: Change[Unstructured]) -> None:
        if change.old is not None and change.new is not None and change.old.replicas == change.new.replicas:
            return
        for key in self._selectors.get(change.key.partition("/")[0], ()):
            self._queue.add(key)

    async def sync(self, key: str) -> None:
        """Write the status of one budget, if it changed."""
        budget = self._budgets.get(key)
        if budget is None:
            return
        namespace = budget.metadata.namespace
        path = POD_DISRUPTION_BUDGET.path(namespace, budget.metadata.name)
        try:
            current = await self._client.get(path)
            known = current.get("status") or {}
            selects = self._selectors[namespace][key]
            pods = [pod for pod in self._in_namespace.get(namespace, {}).values() if selects(pod.metadata.labels or {})]
            staying = {pod.metadata.name: is_ready(pod) for pod in pods if not pod.metadata.deletion_timestamp}
            granted = known.get("disruptedPods") or {}
            waiting = unconfirmed(granted, staying, time.time())
            if waiting:
                self._queue.add_after(key, min(waiting.values()) + 1)
            disrupted = {name: granted[name] for name in waiting}
            healthy = sum(ready for name, ready in staying.items() if name not in disrupted)
            fresh = msgspec.convert(current, PodDisruptionBudget)
            counted = budget_status(fresh, len(pods), healthy, lambda: self._scale(pods), disrupted)
            status: dict[str, Any] = {"conditions": known.get("conditions") or [], **status_fields(counted)}
            generation, failure = counted.observed_generation or 0, sync_failure(counted)
            status["conditions"] = [budget_condition(status, generation, rfc3339(time.time()), failure)]
            if status != known:
                await self._client.replace(path + "/status", {**current, "status": status})
        except ApiError as error:
            if error.status == CONFLICT:
                self._queue.add(key)
            elif error.status != NOT_FOUND:
                raise

    def _scale(self, pods: list[Pod]) -> int:
        """The sum of the scales of the pods' controllers. Raises NoScaleError (`getExpectedScale`)."""
        owners: Counter[tuple[str, str]] = Counter()
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None:
                continue
            resource, key = by_kind(owner.api_version, owner.kind), f"{pod.metadata.namespace}/{owner.name}"
            if resource is None:
                raise NoScaleError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
            if "scale" not in resource.sub:
                raise NoScaleError(f"{resource.qualified} does not implement the scale subresource")
            if self._scale_of(owner.kind, key) is None:
                raise NoScaleError(f'found no controllers for pod "{pod.metadata.name}"')
            owners[owner.kind, key] += 1
        return expected_pods(owners, self._scale_of)

    def _scale_of(self, kind: str, key: str) -> WorkloadScale | None:
        workload = self._scales[kind].get(key)
        return None if workload is None else WorkloadScale(workload.replicas, controller_of(workload.metadata))
