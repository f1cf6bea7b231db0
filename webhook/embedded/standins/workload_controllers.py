"""The controllers that keep the pods of one owner: ReplicaSet, StatefulSet, DaemonSet and Job.

Left out are volume claim templates and pod failure policies.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import msgspec

from webhook.embedded.standins.controller import Controller, StandInInformers, Unstructured
from webhook.embedded.standins.podcontrol import PodControl, is_active, is_ready, put_status, template_hash
from webhook.kube.client import Client
from webhook.kube.informer import Change
from webhook.kube.instants import rfc3339
from webhook.kube.objects import Node, NodeSelector, Pod, Toleration
from webhook.kube.pods import is_terminal
from webhook.kube.resources import DAEMON_SET, JOB, NODE, REPLICA_SET, STATEFUL_SET
from webhook.kube.selectors import node_matcher
from webhook.preemption.filters.placement import tolerates

__all__ = ["DaemonSetController", "JobController", "ReplicaSetController", "StatefulSetController"]

HASH = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DAEMON_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": effect}
    for key, effect in {
        "node.kubernetes.io/not-ready": "NoExecute",
        "node.kubernetes.io/unreachable": "NoExecute",
        "node.kubernetes.io/disk-pressure": "NoSchedule",
        "node.kubernetes.io/memory-pressure": "NoSchedule",
        "node.kubernetes.io/pid-pressure": "NoSchedule",
        "node.kubernetes.io/unschedulable": "NoSchedule",
    }.items()
]
BACKOFF_LIMIT = 6
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
            wanted = owner.replicas
            for _ in range(wanted - len(active)):
                template = owner.spec["template"]
                await self._control.create(owner, template, {"generateName": f"{owner.metadata.name}-"})
            # First to go are pods that are unassigned, do not run, are not ready, are younger (ActivePodsWithRanks).
            active.sort(key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)
            active.sort(key=lambda pod: (bool(pod.spec.node_name), pod.status.phase == "Running", is_ready(pod)))
            for pod in active[: max(0, len(active) - wanted)]:
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
        names = [f"{owner.metadata.name}-{number}" for number in range(owner.replicas)]
        parallel = owner.spec.get("podManagementPolicy") == "Parallel"
        for index, name in enumerate(names):
            pod = pods.get(name)
            if pod is None:
                labels = {POD_NAME: name, POD_INDEX: str(index), HASH: f"{owner.metadata.name}-{digest}"}
                await self._control.create(owner, owner.spec["template"], {"name": name, "labels": labels})
            elif is_terminal(pod) and not pod.metadata.deletion_timestamp:
                await self._control.delete(owner, pod)
            if not parallel and (pod is None or not (is_active(pod) and is_ready(pod))):
                return
        surplus = sorted((name for name in pods if name not in names), key=lambda name: (len(name), name), reverse=True)
        outdated = [name for name in reversed(names) if name in pods and _revision(pods[name]) != digest]
        if (owner.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            outdated = []
        for name in (surplus + outdated)[: None if parallel else 1]:
            if not pods[name].metadata.deletion_timestamp:
                await self._control.delete(owner, pods[name])


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
        wanted = {name for name, node in self._nodes.items().items() if _takes(owner, node)}
        placed: dict[str, Pod] = {}
        for pod in self._control.pods(owner):
            node = _node_of(pod)
            if is_terminal(pod) or node not in wanted or node in placed:
                if not pod.metadata.deletion_timestamp:
                    await self._control.delete(owner, pod)
            else:
                placed[node] = pod
        for node in sorted(wanted - placed.keys()):
            metadata = {"generateName": f"{owner.metadata.name}-", "labels": {HASH: digest}}
            await self._control.create(owner, _pinned(owner.spec["template"], node), metadata)
        pods = list(placed.values())
        stale = [pod for pod in pods if is_active(pod) and (pod.metadata.labels or {}).get(HASH) != digest]
        rolls = (owner.spec.get("updateStrategy") or {}).get("type") != "OnDelete"
        if rolls and stale and all(is_active(pod) and is_ready(pod) for pod in pods):
            await self._control.delete(owner, stale[0])
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


def _takes(owner: Unstructured, node: Node) -> bool:
    """Whether the set's pod may run on the node: node selector, node affinity and taints."""
    spec = owner.spec["template"].get("spec") or {}
    labels = node.metadata.labels or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if required and not node_matcher(msgspec.convert(required, NodeSelector))(node.metadata.name, labels):
        return False
    tolerations = msgspec.convert([*(spec.get("tolerations") or ()), *DAEMON_TOLERATIONS], list[Toleration])
    taints = [taint for taint in node.spec.taints or () if taint.effect in ("NoSchedule", "NoExecute")]
    return all(tolerates(tolerations, taint) for taint in taints)


def _pinned(template: dict[str, Any], node: str) -> dict[str, Any]:
    """The template with an affinity to one node and the tolerations every daemon has."""
    pinned = copy.deepcopy(template)
    spec = pinned.setdefault("spec", {})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {})
    affinity["nodeAffinity"] = {**affinity.get("nodeAffinity", {}), REQUIRED: {"nodeSelectorTerms": [term]}}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *DAEMON_TOLERATIONS]
    return pinned


def _node_of(pod: Pod) -> str:
    if pod.spec.node_name:
        return pod.spec.node_name
    node_affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    for term in (required.node_selector_terms if required else None) or ():
        for row in term.match_fields or ():
            if row.values:
                return row.values[0]
    return ""


class JobController(Controller):
    """Makes and replaces the pods of every Job; pods that succeeded or failed are counted while they exist."""

    name = "job"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._jobs = informers.watch_keys(JOB, Unstructured, self._queue.add)
        self._control = PodControl(informers, client, JOB, self._queue.add)

    async def sync(self, key: str) -> None:
        """Make the pods that a job still needs, and write its status."""
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or not self._control.settled(job):
            return
        conditions = job.status.get("conditions") or ()
        if any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions):
            return
        pods = self._control.pods(job)
        active = [pod for pod in pods if is_active(pod)]
        succeeded = sum(1 for pod in pods if pod.status.phase == "Succeeded")
        failed = sum(1 for pod in pods if pod.status.phase == "Failed")
        parallelism = int(job.spec.get("parallelism", 1))
        completions = job.spec.get("completions")
        left = parallelism if completions is None else int(completions) - succeeded
        failing = failed > int(job.spec.get("backoffLimit", BACKOFF_LIMIT))
        complete = left <= 0 if completions is not None else bool(succeeded) and not active
        wanted = 0 if failing or complete or job.spec.get("suspend") else min(parallelism, left)
        if completions is None and succeeded:
            wanted = min(wanted, len(active))
        name, uid = job.metadata.name, job.metadata.uid
        prefixed = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        labels = {**prefixed, "controller-uid": uid, "job-name": name}
        for _ in range(wanted - len(active)):
            metadata = {"generateName": f"{name}-", "labels": labels}
            await self._control.create(job, job.spec["template"], metadata)
        for pod in active[wanted:]:
            await self._control.delete(job, pod)
        status: dict[str, Any] = {"startTime": job.status.get("startTime") or rfc3339(time.time())}
        running = 0 if complete or failing else max(len(active), wanted)
        counts = {"active": running, "succeeded": succeeded, "failed": failed}
        status |= {key: value for key, value in counts.items() if value}
        status |= {"ready": sum(map(is_ready, active)), "terminating": 0, "uncountedTerminatedPods": {}}
        if complete or failing:
            now = rfc3339(time.time())
            reason, message, types = COMPLETE if complete else FAILED
            stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            conditions = [{"type": type_, **stamp, "reason": reason, "message": message} for type_ in types]
            status |= {"ready": 0, "conditions": conditions, **({"completionTime": now} if complete else {})}
        await put_status(self._client, JOB, job, status)
