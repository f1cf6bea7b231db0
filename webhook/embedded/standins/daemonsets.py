"""The DaemonSet controller: one pod on every node that would take it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from webhook.embedded.standins.informers import StandInInformers, Workload
from webhook.embedded.standins.podcontrol import PodControl, is_active, is_ready, put_status, template_hash
from webhook.embedded.standins.workqueue import Controller
from webhook.kube.client import Client
from webhook.kube.informer import Change
from webhook.kube.objects import Node, NodeSelector, Pod, Taint
from webhook.kube.resources import DAEMON_SET, NODE
from webhook.kube.selectors import node_matcher

__all__ = ["DaemonSetController"]

HASH = "controller-revision-hash"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOLERATED = {
    "node.kubernetes.io/not-ready": "NoExecute",
    "node.kubernetes.io/unreachable": "NoExecute",
    "node.kubernetes.io/disk-pressure": "NoSchedule",
    "node.kubernetes.io/memory-pressure": "NoSchedule",
    "node.kubernetes.io/pid-pressure": "NoSchedule",
    "node.kubernetes.io/unschedulable": "NoSchedule",
}


class DaemonSetController(Controller):
    """Makes and replaces the pods of every DaemonSet; pods are bound to their node by affinity."""

    name = "daemonset"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._sets = informers.watch_keys(DAEMON_SET, Workload, self._queue.add)
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
            if pod.status.phase in ("Succeeded", "Failed") or node not in wanted or node in placed:
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
        await put_status(self._client, DAEMON_SET, owner, _status(owner, digest, len(wanted), pods))


def _takes(owner: Workload, node: Node) -> bool:
    """Whether the set's pod may run on the node: node selector, node affinity and taints."""
    spec = owner.spec["template"].get("spec") or {}
    labels = node.metadata.labels or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if required and not node_matcher(msgspec.convert(required, NodeSelector))(node.metadata.name, labels):
        return False
    tolerations = [*(spec.get("tolerations") or ()), *_own_tolerations()]
    taints = [taint for taint in node.spec.taints or () if taint.effect in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: dict[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect) or toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value


def _own_tolerations() -> list[dict[str, Any]]:
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in TOLERATED.items()]


def _pinned(template: dict[str, Any], node: str) -> dict[str, Any]:
    """The template with an affinity to one node and the tolerations every daemon has."""
    pinned = copy.deepcopy(template)
    spec = pinned.setdefault("spec", {})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {})
    affinity["nodeAffinity"] = {**affinity.get("nodeAffinity", {}), REQUIRED: {"nodeSelectorTerms": [term]}}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_own_tolerations()]
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


def _status(owner: Workload, digest: str, wanted: int, pods: list[Pod]) -> dict[str, Any]:
    ready = sum(map(is_ready, pods))
    updated = sum(1 for pod in pods if (pod.metadata.labels or {}).get(HASH) == digest)
    status: dict[str, Any] = {
        "currentNumberScheduled": len(pods),
        "numberMisscheduled": 0,
        "desiredNumberScheduled": wanted,
        "numberReady": ready,
        "observedGeneration": owner.metadata.generation or 0,
    }
    counts = {"updatedNumberScheduled": updated, "numberAvailable": ready, "numberUnavailable": wanted - ready}
    return status | {key: value for key, value in counts.items() if value}
