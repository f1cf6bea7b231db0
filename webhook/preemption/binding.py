"""Whether claims that wait for their first consumer could be bound or provisioned on each node.

Mirrors `findMatchingVolumes` and `checkVolumeProvisions` of kube-scheduler's volume binder: the smallest available
volume that suits is taken for each claim, smallest claim first; a claim without one must be provisionable there.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Quantity,
    Requirement,
    StorageClass,
)
from webhook.kube.quantity import QuantityError, units
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.preemption.amounts import ClusterError
from webhook.preemption.placement import affinity_mask
from webhook.preemption.snapshot import Snapshot

__all__ = ["find_volumes"]

Mask = NDArray[np.bool_]
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NOT_PROVISIONED = ("", "kubernetes.io/no-provisioner")


def find_volumes(snapshot: Snapshot, claims: list[PersistentVolumeClaim]) -> Mask:
    """Nodes, by row, on which every one of the claims could be satisfied."""
    nodes = snapshot.nodes
    claims = sorted(claims, key=_requested)
    volumes = sorted(snapshot.volumes.values(), key=lambda volume: (_capacity(volume), volume.metadata.name))
    reach = np.zeros((len(volumes), nodes.rows), np.bool_)
    for row, volume in enumerate(volumes):
        affinity = volume.spec.node_affinity
        reach[row] = affinity_mask(nodes, affinity.required if affinity else None)
    provisionable = np.stack([_provisionable(snapshot, claim) for claim in claims])

    @cache
    def satisfied(reachable: bytes, may_provision: bytes) -> bool:
        within = [volume for volume, yes in zip(volumes, reachable, strict=True) if yes]
        return _all_satisfied(claims, within, may_provision)

    columns = (reach.astype(np.uint8).T, provisionable.astype(np.uint8).T)
    return np.array([satisfied(row.tobytes(), may.tobytes()) for row, may in zip(*columns, strict=True)], np.bool_)


def _all_satisfied(claims: list[PersistentVolumeClaim], volumes: list[PersistentVolume], may_provision: bytes) -> bool:
    taken: set[str] = set()
    for claim, provisionable in zip(claims, may_provision, strict=True):
        selected = _SELECTED_NODE in (claim.metadata.annotations or {})
        chosen = None if selected else _smallest(claim, [v for v in volumes if v.metadata.name not in taken])
        if chosen is not None:
            taken.add(chosen)
        elif not provisionable:
            return False
    return True


def _smallest(claim: PersistentVolumeClaim, volumes: list[PersistentVolume]) -> str | None:
    """The first of the volumes, sorted by size, that suits the claim; one reserved for it goes first."""
    fitting = [volume for volume in volumes if _suits(claim, volume)]
    reserved = [volume for volume in fitting if volume.spec.claim_ref is not None]
    return (reserved or fitting)[0].metadata.name if fitting else None


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    spec, wanted, holder = volume.spec, claim.spec, volume.spec.claim_ref
    if volume.metadata.deletion_timestamp is not None or spec.volume_mode != wanted.volume_mode:
        return False
    if _capacity(volume) < _requested(claim):
        return False
    if holder is not None:
        mine = (holder.namespace, holder.name) == (claim.metadata.namespace, claim.metadata.name)
        return mine and holder.uid in ("", claim.metadata.uid)
    if (volume.status or {}).get("phase", "Available") != "Available":
        return False
    if spec.storage_class_name != (wanted.storage_class_name or ""):
        return False
    if not set(wanted.access_modes or ()) <= set(spec.access_modes or ()):
        return False
    return wanted.selector is None or _selects(claim, volume)


def _selects(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    try:
        return label_matcher(claim.spec.selector)(volume.metadata.labels or {})
    except SelectorError:
        return False


def _provisionable(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Mask:
    nodes = snapshot.nodes
    storage_class = snapshot.storage_classes.get(claim.spec.storage_class_name or "")
    if storage_class is None or storage_class.provisioner in _NOT_PROVISIONED:
        return np.zeros(nodes.rows, np.bool_)
    mask = affinity_mask(nodes, _topologies(storage_class))
    selected = (claim.metadata.annotations or {}).get(_SELECTED_NODE)
    if selected is not None:
        row = nodes.find(selected)
        mask &= np.arange(nodes.rows) == (-1 if row is None else row)
    return mask


def _topologies(storage_class: StorageClass) -> NodeSelector | None:
    """A class's allowed topologies as a node selector; none allows every node."""
    if not storage_class.allowed_topologies:
        return None
    terms = [
        NodeSelectorTerm(
            match_expressions=[
                Requirement(
                    key=str(row.get("key", "")), operator="In", values=[str(v) for v in row.get("values") or ()]
                )
                for row in term.get("matchLabelExpressions") or ()
            ]
        )
        for term in storage_class.allowed_topologies
    ]
    return NodeSelector(node_selector_terms=terms)


def _requested(claim: PersistentVolumeClaim) -> int:
    requests = claim.spec.resources.requests if claim.spec.resources else None
    return _bytes((requests or {}).get("storage", 0), f"persistentvolumeclaim {claim.metadata.name}")


def _capacity(volume: PersistentVolume) -> int:
    return _bytes((volume.spec.capacity or {}).get("storage", 0), f"persistentvolume {volume.metadata.name}")


def _bytes(quantity: Quantity, whose: str) -> int:
    try:
        return units(quantity)
    except QuantityError as error:
        raise ClusterError(f"{whose}: {error}") from error
