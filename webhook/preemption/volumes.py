"""Volumes: where the preemptor's claims let it run (VolumeRestrictions, VolumeBinding and VolumeZone of 1.36).

Limits of volumes per node and free space of storage classes are not known here and do not exclude a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume
from webhook.preemption.binding import find_volumes
from webhook.preemption.counters import Counter, Live
from webhook.preemption.incoming import Incoming
from webhook.preemption.nodes import Nodes
from webhook.preemption.placement import affinity_mask
from webhook.preemption.snapshot import Snapshot

__all__ = ["IN_USE", "Storage", "check"]

Mask = NDArray[np.bool_]

IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
_NO_REACH = "node(s) had volume node affinity conflict"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_WRONG_ZONE = "node(s) had no available volume zone"
_ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
_GENERALLY_AVAILABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


class Storage(NamedTuple):
    """What the claims decide: a refusal of all nodes, masks of nodes that fail for a reason, counters of use."""

    refusal: str
    masks: list[tuple[str, Mask]]
    counters: list[Counter]


class Refusal(Exception):  # noqa: N818  # not an error of this program but Kubernetes' answer
    """No node will do, and why, in kube-scheduler's words."""


def check(snapshot: Snapshot, incoming: Incoming, live: Live) -> Storage:
    """Judge the preemptor's claims on all nodes."""
    if not incoming.pod.spec.volumes:
        return Storage("", [], [])
    try:
        claims = _claims(snapshot, incoming.pod)
        bound, unbound = _sorted_out(snapshot, claims)
        volumes = [_volume(snapshot, claim) for claim in bound]
    except Refusal as refusal:
        return Storage(str(refusal), [], [])
    nodes = snapshot.nodes
    unreachable = np.zeros(nodes.rows, np.bool_)
    for volume in volumes:
        reach = volume.spec.node_affinity
        unreachable |= ~affinity_mask(nodes, reach.required if reach else None)
    masks = [(_NO_REACH, unreachable)]
    if unbound:
        masks = _combined(unreachable, ~find_volumes(snapshot, unbound))
    masks.append((_WRONG_ZONE, _zone_conflicts(nodes, volumes)))
    return Storage("", masks, _exclusive_use(snapshot, claims, live))


def _combined(unreachable: Mask, unbindable: Mask) -> list[tuple[str, Mask]]:
    """Both reasons of one plugin are named together where both hold."""
    both = unreachable & unbindable
    return [(f"{_NO_REACH}, {_NOTHING_TO_BIND}", both), (_NO_REACH, unreachable), (_NOTHING_TO_BIND, unbindable)]


def _claims(snapshot: Snapshot, pod: Pod) -> list[PersistentVolumeClaim]:
    """The claims of the pod's volumes. Raises Refusal where one is missing, lost or on its way out."""
    names = [(volume, name) for volume in pod.spec.volumes or () if (name := _claim_name(pod, volume)) is not None]
    return [_claim(snapshot, pod, volume, name) for volume, name in names]


def _claim_name(pod: Pod, volume: Volume) -> str | None:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def _claim(snapshot: Snapshot, pod: Pod, volume: Volume, name: str) -> PersistentVolumeClaim:
    claim = snapshot.claims.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        if volume.ephemeral is not None:
            raise Refusal(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        raise Refusal(f'persistentvolumeclaim "{name}" not found')
    if (claim.status or {}).get("phase") == "Lost":
        raise Refusal(
            f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        )
    if claim.metadata.deletion_timestamp is not None:
        raise Refusal(f'persistentvolumeclaim "{name}" is being deleted')
    owners = claim.metadata.owner_references or ()
    if volume.ephemeral is not None and not any(o.controller and o.uid == pod.metadata.uid for o in owners):
        namespace = pod.metadata.namespace
        raise Refusal(
            f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.metadata.name} (pod is not owner)"
        )
    return claim


def _sorted_out(
    snapshot: Snapshot, claims: list[PersistentVolumeClaim]
) -> tuple[list[PersistentVolumeClaim], list[PersistentVolumeClaim]]:
    """Bound claims, and those that wait for their first consumer. Raises Refusal for one that waits for no one."""
    bound, waiting = [], []
    for claim in claims:
        if claim.spec.volume_name and "pv.kubernetes.io/bind-completed" in (claim.metadata.annotations or {}):
            bound.append(claim)
        elif _waits(_class_of(snapshot, claim)) and not claim.spec.volume_name:
            waiting.append(claim)
        else:
            raise Refusal("pod has unbound immediate PersistentVolumeClaims")
    return bound, waiting


def _class_of(snapshot: Snapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    return snapshot.storage_classes.get(claim.spec.storage_class_name or "")


def _waits(storage_class: StorageClass | None) -> bool:
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


def _volume(snapshot: Snapshot, claim: PersistentVolumeClaim) -> PersistentVolume:
    volume = snapshot.volumes.get(claim.spec.volume_name)
    if volume is None:
        raise Refusal(f'persistentvolume "{claim.spec.volume_name}" not found')
    return volume


def _zone_conflicts(nodes: Nodes, volumes: list[PersistentVolume]) -> Mask:
    """Nodes in a zone or region that a bound volume's labels do not name; nodes without any zone pass."""
    zoned = np.zeros(nodes.rows, np.bool_)
    for key in _ZONE_LABELS:
        zoned |= nodes.label(key) >= 0
    conflict = np.zeros(nodes.rows, np.bool_)
    for volume in volumes:
        labels = volume.metadata.labels or {}
        for key in _ZONE_LABELS:
            if key in labels:
                conflict |= ~_in_zones(nodes, key, labels[key].split("__"))
    return conflict & zoned


def _in_zones(nodes: Nodes, key: str, zones: list[str]) -> Mask:
    column = nodes.label(key)
    inside = np.isin(column, [found for zone in zones if (found := nodes.label_id(key, zone)) is not None])
    newer = _GENERALLY_AVAILABLE.get(key)
    if newer is None:
        return inside
    return inside | ((column < 0) & _in_zones(nodes, newer, zones))


def _exclusive_use(snapshot: Snapshot, claims: list[PersistentVolumeClaim], live: Live) -> list[Counter]:
    """ReadWriteOncePod: one counter, the same on all nodes, of claims in use; only their users can free them."""
    exclusive = {
        f"{claim.metadata.namespace}/{claim.metadata.name}"
        for claim in claims
        if "ReadWriteOncePod" in (claim.spec.access_modes or ())
    }
    if not exclusive:
        return []
    pods = snapshot.pods
    uses = np.zeros(len(pods.claims), np.int64)
    for identity, names in pods.claims.used():
        uses[identity] = len(names & exclusive)
    users = live.rows[uses[pods.claim_set[live.rows]] > 0]
    taken = {name for row in users for name in pods.claims.values[pods.claim_set[row]] or () if name in exclusive}
    if not taken:
        return []
    count = snapshot.nodes.rows
    base = np.full(count, len(taken), np.int64)
    return [Counter("claims", base, np.zeros(count, np.int64), _uses_of(uses, pods.claim_set), "claims")]


def _uses_of(uses: NDArray[np.int64], claim_set: NDArray[np.int32]) -> Callable[[Any, Any], NDArray[np.int64]]:
    return lambda rows, _nodes: uses[claim_set[rows]]
