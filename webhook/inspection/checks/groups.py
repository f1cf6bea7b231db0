"""Groups of pods whose minimum is not met, or cannot be: nobody is placed or evicted for a part of a gang (D12)."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.empty_cluster import empty_cluster, is_ready, room_for
from webhook.inspection.observed import Observed, ObservedPod
from webhook.kube.instants import epoch_or
from webhook.preemption.snapshot.amounts import ClusterError

_LONG = 600.0
"""Seconds that a controller may take to make the pods of a group."""


def too_small(observed: Observed) -> Iterator[ClusterFinding]:
    """Groups of which pods wait, and that have had fewer pods than their minimum for long."""
    members: dict[tuple[str, str, str], list[ObservedPod]] = {}
    for pod in observed.pods:
        if pod.group in observed.minima:
            members.setdefault(pod.group, []).append(pod)
    for key, pods in members.items():
        minimum, waiting = observed.minima[key], [pod for pod in pods if not pod.node]
        seconds = max((observed.now - epoch_or(pod.created, observed.now) for pod in waiting), default=0.0)
        if len(pods) >= minimum or seconds < _LONG:
            continue
        source, namespace, name = key
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{source} {namespace}/{name} needs {minimum} pods and has had {len(pods)} for {seconds / 60:.0f} min.",
            f"{len(waiting)} of them wait, and nobody is evicted for a part of a group: it is never placed like that.",
            "Look why its controller makes no more pods (a quota, an admission webhook), or lower its minimum.",
        )


def without_room(observed: Observed) -> Iterator[ClusterFinding]:
    """Groups whose minimum can never be met: their pods have no room together even if every other pod is gone."""
    if not observed.members:
        return
    snapshot = empty_cluster(observed.nodes)
    ready = sum(map(is_ready, observed.nodes))
    for key, pods in observed.members.items():
        minimum, group = observed.minima[key], observed.pod_groups.get(key)
        needed = min(minimum, len(pods))
        try:
            room = room_for(snapshot, pods, group, observed.device_classes)
        except ClusterError:
            continue  # kube-scheduler cannot read it either, and says so
        if room.most >= needed:
            continue
        source, namespace, name = key
        lacking = "; ".join(f"{pod}: {why or 'there is no ready node'}" for pod, why in room.reasons.items())
        together = " in one domain of its topology" if group is not None and group.topology_keys else ""
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{source} {namespace}/{name} needs {minimum} pods, and at most {room.most} of its {len(pods)} have room"
            f"{together} on the {ready} ready nodes, even if every other pod is gone."
            + (f" No node is good for {lacking}." if lacking else ""),
            "Its minimum can never be met on these nodes: nobody is evicted for it, and its pods wait forever.",
            f"Add nodes for {needed - room.most} more of its pods{together}, let them ask for less, "
            "or lower its minimum."
            if not lacking
            else "Change what these pods ask for or tolerate, add nodes that have it, or lower its minimum.",
        )
