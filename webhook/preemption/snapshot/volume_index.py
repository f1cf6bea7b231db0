"""The persistent volumes as claims find them, and as nodes attach them.

Volumes are kept by name, by class if they are free, and by the claim that they are reserved for. A late-binding claim
looks at the free volumes of its class and at those that name it in `claimRef`, and at no other, however many there are
(`FindMatchingVolume` of Kubernetes' volume helpers, on kube-scheduler's volumes by class).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from webhook.kube.objects.meta import ObjectMeta, Quantity, key_of
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
"""By the field of a volume of an in-tree kind of old: its plugin, the driver that serves it now, and its name there."""
_DRIVERS = {plugin: driver for plugin, driver, _ in _MIGRATED.values()}
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_READ = (_BETA_CLASS, "pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node")
"""The annotations of claims that filters read."""


class Offer(NamedTuple):
    """A volume as a claim sees it that looks for one; `capacity` is in bytes.

    Volumes of equal `reach_key` are reached from the same nodes.
    """

    name: str
    capacity: int
    volume_mode: str
    attributes_class: str
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
        """By name, the volume as a node attaches it; None for one that no CSI driver attaches."""
        self._names: dict[AttachedVolume, set[str]] = {}
        self._free: dict[str, dict[str, Offer]] = {}
        self._reserved: dict[tuple[str, str], set[str]] = {}

    def get(self, name: str) -> PersistentVolume | None:
        """The volume of that name."""
        return self._volumes.get(name)

    def put(self, volume: PersistentVolume) -> None:
        """Add or update a volume. Raises ClusterError for a capacity that is not a quantity, and changes nothing."""
        offer = _offer(volume)
        name, holder = volume.metadata.name, volume.spec.claim_ref
        self.remove(name)
        self._volumes[name], self.attached[name] = volume, (attached := _of_volume(volume))
        if attached is not None:
            self._names.setdefault(attached, set()).add(name)
        if holder is not None:
            self._reserved.setdefault((holder.namespace, holder.name), set()).add(name)
        elif (volume.status or {}).get("phase") == "Available" and volume.metadata.deletion_timestamp is None:
            self._free.setdefault(_class_of(volume), {})[name] = offer

    def remove(self, name: str) -> None:
        """Forget a volume."""
        volume = self._volumes.pop(name, None)
        if volume is None:
            return
        if (attached := self.attached.pop(name)) is not None:
            take_out(self._names, attached, name)
        take_out(self._free, _class_of(volume), name)
        if (holder := volume.spec.claim_ref) is not None:
            take_out(self._reserved, (holder.namespace, holder.name), name)

    def is_attached_as_another(self, name: str) -> bool:
        """Whether the volume is one with another to the node that attaches them."""
        attached = self.attached.get(name)
        return attached is not None and len(self._names[attached]) > 1

    def free(self, of_class: str) -> list[Offer]:
        """The available volumes of a class that are reserved for nobody."""
        return list(self._free.get(of_class, {}).values())

    def reserved(self, claim: PersistentVolumeClaim) -> list[Offer]:
        """The volumes of the claim's class that are reserved for it, by name."""
        meta, of_class = claim.metadata, class_of_claim(claim)
        offers = []
        for name in sorted(self._reserved.get((meta.namespace, meta.name), ())):
            volume = self._volumes[name]
            holder = volume.spec.claim_ref
            is_its = holder is not None and holder.uid in ("", meta.uid)
            if is_its and _class_of(volume) == of_class and volume.metadata.deletion_timestamp is None:
                offers.append(_offer(volume))
        return offers


class VolumeLimits(dict[str, dict[str, int]]):
    """By CSI driver and node: how many volumes can be attached."""

    def put(self, csi_node: CSINode) -> None:
        """Add or update a node's drivers. Raises ClusterError for a count that is no int32."""
        name = csi_node.metadata.name
        counts = {driver.name: driver.allocatable.count for driver in csi_node.spec.drivers or () if driver.allocatable}
        limits = {
            driver: int32(count, f"csinode {name}: spec.drivers: allocatable.count of {driver}")
            for driver, count in counts.items()
            if count is not None
        }
        self.remove(name)
        for driver, count in limits.items():
            self.setdefault(driver, {})[name] = count

    def remove(self, name: str) -> None:
        """Forget what the drivers say of a node."""
        for driver in list(self):
            take_out(self, driver, name)


def claim_shape(claims: Mapping[str, PersistentVolumeClaim], volumes: VolumeIndex, key: str) -> object:
    """What filters read of a claim and of its volume: pods with claims of equal shape go to the same nodes.

    It is the key, `namespace/name`, of a claim that counts by itself: it is missing or goes, its volume is missing,
    reserved for it or attached as another one, or it may be in use by other pods (it is not `ReadWriteOnce`). One that
    is in use all the same needs no further volume on that node: that is not looked at.
    """
    claim = claims.get(key)
    if claim is None or claim.metadata.deletion_timestamp or claim.spec.access_modes != ["ReadWriteOnce"]:
        return key
    volume = volumes.get(claim.spec.volume_name)
    if volume is None and (claim.spec.volume_name or volumes.reserved(claim)):
        return key
    if volumes.is_attached_as_another(claim.spec.volume_name):
        return key
    meta, phase = claim.metadata, (claim.status or {}).get("phase")
    annotations = [(meta.annotations or {}).get(name) for name in _READ]
    owned = any(owner.controller for owner in meta.owner_references or ())
    attached = volumes.attached.get(claim.spec.volume_name)
    reach = volume and (volume.metadata.labels, volume.spec.node_affinity, attached and attached.driver)
    return msgspec.structs.replace(claim.spec, volume_name=""), phase, annotations, owned, reach


def claim_key(item: object) -> str:
    """The claim, as `namespace/name`, that is the item or has it as volume; empty for none."""
    if isinstance(item, PersistentVolumeClaim):
        return key_of(item)
    holder = item.spec.claim_ref if isinstance(item, PersistentVolume) else None
    return f"{holder.namespace}/{holder.name}" if holder else ""


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The claim's storage class, by the annotation of old if there is one; empty for none."""
    return (claim.metadata.annotations or {}).get(_BETA_CLASS) or claim.spec.storage_class_name or ""


def volume_of_class(claim: str, storage_class: StorageClass) -> AttachedVolume:
    """What the claim `namespace/name` will have of this class: a volume of its own."""
    return AttachedVolume(_DRIVERS.get(storage_class.provisioner, storage_class.provisioner), f"claim {claim}")


def requested(claim: PersistentVolumeClaim) -> int:
    """The bytes that the claim asks for. Raises ClusterError for what is not a quantity."""
    requests = claim.spec.resources.requests if claim.spec.resources else None
    return _bytes((requests or {}).get("storage", 0), "persistentvolumeclaim", claim.metadata)


def _offer(volume: PersistentVolume) -> Offer:
    spec = volume.spec
    reach = spec.node_affinity.required if spec.node_affinity else None
    return Offer(
        name=volume.metadata.name,
        capacity=_bytes((spec.capacity or {}).get("storage", 0), "persistentvolume", volume.metadata),
        volume_mode=spec.volume_mode,
        attributes_class=spec.volume_attributes_class_name or "",
        access_modes=frozenset(spec.access_modes or ()),
        labels=volume.metadata.labels or {},
        reach=reach,
        reach_key=msgspec.json.encode(reach),
    )


def _class_of(volume: PersistentVolume) -> str:
    return (volume.metadata.annotations or {}).get(_BETA_CLASS) or volume.spec.storage_class_name


def _bytes(quantity: Quantity, kind: str, meta: ObjectMeta) -> int:
    try:
        return units(quantity)
    except QuantityError as error:
        raise ClusterError(f"{kind} {meta.name}: storage: {error}") from error


def _of_volume(volume: PersistentVolume) -> AttachedVolume | None:
    """The CSI volume behind a PersistentVolume, also if an in-tree plugin was migrated to it."""
    csi, labels = volume.spec.csi, volume.metadata.labels or {}
    if csi is not None:
        return AttachedVolume(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    for field, (_, driver, key) in _MIGRATED.items():
        source: dict[str, Any] | None = getattr(volume.spec, field)
        if source is not None:
            name = str(source.get(key) or "")
            zone = next((labels[label] for label in _ZONE_LABELS if label in labels), "")
            handle = f"{zone}/{name}" if field == _GCE else name if field == "azure_disk" else name.rpartition("/")[2]
            return AttachedVolume(driver, handle) if handle else None
    return None
