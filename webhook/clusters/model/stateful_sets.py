"""Pods with a name and an order (`pkg/controller/statefulset`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from webhook.clusters.model.pods import is_active, is_ready
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal

_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"


def stateful_changes(
    name: str, spec: WorkloadSpec, pods: Mapping[str, Pod], *, is_outdated: Callable[[Pod], bool]
) -> tuple[list[int], list[Pod], int]:
    """The next step of a StatefulSet over its `pods` by name.

    In order a pod is made once all before it are ready, and one surplus pod at a time goes. With
    `podManagementPolicy: Parallel` nothing waits for that. Outdated pods go one at a time, from the highest ordinal
    down to the partition; `maxUnavailable` needs a feature gate that is off in 1.36. A name is free once the pod that
    had it is gone.

    Returned are the ordinals of the pods that it makes, the pods that it deletes, and the ordinal below which a pod is
    made of the template before the last change.
    """
    parallel = spec.pod_management_policy == "Parallel"
    replicas, start = 1 if spec.replicas is None else spec.replicas, (spec.ordinals or {}).get("start") or 0
    partition = ((spec.update_strategy or {}).get("rollingUpdate") or {}).get("partition") or 0
    create: list[int] = []
    delete: list[Pod] = []
    changes = create, delete, start + partition
    names = [f"{name}-{start + number}" for number in range(replicas)]
    for ordinal, own in enumerate(names, start):
        pod = pods.get(own)
        if pod is None:
            create.append(ordinal)
        elif is_terminal(pod) and not pod.metadata.deletion_timestamp:
            delete.append(pod)
        if not parallel and (pod is None or not _is_available(pod)):
            return changes
    surplus = sorted((key for key in pods if key not in names), key=lambda key: (len(key), key), reverse=True)
    delete += _staying(pods[key] for key in surplus[: None if parallel else 1])
    if (surplus and not parallel) or (spec.update_strategy or {}).get("type") == "OnDelete":
        return changes
    for own in reversed(names[partition:]):
        pod = pods.get(own)
        if pod is not None and is_outdated(pod):
            delete += [row for row in _staying([pod]) if row not in delete]
            break
        if pod is None or not _is_available(pod):
            break
    return changes


def identify_stateful_pod(template: dict[str, Any], name: str, ordinal: int) -> dict[str, Any]:
    """A new pod of a StatefulSet, with its name and its ordinal."""
    metadata, own = template.get("metadata") or {}, f"{name}-{ordinal}"
    labels = {**(metadata.get("labels") or {}), _POD_NAME: own, _POD_INDEX: str(ordinal)}
    return {"metadata": {**metadata, "name": own, "labels": labels}, "spec": template["spec"]}


def _is_available(pod: Pod) -> bool:
    return is_active(pod) and is_ready(pod)


def _staying(pods: Any) -> list[Pod]:
    return [pod for pod in pods if not pod.metadata.deletion_timestamp]
