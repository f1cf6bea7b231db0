"""The cluster a decision is made on, kept up to date by single-object events and never rebuilt.

All methods are cheap (a pod event takes microseconds) and single-threaded: events and decisions take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.bounded import Newest
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import ClaimConsumer, DeviceClass, ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.amounts import Amounts, int32, wished
from webhook.preemption.snapshot.budgets import DisruptionBudgets
from webhook.preemption.snapshot.claim_index import ClaimIndex
from webhook.preemption.snapshot.device_index import DeviceId, DeviceIndex
from webhook.preemption.snapshot.interning import Interner, Table
from webhook.preemption.snapshot.nodes import Nodes, Resources
from webhook.preemption.snapshot.pod_groups import POD_GROUP
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS, PodSummary
from webhook.preemption.snapshot.pods import Pods
from webhook.preemption.snapshot.slot_orders import SlotOrder
from webhook.preemption.snapshot.volume_index import AttachedVolumes, VolumeIndex

_MOST_ORDERS, _MOST_TABLES = 16, 128
"""Orders of pods and tables of answers that are kept: those that were asked for last."""


class Snapshot:
    """Nodes, pods, budgets and what else decides where a pod fits.

    `set_*` adds or updates, `remove_*` forgets; an unknown key is fine. Pods that ended are not kept, nor are pods
    without a node unless they are nominated to one. `version` counts events. `under_policy` topology is counted as it
    will be, and not as kube-scheduler counts it, where the two differ (docs/semantics.md D3): a nominated pod counts in
    its whole domain, and a terminating one is not taken away twice.
    """

    def __init__(self, annotations: Collection[str] = KEPT_ANNOTATIONS, *, under_policy: bool = False) -> None:
        self.version = 0
        self.under_policy = under_policy
        self.namespaces_version = 0
        self.nodes = Nodes(Resources())
        self.pods = Pods(self.nodes, frozenset(annotations))
        self.wishes: dict[int, Amounts] = {}
        """By the row of a pod whose resize is deferred, what it takes of its node's room without having it."""
        self.budgets = DisruptionBudgets(self.pods)
        self.classes: dict[str, PriorityClass] = {}
        self.classes_version = 0
        self.namespaces: dict[str, Namespace] = {}
        self.volumes = VolumeIndex()
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.storage_classes: dict[str, StorageClass] = {}
        self.attached = AttachedVolumes(self.volumes, self.claims, self.storage_classes)
        self.attach_limits: dict[str, dict[str, int]] = {}
        """By CSI driver and node: how many volumes can be attached."""
        self.devices = DeviceIndex()
        self.device_claims = ClaimIndex(self.devices, self.pods)
        self._slot_orders: Newest[Hashable, SlotOrder] = Newest(_MOST_ORDERS)
        self._tables: Newest[Hashable, Table[Any]] = Newest(_MOST_TABLES)

    def table(
        self, key: Hashable, interner: Interner[Any, Any], dtype: Any, evaluate: Callable[[Any], Any]
    ) -> NDArray[Any]:
        """Answers about interned values, by id, that are kept under `key` from decision to decision."""
        return self._tables.made(key, Table, interner, dtype, evaluate).column()

    def slot_order(self, key: Hashable) -> SlotOrder:
        """The order of the pods of nodes that is kept under `key`."""
        return self._slot_orders.made(key, SlotOrder, self.pods)

    def set_node(self, node: Node) -> None:
        """Add or update a node. Raises ClusterError for an amount that is negative or not a quantity."""
        self.version += 1
        known = len(self.nodes.resources.names)
        self.nodes.put(node)
        if len(self.nodes.resources.names) > known:
            self.pods.advertise()

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods count again should it come back."""
        self.version += 1
        self.nodes.remove(name)

    def set_pod(self, pod: Pod) -> None:
        """Add or update a pod. Raises ClusterError for one that cannot be read, and keeps what was known before."""
        self.version += 1
        meta = pod.metadata
        before = self.uid_of(meta.namespace, meta.name)
        if is_terminal(pod) or not (pod.spec.node_name or pod.status.nominated_node_name):
            self._forget_pod(meta.namespace, meta.name)
            return
        wish, row = wished(pod), self.pods.put(pod)
        self.wishes.pop(row, None)
        if wish:
            self.wishes[row] = wish
        self._pods_changed(before, meta.uid)

    def remove_pod(self, key: str) -> None:
        """Forget the pod `namespace/name`."""
        self.version += 1
        namespace, _, name = key.rpartition("/")
        self._forget_pod(namespace, name)

    def _forget_pod(self, namespace: str, name: str) -> None:
        before, row = self.uid_of(namespace, name), self.pods.remove(namespace, name)
        if row is not None:
            self.wishes.pop(row, None)
        self._pods_changed(before, "")

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        """Add or update a disruption budget. Raises ClusterError for a number that is no int32."""
        self.version += 1
        self.budgets.put(budget)

    def remove_budget(self, key: str) -> None:
        """Forget the budget `namespace/name`."""
        self.version += 1
        namespace, _, name = key.rpartition("/")
        self.budgets.remove(namespace, name)

    def set_priority_class(self, priority_class: PriorityClass) -> None:
        """Add or update a PriorityClass, of which rules read the annotations."""
        self.version += 1
        self.classes_version += 1
        self.classes[priority_class.metadata.name] = priority_class

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass."""
        self.version += 1
        self.classes_version += 1
        self.classes.pop(name, None)

    def set_namespace(self, namespace: Namespace) -> None:
        """Add or update a namespace, of which selectors read the labels."""
        self.version += 1
        self.namespaces_version += 1
        self.namespaces[namespace.metadata.name] = namespace

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self.version += 1
        self.namespaces_version += 1
        self.namespaces.pop(name, None)

    def set_persistent_volume(self, volume: PersistentVolume) -> None:
        """Add or update a persistent volume. Raises ClusterError for a capacity that is not a quantity."""
        self.version += 1
        self.volumes.put(volume)
        self.attached.volume_changed(volume.metadata.name)

    def remove_persistent_volume(self, name: str) -> None:
        """Forget a persistent volume."""
        self.version += 1
        self.volumes.remove(name)
        self.attached.volume_changed(name)

    def set_persistent_volume_claim(self, claim: PersistentVolumeClaim) -> None:
        """Add or update a claim."""
        self.version += 1
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        self.claims[key] = claim
        self.attached.claim_changed(key)

    def remove_persistent_volume_claim(self, key: str) -> None:
        """Forget the claim `namespace/name`."""
        self.version += 1
        self.claims.pop(key, None)
        self.attached.claim_changed(key)

    def set_storage_class(self, storage_class: StorageClass) -> None:
        """Add or update a storage class."""
        self.version += 1
        self.storage_classes[storage_class.metadata.name] = storage_class
        self.attached.class_changed()

    def remove_storage_class(self, name: str) -> None:
        """Forget a storage class."""
        self.version += 1
        self.storage_classes.pop(name, None)
        self.attached.class_changed()

    def set_pod_group(self, group: PodGroup, source: str = POD_GROUP) -> None:
        """Add or update a PodGroup of this source. Raises ClusterError for a number that is no int32."""
        place = f"podgroup {group.metadata.namespace}/{group.metadata.name}"
        int32(group.spec.priority or 0, f"{place}: spec.priority")
        int32(group.minimum, f"{place}: its minimum")
        self.version += 1
        self.pods.grouped.put(group, source)

    def remove_pod_group(self, key: str, source: str = POD_GROUP) -> None:
        """Forget a PodGroup."""
        self.version += 1
        self.pods.grouped.remove(key, source)

    def set_csi_node(self, csi_node: CSINode) -> None:
        """Add or update what the CSI drivers say of a node. Raises ClusterError for a count that is no int32."""
        name = csi_node.metadata.name
        counts = {driver.name: driver.allocatable.count for driver in csi_node.spec.drivers or () if driver.allocatable}
        limits = {
            driver: int32(count, f"csinode {name}: spec.drivers: allocatable.count of {driver}")
            for driver, count in counts.items()
            if count is not None
        }
        self.remove_csi_node(name)
        for driver, count in limits.items():
            self.attach_limits.setdefault(driver, {})[name] = count

    def remove_csi_node(self, name: str) -> None:
        """Forget what the CSI drivers say of a node."""
        self.version += 1
        for driver in [driver for driver, limits in self.attach_limits.items() if name in limits]:
            del self.attach_limits[driver][name]
            if not self.attach_limits[driver]:
                del self.attach_limits[driver]

    def set_resource_slice(self, resource_slice: ResourceSlice) -> None:
        """Add or update a part of a pool of devices. Raises ClusterError for an amount that is not a quantity."""
        self.version += 1
        self.device_claims.refresh(self.devices.put_slice(resource_slice))

    def remove_resource_slice(self, name: str) -> None:
        """Forget a part of a pool of devices."""
        self.version += 1
        self.device_claims.refresh(self.devices.remove_slice(name))

    def set_device_class(self, device_class: DeviceClass) -> None:
        """Add or update a class of devices."""
        self.version += 1
        self.devices.put_class(device_class)

    def remove_device_class(self, name: str) -> None:
        """Forget a class of devices."""
        self.version += 1
        self.devices.remove_class(name)

    def set_resource_claim(self, claim: ResourceClaim) -> None:
        """Add or update a claim on devices. Raises ClusterError for a capacity that is not a quantity."""
        self.version += 1
        self.device_claims.put(claim)

    def remove_resource_claim(self, key: str) -> None:
        """Forget the claim on devices `namespace/name`."""
        self.version += 1
        self.device_claims.remove(key)

    def hold_devices(self, plan: str, namespace: str, pod: ClaimConsumer, devices: Iterable[DeviceId]) -> None:
        """Count the devices as taken by a pod of the namespace, for which a plan has them freed."""
        self.version += 1
        self.device_claims.hold(plan, namespace, pod, devices)

    def release_devices(self, plan: str, namespace: str) -> None:
        """Count the devices no longer that were held for this plan."""
        self.version += self.device_claims.release(plan, namespace)

    def pod(self, key: str) -> PodSummary | None:
        """What is remembered of the pod `namespace/name`."""
        namespace, _, name = key.rpartition("/")
        row = self.pods.find(namespace, name)
        return None if row is None else self.pods.view(row)

    def node_names(self) -> list[str]:
        """The names of all known nodes, sorted."""
        return sorted(self.nodes.names[row] for row in self.nodes.known())

    def pods_on(self, node: str) -> list[PodSummary]:
        """The pods on a known node, most important first."""
        row = self.nodes.find(node)
        return [] if row is None else [self.pods.view(pod) for pod in self.pods.on_node(row)]

    def nominated_to(self, node: str) -> list[PodSummary]:
        """The pods without a node that are nominated to this known one."""
        row = self.nodes.find(node)
        if row is None:
            return []
        return [self.pods.view(pod) for pod in np.flatnonzero(self.pods.nominated[: self.pods.rows] == row).tolist()]

    def namespace_labels(self, name: str) -> dict[str, str]:
        """The labels of a namespace, empty if it is not known."""
        namespace = self.namespaces.get(name)
        return (namespace.metadata.labels or {}) if namespace else {}

    def pod_rows(self, keys: Collection[str]) -> NDArray[np.intp]:
        """The rows of the pods with these keys, unknown ones left out."""
        parts = [key.rpartition("/") for key in keys]
        rows = [self.pods.find(namespace, name) for namespace, _, name in parts]
        return np.array(sorted(row for row in rows if row is not None), np.intp)

    def uid_of(self, namespace: str, name: str) -> str:
        """The uid of a pod, empty if it is not known."""
        row = self.pods.find(namespace, name)
        return "" if row is None else self.pods.uids[row]

    def _pods_changed(self, before: str, after: str) -> None:
        """Claims on devices are told of the pods, by uid, that came or went."""
        if before != after:
            for uid in (before, after):
                if uid:
                    self.device_claims.pod_changed(uid)
