"""A cluster from a file as the decision and the reconciler see one: for commands that otherwise read a live one."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from webhook.kube.client import Client
from webhook.kube.objects import Pod
from webhook.policy.model import Policies
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.reconciler.state.state import State
from webhook.simulation.policies import unreadable
from webhook.simulation.snapshot.objects import ClusterObjects

__all__ = ["check_judgeable", "offline_state", "pending"]


def offline_state(objects: ClusterObjects, annotations: Collection[str]) -> State:
    """The state of a reconciler that has listed these objects and will hear of nothing more."""
    state = State(cast("Client", None), annotations)
    for resource, informer in state.caches.items():
        for key, item in objects.of(resource.kind).items():
            informer.take(key, item)
        informer.synced.set()
    return state


def pending(objects: ClusterObjects) -> list[Pod]:
    """The pods that wait for a node, the most important first, then by name."""
    found = [
        pod
        for pod in objects.of("Pod").values()
        if not pod.spec.node_name and not pod.metadata.deletion_timestamp and pod.status.phase in {"", "Pending"}
    ]
    return sorted(found, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.namespace, pod.metadata.name))


def check_judgeable(policies: Policies, objects: ClusterObjects) -> None:
    """Raise ClusterError if a PreemptionPolicy reads of pods what these objects do not have."""
    for policy in policies.preemption:
        if why := unreadable(policy, objects):
            raise ClusterError(f"policy {policy.name} cannot be judged: {why}; take it with --policies")
