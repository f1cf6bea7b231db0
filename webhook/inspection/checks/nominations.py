"""Nominations that nobody takes back: they keep room from others (docs/kubernetes-behaviour.md K9, K11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import Observed, ObservedPod
from webhook.kube.instants import InstantError, epoch
from webhook.policy.model import PLAN

__all__ = ["stuck"]

_WHY = "kube-scheduler keeps the room free for the pod, and nobody clears a nomination that was never used."
_LONG = 600.0
"""Seconds after which a nomination is longer than any plan of the default timeout needs."""
_LATE = 60.0
"""Seconds past its deadline by which the reconciler has ended a plan."""


def stuck(observed: Observed) -> Iterator[ClusterFinding]:
    """Pending pods that are nominated to a node that is gone, for a plan that is over, or for very long."""
    nodes = None if "nodes" in observed.missing else {row["metadata"]["name"] for row in observed.objects["nodes"]}
    for pod in observed.pods:
        if pod.node or not (pod.nominated or PLAN in pod.annotations):
            continue
        clear = '{"status":{"nominatedNodeName":null}}'
        fix = f"kubectl patch pod -n {pod.namespace} {pod.name} --subresource=status --type=merge -p '{clear}'"
        if nodes is not None and pod.nominated and pod.nominated not in nodes:
            what = f"Pod {pod.key} is nominated to node {pod.nominated}, which does not exist."
            yield ClusterFinding(FindingSeverity.WARNING, what, _WHY, fix)
        elif (late := _overdue(pod, observed.now)) > _LATE:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"The plan on pod {pod.key} should have ended {_duration(late)} ago.",
                "giveway's reconciler ends a plan at its deadline, so none is at work. " + _WHY,
                "Look whether a reconciler leads; docs/operations.md says how to take plans off without one.",
            )
        elif PLAN not in pod.annotations and (since := _since(pod, observed.now)) > _LONG:
            by = f" by {pod.nominated_by}" if pod.nominated_by else ""
            what = f"Pod {pod.key} has been nominated to node {pod.nominated}{by} for {_duration(since)}."
            yield ClusterFinding(FindingSeverity.WARNING, what, _WHY, f"Ask whoever nominated it; to clear it: {fix}")


def _overdue(pod: ObservedPod, now: float) -> float:
    """Seconds since the deadline of the plan written on the pod; negative before it, or without one."""
    text = pod.annotations.get(PLAN)
    if text is None:
        return -1.0
    try:
        plan: Any = msgspec.json.decode(text)
        return now - epoch(plan["deadline"])
    except (msgspec.DecodeError, InstantError, LookupError, TypeError):
        return -1.0


def _since(pod: ObservedPod, now: float) -> float:
    try:
        return now - epoch(pod.nominated_at) if pod.nominated_at else 0.0
    except InstantError:
        return 0.0


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"
