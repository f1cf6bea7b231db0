"""Groups of pods that wait for members that do not come: nobody is placed or evicted for a part of a gang (D12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import Observed, ObservedPod
from webhook.kube.instants import InstantError, epoch

__all__ = ["too_small"]

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
        seconds = max((_age(pod, observed.now) for pod in waiting), default=0.0)
        if len(pods) >= minimum or seconds < _LONG:
            continue
        source, namespace, name = key
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{source} {namespace}/{name} needs {minimum} pods and has had {len(pods)} for {seconds / 60:.0f} min.",
            f"{len(waiting)} of them wait, and nobody is evicted for a part of a group: it is never placed like that.",
            "Look why its controller makes no more pods (a quota, an admission webhook), or lower its minimum.",
        )


def _age(pod: ObservedPod, now: float) -> float:
    """Seconds since the pod was made; 0 if it does not tell."""
    with suppress(InstantError):
        return now - epoch(pod.created)
    return 0.0
