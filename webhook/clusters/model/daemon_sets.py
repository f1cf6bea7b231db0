"""One pod for each node that takes it (`pkg/controller/daemon`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from webhook.clusters.model.pods import is_active, is_ready
from webhook.kube.objects import Node, Pod, PodSpec, Toleration
from webhook.kube.pods import is_terminal
from webhook.kube.selectors import node_matcher
from webhook.preemption.filters.placement import tolerates

__all__ = ["DaemonChanges", "daemon_changes", "node_of", "pinned", "takes"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in {
        "not-ready": "NoExecute",
        "unreachable": "NoExecute",
        "disk-pressure": "NoSchedule",
        "memory-pressure": "NoSchedule",
        "pid-pressure": "NoSchedule",
        "unschedulable": "NoSchedule",
    }.items()
]
"""What the controller adds to every daemon (`AddOrUpdateDaemonPodTolerations`)."""
_ADDED = msgspec.convert(_TOLERATIONS, list[Toleration])
Json = dict[str, Any]


class DaemonChanges(NamedTuple):
    """The nodes for which a DaemonSet makes a pod now, the pods it deletes, and its pods by node."""

    create: list[str]
    delete: list[Pod]
    placed: dict[str, Pod]


def daemon_changes(
    nodes: Collection[str], pods: Iterable[Pod], *, is_outdated: Callable[[Pod], bool], rolls: bool
) -> DaemonChanges:
    """The next step of a DaemonSet that is to have a pod on each of these `nodes`.

    If it `rolls`, a pod of an older template goes once all others are ready (`maxUnavailable: 1`).
    """
    delete: list[Pod] = []
    placed: dict[str, Pod] = {}
    for pod in pods:
        node = node_of(pod)
        if is_terminal(pod) or node not in nodes or node in placed:
            if not pod.metadata.deletion_timestamp:
                delete.append(pod)
        else:
            placed[node] = pod
    outdated = [pod for pod in placed.values() if is_active(pod) and is_outdated(pod)]
    if rolls and outdated and all(is_active(pod) and is_ready(pod) for pod in placed.values()):
        delete.append(outdated[0])
    return DaemonChanges(sorted(set(nodes) - placed.keys()), delete, placed)


def takes(spec: PodSpec, node: Node) -> bool:
    """Whether a node is to have a pod of this template: its selector, required affinity and taints."""
    labels = node.metadata.labels or {}
    if not (spec.node_selector or {}).items() <= labels.items():
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is not None and not node_matcher(required)(node.metadata.name, labels):
        return False
    tolerations = [*(spec.tolerations or ()), *_ADDED]
    taints = (taint for taint in node.spec.taints or () if taint.effect in ("NoSchedule", "NoExecute"))
    return all(tolerates(tolerations, taint) for taint in taints)


def pinned(spec: Json, node: str) -> Json:
    """A pod's spec with an affinity to one node, and with the tolerations that every daemon has."""
    result = copy.deepcopy(spec)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = result.get("affinity") or {}
    node_affinity = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    result["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    result["tolerations"] = [*(result.get("tolerations") or ()), *_TOLERATIONS]
    return result


def node_of(pod: Pod) -> str:
    """The node that a daemon is on, or is made for; empty for a pod of another kind."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in (required.node_selector_terms if required else None) or ():
        for row in term.match_fields or ():
            if row.values:
                return row.values[0]
    return ""
