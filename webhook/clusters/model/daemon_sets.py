"""One pod for each node that takes it (`pkg/controller/daemon`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from webhook.clusters.model.deployments import share
from webhook.clusters.model.pods import is_active, is_ready
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.placement import Toleration
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.kube.selectors import keep_off, node_matcher
from webhook.preemption.filters.placement import required_affinity
from webhook.preemption.snapshot.pod_info import node_of

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


def daemon_changes(
    nodes: Collection[str],
    pods: Iterable[Pod],
    strategy: Mapping[str, Any] | None,
    *,
    is_outdated: Callable[[Pod], bool],
) -> tuple[list[str], list[Pod]]:
    """The next step of a DaemonSet that is to have a pod on each of these `nodes` (`manage`, `rollingUpdate`).

    Returned are the nodes for which it makes a pod, and the pods that it deletes.

    `strategy` is its `updateStrategy`. Outdated pods go `maxUnavailable` at a time; one that is not ready keeps nobody
    waiting. No new one comes beside them first, whatever `maxSurge` says.
    """
    delete: list[Pod] = []
    here: dict[str, list[Pod]] = {node: [] for node in sorted(nodes)}
    for pod in pods:
        node = pod.spec.node_name or node_of(pod)
        if node in here and not is_terminal(pod):
            here[node].append(pod)
        elif not pod.metadata.deletion_timestamp:
            delete.append(pod)
    rolls = (strategy or {}).get("type") != "OnDelete"
    rolling = (strategy or {}).get("rollingUpdate") or {}
    room = max(1, share(rolling.get("maxUnavailable", 1), len(here)) if rolls else 0)
    replaceable: list[Pod] = []
    for own in here.values():
        staying = [pod for pod in own if is_active(pod)]
        outdated = [pod for pod in staying if rolls and is_outdated(pod)]
        delete += staying[1:]
        if outdated and len(outdated) == len(staying):
            replaceable.append(outdated[0])
        else:
            room -= bool(outdated) or not any(map(is_ready, staying[:1]))
    for pod in sorted(replaceable, key=is_ready):
        # One that is not ready is replaced whatever there is room for
        if is_ready(pod) and room <= 0:
            break
        room -= 1
        delete.append(pod)
    return [node for node, own in here.items() if not own], delete


def takes(like: Pod, node: Node) -> bool:
    """Whether a node is to have a pod like this one: its selector, required affinity and taints."""
    spec, labels, required = like.spec, node.metadata.labels or {}, required_affinity(like)
    if not (spec.node_selector or {}).items() <= labels.items():
        return False
    if required is not None and not node_matcher(required)(node.metadata.name, labels):
        return False
    return not keep_off(node.spec.taints, [*(spec.tolerations or ()), *_ADDED])


def pinned(spec: Json, node: str) -> Json:
    """A pod's spec with an affinity to one node, and with the tolerations that every daemon has."""
    result = copy.deepcopy(spec)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = result.get("affinity") or {}
    node_affinity = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    result["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    result["tolerations"] = [*(result.get("tolerations") or ()), *_TOLERATIONS]
    return result
