"""Volumes and claims to them."""

from typing import Any

import msgspec

from webhook.kube.objects.meta import KubeObject, KubeStruct, LabelSelector, ObjectReference, Quantity
from webhook.kube.objects.placement import NodeSelector
from webhook.kube.objects.pod import ResourceRequirements


class VolumeNodeAffinity(KubeStruct):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class CSIVolume(KubeStruct):
    """A volume as its CSI driver knows it."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(KubeStruct):
    """A volume's reach, class and claim, and what it is: a CSI driver's, or a cloud disk of an old in-tree kind."""

    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    access_modes: list[str] | None = None
    capacity: dict[str, Quantity] | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    csi: CSIVolume | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None


class PersistentVolume(KubeObject):
    """A persistent volume."""

    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: dict[str, Any] | None = None


class PersistentVolumeClaimSpec(KubeStruct):
    """What a claim asks for and what it is bound to."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(KubeObject):
    """A claim on a persistent volume."""

    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: dict[str, Any] | None = None


class StorageClass(KubeObject):
    """How volumes of a class come to be."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[dict[str, Any]] | None = None


class Allocatable(KubeStruct):
    """How many volumes of a driver can be attached to a node."""

    count: int | None = None


class CSINodeDriver(KubeStruct):
    """A CSI driver that runs on a node."""

    name: str = ""
    allocatable: Allocatable | None = None


class CSINodeSpec(KubeStruct):
    """The CSI drivers that run on a node."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(KubeObject):
    """What the CSI drivers say of a node; it has the node's name."""

    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)
