"""The controllers that keep the pods of one owner: ReplicaSet, StatefulSet, DaemonSet and Job.

Left out are volume claim templates and pod failure policies.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from webhook.clusters.embedded.standins.controller import Controller, StandInInformers, Unstructured
from webhook.clusters.embedded.standins.podcontrol import PodControl, put_status
from webhook.clusters.model.daemon_sets import daemon_changes, pinned, takes
from webhook.clusters.model.jobs import JobLimits, has_ended, is_failed, job_step
from webhook.clusters.model.pods import is_active, is_ready, replica_changes, template_hash
from webhook.clusters.model.stateful_sets import stateful_changes
from webhook.kube.client import Client
from webhook.kube.informer import Change
from webhook.kube.instants import rfc3339
from webhook.kube.objects import Node, Pod, PodSpec
from webhook.kube.resources import DAEMON_SET, JOB, NODE, REPLICA_SET, STATEFUL_SET

__all__ = ["DaemonSetController", "JobController", "ReplicaSetController", "StatefulSetController"]

HASH = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETE = (
    "CompletionsReached",
    "Reached expected number of succeeded pods",
    ("SuccessCriteriaMet", "Complete"),
)
FAILED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit", ("FailureTarget", "Failed"))
"""How a Job may end: reason, message and types of its conditions."""


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

    async def sync(self, key: str) -> None:
        """Take the set's next step, and write its status."""
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp or not self._control.settled(owner):
            return
        digest = template_hash(owner.spec["template"])
        pods = {pod.metadata.name: pod for pod in self._control.pods(owner)}
        await self._step(owner, pods, digest)
        ready = sum(1 for pod in pods.values() if is_active(pod) and is_ready(pod))
        updated = sum(1 for pod in pods.values() if _revision(pod) == digest)
        revision, known = f"{owner.metadata.name}-{digest}", owner.status.get("currentRevision")
        done = updated == len(pods) == owner.replicas
        status: dict[str, Any] = {"observedGeneration": owner.metadata.generation or 0, "replicas": len(pods)}
        counts = {"readyReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated}
        status |= {key: value for key, value in counts.items() if value}
        status |= {"currentRevision": revision if done or not known else known, "updateRevision": revision}
        status |= {"availableReplicas": ready, "collisionCount": 0}
        await put_status(self._client, STATEFUL_SET, owner, status)

    async def _step(self, owner: Unstructured, pods: dict[str, Pod], digest: str) -> None:
        """Take the next step: make a missing pod, drop a surplus one, replace an outdated one."""
        name, rolls = owner.metadata.name, (owner.spec.get("updateStrategy") or {}).get("type") != "OnDelete"
        changes = stateful_changes(
            name,
            owner.replicas,
            pods,
            parallel=owner.spec.get("podManagementPolicy") == "Parallel",
            is_outdated=lambda pod: rolls and _revision(pod) != digest,
        )
        for ordinal in changes.create:
            own = f"{name}-{ordinal}"
            labels = {POD_NAME: own, POD_INDEX: str(ordinal), HASH: f"{name}-{digest}"}
            await self._control.create(owner, owner.spec["template"], {"name": own, "labels": labels})
        for pod in changes.delete:
            await self._control.delete(owner, pod)


def _revision(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(HASH, "").rpartition("-")[2]


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
            is_outdated=lambda pod: (pod.metadata.labels or {}).get(HASH) != digest,
            rolls=(owner.spec.get("updateStrategy") or {}).get("type") != "OnDelete",
        )
        for pod in changes.delete:
            await self._control.delete(owner, pod)
        for node in changes.create:
            metadata = {"generateName": f"{owner.metadata.name}-", "labels": {HASH: digest}}
            body = {**owner.spec["template"], "spec": pinned(owner.spec["template"].get("spec") or {}, node)}
            await self._control.create(owner, body, metadata)
        pods = list(changes.placed.values())
        ready = sum(map(is_ready, pods))
        updated = sum(1 for pod in pods if (pod.metadata.labels or {}).get(HASH) == digest)
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
        self._succeeded: dict[str, set[str]] = {}
        """Uid of a job to the uids of its pods that ended well, gone ones included."""
        self._failed: dict[str, set[str]] = {}
        self._withdrawn: set[str] = set()
        """Uids of pods that were too many: they have not failed."""

    async def sync(self, key: str) -> None:
        """Make the pods that a job still needs, and write its status."""
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or not self._control.settled(job):
            return
        if has_ended(job.status.get("conditions")):
            return
        pods = self._control.pods(job)
        active = [pod for pod in pods if is_active(pod)]
        succeeded, failed = self._count(job, pods)
        spec = job.spec
        limits = JobLimits.of(
            spec.get("parallelism"), spec.get("completions"), spec.get("backoffLimit"), bool(spec.get("suspend"))
        )
        changes = job_step(limits, pods, succeeded, failed)
        name, uid = job.metadata.name, job.metadata.uid
        prefixed = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        labels = {**prefixed, "controller-uid": uid, "job-name": name}
        for _ in range(changes.create):
            metadata = {"generateName": f"{name}-", "labels": labels}
            await self._control.create(job, job.spec["template"], metadata)
        for pod in changes.delete:
            self._withdrawn.add(pod.metadata.uid)
            await self._control.delete(job, pod)
        status: dict[str, Any] = {"startTime": job.status.get("startTime") or rfc3339(time.time())}
        running = 0 if changes.ended else len(active) + changes.create
        counts = {"active": running, "succeeded": succeeded, "failed": failed}
        status |= {key: value for key, value in counts.items() if value}
        status |= {"ready": sum(map(is_ready, active)), "terminating": 0, "uncountedTerminatedPods": {}}
        if changes.ended:
            now = rfc3339(time.time())
            complete = changes.ended == "Complete"
            reason, message, types = COMPLETE if complete else FAILED
            stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            conditions = [{"type": type_, **stamp, "reason": reason, "message": message} for type_ in types]
            status |= {"ready": 0, "conditions": conditions, **({"completionTime": now} if complete else {})}
        await put_status(self._client, JOB, job, status)

    def _count(self, job: Unstructured, pods: Iterable[Pod]) -> tuple[int, int]:
        """How many pods of a job have succeeded and failed so far, as its status says or as was seen here."""
        uid, status = job.metadata.uid, job.status
        succeeded, failed = self._succeeded.setdefault(uid, set()), self._failed.setdefault(uid, set())
        succeeded |= {pod.metadata.uid for pod in pods if pod.status.phase == "Succeeded"}
        failed |= {pod.metadata.uid for pod in pods if is_failed(pod)} - self._withdrawn
        return max(len(succeeded), status.get("succeeded", 0)), max(len(failed), status.get("failed", 0))
