"""The ReplicaSet controller: as many pods as asked for."""

from __future__ import annotations

from typing import Any

from webhook.embedded.standins.informers import StandInInformers, Workload
from webhook.embedded.standins.podcontrol import PodControl, is_active, is_ready, put_status
from webhook.embedded.standins.workqueue import Controller
from webhook.kube.client import Client
from webhook.kube.objects import Pod
from webhook.kube.resources import REPLICA_SET

__all__ = ["ReplicaSetController"]


class ReplicaSetController(Controller):
    """Makes and replaces the pods of every ReplicaSet."""

    name = "replicaset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__(workers=4)
        self._sets = informers.watch_keys(REPLICA_SET, Workload, self._queue.add)
        self._control = PodControl(informers, client, REPLICA_SET, self._queue.add)

    async def sync(self, key: str) -> None:
        """Make the set's missing pods or delete those too many, and write its status."""
        owner = self._sets.get(key)
        if owner is None or not self._control.settled(owner):
            return
        active = [pod for pod in self._control.pods(owner) if is_active(pod)]
        if not owner.metadata.deletion_timestamp:
            wanted = int(owner.spec.get("replicas", 1))
            for _ in range(wanted - len(active)):
                template = owner.spec["template"]
                await self._control.create(owner, template, {"generateName": f"{owner.metadata.name}-"})
            for pod in sorted(active, key=_dispensable)[: max(0, len(active) - wanted)]:
                await self._control.delete(owner, pod)
        ready = sum(map(is_ready, active))
        labels = ((owner.spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        labelled = sum(1 for pod in active if labels.items() <= (pod.metadata.labels or {}).items())
        counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": ready}
        status: dict[str, Any] = {"replicas": len(active)}
        status |= {key: value for key, value in counts.items() if value}
        status["observedGeneration"] = owner.metadata.generation or 0
        await put_status(self._client, REPLICA_SET, owner, status)


def _dispensable(pod: Pod) -> tuple[bool, bool, bool, str]:
    """Sort key of what is deleted first: unassigned, not running, not ready, youngest."""
    created = "".join(chr(0x10FFFF - ord(char)) for char in pod.metadata.creation_timestamp or "")
    return bool(pod.spec.node_name), pod.status.phase == "Running", is_ready(pod), created
