"""The Deployment controller: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable."""

from __future__ import annotations

from typing import Any

from webhook.clusters.acting.controller import CONFLICT, Controller, ControllerContext, Json, tolerating
from webhook.clusters.acting.pod_control import owner_reference, put_status
from webhook.clusters.acting.statuses import deployment_status
from webhook.clusters.model.deployments import ReplicaCounts, RolloutStrategy, rollout_step, scaled_step, strategy_of
from webhook.clusters.model.pods import is_active, is_ready, template_hash
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH, controller_of
from webhook.kube.resources import DEPLOYMENT, REPLICA_SET

REVISION = "deployment.kubernetes.io/revision"


class DeploymentController(Controller):
    """Rolls out every Deployment. ReplicaSets of an earlier template go the oldest first, as their revisions say."""

    name = "deployment"

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._deployments = self.watch_keys(DEPLOYMENT)
        self._sets = context.workloads(REPLICA_SET)
        self._sets.handlers.append(self._set_changed)
        self._of_owner: dict[str, dict[str, Workload]] = {}
        """The ReplicaSets of each Deployment by their keys, by its uid."""
        context.pods.follow(REPLICA_SET.kind, self._pod_changed)

    def _set_changed(self, change: Change[Any]) -> None:
        known: Workload | None = change.new or change.old
        assert known is not None
        owner = controller_of(known.metadata)
        if owner is None or owner.kind != DEPLOYMENT.kind:
            return
        rows = self._of_owner.setdefault(owner.uid, {})
        if change.new is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.new
        self.queue.add(f"{known.metadata.namespace}/{owner.name}")

    def _pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Look at a Deployment again that is being rolled out: a pod of it came up or is gone."""
        namespace = change.key.partition("/")[0]
        replica_set = self._sets.get(f"{namespace}/{owner.name}")
        above = controller_of(replica_set.metadata) if replica_set is not None else None
        if above is None or above.kind != DEPLOYMENT.kind:
            return
        key = f"{namespace}/{above.name}"
        deployment, sets = self._deployments.get(key), self._of_owner.get(above.uid, {}).values()
        if deployment is None or deployment.spec.paused:
            return
        if sum(bool(row.spec.wanted or self.context.pods.of(row.metadata.uid)) for row in sets) != 1:
            self.queue.add(key)

    async def sync(self, key: str) -> None:
        """Make the newest replica set, move replicas to it, and write the status."""
        deployment: Workload | None = self._deployments.get(key)
        if deployment is None or deployment.spec.template is None:
            return
        sets = sorted(self._of_owner.get(deployment.metadata.uid, {}).values(), key=_revision)
        # The one with its template, but for the label with its hash (`FindNewReplicaSet`)
        template = _comparable(deployment)
        newest = next((replica_set for replica_set in sets if _comparable(replica_set) == template), None)
        others = [replica_set for replica_set in sets if replica_set is not newest]
        if not deployment.metadata.deletion_timestamp:
            if newest is None and not deployment.spec.paused:
                await self._create(deployment, others)
            else:
                await self._scale(deployment, newest, others)
        if self.context.reports:
            await put_status(self._client, DEPLOYMENT, deployment, deployment_status(deployment, newest, sets))

    async def _create(self, deployment: Workload, others: list[Workload]) -> None:
        """Make the replica set of the present template, with the replicas that it has first."""
        digest = template_hash(deployment.spec.template)
        name = f"{deployment.metadata.name}-{digest}"
        replicas = self._step(deployment, ReplicaCounts(name, 0, 0), self._counts(others), others).get(name, 0)
        template = deployment.pod_template() or {}
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH: digest}
        selector = deployment.spec.selector or {}
        chosen = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: digest}
        body = {
            "apiVersion": REPLICA_SET.api_version,
            "kind": REPLICA_SET.kind,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {REVISION: str(max(map(_revision, others), default=0) + 1)},
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "replicas": replicas,
                "selector": {**selector, "matchLabels": chosen},
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        with tolerating(CONFLICT):
            await self._client.create(REPLICA_SET.path(deployment.metadata.namespace), body)

    async def _scale(self, deployment: Workload, newest: Workload | None, others: list[Workload]) -> None:
        """Scale the replica sets as far as the rollout goes now, or in proportion if it is paused."""
        sets = {row.metadata.name: row for row in ([newest] if newest else []) + others}
        counts = self._counts(sets.values())
        while True:
            if deployment.spec.paused:
                step = scaled_step(deployment.spec.wanted, _strategy(deployment), counts)
            else:
                step = self._step(deployment, counts[0], counts[1:], others)
            for name, replicas in step.items():
                metadata = sets[name].metadata
                body = {"metadata": {"resourceVersion": metadata.resource_version}, "spec": {"replicas": replicas}}
                with tolerating(CONFLICT):
                    await self._client.patch(REPLICA_SET.path(metadata.namespace, metadata.name), body)
            if not step or deployment.spec.paused:
                return
            counts = [row._replace(replicas=step.get(row.name, row.replicas)) for row in counts]

    def _step(
        self, deployment: Workload, newest: ReplicaCounts, older: list[ReplicaCounts], others: list[Workload]
    ) -> dict[str, int]:
        strategy = _strategy(deployment)
        has_old_pods = any(self.context.pods.of(row.metadata.uid) for row in others)
        return rollout_step(deployment.spec.wanted, strategy, newest, older, has_old_pods=has_old_pods)

    def _counts(self, sets: Any) -> list[ReplicaCounts]:
        """How many pods each of the replica sets is to have, and how many of them are available."""
        return [ReplicaCounts(row.metadata.name, row.spec.wanted, self._available(row.metadata.uid)) for row in sets]

    def _available(self, uid: str) -> int:
        return sum(is_active(pod) and is_ready(pod) for pod in self.context.pods.of(uid))


def _comparable(workload: Workload) -> Json:
    """A workload's template without the label that the controller writes, and what is empty."""
    template = workload.pod_template() or {}
    metadata = template.get("metadata") or {}
    labels = {key: text for key, text in (metadata.get("labels") or {}).items() if key != TEMPLATE_HASH}
    kept = {key: value for key, value in {**metadata, "labels": labels}.items() if value}
    return {**template, "metadata": kept}


def _revision(workload: Workload) -> int:
    return int((workload.metadata.annotations or {}).get(REVISION, "0"))


def _strategy(deployment: Workload) -> RolloutStrategy:
    return strategy_of(deployment.spec.strategy, deployment.spec.wanted)
