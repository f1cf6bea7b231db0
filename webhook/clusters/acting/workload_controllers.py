"""The controllers that keep the pods of one owner: ReplicaSet, ReplicationController, StatefulSet, DaemonSet and Job.

Left out are exit codes in pod failure policies, success policies and deadlines. A StatefulSet's pods get the volumes
whose claims are there; no claim is made.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from webhook.clusters.acting.controller import Controller, ControllerContext, Json
from webhook.clusters.acting.pod_control import PodControl, put_status
from webhook.clusters.acting.revisions import Revisions
from webhook.clusters.acting.statuses import job_status, replica_set_status
from webhook.clusters.model.daemon_sets import daemon_changes, pinned, takes
from webhook.clusters.model.jobs import JobProgress, has_ended, identify_job_pod
from webhook.clusters.model.pods import is_active, replica_changes
from webhook.clusters.model.stateful_sets import identify_stateful_pod, stateful_changes
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.kube.resources import (
    DAEMON_SET,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Resource,
)


class WorkloadController(Controller):
    """Keeps the pods of the workloads of one resource."""

    resource: Resource

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self.client = client
        self.control = PodControl(context, client, self.resource)
        self.owners = self.watch_keys(self.resource)
        context.pods.follow(self.resource.kind, self.pod_changed)

    def pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Look at the owner of a pod that came, went or counts otherwise."""
        if change.new is None:
            self.control.forget_made(owner.uid, change.key)
        self.queue.add(f"{change.key.partition('/')[0]}/{owner.name}")

    def due(self, key: str) -> Workload | None:
        """The workload of that key, if something can be done about it now."""
        owner: Workload | None = self.owners.get(key)
        if owner is None or owner.metadata.deletion_timestamp or not self.control.settled(owner):
            return None
        return owner


class ReplicaSetController(WorkloadController):
    """Makes and replaces the pods of every ReplicaSet."""

    name = "replicaset"
    resource = REPLICA_SET

    async def sync(self, key: str) -> None:
        """Make the set's missing pods or delete those too many, and write its status."""
        owner = self.owners.get(key)
        if owner is None or not self.control.settled(owner):
            return
        active = [pod for pod in self.control.pods(owner) if is_active(pod)]
        refusal = None
        if not owner.metadata.deletion_timestamp:
            changes = replica_changes(active, owner.spec.wanted)
            name = {"generateName": f"{owner.metadata.name}-"}
            wanted = ((self.control.template_of(owner), dict(name)) for _ in range(changes.create))
            refusal = await self.control.create(owner, wanted)
            await self.control.delete(owner, changes.delete)
        if self.context.reports:
            await put_status(self.client, self.resource, owner, replica_set_status(owner, active))
        if refusal is not None:
            raise refusal


class ReplicationControllerController(ReplicaSetController):
    """Makes and replaces the pods of every ReplicationController."""

    name = "replicationcontroller"
    resource = REPLICATION_CONTROLLER


class StatefulSetController(WorkloadController):
    """Makes and replaces the pods of every StatefulSet."""

    name = "statefulset"
    resource = STATEFUL_SET

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._revisions = Revisions(context, self.resource.kind)
        self.owners.handlers.append(self._revisions.note)
        self._claims = context.informers.cache(PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)

    async def sync(self, key: str) -> None:
        """Take the set's next step: make a missing pod, drop a surplus one, replace an outdated one."""
        owner = self.due(key)
        if owner is None:
            return
        name, spec = owner.metadata.name, owner.spec
        pods = {pod.metadata.name: pod for pod in self.control.pods(owner)}
        versions = self._revisions.of(owner, pods.values())
        changes = stateful_changes(name, spec, pods, is_outdated=versions.is_outdated)
        await self.control.delete(owner, changes.delete)
        wanted = []
        for ordinal in changes.create:
            template = versions.earlier if ordinal < changes.partition else None
            if template is None and (template := self.control.template_of(owner)) is not None:
                template = versions.labelled(template)
            if template is not None:
                identify_stateful_pod(template, name, ordinal, spec.service_name)
                self._claim_volumes(owner, template)
                wanted.append((template, {"name": template["metadata"]["name"]}))
        refusal = await self.control.create(owner, wanted)
        if not changes.create and not any(map(versions.is_outdated, pods.values())):
            versions.settle()
        if refusal is not None:
            raise refusal

    def _claim_volumes(self, owner: Workload, pod: Json) -> None:
        """Give a pod the volumes of its own, if their claims are there."""
        spec, name = pod["spec"], pod["metadata"]["name"]
        for volume in (claim.metadata.name for claim in owner.spec.volume_claim_templates or ()):
            if self._claims.get(f"{owner.metadata.namespace}/{volume}-{name}") is not None:
                others = [row for row in spec.get("volumes") or () if row["name"] != volume]
                claimed = {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
                spec["volumes"] = [*others, claimed]


class DaemonSetController(WorkloadController):
    """Makes and replaces the pods of every DaemonSet; pods are bound to their node by affinity."""

    name = "daemonset"
    resource = DAEMON_SET

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._revisions = Revisions(context, self.resource.kind)
        self.owners.handlers.append(self._revisions.note)
        self._nodes = context.informers.cache(NODE, Node)
        self._nodes.handlers.append(self._node_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (old.spec, old.metadata.labels) != (new.spec, new.metadata.labels):
            for key in self.owners.items():
                self.queue.add(key)

    async def sync(self, key: str) -> None:
        """Make the set's missing pods and delete those too many."""
        owner = self.due(key)
        template = owner.pod_template() if owner is not None else None
        if owner is None or template is None:
            return
        pods, spec = self.control.pods(owner), msgspec.convert(template["spec"], PodSpec)
        versions = self._revisions.of(owner, pods)
        nodes = {name for name, node in self._nodes.items().items() if takes(spec, node)}
        changes = daemon_changes(nodes, pods, owner.spec.update_strategy, is_outdated=versions.is_outdated)
        await self.control.delete(owner, changes.delete)
        name = {"generateName": f"{owner.metadata.name}-"}
        made_of = versions.labelled(template)
        wanted = (({**made_of, "spec": pinned(template["spec"], node)}, dict(name)) for node in changes.create)
        refusal = await self.control.create(owner, wanted)
        if refusal is not None:
            raise refusal


class JobController(WorkloadController):
    """Makes and replaces the pods of every Job; those that have ended count for as long as this runs."""

    name = "job"
    resource = JOB

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._progress: defaultdict[str, JobProgress] = defaultdict(JobProgress)
        """What has become of a Job's pods, by its uid."""

    def pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Keep what a pod says before it is gone."""
        if change.new is None and change.old is not None:
            self._progress[owner.uid].note(change.old)
        super().pod_changed(owner, change)

    async def sync(self, key: str) -> None:
        """Make the pods that a job still needs, and write its status."""
        job = self.due(key)
        if job is None or has_ended(job.told.get("conditions")):
            return
        name, uid, spec = job.metadata.name, job.metadata.uid, job.spec
        pods, progress = self.control.pods(job), self._progress[uid]
        progress.look(spec, pods, job.told)
        step = progress.step(spec, pods)
        progress.withdrawn |= {pod.metadata.uid for pod in step.delete}
        await self.control.delete(job, step.delete)
        wanted = []
        for index in step.create:
            template = self.control.template_of(job)
            if template is not None:
                identify_job_pod(template, name, index)
                wanted.append((template, {"generateName": template["metadata"]["generateName"]}))
        refusal = await self.control.create(job, wanted)
        if self.context.reports or step.ended:
            status = job_status(job, progress, step, rfc3339(self.context.clock.wall()))
            await put_status(self.client, JOB, job, status)
        if refusal is not None:
            raise refusal
