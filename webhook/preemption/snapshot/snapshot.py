"""The cluster a decision is made on, kept up to date by single-object events.

All is cheap (a pod event takes microseconds) and in one thread: events and decisions take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from numpy.typing import NDArray

from webhook.kube.bounded import Newest
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import ClaimConsumer
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.storage import PersistentVolumeClaim, StorageClass
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.budgets import DisruptionBudgets
from webhook.preemption.snapshot.claim_index import ClaimIndex
from webhook.preemption.snapshot.columns import Interner, ObjectTable, Rows, Table
from webhook.preemption.snapshot.device_index import DeviceId, DeviceIndex
from webhook.preemption.snapshot.kinds import SnapshotKind
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS
from webhook.preemption.snapshot.pods import Pods
from webhook.preemption.snapshot.slot_orders import SlotOrder
from webhook.preemption.snapshot.volume_index import VolumeIndex, VolumeLimits

_MOST_ORDERS, _MOST_TABLES = 16, 128
"""So many orders of pods and tables of answers are kept, those asked for last."""


class Snapshot:
    """Nodes, pods, budgets and what else decides where a pod fits.

    Pods that ended are not kept, nor those with neither node nor nomination. `version` counts
    events. `under_policy` topology is counted as it will be (docs/semantics.md D3): a nominated
    pod counts in its whole domain, and a terminating one is not taken away twice.
    """

    def __init__(self, annotations: Collection[str] = KEPT_ANNOTATIONS, *, under_policy: bool = False) -> None:
        self.version = 0
        self.under_policy = under_policy
        self.nodes = Nodes()
        self.pods = Pods(self.nodes, frozenset(annotations))
        self.budgets = DisruptionBudgets(self.pods)
        self.classes = ObjectTable[PriorityClass]()
        self.namespaces = ObjectTable[Namespace]()
        self.volumes = VolumeIndex()
        self.claims = ObjectTable[PersistentVolumeClaim]()
        self.storage_classes = ObjectTable[StorageClass]()
        self.attach_limits = VolumeLimits()
        self.devices = DeviceIndex()
        self.device_claims = ClaimIndex(self.devices, self.pods)
        self._slot_orders = Newest[Hashable, SlotOrder](_MOST_ORDERS)
        self._tables = Newest[Hashable, Table[Any]](_MOST_TABLES)
        claims, devices, both = self.device_claims, self.devices, attrgetter("put", "remove")
        self._take_in: dict[SnapshotKind, tuple[Callable[[Any], object], ...]] = {
            kinds.PRIORITY_CLASSES: both(self.classes),
            kinds.NAMESPACES: both(self.namespaces),
            kinds.VOLUMES: both(self.volumes),
            kinds.VOLUME_CLAIMS: both(self.claims),
            kinds.CSI_NODES: both(self.attach_limits),
            kinds.STORAGE_CLASSES: both(self.storage_classes),
            kinds.DEVICE_CLASSES: both(devices.classes),
            kinds.SLICES: (
                lambda changed: claims.refresh(devices.put_slice(changed)),
                lambda name: claims.refresh(devices.remove_slice(name)),
            ),
            kinds.CLAIMS: both(claims),
            kinds.NODES: (self._put_node, self.nodes.remove),
            kinds.BUDGETS: both(self.budgets),
            kinds.PODS: (self._put_pod, self._remove_pod),
        }
        groups = self.pods.grouped
        for source, kind in kinds.POD_GROUPS.items():
            self._take_in[kind] = partial(groups.put, source=source), partial(groups.remove, source=source)

    def put(self, kind: SnapshotKind, changed: Any) -> None:
        """Add or update an object. Raises ClusterError if it cannot be read, and changes nothing."""
        self.version += 1
        self._take_in[kind][0](changed)

    def remove(self, kind: SnapshotKind, key: str) -> None:
        """Forget the object `namespace/name`, or `name` without a namespace, if it is known."""
        self.version += 1
        self._take_in[kind][1](key)

    def table(
        self, key: Hashable, interner: Interner[Any, Any], dtype: Any, evaluate: Callable[[Any], Any]
    ) -> NDArray[Any]:
        """Answers about interned values, by id, kept under `key` between decisions."""
        return self._tables.made(key, Table, interner, dtype, evaluate).column()

    def slot_order(self, key: Hashable) -> SlotOrder:
        """The order of nodes' pods kept under `key`."""
        return self._slot_orders.made(key, SlotOrder, self.pods)

    def _put_node(self, node: Node) -> None:
        known = len(self.nodes.resources)
        self.nodes.put(node)
        if len(self.nodes.resources) > known:
            self.pods.advertise()

    def _put_pod(self, pod: Pod) -> None:
        if is_terminal(pod) or not (pod.spec.node_name or pod.status.nominated_node_name):
            self._remove_pod(key_of(pod))
        else:
            self.device_claims.pod_changed(self.pods.put(pod), pod.metadata.uid)

    def _remove_pod(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        self.device_claims.pod_changed(self.pods.remove(namespace, name), "")

    def hold_devices(self, plan: str, namespace: str, pod: ClaimConsumer, devices: Iterable[DeviceId]) -> None:
        """Count the devices as taken by a pod of the namespace: a plan frees them for it."""
        self.version += 1
        self.device_claims.hold(plan, namespace, pod, devices)

    def release_devices(self, plan: str, namespace: str) -> None:
        """Count the devices no longer that this plan held."""
        self.version += self.device_claims.release(plan, namespace)

    def node_names(self) -> list[str]:
        """The names of all known nodes, sorted."""
        return sorted(self.nodes.names[row] for row in self.nodes.known())

    def pods_on(self, node: str) -> list[int]:
        """The rows of the pods on a known node, most important first."""
        row = self.nodes.find(node)
        return [] if row is None else self.pods.on_node(row)

    def namespace_labels(self, name: str) -> dict[str, str]:
        """The labels of a namespace, empty if not known."""
        known = self.namespaces.get(name)
        return (known and known.metadata.labels) or {}

    def pod_rows(self, keys: Collection[str]) -> Rows:
        """The rows of the pods with these keys, ascending, without unknown ones."""
        return self.pods.rows_of(key.rpartition("/")[::2] for key in keys)

    def uid_of(self, namespace: str, name: str) -> str:
        """The uid of a pod, empty if not known."""
        row = self.pods.find(namespace, name)
        return "" if row is None else self.pods.uids[row]
