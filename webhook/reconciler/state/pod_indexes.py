"""Pods by what they have in common: owner, group, claims, what schedulers see, where they run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.kube.pods import controller_of, workload_of
from webhook.preemption.filters.placement import affinity_mask, required_affinity, required_mask
from webhook.preemption.filters.volumes import wrong_zones
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.columns import Mask, Table, take_out
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of
from webhook.preemption.snapshot.pod_info import claims_of, label_keys_read, node_of, shape_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import claim_key, claim_shape

V = TypeVar("V")
T = TypeVar("T")
_MOST_KEYS = 1000
"""Keys of labels that are remembered as read; with more every label counts."""


class Index(dict[V, dict[str, T]], Generic[V, T]):
    """Objects by key, under each of the values that `values_of` has for them."""

    def __init__(self, values_of: Callable[[T], Collection[V]]) -> None:
        super().__init__()
        self._values_of = values_of
        self.known: dict[str, Collection[V]] = {}
        """By key, the values of the objects that have some."""

    def put(self, key: str, item: T | None) -> Collection[V]:
        """Update an object, None takes it away; its old and new values if they differ."""
        old, new = self.known.get(key, ()), () if item is None else self._values_of(item)
        if not (old or new):  # so it is with most pods
            return ()
        if is_changed := old != new:
            for value in old:
                take_out(self, value, key)
            self.known.pop(key, None)
            if new:
                self.known[key] = new
        if item is not None:
            for value in new:
                self.setdefault(value, {})[key] = item
        return {*old, *new} if is_changed else ()


class _Shape(NamedTuple):
    scheduler: str
    priority: int
    read: bytes
    """What filters read of the pod."""


class WaitingGroup(NamedTuple):
    """Pods of one priority that are alike to their scheduler; never empty."""

    priority: int
    pods: dict[str, Pod]

    @property
    def example(self) -> Pod:
        """One of them."""
        return next(iter(self.pods.values()))


class _Confinement(NamedTuple):
    """What pods that can run on the same nodes have in common."""

    placement: bytes
    volumes: frozenset[str]
    """Claims, `namespace/name`."""
    devices: frozenset[str]


class PodIndexes:
    """Pods by `namespace/name`, with what is expected of them.

    **Waiting** are pods that their scheduler may place at any moment, whoever preempts for
    them. They are grouped by what it sees: of labels those that an affinity or a spread
    constraint of some pod reads or once read, of claims what they allow (`claim_shape`).

    **Confined** are pods on nodes that cannot run everywhere. Those that could run on no
    other node go last.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.members: Index[GroupKey, Pod] = Index(
            lambda pod: () if pod.spec.node_name or pod.metadata.deletion_timestamp else {group_of(pod)} - {NO_GROUP}
        )
        """By group, its pods that wait for a node."""
        self.owned: Index[str, Pod] = Index(
            lambda pod: (owner,) if pod.spec.node_name and (owner := workload_of(pod)) else ()
        )
        """By owner (`kube.pods.workload_of`), its pods on nodes."""
        self.keeping: Index[str, Pod] = Index(_claims_kept)
        """By claim on devices, the pods that keep it in use (`Pending`)."""
        self._snapshot = snapshot
        self._claim_shape = partial(claim_shape, snapshot.claims, snapshot.volumes)
        self._users: Index[str, Pod] = Index(lambda pod: device_claims_of(pod).union(*(claims_of(pod) or ())))
        """By claim, the pods that name it, or have it made for them."""
        self.waiting: Index[_Shape, Pod] = Index(self._shapes)
        self._read: set[str] = set()
        self._grouped_by: frozenset[str] = frozenset()
        """The keys of labels by which waiting pods are grouped now."""
        self._confined: Index[_Confinement, Pod] = Index(_confinements)
        self._only_node: dict[_Confinement, str] = {}
        """The only node where they can run, empty for none; no entry for several."""
        self._unjudged: set[_Confinement] = set()
        """Those of which that is not known yet."""
        self._daemons = Table(snapshot.pods.owners, np.bool_, lambda owner: owner.kind == "DaemonSet")
        self._drivers: dict[str, Mask] = {}
        """The nodes with devices of each driver."""

    def put(self, key: str, pod: Pod | None) -> Collection[str]:
        """Update a pod, None takes it away; the claims that this keeps or releases."""
        if pod is not None and len(self._read) <= _MOST_KEYS:
            self._read |= label_keys_read(pod)
        for index in (self.members, self.owned, self._users, self.waiting):
            index.put(key, pod)
        for group in self._confined.put(key, pod):
            if group not in self._confined:
                self._only_node.pop(group, None)
                self._unjudged.discard(group)
            elif len(self._confined[group]) == 1:
                self._unjudged.add(group)
        return self.keeping.put(key, pod)

    def sharing(self) -> set[str]:
        """The pods that use claims on devices which some pod keeps in use."""
        return {key for claim in self.keeping for key in self._users.get(claim, ())}

    def changed(self, change: Change[Any]) -> None:
        """A node, volume, claim or device has changed, and what follows from it."""
        old, new = change.old, change.new
        match new or old:
            case Node():
                if old is None or new is None or old.metadata.labels != new.metadata.labels:
                    self._drivers.clear()
                    self._unjudged.update(self._confined)
            case ResourceSlice():
                self._drivers.clear()
                self._unjudged.update(group for group in self._confined if group.devices)
            case PersistentVolume() | PersistentVolumeClaim() | ResourceClaim():
                for claim in {change.key, claim_key(old), claim_key(new)}:
                    for key, pod in self._users.get(claim, {}).items():
                        self.waiting.put(key, pod)
                        self._unjudged.update(self._confined.known.get(key, ()))
            case _:
                pass

    # The pods that wait for a node.

    def shape(self, key: str) -> tuple[str, int, bytes] | None:
        """A waiting pod's scheduler, its priority and what filters read of it.

        None if a claim that it names has its devices: then no other pod is like it.
        """
        groups, known = self._grouped(), self._snapshot.device_claims.claims
        for shape in groups.known.get(key, ()):
            pod = groups[shape][key]
            claims = filter(None, map(known.get, device_claims_of(pod)))
            if all(claim.status.allocation is None for claim in claims):
                return shape.scheduler, shape.priority, shape.read + node_of(pod).encode()
        return None

    def groups(self, ahead_of: Pod | None = None) -> list[WaitingGroup]:
        """All groups, or those a scheduler tries before a pod, most important first."""
        spec, groups = ahead_of.spec if ahead_of else None, list[WaitingGroup]()
        for shape, pods in self._grouped().items():
            if spec and spec.scheduler_name != shape.scheduler:
                continue
            if not spec or shape.priority > (spec.priority or 0):
                groups.append(WaitingGroup(shape.priority, pods))
        groups.sort(key=attrgetter("priority"), reverse=True)
        return groups

    def _shapes(self, pod: Pod) -> Collection[_Shape]:
        spec = pod.spec
        if spec.node_name or spec.scheduling_gates or pod.metadata.deletion_timestamp:
            return ()
        keys = self._grouped_by if len(self._grouped_by) <= _MOST_KEYS else pod.metadata.labels or ()
        read = shape_of(pod, keys, self._claim_shape)
        return (_Shape(spec.scheduler_name, spec.priority or 0, read),)

    def _grouped(self) -> Index[_Shape, Pod]:
        """The pods by shape, grouped by the labels read now."""
        read = self._read
        if len(read) > len(self._grouped_by):
            new, self._grouped_by = read - self._grouped_by, frozenset(read)
            for key, pod in [item for pods in self.waiting.values() for item in pods.items()]:
                if len(read) > _MOST_KEYS or not new.isdisjoint(pod.metadata.labels or ()):
                    self.waiting.put(key, pod)
        return self.waiting

    # The pods that can run on one node only.

    def last_resort(self) -> Mask:
        """The pods (rows) that could run on no other node: of a DaemonSet, or confined."""
        for group in self._unjudged:
            node = self._node_of(group, next(iter(self._confined[group].values())))
            self._only_node.pop(group, None)
            if node is not None:
                self._only_node[group] = node
        self._unjudged.clear()
        pods, keys = self._snapshot.pods, list[str]()
        for group, node in self._only_node.items():
            members = self._confined[group].items()
            keys += [key for key, pod in members if node in ("", pod.spec.node_name)]
        mask: Mask = self._daemons.column()[pods.owner[: pods.rows]]
        mask[self._snapshot.pod_rows(keys)] = True
        return mask

    def _node_of(self, group: _Confinement, pod: Pod) -> str | None:
        """As `_only_node` has it: None for several."""
        snapshot, nodes = self._snapshot, self._snapshot.nodes
        known = nodes.valid[: nodes.rows]
        if np.count_nonzero(known) <= 1:
            return None  # nobody knows what another node would be like
        mask, bound = known & required_mask(nodes, pod), []
        for claim in filter(None, map(snapshot.claims.get, group.volumes)):
            if (volume := snapshot.volumes.get(claim.spec.volume_name)) is not None:
                bound.append(claim)
                if affinity := volume.spec.node_affinity:
                    mask &= affinity_mask(nodes, affinity.required, fields=False)
        mask &= ~wrong_zones(snapshot, bound)
        for used in filter(None, map(snapshot.device_claims.claims.get, group.devices)):
            for driver in {device.driver for device in devices_of(used)}:
                if len(self._drivers.get(driver, ())) != nodes.rows:
                    self._drivers[driver] = self._of_driver(driver)
                mask &= self._drivers[driver]
            allocation, users = used.status.allocation, used.status.reserved_for or ()
            if allocation and len(users) > 1:  # it stays allocated for the others
                mask &= affinity_mask(nodes, allocation.node_selector)
        rows = np.flatnonzero(mask)
        return None if len(rows) > 1 else "".join(nodes.names[row] for row in rows.tolist())

    def _of_driver(self, driver: str) -> Mask:
        nodes = self._snapshot.nodes
        specs = [row.slice.spec for row in self._snapshot.devices.slices.values()]
        specs = [spec for spec in specs if spec.driver == driver and spec.devices]
        mask = np.zeros(nodes.rows, np.bool_)
        mask[nodes.rows_of(spec.node_name for spec in specs if spec.node_name)] = True
        for spec in specs:
            if not spec.node_name:
                mask |= affinity_mask(nodes, None if spec.all_nodes else spec.node_selector)
        return mask


def device_claims_of(pod: Pod, *, made: bool = True) -> frozenset[str]:
    """The claims on devices (keys) that a pod names or that were `made` for it."""
    if not pod.spec.resource_claims:
        return frozenset()
    statuses = pod.status.resource_claim_statuses or () if made else ()
    names = [row.get("resourceClaimName") for row in (*pod.spec.resource_claims, *statuses)]
    return frozenset(f"{pod.metadata.namespace}/{name}" for name in names if name)


def _claims_kept(pod: Pod) -> frozenset[str]:
    claims = device_claims_of(pod, made=False)
    if claims and pod.spec.node_name and controller_of(pod.metadata) is None:
        return frozenset()
    return claims


def _confinements(pod: Pod) -> tuple[_Confinement, ...]:
    spec = pod.spec
    if not spec.node_name:
        return ()
    claims, devices, required = claims_of(pod), device_claims_of(pod), required_affinity(pod)
    volumes = claims.named if claims else frozenset()
    if not (spec.node_selector or required or volumes or devices):
        return ()
    placement = msgspec.json.encode((spec.node_selector, required), order="deterministic")
    return (_Confinement(placement, volumes, devices),)
