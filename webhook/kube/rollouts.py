"""How far a Deployment has come, and why its pods are not ready, in words for people. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]


def unready(deployment: Json, pods: Iterable[Json]) -> str:
    """That its newest pods are not all ready, and why, if its `pods` say so; empty if they are."""
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    replicas = deployment["spec"].get("replicas")
    wanted = 1 if replicas is None else int(replicas)
    ready = 0
    if status.get("observedGeneration", 0) >= metadata.get("generation", 0):
        counts = ("updatedReplicas", "availableReplicas")
        ready = min(status.get(count, 0) for count in counts)
    if ready >= wanted:
        return ""
    told = map(_reason, pods)
    failing = [row for row in status.get("conditions") or () if row.get("type") == "ReplicaFailure"]
    messages = [row.get("message", "") for row in failing if row.get("status") == "True"]
    reasons = dict.fromkeys(filter(None, [*messages, *told]))
    text = f"{metadata['name']}: {ready} of {wanted} pods are ready"
    return f"{text} ({'; '.join(reasons)})" if reasons else text


def _reason(pod: Json) -> str:
    """Why a pod is not ready, if it says so; empty for one that is ready or only young."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"no node takes it: {condition.get('message', '')}"
    containers = list(status.get("initContainerStatuses") or ())
    for container in containers + list(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        held = state.get("waiting") or {}
        named, reason = f"container {container['name']}", held.get("reason")
        if reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{named}: {reason}: {held.get('message', '')}".rstrip(": ")
        ended = state.get("terminated") or {}
        if ended.get("exitCode"):
            return f"{named} ended with exit code {ended['exitCode']}; see kubectl logs"
    return ""
