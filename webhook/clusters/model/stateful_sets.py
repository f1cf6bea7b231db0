"""Pods with a name and an order (`pkg/controller/statefulset`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from webhook.clusters.model.pods import is_active, is_ready
from webhook.kube.objects import Pod
from webhook.kube.pods import is_terminal

__all__ = ["StatefulChanges", "stateful_changes"]


class StatefulChanges(NamedTuple):
    """The ordinals of the pods that a StatefulSet makes now, and the pods that it deletes."""

    create: list[int]
    delete: list[Pod]


def stateful_changes(
    name: str, replicas: int, pods: Mapping[str, Pod], *, parallel: bool, is_outdated: Callable[[Pod], bool]
) -> StatefulChanges:
    """The next step of a StatefulSet over its `pods` by name.

    In order a pod is made once all before it are ready, and one pod at a time goes. With `parallel`
    (`podManagementPolicy`) nothing waits. A name is free once the pod that had it is gone.
    """
    create: list[int] = []
    delete: list[Pod] = []
    names = [f"{name}-{number}" for number in range(replicas)]
    for ordinal, own in enumerate(names):
        pod = pods.get(own)
        if pod is None:
            create.append(ordinal)
        elif is_terminal(pod) and not pod.metadata.deletion_timestamp:
            delete.append(pod)
        if not parallel and (pod is None or not (is_active(pod) and is_ready(pod))):
            return StatefulChanges(create, delete)
    surplus = sorted((key for key in pods if key not in names), key=lambda key: (len(key), key), reverse=True)
    outdated = [key for key in reversed(names) if key in pods and is_outdated(pods[key])]
    due = (surplus + outdated)[: None if parallel else 1]
    delete += [pods[key] for key in due if not pods[key].metadata.deletion_timestamp]
    return StatefulChanges(create, delete)
