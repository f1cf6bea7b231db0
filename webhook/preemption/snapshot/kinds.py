"""The kinds of objects that a snapshot is made of, one row each: where they are, and what takes them in.

To watch a further kind, add its row here, and its right to the manifest of the reconciler: a test compares the two.
A kind that is not known yet also needs its type in `kube.objects`, its path in `kube.resources`, and what takes it in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.kube import resources
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
from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["BUDGETS", "NODES", "PODS", "PRIORITY_CLASSES", "SNAPSHOT_KINDS", "SnapshotKind"]


@dataclass(frozen=True, slots=True)
class SnapshotKind:
    """One kind of objects."""

    resource: resources.Resource
    type_: type[Any]
    put: Callable[[Snapshot, Any], None]
    """Take an object into the snapshot. May raise ClusterError: then it is left out."""
    remove: Callable[[Snapshot, str], None]
    """Take the object of that key out of the snapshot."""


PRIORITY_CLASSES = SnapshotKind(
    resources.PRIORITY_CLASS, PriorityClass, Snapshot.set_priority_class, Snapshot.remove_priority_class
)
NODES = SnapshotKind(resources.NODE, Node, Snapshot.set_node, Snapshot.remove_node)
BUDGETS = SnapshotKind(
    resources.POD_DISRUPTION_BUDGET, PodDisruptionBudget, Snapshot.set_budget, Snapshot.remove_budget
)
PODS = SnapshotKind(resources.POD, Pod, Snapshot.set_pod, Snapshot.remove_pod)
SNAPSHOT_KINDS = (
    PRIORITY_CLASSES,
    SnapshotKind(resources.NAMESPACE, Namespace, Snapshot.set_namespace, Snapshot.remove_namespace),
    SnapshotKind(
        resources.PERSISTENT_VOLUME,
        PersistentVolume,
        Snapshot.set_persistent_volume,
        Snapshot.remove_persistent_volume,
    ),
    SnapshotKind(
        resources.PERSISTENT_VOLUME_CLAIM,
        PersistentVolumeClaim,
        Snapshot.set_persistent_volume_claim,
        Snapshot.remove_persistent_volume_claim,
    ),
    SnapshotKind(resources.CSI_NODE, CSINode, Snapshot.set_csi_node, Snapshot.remove_csi_node),
    SnapshotKind(resources.STORAGE_CLASS, StorageClass, Snapshot.set_storage_class, Snapshot.remove_storage_class),
    NODES,
    BUDGETS,
    PODS,
)
"""What pods are judged by comes before the pods, when all of it is filled in again."""
