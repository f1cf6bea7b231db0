"""The StatefulSet controller: numbered pods, one after the other. Volume claim templates are not played."""

from __future__ import annotations

from typing import Any

from webhook.embedded.standins.informers import StandInInformers, Workload
from webhook.embedded.standins.podcontrol import PodControl, is_active, is_ready, put_status, template_hash
from webhook.embedded.standins.workqueue import Controller
from webhook.kube.client import Client
from webhook.kube.objects import Pod
from webhook.kube.resources import STATEFUL_SET

__all__ = ["StatefulSetController"]

HASH = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


class StatefulSetController(Controller):
    """Makes and replaces the pods of every StatefulSet."""

    name = "statefulset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._sets = informers.watch_keys(STATEFUL_SET, Workload, self._queue.add)
        self._control = PodControl(informers, client, STATEFUL_SET, self._queue.add)

    async def sync(self, key: str) -> None:
        """Take the set's next step, and write its status."""
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp or not self._control.settled(owner):
            return
        digest = template_hash(owner.spec["template"])
        pods = {pod.metadata.name: pod for pod in self._control.pods(owner)}
        await self._step(owner, pods, digest)
        await put_status(self._client, STATEFUL_SET, owner, _status(owner, list(pods.values()), digest))

    async def _step(self, owner: Workload, pods: dict[str, Pod], digest: str) -> None:
        """Take the next step: make a missing pod, drop a surplus one, replace an outdated one."""
        wanted = int(owner.spec.get("replicas", 1))
        names = [f"{owner.metadata.name}-{number}" for number in range(wanted)]
        parallel = owner.spec.get("podManagementPolicy") == "Parallel"
        for index, name in enumerate(names):
            pod = pods.get(name)
            if pod is None:
                labels = {POD_NAME: name, POD_INDEX: str(index), HASH: f"{owner.metadata.name}-{digest}"}
                await self._control.create(owner, owner.spec["template"], {"name": name, "labels": labels})
            elif pod.status.phase in ("Succeeded", "Failed") and not pod.metadata.deletion_timestamp:
                await self._control.delete(owner, pod)
            if not parallel and (pod is None or not (is_active(pod) and is_ready(pod))):
                return
        surplus = sorted((name for name in pods if name not in names), key=_ordinal, reverse=True)
        outdated = [name for name in reversed(names) if name in pods and _revision(pods[name]) != digest]
        if (owner.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            outdated = []
        for name in (surplus + outdated)[: None if parallel else 1]:
            if not pods[name].metadata.deletion_timestamp:
                await self._control.delete(owner, pods[name])


def _ordinal(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else -1


def _revision(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(HASH, "").rpartition("-")[2]


def _status(owner: Workload, pods: list[Pod], digest: str) -> dict[str, Any]:
    ready = sum(1 for pod in pods if is_active(pod) and is_ready(pod))
    updated = sum(1 for pod in pods if _revision(pod) == digest)
    revision = f"{owner.metadata.name}-{digest}"
    status: dict[str, Any] = {"observedGeneration": owner.metadata.generation or 0, "replicas": len(pods)}
    counts = {"readyReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated}
    status |= {key: value for key, value in counts.items() if value}
    known = owner.status.get("currentRevision")
    done = updated == len(pods) == int(owner.spec.get("replicas", 1))
    status |= {"currentRevision": revision if done or not known else known, "updateRevision": revision}
    return status | {"availableReplicas": ready, "collisionCount": 0}
