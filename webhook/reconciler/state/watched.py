"""The kinds of objects that the reconciler watches, one row each, and which changes of them could help a preemptor.

To watch a further kind, add its row to `WATCHED`, and its right to the manifest of the reconciler: a test compares the
two. The hints are those of docs/semantics.md F3; kube-scheduler calls them queueing hints. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.kube.informer import Change
from webhook.kube.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import is_terminal
from webhook.kube.resources import (
    CSI_NODE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    STORAGE_CLASS,
    Resource,
)
from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = [
    "BUDGETS",
    "NODES",
    "PODS",
    "WATCHED",
    "WatchedKind",
    "budget_helps",
    "frees_room",
    "makes_company",
    "node_helps",
    "relevant_difference",
    "spec_changed",
]


def frees_room(change: Change[Pod]) -> bool:
    """Whether a pod's change leaves more room, or more pods that may be asked to leave."""
    old, new = change.old, change.new
    if old is None:
        return False
    if new is None or is_terminal(new):
        return bool(old.spec.node_name or old.status.nominated_node_name) and not is_terminal(old)
    if old.status.nominated_node_name != new.status.nominated_node_name and old.status.nominated_node_name:
        return True
    if not new.spec.node_name:
        return False
    return (
        bool(new.metadata.deletion_timestamp) != bool(old.metadata.deletion_timestamp)
        or old.metadata.annotations != new.metadata.annotations
        or old.metadata.labels != new.metadata.labels
        or old.status.start_time != new.status.start_time
        or old.spec.containers != new.spec.containers
        or old.status.container_statuses != new.status.container_statuses
    )


def makes_company(change: Change[Pod]) -> bool:
    """Whether a pod came to a node, which can only help a preemptor with pod affinity."""
    new = change.new
    if new is None or not new.spec.node_name:
        return False
    return change.old is None or not change.old.spec.node_name


def spec_changed(change: Change[Pod]) -> bool:
    """Whether a pod asks for something else than before."""
    old, new = change.old, change.new
    return old is not None and new is not None and (old.spec != new.spec or old.metadata.labels != new.metadata.labels)


def node_helps(change: Change[Node]) -> bool:
    """Whether a node came or changed in what the filters look at; a heartbeat is no such change."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is not None
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
        or old.status.declared_features != new.status.declared_features
    )


def budget_helps(change: Change[PodDisruptionBudget]) -> bool:
    """Whether a budget is gone, covers other pods, was counted again, or has more disruptions left."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is None
    return (
        new.status.disruptions_allowed > old.status.disruptions_allowed
        or old.spec.selector != new.spec.selector
        or old.status.disrupted_pods != new.status.disrupted_pods
        or old.status.observed_generation != new.status.observed_generation
    )


def relevant_difference(change: Change[Any]) -> bool:
    """Whether an object of a minor kind (class, namespace, volume) differs in anything that is read of it."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    same_meta = old.metadata.labels == new.metadata.labels and old.metadata.annotations == new.metadata.annotations
    return not same_meta or any(
        getattr(old, name) != getattr(new, name) for name in new.__struct_fields__ if name != "metadata"
    )


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """One kind: where it is and what it decodes to, what the snapshot does with it, and which change could help."""

    resource: Resource
    type_: type[Any]
    put: Callable[[Snapshot, Any], None]
    """Take an object into the snapshot. May raise ClusterError: then it is left out."""
    remove: Callable[[Snapshot, str], None]
    """Take the object of that key out of the snapshot."""
    helps: Callable[[Change[Any]], bool] = relevant_difference
    """Whether the change could help a preemptor that found no room."""
    transform: Callable[[], Callable[[Any], Any]] | None = None
    """Makes what turns a decoded object into what is kept of it."""


NODES = WatchedKind(NODE, Node, Snapshot.set_node, Snapshot.remove_node, node_helps)
BUDGETS = WatchedKind(
    POD_DISRUPTION_BUDGET, PodDisruptionBudget, Snapshot.set_budget, Snapshot.remove_budget, budget_helps
)
PODS = WatchedKind(POD, Pod, Snapshot.set_pod, Snapshot.remove_pod, frees_room, SharedPods)
WATCHED = (
    WatchedKind(PRIORITY_CLASS, PriorityClass, Snapshot.set_priority_class, Snapshot.remove_priority_class),
    WatchedKind(NAMESPACE, Namespace, Snapshot.set_namespace, Snapshot.remove_namespace),
    WatchedKind(PERSISTENT_VOLUME, PersistentVolume, Snapshot.set_persistent_volume, Snapshot.remove_persistent_volume),
    WatchedKind(
        PERSISTENT_VOLUME_CLAIM,
        PersistentVolumeClaim,
        Snapshot.set_persistent_volume_claim,
        Snapshot.remove_persistent_volume_claim,
    ),
    WatchedKind(CSI_NODE, CSINode, Snapshot.set_csi_node, Snapshot.remove_csi_node),
    WatchedKind(STORAGE_CLASS, StorageClass, Snapshot.set_storage_class, Snapshot.remove_storage_class),
    NODES,
    BUDGETS,
    PODS,
)
"""What pods are judged by comes before the pods, when all of it is filled in again."""
