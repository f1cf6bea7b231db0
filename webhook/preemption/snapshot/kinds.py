"""The kinds of objects that a snapshot is made of, a row each.

The reconciler, the scheduler, the simulation and `giveway decide` go by it. A further kind needs
a row here and in `Snapshot`, and a right in the reconciler's manifest: a test compares the
two. A new one also needs its type in `kube.objects` and its path in `kube.resources`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from webhook.kube import resources
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.preemption.snapshot.pod_groups import COSCHEDULING, POD_GROUP, VOLCANO

_LEADING_CAPITALS = re.compile(r"^(?:[A-Z]+(?=[A-Z][a-z])|[A-Z])")


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotKind:
    """One kind of objects."""

    resource: resources.Resource
    type_: type[Any]
    optional: bool = False
    """An API server may lack it in all versions (`Resource.paths`): it counts as empty."""

    @property
    def field(self) -> str:
        """The name of a list of these objects in JSON: `pods`, `csiNodes`, `priorityClasses`."""
        name = self.resource.title + self.resource.plural[len(self.resource.kind) :]
        return _LEADING_CAPITALS.sub(lambda match: match[0].lower(), name)


PRIORITY_CLASSES = SnapshotKind(resources.PRIORITY_CLASS, PriorityClass)
NAMESPACES = SnapshotKind(resources.NAMESPACE, Namespace)
VOLUMES = SnapshotKind(resources.PERSISTENT_VOLUME, PersistentVolume)
VOLUME_CLAIMS = SnapshotKind(resources.PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)
CSI_NODES = SnapshotKind(resources.CSI_NODE, CSINode)
STORAGE_CLASSES = SnapshotKind(resources.STORAGE_CLASS, StorageClass)
NODES = SnapshotKind(resources.NODE, Node)
BUDGETS = SnapshotKind(resources.POD_DISRUPTION_BUDGET, PodDisruptionBudget)
PODS = SnapshotKind(resources.POD, Pod)
CLAIMS = SnapshotKind(resources.RESOURCE_CLAIM, ResourceClaim, optional=True)
"""Those on devices."""
SLICES = SnapshotKind(resources.RESOURCE_SLICE, ResourceSlice, optional=True)
DEVICE_CLASSES = SnapshotKind(resources.DEVICE_CLASS, DeviceClass, optional=True)
POD_GROUPS = {
    POD_GROUP: SnapshotKind(resources.POD_GROUP, PodGroup, optional=True),
    COSCHEDULING: SnapshotKind(resources.COSCHEDULING_POD_GROUP, PodGroup, optional=True),
    VOLCANO: SnapshotKind(resources.VOLCANO_POD_GROUP, PodGroup, optional=True),
}
"""By how pods name them."""
SNAPSHOT_KINDS = (
    PRIORITY_CLASSES,
    NAMESPACES,
    VOLUMES,
    VOLUME_CLAIMS,
    *POD_GROUPS.values(),
    CSI_NODES,
    STORAGE_CLASSES,
    DEVICE_CLASSES,
    SLICES,
    CLAIMS,
    NODES,
    BUDGETS,
    PODS,
)
"""In the order of filling in: what judges pods comes before the pods."""
