"""The disruption controller: what every PodDisruptionBudget's status says, and which budgets cover a pod.

It counts as `webhook.clusters.model.disruption` says; the pods of each budget are kept as they change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from webhook.clusters.acting.controller import Controller, ControllerContext
from webhook.clusters.model.disruption import budget_status, unconfirmed, written
from webhook.clusters.model.pods import is_ready
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import controller_of
from webhook.kube.resources import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing

_FACTS = attrgetter("metadata.generation", "status.disrupted_pods")
"""What a budget's status follows, beside its spec."""
SCALED = (REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER, DEPLOYMENT)


@dataclass(slots=True)
class Covered:
    """The pods of one budget by key, and the keys of those that are healthy."""

    matches: Matcher
    pods: dict[str, Pod] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)

    def put(self, key: str, pod: Pod | None) -> None:
        """Count a pod as it is now, one that is gone (None) no more."""
        self.pods.pop(key, None)
        self.healthy.discard(key)
        if pod is not None:
            self.pods[key] = pod
            if is_ready(pod) and not pod.metadata.deletion_timestamp:
                self.healthy.add(key)

    def owners(self) -> dict[tuple[str, str], list[tuple[OwnerReference, Pod]]]:
        """The pods with a controller, by its kind and name."""
        rows: dict[tuple[str, str], list[tuple[OwnerReference, Pod]]] = {}
        for pod in self.pods.values():
            if (owner := controller_of(pod.metadata)) is not None:
                rows.setdefault((owner.kind, owner.name), []).append((owner, pod))
        return rows


class DisruptionController(Controller):
    """Keeps the status of every budget.

    `check_scale(apiVersion, kind, orphan)` raises NoScaleError for a controller whose scale nobody knows; `orphan` is
    the name of one of its pods if there is no such workload, else empty.
    """

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
        elif _FACTS(old) == _FACTS(new):
            return
        self.add(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        new = change.new
        for key, covered in self._covered.get(change.key.partition("/")[0], {}).items():
            pod = new if new is not None and covered.matches(new.metadata.labels or {}) else None
            if pod is not None or change.key in covered.pods:
                covered.put(change.key, pod)
                self.add(key)

    def _scale_changed(self, change: Change[Any]) -> None:
        if change.old is None or change.new is None or change.old.spec.wanted != change.new.spec.wanted:
            for key in self._covered.get(change.key.partition("/")[0], ()):
                self.add(key)

    async def sync(self, key: str) -> None:
        """Write the status of one budget, if it changed."""
        budget = self.budgets.get(key)
        if budget is None:
            return
        namespace, now, covered = budget.metadata.namespace, self.context.clock.wall(), self.covered_by(key)
        granted = budget.status.disrupted_pods or {}
        pods = {name: self._pods.get(f"{namespace}/{name}") for name in granted}
        there = [name for name, pod in pods.items() if pod is not None and not pod.metadata.deletion_timestamp]
        waiting = unconfirmed(granted, there, now)
        if waiting:
            self.add_after(key, min(waiting.values()) + 1)
        healthy = len(covered.healthy.difference(f"{namespace}/{name}" for name in waiting))
        disrupted = {name: granted[name] for name in waiting}
        counted = budget_status(
            budget, len(covered.pods), healthy, lambda: self._expected(namespace, covered), disrupted
        )
        is_told = bool(budget.status.conditions) or self.context.is_simulated
        if is_told and written(counted, "") == written(budget.status, ""):
            return
        gone = dict.fromkeys(name for name in granted if name not in (counted.disrupted_pods or {}))
        status = written(counted, rfc3339(now)) | {"disruptedPods": {**(counted.disrupted_pods or {}), **gone} or None}
        body = {"metadata": {"resourceVersion": budget.metadata.resource_version}, "status": status}
        path = POD_DISRUPTION_BUDGET.path(namespace, budget.metadata.name, "status")
        await unless_absent(self._client.patch(path, body, kind="merge"))

    def _expected(self, namespace: str, covered: Covered) -> int:
        """How many pods the workloads on top of a budget's pods are to have together (`getExpectedScale`).

        One that is not known counts as having as many as it should. Raises NoScaleError.
        """
        expected: dict[tuple[str, str], int] = {}
        for (kind, name), pods in covered.owners().items():
            workload, wanted = self._workload(kind, namespace, name), len(pods)
            owner, pod = pods[0]
            self._check_scale(owner.api_version, kind, "" if workload is not None else pod.metadata.name)
            on_top = kind, name
            while workload is not None:
                wanted, above = workload.spec.wanted, controller_of(workload.metadata)
                if above is None or above.kind not in self._scales:
                    break
                on_top = above.kind, above.name
                workload = self._workload(above.kind, namespace, above.name)
            expected[on_top] = max(expected.get(on_top, 0), wanted)
        return sum(expected.values())

    def _workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        cache = self._scales.get(kind)
        return cache.get(f"{namespace}/{name}") if cache is not None else None
