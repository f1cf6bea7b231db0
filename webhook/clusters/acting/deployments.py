"""The Deployment controller: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable."""

from __future__ import annotations

from collections.abc import Collection

from webhook.clusters.acting.controller import (
    CONFLICT,
    Controlled,
    Controller,
    ControllerContext,
    Json,
    owner_reference,
    put_status,
)
from webhook.clusters.model.deployments import ReplicaCounts, rollout_step, scaled_step, strategy_of
from webhook.clusters.model.pods import is_active, is_ready, template_hash
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH, controller_of
from webhook.kube.resources import DEPLOYMENT, REPLICA_SET

REVISION = "deployment.kubernetes.io/revision"


class DeploymentController(Controller):
    """Rolls out every Deployment. ReplicaSets of an earlier template go the oldest first, as their revisions say."""

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._deployments = self.watch_keys(DEPLOYMENT)
        self._sets = context.workloads(REPLICA_SET)
        self._controlled: Controlled[Workload] = Controlled(self._sets)
        self._controlled.follow(DEPLOYMENT.kind, self.add_owner)
        context.pods.follow(REPLICA_SET.kind, self._pod_changed)

    def _pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Look at a Deployment again that is being rolled out: a pod of it came up or is gone."""
        namespace = change.key.partition("/")[0]
        replica_set = self._sets.get(f"{namespace}/{owner.name}")
        above = controller_of(replica_set.metadata) if replica_set is not None else None
        if above is None or above.kind != DEPLOYMENT.kind:
            return
        deployment = self._deployments.get(f"{namespace}/{above.name}")
        if deployment is None or deployment.spec.paused:
            return
        sets = self._controlled.of(above.uid)
        if sum(bool(row.spec.wanted or self.context.pods.of(row.metadata.uid)) for row in sets) != 1:
            self.add_owner(above, change)

    async def sync(self, key: str) -> None:
        """Make the newest replica set, or take the next step of the rollout, and write the status."""
        deployment: Workload | None = self._deployments.get(key)
        if deployment is None or deployment.spec.template is None:
            return
        sets = sorted(self._controlled.of(deployment.metadata.uid), key=_revision)
        # The one with its template, but for the label with its hash (`FindNewReplicaSet`)
        template = _comparable(deployment)
        newest = next((replica_set for replica_set in sets if _comparable(replica_set) == template), None)
        others = [replica_set for replica_set in sets if replica_set is not newest]
        if not deployment.metadata.deletion_timestamp:
            if newest is None and not deployment.spec.paused:
                await self._create(deployment, max(map(_revision, others), default=0) + 1)
            else:
                await self._scale(deployment, newest, others)
        if not self.context.is_simulated:
            await put_status(self._client, DEPLOYMENT, deployment, _status(deployment, newest, sets))

    async def _create(self, deployment: Workload, revision: int) -> None:
        """Make the replica set of the present template, which has no replicas yet."""
        digest, template = template_hash(deployment.spec.template), deployment.pod_template() or {}
        metadata, selector = template.get("metadata") or {}, deployment.spec.selector or {}
        labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH: digest}
        chosen = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: digest}
        body = {
            "metadata": {
                "name": f"{deployment.metadata.name}-{digest}",
                "labels": labels,
                "annotations": {REVISION: str(revision)},
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": {**selector, "matchLabels": chosen},
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        await unless_absent(self._client.create(REPLICA_SET.path(deployment.metadata.namespace), body), CONFLICT)

    async def _scale(self, deployment: Workload, newest: Workload | None, others: list[Workload]) -> None:
        """Scale the replica sets as far as the rollout goes now, or in proportion if it is paused.

        A replica set that is scaled has the Deployment looked at again, for the step after that.
        """
        wanted, pods_of = deployment.spec.wanted, self.context.pods.of
        strategy = strategy_of(deployment.spec.strategy, wanted)
        sets = {row.metadata.name: row for row in ([newest] if newest else []) + others}
        counts = [
            ReplicaCounts(
                name, row.spec.wanted, sum(is_active(pod) and is_ready(pod) for pod in pods_of(row.metadata.uid))
            )
            for name, row in sets.items()
        ]
        if deployment.spec.paused:
            step = scaled_step(wanted, strategy, counts)
        else:
            has_old_pods = any(pods_of(row.metadata.uid) for row in others)
            step = rollout_step(wanted, strategy, counts[0], counts[1:], has_old_pods=has_old_pods)
        for name, replicas in step.items():
            metadata = sets[name].metadata
            body = {"metadata": {"resourceVersion": metadata.resource_version}, "spec": {"replicas": replicas}}
            path = REPLICA_SET.path(metadata.namespace, metadata.name)
            await unless_absent(self._client.patch(path, body), CONFLICT)


def _comparable(workload: Workload) -> Json:
    """A workload's template without the label that the controller writes, and what is empty."""
    template = workload.pod_template() or {}
    metadata = template.get("metadata") or {}
    labels = {key: text for key, text in (metadata.get("labels") or {}).items() if key != TEMPLATE_HASH}
    kept = {key: value for key, value in {**metadata, "labels": labels}.items() if value}
    return {**template, "metadata": kept}


def _revision(workload: Workload) -> int:
    return int((workload.metadata.annotations or {}).get(REVISION, "0"))


def _status(deployment: Workload, newest: Workload | None, sets: Collection[Workload]) -> Json:
    """The status of a Deployment, from those of its ReplicaSets: what `kubectl rollout status` waits for."""
    counted = ("replicas", "readyReplicas", "availableReplicas")
    counts = {key: sum(int(row.told.get(key, 0)) for row in sets) for key in counted}
    counts["updatedReplicas"] = int(newest.told.get("replicas", 0)) if newest else 0
    generation = deployment.metadata.generation or 0
    return {"observedGeneration": generation, **{key: count for key, count in counts.items() if count}}
