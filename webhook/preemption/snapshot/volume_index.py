"""The persistent volumes as claims find them, and as nodes attach them.

Volumes are kept by name, by class if they are free, and by the claim that they are reserved
for. A late-binding claim looks only at the free volumes of its class, and those that name
it in `claimRef` (`FindMatchingVolume` of Kubernetes' volume helpers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from webhook.kube.objects.meta import Quantity, key_of
from webhook.kube.objects.placement import NodeSelector
from webhook.kube.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.kube.quantity import QuantityError, units
from webhook.preemption.snapshot.amounts import ClusterError, int32
from webhook.preemption.snapshot.columns import take_out

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_GCE = "gce_persistent_disk"
_MIGRATED = {
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID"),
    _GCE: ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName"),
    "azure_disk": ("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org", "volumeID"),
}
"""By the field of an in-tree kind: its plugin, its driver, its name's key."""
_DRIVERS = {plugin: driver for plugin, driver, _ in _MIGRATED.values()}
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_READ = (_BETA_CLASS, "pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node")
"""The annotations of claims that filters read."""


class Offer(NamedTuple):
    """A volume as a searching claim sees it. `capacity` is in bytes.

    `kind` is its mode and class of attributes. Volumes of equal `reach_key` are reached from
    the same nodes.
    """

    name: str
    capacity: int
    kind: tuple[str, str]
    access_modes: frozenset[str]
    labels: dict[str, str]
    reach: NodeSelector | None
    reach_key: bytes


class AttachedVolume(NamedTuple):
    """A volume as a node attaches it: equal ones are one."""

    driver: str
    handle: str


class VolumeIndex:
    """The persistent volumes, each kept where a claim looks for it."""

    def __init__(self) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        self.attached: dict[str, AttachedVolume | None] = {}
        """By name, the volume as a node attaches it; None if no CSI driver does."""
        self._names: dict[AttachedVolume, set[str]] = {}
        self._free: dict[str, dict[str, Offer]] = {}
        self._reserved: dict[tuple[str, str], set[str]] = {}

    def get(self, name: str) -> PersistentVolume | None:
        """The volume of that name."""
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        """Add or update a volume. Raises ClusterError for a capacity that is no quantity."""
        offer, attached = _offer(volume), _of_volume(volume)
        meta, holder = volume.metadata, volume.spec.claim_ref
        self.remove(meta.name)
        self._volumes[meta.name], self.attached[meta.name] = volume, attached
        if attached is not None:
            self._names.setdefault(attached, set()).add(meta.name)
        if holder is not None:
            self._reserved.setdefault((holder.namespace, holder.name), set()).add(meta.name)
        elif (volume.status or {}).get("phase") == "Available" and meta.deletion_timestamp is None:
            self._free.setdefault(_class_of(volume), {})[meta.name] = offer

    def remove(self, name: str) -> None:
        """Forget a volume."""
        volume = self._volumes.pop(name, None)
        if volume is None:
            return
        attached, holder = self.attached.pop(name), volume.spec.claim_ref
        if attached is not None:
            take_out(self._names, attached, name)
        take_out(self._free, _class_of(volume), name)
        if holder is not None:
            take_out(self._reserved, (holder.namespace, holder.name), name)

    def is_attached_as_another(self, name: str) -> bool:
        """Whether the volume and another are the same to the node that attaches them."""
        attached = self.attached.get(name)
        return attached is not None and len(self._names[attached]) > 1

    def free(self, of_class: str) -> list[Offer]:
        """The available volumes of a class, reserved for nobody."""
        return list(self._free.get(of_class, {}).values())

    def reserved(self, claim: PersistentVolumeClaim) -> list[Offer]:
        """The volumes of the claim's class reserved for it, by name."""
        meta, of_class = claim.metadata, class_of_claim(claim)
        offers = []
        for name in sorted(self._reserved.get((meta.namespace, meta.name), ())):
            volume = self._volumes[name]
            holder, ends = volume.spec.claim_ref, volume.metadata.deletion_timestamp
            if holder and holder.uid in ("", meta.uid) and not ends and _class_of(volume) == of_class:
                offers.append(_offer(volume))
        return offers


class VolumeLimits(dict[str, dict[str, int]]):
    """By CSI driver and node: how many volumes can be attached."""

    def put(self, csi_node: CSINode) -> None:
        """Add or update a node's drivers. Raises ClusterError for a count that is no int32."""
        name, limits = csi_node.metadata.name, {}
        for driver in csi_node.spec.drivers or ():
            count = driver.allocatable.count if driver.allocatable else None
            if count is not None:
                place = f"csinode {name}: spec.drivers: allocatable.count of {driver.name}"
                limits[driver.name] = int32(count, place)
        self.remove(name)
        for of_driver, count in limits.items():
            self.setdefault(of_driver, {})[name] = count

    def remove(self, name: str) -> None:
        """Forget what the drivers say of a node."""
        for driver in list(self):
            take_out(self, driver, name)


def claim_shape(claims: Mapping[str, PersistentVolumeClaim], volumes: VolumeIndex, key: str) -> object:
    """What filters read of a claim and its volume: pods with equal ones go to the same nodes.

    It is the key, `namespace/name`, of a claim that counts by itself: it is missing or goes, its
    volume is missing, reserved for it or attached as another one, or others may use it: it is
    not `ReadWriteOnce`. If one is used all the same, that is not looked at.
    """
    claim = claims.get(key)
    if claim is None or claim.metadata.deletion_timestamp or claim.spec.access_modes != ["ReadWriteOnce"]:
        return key
    meta, name = claim.metadata, claim.spec.volume_name
    volume, attached = volumes.get(name), volumes.attached.get(name)
    if volume is None and (name or volumes.reserved(claim)):
        return key
    if volumes.is_attached_as_another(name):
        return key
    phase = (claim.status or {}).get("phase")
    annotations = [(meta.annotations or {}).get(read) for read in _READ]
    owned = any(owner.controller for owner in meta.owner_references or ())
    driver = attached and attached.driver
    reach = volume and (volume.metadata.labels, volume.spec.node_affinity, driver)
    spec = msgspec.structs.replace(claim.spec, volume_name="")
    return spec, phase, annotations, owned, reach


def claim_key(item: object) -> str:
    """The claim, `namespace/name`, that is the item or has it as volume; empty for none."""
    if isinstance(item, PersistentVolumeClaim):
        return key_of(item)
    holder = item.spec.claim_ref if isinstance(item, PersistentVolume) else None
    return f"{holder.namespace}/{holder.name}" if holder else ""


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The claim's storage class, by the old annotation if any; empty for none."""
    return (claim.metadata.annotations or {}).get(_BETA_CLASS) or claim.spec.storage_class_name or ""


def volume_of_class(claim: str, storage_class: StorageClass) -> AttachedVolume:
    """What the claim `namespace/name` will have of this class: its own volume."""
    provisioner = storage_class.provisioner
    return AttachedVolume(_DRIVERS.get(provisioner, provisioner), f"claim {claim}")


def requested(claim: PersistentVolumeClaim) -> int:
    """The bytes that the claim asks for. Raises ClusterError for what is no quantity."""
    requests = claim.spec.resources.requests if claim.spec.resources else None
    return _storage(requests, f"persistentvolumeclaim {claim.metadata.name}")


def _offer(volume: PersistentVolume) -> Offer:
    spec, name = volume.spec, volume.metadata.name
    reach = spec.node_affinity.required if spec.node_affinity else None
    return Offer(
        name=name,
        capacity=_storage(spec.capacity, f"persistentvolume {name}"),
        kind=(spec.volume_mode, spec.volume_attributes_class_name or ""),
        access_modes=frozenset(spec.access_modes or ()),
        labels=volume.metadata.labels or {},
        reach=reach,
        reach_key=msgspec.json.encode(reach),
    )


def _class_of(volume: PersistentVolume) -> str:
    return (volume.metadata.annotations or {}).get(_BETA_CLASS) or volume.spec.storage_class_name


def _storage(quantities: Mapping[str, Quantity] | None, place: str) -> int:
    try:
        return units((quantities or {}).get("storage", 0))
    except QuantityError as error:
        raise ClusterError(f"{place}: storage: {error}") from error


def _of_volume(volume: PersistentVolume) -> AttachedVolume | None:
    """The CSI volume behind a PersistentVolume, also of a migrated in-tree plugin."""
    csi, labels = volume.spec.csi, volume.metadata.labels or {}
    driver, handle = (csi.driver, csi.volume_handle) if csi else ("", "")
    for field, (_, serves, key) in _MIGRATED.items() if csi is None else ():
        source: dict[str, Any] | None = getattr(volume.spec, field)
        if source is not None:
            driver, handle = serves, str(source.get(key) or "")
            if field == _GCE:
                zone = next((labels[label] for label in _ZONE_LABELS if label in labels), "")
                handle = f"{zone}/{handle}"
            elif field != "azure_disk":
                handle = handle.rpartition("/")[2]
            break
    return AttachedVolume(driver, handle) if driver and handle else None
