"""The Deployment controller: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable."""

from __future__ import annotations

import copy
import time
from typing import Any

from webhook.clusters.embedded.standins.controller import (
    CONFLICT,
    Controller,
    StandInInformers,
    Unstructured,
    tolerating,
)
from webhook.clusters.embedded.standins.podcontrol import owner_reference, put_status
from webhook.clusters.model.deployments import ReplicaCounts, RolloutStrategy, rollout_step, scaled_step, strategy_of
from webhook.clusters.model.pods import template_hash
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH
from webhook.kube.resources import DEPLOYMENT, POD, REPLICA_SET, Resource

REVISION = "deployment.kubernetes.io/revision"


class DeploymentController(Controller):
    """Rolls out every Deployment."""

    name = "deployment"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._deployments = informers.watch_keys(DEPLOYMENT, Unstructured, self._queue.add)
        self._sets = informers.cache(REPLICA_SET, Unstructured)
        self._sets.handlers.append(self._set_changed)
        self._of_owner: dict[str, dict[str, Unstructured]] = {}
        self._pods = informers.cache(POD, Pod)
        self._pods.handlers.append(self._pod_changed)

    def _set_changed(self, change: Change[Unstructured]) -> None:
        known = change.new or change.old
        assert known is not None
        for owner in known.metadata.owner_references or ():
            if owner.kind != DEPLOYMENT.kind or not owner.controller:
                continue
            rows = self._of_owner.setdefault(owner.uid, {})
            if change.new is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.new
            self._queue.add(f"{known.metadata.namespace}/{owner.name}")

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Look at a Deployment again whose pod is gone: strategy Recreate waits for that."""
        if change.new is not None or change.old is None:
            return
        metadata = change.old.metadata
        for owner in metadata.owner_references or ():
            replica_set = self._sets.get(f"{metadata.namespace}/{owner.name}")
            for above in (replica_set.metadata.owner_references if replica_set else None) or ():
                self._queue.add(f"{metadata.namespace}/{above.name}")

    async def sync(self, key: str) -> None:
        """Make the newest replica set, move replicas to it, and write the status."""
        deployment = self._deployments.get(key)
        if deployment is None:
            return
        sets = list(self._of_owner.get(deployment.metadata.uid, {}).values())
        digest = template_hash(deployment.spec["template"])
        current = next(
            (replica_set for replica_set in sets if (replica_set.metadata.labels or {}).get(TEMPLATE_HASH) == digest),
            None,
        )
        others = [replica_set for replica_set in sets if replica_set is not current]
        if not deployment.metadata.deletion_timestamp:
            if deployment.spec.get("paused"):
                await self._scale_paused(deployment, [*([current] if current else ()), *others])
            elif current is None:
                await self._create(deployment, digest, sets)
            else:
                # The rollout is counted in what `kubectl rollout` reads, also when an old template came back.
                latest = _revision([current])
                if latest <= _revision(others):
                    latest = _revision(others) + 1
                    await self._annotate(REPLICA_SET, current, latest)
                if (deployment.metadata.annotations or {}).get(REVISION) != str(latest):
                    await self._annotate(DEPLOYMENT, deployment, latest)
                await self._roll(deployment, current, others)
        await put_status(self._client, DEPLOYMENT, deployment, _status(deployment, current, sets))

    async def _create(self, deployment: Unstructured, digest: str, sets: list[Unstructured]) -> None:
        """Make the replica set of the present template."""
        template = copy.deepcopy(deployment.spec["template"])
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[TEMPLATE_HASH] = digest
        selector = copy.deepcopy(deployment.spec["selector"])
        selector.setdefault("matchLabels", {})[TEMPLATE_HASH] = digest
        name, strategy = f"{deployment.metadata.name}-{digest}", _strategy(deployment)
        others = [_counts(replica_set) for replica_set in sets]
        step = rollout_step(
            deployment.replicas, strategy, ReplicaCounts(name, 0, 0), others, has_old_pods=self._has_pods(sets)
        )
        body = {
            "apiVersion": REPLICA_SET.api_version,
            "kind": REPLICA_SET.kind,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {REVISION: str(_revision(sets) + 1)},
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {"replicas": step.get(name, 0), "selector": selector, "template": template},
        }
        with tolerating(CONFLICT):
            await self._client.create(REPLICA_SET.path(deployment.metadata.namespace), body)

    async def _annotate(self, resource: Resource, replica_set: Unstructured, revision: int) -> None:
        path = resource.path(replica_set.metadata.namespace, replica_set.metadata.name)
        await self._client.patch(path, {"metadata": {"annotations": {REVISION: str(revision)}}})

    async def _roll(self, deployment: Unstructured, current: Unstructured, others: list[Unstructured]) -> None:
        """Scale the replica sets by one step of the rollout."""
        by_name = {
            replica_set.metadata.name: replica_set for replica_set in [current, *sorted(others, key=_revision_of)]
        }
        newest, *older = (_counts(replica_set) for replica_set in by_name.values())
        strategy = _strategy(deployment)
        has_old_pods = strategy.recreate and self._has_pods(others)
        step = rollout_step(deployment.replicas, strategy, newest, older, has_old_pods=has_old_pods)
        for name, replicas in step.items():
            await self._scale(by_name[name], replicas)

    async def _scale_paused(self, deployment: Unstructured, sets: list[Unstructured]) -> None:
        """Scale the replica sets of a deployment whose rollout stands."""
        counts = [_counts(replica_set) for replica_set in sets]
        step = scaled_step(deployment.replicas, _strategy(deployment), counts)
        for replica_set in sets:
            if replica_set.metadata.name in step:
                await self._scale(replica_set, step[replica_set.metadata.name])

    def _has_pods(self, sets: list[Unstructured]) -> bool:
        """Whether a pod of these replica sets is there still."""
        uids = {replica_set.metadata.uid for replica_set in sets}
        pods = self._pods.items().values()
        return any(owner.uid in uids for pod in pods for owner in pod.metadata.owner_references or ())

    async def _scale(self, replica_set: Unstructured, replicas: int) -> None:
        metadata = replica_set.metadata
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "spec": {"replicas": replicas}}
        with tolerating(CONFLICT):
            await self._client.patch(REPLICA_SET.path(metadata.namespace, metadata.name), body)


def _available(replica_set: Unstructured) -> int:
    return int(replica_set.status.get("availableReplicas", 0))


def _revision_of(replica_set: Unstructured) -> int:
    return int((replica_set.metadata.annotations or {}).get(REVISION, "0"))


def _revision(sets: list[Unstructured]) -> int:
    return max(map(_revision_of, sets), default=0)


def _counts(replica_set: Unstructured) -> ReplicaCounts:
    return ReplicaCounts(replica_set.metadata.name, replica_set.replicas, _available(replica_set))


def _strategy(deployment: Unstructured) -> RolloutStrategy:
    return strategy_of(deployment.spec.get("strategy"), deployment.replicas)


def _status(deployment: Unstructured, current: Unstructured | None, sets: list[Unstructured]) -> dict[str, Any]:
    """The status of a deployment, from those of its replica sets."""
    total = {
        key: sum(int(replica_set.status.get(key, 0)) for replica_set in sets) for key in ("replicas", "readyReplicas")
    }
    available = sum(map(_available, sets))
    updated = int(current.status.get("replicas", 0)) if current else 0
    counts = {
        "replicas": total["replicas"],
        "updatedReplicas": updated,
        "readyReplicas": total["readyReplicas"],
        "availableReplicas": available,
        "unavailableReplicas": max(0, total["replicas"] - available, deployment.replicas - available),
    }
    status: dict[str, Any] = {"observedGeneration": deployment.metadata.generation or 0}
    status |= {key: value for key, value in counts.items() if value}
    enough = available >= deployment.replicas - _strategy(deployment).unavailable
    complete = updated == total["replicas"] == available == deployment.replicas
    new_set = f'ReplicaSet "{current.metadata.name}"' if current else "a new ReplicaSet"
    status["conditions"] = [
        _condition(
            deployment,
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
        _condition(
            deployment,
            "Progressing",
            "True",
            "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
            f"{new_set} {'has successfully progressed' if complete else 'is progressing'}.",
        ),
    ]
    return status


def _condition(deployment: Unstructured, type_: str, value: str, reason: str, message: str) -> dict[str, Any]:
    known: dict[str, Any] = next(
        (condition for condition in deployment.status.get("conditions") or () if condition["type"] == type_), {}
    )
    now = rfc3339(time.time())
    same = {"status": value, "reason": reason, "message": message}
    return {
        "type": type_,
        "status": value,
        "lastUpdateTime": known["lastUpdateTime"] if same.items() <= known.items() else now,
        "lastTransitionTime": known["lastTransitionTime"] if known.get("status") == value else now,
        "reason": reason,
        "message": message,
    }
