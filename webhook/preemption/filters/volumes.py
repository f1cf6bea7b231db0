"""Volumes: where the preemptor's claims let it run (VolumeRestrictions, VolumeBinding and VolumeZone of 1.36).

Limits of volumes per node are in `volume_limits`. Free space of storage classes is not known and leaves out no node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, Volume
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.preemption.filters.counters import Counter, PlacedPods
from webhook.preemption.filters.placement import affinity_mask
from webhook.preemption.filters.volume_binding import find_volumes
from webhook.preemption.filters.volume_limits import AttachLimits, attach_limits
from webhook.preemption.snapshot.columns import Ints, Mask
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_info import PodInfo, claim_name
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import class_of_claim

IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_NO_REACH = "node(s) didn't match PersistentVolume's node affinity"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
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
    """What the claims decide: a refusal of all nodes, masks of nodes that fail for a reason, counters of use.

    `limits` are those of how many volumes can be attached to the nodes, if they concern the claims.
    """

    refusal: str
    masks: list[tuple[str, Mask]]
    counters: list[Counter]
    limits: AttachLimits | None = None


NO_STORAGE = Storage("", [], [])
"""What a pod without volumes is told."""


class _Claim(NamedTuple):
    """A claim of the preemptor, and whether it is made for it (`ephemeral`) instead of named by it."""

    claim: PersistentVolumeClaim
    ephemeral: bool


class Refusal(Exception):  # noqa: N818  # not an error of this program but Kubernetes' answer
    """No node will do, and why, in kube-scheduler's words."""


def check(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods) -> Storage:
    """Judge the preemptor's claims on all nodes."""
    try:
        claims = [
            _Claim(_claim(snapshot, incoming.pod, volume, name), volume.ephemeral is not None)
            for volume in incoming.pod.spec.volumes or ()
            if (name := claim_name(incoming.pod, volume)) is not None
        ]
        bound, unbound = _bound_and_waiting(snapshot, [entry.claim for entry in claims])
        named = [entry.claim for entry in claims if not entry.ephemeral]
        wrong_zone = wrong_zones(snapshot, named)
    except Refusal as refusal:
        return Storage(str(refusal), [], [])
    masks = [*_binding_masks(snapshot, bound, unbound), (_WRONG_ZONE, wrong_zone)]
    limits = attach_limits(snapshot, [key_of(entry.claim) for entry in claims], live)
    return Storage("", masks, _exclusive_use(snapshot, named, live), limits)


def _binding_masks(
    snapshot: Snapshot, bound: list[PersistentVolumeClaim], unbound: list[PersistentVolumeClaim]
) -> list[tuple[str, Mask]]:
    """What VolumeBinding says of every node; of its reasons those that hold together are named together.

    The claims are looked at in order, up to the first whose volume is missing or out of reach (`checkBoundClaims`).
    """
    nodes = snapshot.nodes
    unreachable, missing = np.zeros(nodes.rows, np.bool_), np.zeros(nodes.rows, np.bool_)
    for claim in bound:
        volume = snapshot.volumes.get(claim.spec.volume_name)
        if volume is None:
            missing = ~unreachable
            break
        reach = volume.spec.node_affinity
        unreachable |= ~affinity_mask(nodes, reach.required if reach else None, fields=False)
    failing = [(_NO_REACH, unreachable), (_NO_VOLUME, missing)]
    if not unbound:
        return failing
    unbindable = ~find_volumes(snapshot, unbound)
    both = [(f"{reason}, {_NOTHING_TO_BIND}", mask & unbindable) for reason, mask in failing]
    return [*both, *failing, (_NOTHING_TO_BIND, unbindable)]


def _claim(snapshot: Snapshot, pod: Pod, volume: Volume, name: str) -> PersistentVolumeClaim:
    """The claim of that name behind a volume of the pod. Raises Refusal if it is missing or cannot be used."""
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


def _bound_and_waiting(
    snapshot: Snapshot, claims: list[PersistentVolumeClaim]
) -> tuple[list[PersistentVolumeClaim], list[PersistentVolumeClaim]]:
    """Bound claims, and those that wait for their first consumer. Raises Refusal for one that waits for no one."""
    bound, waiting = [], []
    for claim in claims:
        if claim.spec.volume_name and "pv.kubernetes.io/bind-completed" in (claim.metadata.annotations or {}):
            bound.append(claim)
            continue
        storage_class = snapshot.storage_classes.get(class_of_claim(claim))
        waits = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
        if not waits or claim.spec.volume_name:
            raise Refusal("pod has unbound immediate PersistentVolumeClaims")
        waiting.append(claim)
    return bound, waiting


def wrong_zones(snapshot: Snapshot, claims: list[PersistentVolumeClaim]) -> Mask:
    """Nodes in a zone or region that a volume's labels do not name; nodes without any zone pass.

    The claims are those that the pod names: VolumeZone does not look at those made for the pod. Raises Refusal if a
    volume is missing.
    """
    nodes = snapshot.nodes
    zoned, conflict = np.zeros(nodes.rows, np.bool_), np.zeros(nodes.rows, np.bool_)
    for key in _ZONE_LABELS:
        zoned |= nodes.label(key) >= 0
    for name in (claim.spec.volume_name for claim in claims if claim.spec.volume_name):
        volume = snapshot.volumes.get(name)
        if volume is None:
            raise Refusal(f'persistentvolume "{name}" not found')
        for key in _ZONE_LABELS:
            zones = [zone.strip() for zone in (volume.metadata.labels or {}).get(key, "").split("__")]
            if all(zones):  # Kubernetes ignores the label if a part of it is empty
                conflict |= ~_in_zones(nodes, key, zones)
    return conflict & zoned


def _in_zones(nodes: Nodes, key: str, zones: list[str]) -> Mask:
    inside = nodes.has_label_in(key, zones)
    newer = _GENERALLY_AVAILABLE.get(key)
    if newer is None:
        return inside
    return inside | ((nodes.label(key) < 0) & _in_zones(nodes, newer, zones))


def _exclusive_use(snapshot: Snapshot, claims: list[PersistentVolumeClaim], live: PlacedPods) -> list[Counter]:
    """ReadWriteOncePod: one counter, the same on all nodes, of claims in use; only their users can free them."""
    exclusive = {
        f"{claim.metadata.namespace}/{claim.metadata.name}"
        for claim in claims
        if "ReadWriteOncePod" in (claim.spec.access_modes or ())
    }
    if not exclusive:
        return []
    pods, nodes = snapshot.pods, snapshot.nodes
    uses: Ints = np.zeros(len(pods.claims), np.int64)
    for identity, claims_there in pods.claims.used():
        uses[identity] = len(claims_there.named & exclusive)
    users = live.rows[uses[pods.claim_set[live.rows]] > 0]
    used = [pods.claims.values[pods.claim_set[row]] for row in users]
    taken = {name for claims_there in used if claims_there for name in claims_there.named & exclusive}
    claim_set = pods.claim_set
    return [
        Counter(
            stage="claims",
            base=np.full(nodes.rows, len(taken), np.int64),
            limit=np.zeros(nodes.rows, np.int64),
            share=lambda rows, _nodes: uses[claim_set[rows]],
            name="claims",
            reach=("", np.zeros(nodes.rows, np.int64)),
        )
    ]
