"""Which volume of which CSI driver is behind a claim, remembered until the claim, its volume or its class changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.preemption.snapshot.volume_index import VolumeIndex, class_of_claim

__all__ = ["AttachedVolume", "AttachedVolumes"]

_AWS, _GCE, _AZURE, _CINDER = (
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
)
_MIGRATED = {
    "kubernetes.io/aws-ebs": _AWS,
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
}
"""The drivers that serve what storage classes name by its in-tree plugin of old."""
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


class AttachedVolume(NamedTuple):
    """A volume as a node attaches it: equal ones are one."""

    driver: str
    handle: str


class AttachedVolumes:
    """The volume behind every claim (`getCSIDriverInfo` of kube-scheduler's NodeVolumeLimits)."""

    def __init__(
        self,
        volumes: VolumeIndex,
        claims: Mapping[str, PersistentVolumeClaim],
        storage_classes: Mapping[str, StorageClass],
    ) -> None:
        self._volumes = volumes
        self._claims = claims
        self._storage_classes = storage_classes
        self._known: dict[str, AttachedVolume | None] = {}
        self._claims_of: dict[str, set[str]] = {}

    def of_claim(self, claim: str) -> AttachedVolume | None:
        """The volume behind the claim `namespace/name`; None if it is none that a CSI driver attaches."""
        if claim not in self._claims:
            return None  # and not remembered: nothing would tell when to forget it
        if claim not in self._known:
            name, of_class = self._claims[claim].spec.volume_name, class_of_claim(self._claims[claim])
            volume = self._volumes.get(name) if name else None
            if name:
                self._claims_of.setdefault(name, set()).add(claim)
            if volume is not None:
                self._known[claim] = _of_volume(volume)
            elif of_class in self._storage_classes:
                provisioner = self._storage_classes[of_class].provisioner
                # It will be a volume of its own
                self._known[claim] = AttachedVolume(_MIGRATED.get(provisioner, provisioner), f"claim {claim}")
            else:
                self._known[claim] = None
        return self._known[claim]

    def claim_changed(self, claim: str) -> None:
        """Look the claim up again when asked next."""
        self._known.pop(claim, None)

    def volume_changed(self, volume: str) -> None:
        """Look up again the claims that name the volume."""
        for claim in self._claims_of.pop(volume, ()):
            self._known.pop(claim, None)

    def class_changed(self) -> None:
        """Look everything up again: classes hardly ever change."""
        self._known.clear()
        self._claims_of.clear()


def _of_volume(volume: PersistentVolume) -> AttachedVolume | None:
    """The CSI volume behind a PersistentVolume, also by the driver that an in-tree plugin was migrated to."""
    spec = volume.spec
    if spec.csi is not None:
        driver, handle = spec.csi.driver, spec.csi.volume_handle
    elif spec.aws_elastic_block_store is not None:
        driver, handle = _AWS, _text(spec.aws_elastic_block_store, "volumeID").rpartition("/")[2]
    elif spec.gce_persistent_disk is not None:
        labels = volume.metadata.labels or {}
        zone = next((labels[key] for key in _ZONE_LABELS if key in labels), "")
        driver, handle = _GCE, f"{zone}/{_text(spec.gce_persistent_disk, 'pdName')}"
    elif spec.azure_disk is not None:
        driver, handle = _AZURE, _text(spec.azure_disk, "diskURI")
    elif spec.cinder is not None:
        driver, handle = _CINDER, _text(spec.cinder, "volumeID")
    else:
        return None
    return AttachedVolume(driver, handle) if driver and handle else None


def _text(source: Mapping[str, Any], field: str) -> str:
    return str(source.get(field) or "")
