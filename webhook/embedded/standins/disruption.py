"""The disruption controller: what every PodDisruptionBudget's status says.

Mirrors `pkg/controller/disruption`: expected pods from the scale of their controllers, healthy ones by their
condition Ready, and pods whose eviction was granted counted as gone until they are, or for two minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from webhook.embedded.server.eviction import budget_condition
from webhook.embedded.standins.controller import CONFLICT, NOT_FOUND, Controller, StandInInformers, Unstructured
from webhook.embedded.standins.podcontrol import is_ready
from webhook.kube.client import ApiError, Client
from webhook.kube.informer import Change, Informer
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects import Pod, PodDisruptionBudget
from webhook.kube.pods import controller_of
from webhook.kube.resources import (
    DEPLOYMENT,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

__all__ = ["DisruptionController"]

CONFIRMATION_SECONDS = 120.0
"""How long an evicted pod counts as gone although it is still there."""
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
            disrupted = self._unconfirmed(key, pods, known.get("disruptedPods") or {})
            expected, desired = self._expected(budget, pods)
            ready = [pod.metadata.name for pod in pods if is_ready(pod) and not pod.metadata.deletion_timestamp]
            healthy = sum(1 for name in ready if name not in disrupted)
            generation = current["metadata"].get("generation", 0)
            status: dict[str, Any] = {"observedGeneration": generation}
            if disrupted:
                status["disruptedPods"] = disrupted
            status["disruptionsAllowed"] = max(0, healthy - desired) if expected > 0 else 0
            status |= {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected}
            status["conditions"] = known.get("conditions") or []
            status["conditions"] = [budget_condition(status, generation, rfc3339(time.time()))]
            if status != known:
                await self._client.replace(path + "/status", {**current, "status": status})
        except ApiError as error:
            if error.status == CONFLICT:
                self._queue.add(key)
            elif error.status != NOT_FOUND:
                raise

    def _unconfirmed(self, key: str, pods: list[Pod], disrupted: Mapping[str, str]) -> dict[str, str]:
        """Granted evictions whose pods are there still and not ending, for as long as they are waited for."""
        present = {pod.metadata.name for pod in pods if not pod.metadata.deletion_timestamp}
        left = {
            name: epoch(since) + CONFIRMATION_SECONDS - time.time()
            for name, since in disrupted.items()
            if name in present
        }
        waiting = {name: seconds for name, seconds in left.items() if seconds > 0}
        if waiting:
            self._queue.add_after(key, min(waiting.values()) + 1)
        return {name: disrupted[name] for name in waiting}

    def _expected(self, budget: PodDisruptionBudget, pods: list[Pod]) -> tuple[int, int]:
        """Expected pods and how many of them must be healthy."""
        spec = budget.spec
        if spec.max_unavailable is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - _share(spec.max_unavailable, expected))
        if isinstance(spec.min_available, int):
            return len(pods), spec.min_available
        if spec.min_available is not None:
            expected = self._scale(pods)
            return expected, _share(spec.min_available, expected)
        return len(pods), 0

    def _scale(self, pods: list[Pod]) -> int:
        """The sum of the scales of the pods' controllers."""
        scales: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid in scales:
                continue
            namespace, kind, name, uid = pod.metadata.namespace, owner.kind, owner.name, owner.uid
            while kind in self._scales:
                scaled = self._scales[kind].get(f"{namespace}/{name}")
                if scaled is None:
                    break
                above = controller_of(scaled.metadata)
                if above is None or above.kind not in self._scales:
                    scales[uid] = scaled.replicas
                    break
                kind, name, uid = above.kind, above.name, above.uid
        return sum(scales.values())


def _share(amount: int | str, of: int) -> int:
    """An absolute number, or a percentage rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(int(amount[:-1]) * of / 100)
    return int(amount)
