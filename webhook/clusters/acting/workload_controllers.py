"""The controllers that keep the pods of one owner: ReplicaSet, ReplicationController, StatefulSet, DaemonSet and Job.

Left out are exit codes in pod failure policies, success policies and deadlines. A StatefulSet's pods get the volumes
whose claims are there; no claim is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from webhook.clusters.acting.controller import (
    CONFLICT,
    NOT_FOUND,
    Controller,
    ControllerContext,
    Json,
    owner_reference,
    put_status,
)
from webhook.clusters.model.daemon_sets import daemon_changes, pinned, takes
from webhook.clusters.model.jobs import JobProgress, has_ended, identify_job_pod, job_status
from webhook.clusters.model.pods import by_deletion_order, is_active, is_ready
from webhook.clusters.model.revisions import Revisions
from webhook.clusters.model.stateful_sets import identify_stateful_pod, stateful_changes
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import OwnerReference, key_of
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.kube.resources import (
    DAEMON_SET,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Resource,
)


class WorkloadStep(NamedTuple):
    """What is done about a workload: named templates of pods to make, pods to delete, and the status to write."""

    create: Iterable[Json] = ()
    delete: Iterable[Pod] = ()
    status: Json | None = None


class WorkloadController(Controller):
    """Keeps the pods of the workloads of one resource.

    What it did itself and has not yet seen in the cache is remembered: until the cache has caught up it does nothing
    more, so that nothing is created or deleted twice.
    """

    resource: Resource

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._unseen: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Owner uid to (pod key, uid of a pod whose deletion was asked for, or "" for a creation)."""
        self.owners = self.watch_keys(self.resource)
        context.pods.follow(self.resource.kind, self.pod_changed)

    @abstractmethod
    def step(self, owner: Workload, pods: list[Pod]) -> WorkloadStep:
        """What is to be done about a workload with these pods."""

    def pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Look at the owner of a pod that came, went or counts otherwise."""
        if change.new is None and owner.uid in self._unseen:
            self._unseen[owner.uid].discard((change.key, ""))
        self.add_owner(owner, change)

    async def sync(self, key: str) -> None:
        """Delete the workload's pods too many, make those missing, and write its status, also if one was refused."""
        owner: Workload | None = self.owners.get(key)
        if owner is None or owner.metadata.deletion_timestamp:
            return
        unseen = self._unseen.get(owner.metadata.uid)
        if unseen:
            unseen -= {row for row in unseen if self._is_seen(*row)}
        if unseen:
            return
        step = self.step(owner, list(self.context.pods.of(owner.metadata.uid)))
        try:
            for pod in step.delete:
                meta = pod.metadata
                path, options = POD.path(meta.namespace, meta.name), {"preconditions": {"uid": meta.uid}}
                await unless_absent(self._client.delete(path, options), NOT_FOUND, CONFLICT)
                self._remember(owner, key_of(pod), meta.uid)
            for template in step.create:
                given = {name: part for name, part in template["metadata"].items() if part and name in _OF_TEMPLATES}
                metadata = {**given, "ownerReferences": [owner_reference(self.resource, owner)]}
                body: Json = {"metadata": metadata, "spec": template["spec"]}
                made = await self._client.create(POD.path(owner.metadata.namespace), body, Pod)
                self._remember(owner, key_of(made), "")
        finally:
            if step.status is not None:
                await put_status(self._client, self.resource, owner, step.status)

    def template_of(self, owner: Workload) -> Json | None:
        """What the owner's pods are made of, with the start of their names; None if it is not known."""
        template = self.context.template_of(self.resource.kind, owner)
        if template is not None:
            template["metadata"] = {**(template.get("metadata") or {}), "generateName": f"{owner.metadata.name}-"}
        return template

    def _remember(self, owner: Workload, key: str, uid: str) -> None:
        if not self._is_seen(key, uid):
            self._unseen[owner.metadata.uid].add((key, uid))

    def _is_seen(self, key: str, uid: str) -> bool:
        pod = self.context.pods.cache.get(key)
        if not uid:
            return pod is not None
        return pod is None or pod.metadata.uid != uid or bool(pod.metadata.deletion_timestamp)


_OF_TEMPLATES = ("name", "generateName", "labels", "annotations", "finalizers")


class ReplicaSetController(WorkloadController):
    """Makes and replaces the pods of every ReplicaSet (`manageReplicas`)."""

    resource = REPLICA_SET

    def step(self, owner: Workload, pods: list[Pod]) -> WorkloadStep:
        """The pods that are missing or too many, and how many there are."""
        active = [pod for pod in pods if is_active(pod)]
        surplus = len(active) - owner.spec.wanted
        template = self.template_of(owner) if surplus < 0 else None
        status = None
        if not self.context.is_simulated:
            ready = sum(map(is_ready, active))
            counts = {"readyReplicas": ready, "availableReplicas": ready} if ready else {}
            status = {"replicas": len(active), **counts, "observedGeneration": owner.metadata.generation or 0}
        delete = by_deletion_order(active)[:surplus] if surplus > 0 else ()
        return WorkloadStep([template] * -surplus if template else (), delete, status)


class ReplicationControllerController(ReplicaSetController):
    """Makes and replaces the pods of every ReplicationController."""

    resource = REPLICATION_CONTROLLER


class RevisionedController(WorkloadController):
    """The controller of a kind whose pods say by a label of which template they were made."""

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._revisions: dict[str, Revisions] = {}
        """The templates that each owner has had, by its uid."""
        self.owners.handlers.append(self._owner_changed)

    def _owner_changed(self, change: Change[Any]) -> None:
        owner: Workload | None = change.new
        if owner is not None:
            self._revisions.setdefault(owner.metadata.uid, Revisions(owner, self.resource.kind)).note(owner)


class StatefulSetController(RevisionedController):
    """Makes and replaces the pods of every StatefulSet."""

    resource = STATEFUL_SET

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._claims = context.informers.cache(PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)

    def pod_changed(self, owner: OwnerReference, change: Change[Pod]) -> None:
        """Keep what a pod of an earlier template was like."""
        if change.new is None and change.old is not None and owner.uid in self._revisions:
            self._revisions[owner.uid].note_gone(change.old)
        super().pod_changed(owner, change)

    def step(self, owner: Workload, pods: list[Pod]) -> WorkloadStep:
        """Make a missing pod, drop a surplus one, replace an outdated one."""
        name, spec, revisions = owner.metadata.name, owner.spec, self._revisions[owner.metadata.uid]
        by_name = {pod.metadata.name: pod for pod in pods}
        ordinals, delete, partition = stateful_changes(name, spec, by_name, is_outdated=revisions.is_outdated)
        create = []
        for ordinal in ordinals:
            template = revisions.earlier(f"{name}-{ordinal}") if ordinal < partition else None
            if template is None and (template := self.template_of(owner)) is not None:
                template = revisions.labelled(template)
            if template is not None:
                made = identify_stateful_pod(template, name, ordinal)
                self._claim_volumes(owner, made)
                create.append(made)
        return WorkloadStep(create, delete)

    def _claim_volumes(self, owner: Workload, pod: Json) -> None:
        """Give a pod the volumes of its own, if their claims are there."""
        spec, name = pod["spec"], pod["metadata"]["name"]
        for volume in (claim.metadata.name for claim in owner.spec.volume_claim_templates or ()):
            if self._claims.get(f"{owner.metadata.namespace}/{volume}-{name}") is not None:
                others = [row for row in spec.get("volumes") or () if row["name"] != volume]
                claimed = {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
                spec["volumes"] = [*others, claimed]


class DaemonSetController(RevisionedController):
    """Makes and replaces the pods of every DaemonSet; pods are bound to their node by affinity."""

    resource = DAEMON_SET

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, client)
        self._nodes = context.informers.cache(NODE, Node)
        self._nodes.handlers.append(self._node_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (old.spec, old.metadata.labels) != (new.spec, new.metadata.labels):
            for key in self.owners.items():
                self.add(key)

    def step(self, owner: Workload, pods: list[Pod]) -> WorkloadStep:
        """Make the set's missing pods and delete those too many; of a set without a template nothing is known."""
        if owner.spec.template is None or (template := self.template_of(owner)) is None:
            return WorkloadStep()
        revisions, like = self._revisions[owner.metadata.uid], Pod(spec=msgspec.convert(template["spec"], PodSpec))
        on = {name for name, node in self._nodes.items().items() if takes(like, node)}
        nodes, delete = daemon_changes(on, pods, owner.spec.update_strategy, is_outdated=revisions.is_outdated)
        made_of = revisions.labelled(template)
        return WorkloadStep([{**made_of, "spec": pinned(template["spec"], node)} for node in nodes], delete)


class JobController(WorkloadController):
    """Makes and replaces the pods of every Job; those that have ended count for as long as this runs."""

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

    def step(self, owner: Workload, pods: list[Pod]) -> WorkloadStep:
        """The pods that a job still needs, and how it has ended."""
        if has_ended(owner.told.get("conditions")):
            return WorkloadStep()
        name, progress = owner.metadata.name, self._progress[owner.metadata.uid]
        progress.look(owner.spec, pods, owner.told)
        step = progress.step(owner.spec, pods)
        progress.withdrawn |= {pod.metadata.uid for pod in step.delete}
        template = self.template_of(owner) if step.create else None
        create = [identify_job_pod(template, name, index) for index in step.create] if template else ()
        status = None
        if step.ended or not self.context.is_simulated:
            status = job_status(progress, step, rfc3339(self.context.clock.wall()))
        return WorkloadStep(create, step.delete, status)


WORKLOAD_CONTROLLERS: tuple[type[WorkloadController], ...] = (
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
    DaemonSetController,
    JobController,
)
