"""The kinds of objects that a snapshot is made of, one row each: where they are, and what takes them in.

The reconciler, the scheduler, the simulation and `giveway decide` all go by this table. To watch a further kind, add
its row here, and its right to the manifest of the reconciler: a test compares the two. A kind that not every API server
has is `optional`: if it is missing in all its versions (`Resource.paths`), it counts as empty.
A kind that is not known yet also needs its type in `kube.objects`, its path in `kube.resources`, and what takes it in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from webhook.kube import resources
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.preemption.snapshot.pod_groups import COSCHEDULING, POD_GROUP, VOLCANO
from webhook.preemption.snapshot.snapshot import Snapshot

_LEADING_CAPITALS = re.compile(r"^(?:[A-Z]+(?=[A-Z][a-z])|[A-Z])")


@dataclass(frozen=True, slots=True)
class SnapshotKind:
    """One kind of objects."""

    resource: resources.Resource
    type_: type[Any]
    put: Callable[[Snapshot, Any], None]
    """Take an object into the snapshot. May raise ClusterError: then it is left out."""
    remove: Callable[[Snapshot, str], None]
    """Take the object of that key out of the snapshot."""
    optional: bool = False
    """Whether an API server may lack it; then it counts as empty."""

    @property
    def field(self) -> str:
        """The name of a list of these objects in JSON: `pods`, `csiNodes`, `priorityClasses`."""
        name = self.resource.title + self.resource.plural[len(self.resource.kind) :]
        return _LEADING_CAPITALS.sub(lambda match: match[0].lower(), name)


PRIORITY_CLASSES = SnapshotKind(
    resources.PRIORITY_CLASS, PriorityClass, Snapshot.set_priority_class, Snapshot.remove_priority_class
)
NAMESPACES = SnapshotKind(resources.NAMESPACE, Namespace, Snapshot.set_namespace, Snapshot.remove_namespace)
NODES = SnapshotKind(resources.NODE, Node, Snapshot.set_node, Snapshot.remove_node)
BUDGETS = SnapshotKind(
    resources.POD_DISRUPTION_BUDGET, PodDisruptionBudget, Snapshot.set_budget, Snapshot.remove_budget
)
PODS = SnapshotKind(resources.POD, Pod, Snapshot.set_pod, Snapshot.remove_pod)
CLAIMS = SnapshotKind(
    resources.RESOURCE_CLAIM,
    ResourceClaim,
    Snapshot.set_resource_claim,
    Snapshot.remove_resource_claim,
    optional=True,
)
"""Those on devices."""
SLICES = SnapshotKind(
    resources.RESOURCE_SLICE,
    ResourceSlice,
    Snapshot.set_resource_slice,
    Snapshot.remove_resource_slice,
    optional=True,
)
DEVICE_CLASSES = SnapshotKind(
    resources.DEVICE_CLASS, DeviceClass, Snapshot.set_device_class, Snapshot.remove_device_class, optional=True
)
POD_GROUPS = {
    source: SnapshotKind(
        resource,
        PodGroup,
        partial(Snapshot.set_pod_group, source=source),
        partial(Snapshot.remove_pod_group, source=source),
        optional=True,
    )
    for source, resource in (
        (POD_GROUP, resources.POD_GROUP),
        (COSCHEDULING, resources.COSCHEDULING_POD_GROUP),
        (VOLCANO, resources.VOLCANO_POD_GROUP),
    )
}
"""By how pods name them."""
SNAPSHOT_KINDS = (
    PRIORITY_CLASSES,
    NAMESPACES,
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
    *POD_GROUPS.values(),
    SnapshotKind(resources.CSI_NODE, CSINode, Snapshot.set_csi_node, Snapshot.remove_csi_node),
    SnapshotKind(resources.STORAGE_CLASS, StorageClass, Snapshot.set_storage_class, Snapshot.remove_storage_class),
    DEVICE_CLASSES,
    SLICES,
    CLAIMS,
    NODES,
    BUDGETS,
    PODS,
)
"""What pods are judged by comes before the pods, when all of it is filled in again."""
