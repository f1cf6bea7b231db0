"""The controllers that keep the pods of one owner: ReplicaSet, StatefulSet, DaemonSet and Job.

Left out are volume claim templates, exit codes in pod failure policies, success policies and deadlines.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from typing import Any

import msgspec

from webhook.clusters.embedded.standins.controller import Controller, StandInInformers, Unstructured
from webhook.clusters.embedded.standins.podcontrol import PodControl, put_status
from webhook.clusters.model.daemon_sets import daemon_changes, pinned, takes
from webhook.clusters.model.jobs import JobProgress, has_ended, identify_job_pod, intervals, job_labels
from webhook.clusters.model.pods import is_active, is_ready, replica_changes, template_hash
from webhook.clusters.model.stateful_sets import REVISION, identify_stateful_pod, stateful_changes
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.pod import Pod, PodSpec
from webhook.kube.pods import is_terminal
from webhook.kube.resources import DAEMON_SET, JOB, NODE, REPLICA_SET, STATEFUL_SET

COMPLETE = (
    "CompletionsReached",
    "Reached expected number of succeeded pods",
    ("SuccessCriteriaMet", "Complete"),
)
FAILED = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "FailedIndexes": "Job has failed indexes",
    "MaxFailedIndexesExceeded": "Job has exceeded the specified maximal number of failed indexes",
    "PodFailurePolicy": "A pod matches a FailJob rule",
}
"""How a Job may end: reason, message and, if it is complete, types of its conditions."""


class ReplicaSetController(Controller):
    """Makes and replaces the pods of every ReplicaSet."""

    name = "replicaset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__(workers=4)
        self._sets = informers.watch_keys(REPLICA_SET, Unstructured, self._queue.add)
        self._control = PodControl(informers, client, REPLICA_SET, self._queue.add)

    async def sync(self, key: str) -> None:
        """Make the set's missing pods or delete those too many, and write its status."""
        owner = self._sets.get(key)
        if owner is None or not self._control.settled(owner):
            return
        active = [pod for pod in self._control.pods(owner) if is_active(pod)]
        if not owner.metadata.deletion_timestamp:
            changes = replica_changes(active, owner.replicas)
            for _ in range(changes.create):
                template = owner.spec["template"]
                await self._control.create(owner, template, {"generateName": f"{owner.metadata.name}-"})
            for pod in changes.delete:
                await self._control.delete(owner, pod)
        ready = sum(map(is_ready, active))
        labels = ((owner.spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        labelled = sum(1 for pod in active if labels.items() <= (pod.metadata.labels or {}).items())
        counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": ready}
        status: dict[str, Any] = {"replicas": len(active)}
        status |= {key: value for key, value in counts.items() if value}
        status["observedGeneration"] = owner.metadata.generation or 0
        await put_status(self._client, REPLICA_SET, owner, status)


class StatefulSetController(Controller):
    """Makes and replaces the pods of every StatefulSet."""

    name = "statefulset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._sets = informers.watch_keys(STATEFUL_SET, Unstructured, self._queue.add)
        self._control = PodControl(informers, client, STATEFUL_SET, self._queue.add)
        self._templates: dict[tuple[str, str], dict[str, Any]] = {}
        """Templates by a set's uid and the revision, while this runs: pods below a partition are made of them."""

    async def sync(self, key: str) -> None:
        """Take the set's next step, and write its status."""
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp or not self._control.settled(owner):
            return
        revision = f"{owner.metadata.name}-{template_hash(owner.spec['template'])}"
        self._templates[owner.metadata.uid, revision] = owner.spec["template"]
        current = owner.status.get("currentRevision") or revision
        pods = {pod.metadata.name: pod for pod in self._control.pods(owner)}
        await self._step(owner, pods, current, revision)
        ready = sum(1 for pod in pods.values() if is_active(pod) and is_ready(pod))
        revisions = [_revision(pod) for pod in pods.values()]
        if revisions == [revision] * owner.replicas:
            current = revision
        status: dict[str, Any] = {"observedGeneration": owner.metadata.generation or 0, "replicas": len(pods)}
        counts = {"currentReplicas": revisions.count(current), "updatedReplicas": revisions.count(revision)}
        status |= {key: value for key, value in {"readyReplicas": ready, **counts}.items() if value}
        status |= {"currentRevision": current, "updateRevision": revision}
        status |= {"availableReplicas": ready, "collisionCount": 0}
        await put_status(self._client, STATEFUL_SET, owner, status)

    async def _step(self, owner: Unstructured, pods: dict[str, Pod], current: str, revision: str) -> None:
        """Take the next step: make a missing pod, drop a surplus one, replace an outdated one."""
        metadata, spec = owner.metadata, msgspec.convert(owner.spec, WorkloadSpec)
        changes = stateful_changes(metadata.name, spec, pods, is_outdated=lambda pod: _revision(pod) != revision)
        for ordinal in changes.create:
            template, of = self._templates.get((metadata.uid, current)), current
            if ordinal >= changes.partition or template is None:
                template, of = owner.spec["template"], revision
            pod = copy.deepcopy(template)
            identify_stateful_pod(pod, metadata.name, ordinal, spec.service_name)
            labels = {**pod["metadata"]["labels"], REVISION: of}
            await self._control.create(owner, pod, {"name": pod["metadata"]["name"], "labels": labels})
        for pod in changes.delete:
            await self._control.delete(owner, pod)


def _revision(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(REVISION, "")


class DaemonSetController(Controller):
    """Makes and replaces the pods of every DaemonSet; pods are bound to their node by affinity."""

    name = "daemonset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._sets = informers.watch_keys(DAEMON_SET, Unstructured, self._queue.add)
        self._nodes = informers.cache(NODE, Node)
        self._nodes.handlers.append(self._node_changed)
        self._control = PodControl(informers, client, DAEMON_SET, self._queue.add)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (old.spec, old.metadata.labels) != (new.spec, new.metadata.labels):
            for key in self._sets.items():
                self._queue.add(key)

    async def sync(self, key: str) -> None:
        """Make the set's missing pods, delete those too many, and write its status."""
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp or not self._control.settled(owner):
            return
        digest = template_hash(owner.spec["template"])
        template = msgspec.convert(owner.spec["template"].get("spec") or {}, PodSpec)
        wanted = {name for name, node in self._nodes.items().items() if takes(template, node)}
        changes = daemon_changes(
            wanted,
            self._control.pods(owner),
            owner.spec.get("updateStrategy"),
            is_outdated=lambda pod: _revision(pod) != digest,
        )
        for pod in changes.delete:
            await self._control.delete(owner, pod)
        for node in changes.create:
            metadata = {"generateName": f"{owner.metadata.name}-", "labels": {REVISION: digest}}
            body = {**owner.spec["template"], "spec": pinned(owner.spec["template"].get("spec") or {}, node)}
            await self._control.create(owner, body, metadata)
        pods = list(changes.placed.values())
        ready = sum(map(is_ready, pods))
        updated = sum(1 for pod in pods if _revision(pod) == digest)
        status: dict[str, Any] = {
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": 0,
            "desiredNumberScheduled": len(wanted),
            "numberReady": ready,
            "observedGeneration": owner.metadata.generation or 0,
        }
        unready = len(wanted) - ready
        counts = {"updatedNumberScheduled": updated, "numberAvailable": ready, "numberUnavailable": unready}
        status |= {key: value for key, value in counts.items() if value}
        await put_status(self._client, DAEMON_SET, owner, status)


class JobController(Controller):
    """Makes and replaces the pods of every Job; those that have ended count for as long as this runs."""

    name = "job"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._jobs = informers.watch_keys(JOB, Unstructured, self._queue.add)
        self._control = PodControl(informers, client, JOB, self._queue.add)
        self._progress: defaultdict[str, JobProgress] = defaultdict(JobProgress)
        """What has become of a Job's pods, by its uid."""

    async def sync(self, key: str) -> None:
        """Make the pods that a job still needs, and write its status."""
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or not self._control.settled(job):
            return
        if has_ended(job.status.get("conditions")):
            return
        name, uid = job.metadata.name, job.metadata.uid
        spec, pods, progress = msgspec.convert(job.spec, WorkloadSpec), self._control.pods(job), self._progress[uid]
        progress.look(spec, pods, job.status)
        changes = progress.step(spec, pods)
        for index in changes.create:
            pod = copy.deepcopy(job.spec["template"])
            identify_job_pod(pod, name, index)
            made = pod["metadata"]
            labels = {**(made.get("labels") or {}), **job_labels(name, uid)}
            await self._control.create(job, pod, {"generateName": made["generateName"], "labels": labels})
        for pod in changes.delete:
            progress.withdrawn.add(pod.metadata.uid)
            await self._control.delete(job, pod)
        status: dict[str, Any] = {"startTime": job.status.get("startTime") or rfc3339(time.time())}
        active = [pod for pod in pods if is_active(pod)]
        counts = {
            "active": 0 if changes.ended else len(active) + len(changes.create),
            "succeeded": progress.succeeded,
            "failed": progress.failed,
            "completedIndexes": intervals(progress.completed),
            "failedIndexes": intervals(progress.failed_indexes(spec)),
        }
        status |= {key: value for key, value in counts.items() if value}
        leaving = sum(bool(pod.metadata.deletion_timestamp) and not is_terminal(pod) for pod in pods)
        status |= {"ready": sum(map(is_ready, active)), "terminating": leaving, "uncountedTerminatedPods": {}}
        if changes.ended:
            now = rfc3339(time.time())
            complete = changes.ended == "Complete"
            reason, message, types = COMPLETE
            if not complete:
                reason, message, types = changes.reason, FAILED[changes.reason], ("FailureTarget", "Failed")
            stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            conditions = [{"type": type_, **stamp, "reason": reason, "message": message} for type_ in types]
            status |= {"ready": 0, "conditions": conditions, **({"completionTime": now} if complete else {})}
        await put_status(self._client, JOB, job, status)
