"""Where the preemptor's claims let it run (VolumeRestrictions, VolumeBinding, VolumeZone of 1.36).

Claims that wait for their first consumer are judged as in kube-scheduler's volume binder
(`findMatchingVolumes`, `checkVolumeProvisions`). The smallest claim first, each takes the
smallest free volume that suits, or only the one reserved for it. A claim without one must be
provisionable there.

Limits of volumes are in `volume_limits`. Free space of storage classes is not known.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from webhook.kube.objects.meta import Requirement, key_of
from webhook.kube.objects.placement import NodeSelector, NodeSelectorTerm
from webhook.kube.objects.pod import Pod, Volume
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.kube.pods import controller_of
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.preemption.devices.requests import ClaimRefusal
from webhook.preemption.filters.counters import UNBOUNDED, Counter, PlacedPods, ThingsInUse
from webhook.preemption.filters.placement import affinity_mask
from webhook.preemption.filters.volume_limits import attach_limits
from webhook.preemption.snapshot.columns import Mask
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.pod_info import claim_name
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import Offer, class_of_claim, requested

IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_NO_REACH = "node(s) didn't match PersistentVolume's node affinity"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_WRONG_ZONE = "node(s) had no available volume zone"
_GENERALLY_AVAILABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_ZONE_LABELS = (*_GENERALLY_AVAILABLE, *_GENERALLY_AVAILABLE.values())
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NOT_PROVISIONED = ("", "kubernetes.io/no-provisioner")
Claims = list[PersistentVolumeClaim]


class Storage(NamedTuple):
    """What the claims decide: a refusal of all nodes, or nodes that fail for a reason, and meters.

    `limits` are on how many volumes nodes can attach, if they concern the claims.
    """

    refusal: str
    masks: list[tuple[str, Mask]]
    counters: list[Counter]
    limits: ThingsInUse | None = None


def check(pod: Pod, live: PlacedPods) -> Storage:
    """Judge the preemptor's claims on all nodes."""
    snapshot = live.snapshot
    volumes = [volume for volume in pod.spec.volumes or () if claim_name(pod, volume) is not None]
    if not volumes:
        return Storage("", [], [])
    try:
        claims = [_claim(snapshot, pod, volume) for volume in volumes]
        bound, unbound = _bound_and_waiting(snapshot, claims)
        pairs = zip(claims, volumes, strict=True)
        named = [claim for claim, volume in pairs if volume.ephemeral is None]
        wrong_zone = wrong_zones(snapshot, named)
    except ClaimRefusal as refusal:
        return Storage(str(refusal), [], [])
    masks = [*_binding_masks(snapshot, bound, unbound), (_WRONG_ZONE, wrong_zone)]
    limits = attach_limits([key_of(claim) for claim in claims], live)
    return Storage("", masks, _exclusive_use(named, live), limits)


def _binding_masks(snapshot: Snapshot, bound: Claims, unbound: Claims) -> list[tuple[str, Mask]]:
    """What VolumeBinding says of every node, with all reasons that hold there.

    The first bound claim that fails on a node counts (`checkBoundClaims`).
    """
    nodes = snapshot.nodes
    unreachable, missing = np.full(nodes.rows, False), np.full(nodes.rows, False)
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


def _claim(snapshot: Snapshot, pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    """The claim behind a volume of the pod. Raises ClaimRefusal if it is unusable."""
    name, meta = claim_name(pod, volume), pod.metadata
    claim = snapshot.claims.get(f"{meta.namespace}/{name}")
    quoted = f'persistentvolumeclaim "{name}"'
    if claim is None:
        if volume.ephemeral is not None:
            raise ClaimRefusal(f"waiting for ephemeral volume controller to create the {quoted}")
        raise ClaimRefusal(f"{quoted} not found")
    if (claim.status or {}).get("phase") == "Lost":
        lost = claim.spec.volume_name
        raise ClaimRefusal(f'{quoted} bound to non-existent persistentvolume "{lost}"')
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimRefusal(f"{quoted} is being deleted")
    owner = controller_of(claim.metadata)
    if volume.ephemeral is not None and (owner is None or owner.uid != meta.uid):
        whose = f"PVC {key_of(claim)} was not created for pod {key_of(pod)}"
        raise ClaimRefusal(f"{whose} (pod is not owner)")
    return claim


def _bound_and_waiting(snapshot: Snapshot, claims: Claims) -> tuple[Claims, Claims]:
    """Bound claims, and claims waiting for a consumer. Raises ClaimRefusal for others."""
    bound, waiting = [], []
    for claim in claims:
        volume, annotations = claim.spec.volume_name, claim.metadata.annotations or {}
        if volume and "pv.kubernetes.io/bind-completed" in annotations:
            bound.append(claim)
            continue
        storage_class = snapshot.storage_classes.get(class_of_claim(claim))
        mode = storage_class.volume_binding_mode if storage_class else None
        if volume or mode != "WaitForFirstConsumer":
            raise ClaimRefusal("pod has unbound immediate PersistentVolumeClaims")
        waiting.append(claim)
    return bound, waiting


def wrong_zones(snapshot: Snapshot, claims: Claims) -> Mask:
    """Nodes in a zone or region that a volume's labels do not name.

    The pod names the claims: VolumeZone skips those made for it. Raises ClaimRefusal if a
    volume is missing.
    """
    nodes = snapshot.nodes
    zoned, conflict = np.full(nodes.rows, False), np.full(nodes.rows, False)
    for key in _ZONE_LABELS:
        zoned |= nodes.label(key) >= 0
    for name in filter(None, (claim.spec.volume_name for claim in claims)):
        volume = snapshot.volumes.get(name)
        if volume is None:
            raise ClaimRefusal(f'persistentvolume "{name}" not found')
        for key in _ZONE_LABELS:
            label = (volume.metadata.labels or {}).get(key, "")
            zones = [zone.strip() for zone in label.split("__")]
            if all(zones):  # Kubernetes ignores a label with an empty part
                conflict |= ~_in_zones(nodes, key, zones)
    conflict &= zoned
    return conflict


def _in_zones(nodes: Nodes, key: str, zones: list[str]) -> Mask:
    inside = nodes.has_label_in(key, zones)
    newer = _GENERALLY_AVAILABLE.get(key)
    if newer is None:
        return inside
    return inside | ((nodes.label(key) < 0) & _in_zones(nodes, newer, zones))


def _exclusive_use(claims: Claims, live: PlacedPods) -> list[Counter]:
    """ReadWriteOncePod: a counter, alike on all nodes, of claims in use."""
    modes = {key_of(claim): claim.spec.access_modes or () for claim in claims}
    exclusive = {key for key, some in modes.items() if "ReadWriteOncePod" in some}
    if not exclusive:
        return []
    pods, count = live.snapshot.pods, live.snapshot.nodes.rows
    claim_set, uses = pods.claim_set, np.zeros(len(pods.claims), np.int64)
    used = {}
    for id_, claims_there in pods.claims.used():
        used[id_] = claims_there.named & exclusive
        uses[id_] = len(used[id_])
    rows, _ = live.those(claim_set, uses > 0)
    taken = set[str]().union(*(used[id_] for id_ in claim_set[rows].tolist()))
    # If none is taken kube-scheduler skips the plugin, also for nominated pods.
    # The counter stands: a gang's members are in each other's way.
    counter = Counter(
        stage="claims",
        base=np.full(count, len(taken)),
        limit=np.full(count, 0 if taken else UNBOUNDED),
        share=lambda rows, _nodes: uses[claim_set[rows]],
        name="claims",
        reach=("", np.full(count, 0)),
    )
    return [counter]


def find_volumes(snapshot: Snapshot, claims: Claims) -> Mask:
    """Nodes, by row, where all claims could be satisfied.

    Raises ClusterError for a claim whose size is no quantity.
    """
    claims = sorted(claims, key=requested)
    suiting = [_suiting(snapshot, claim) for claim in claims]
    provisionable = [_provisionable(snapshot, claim) for claim in claims]
    nodes, names = snapshot.nodes, [offer.name for offer in chain(*suiting)]
    if len(set(names)) < len(names):
        return _competing(nodes, suiting, provisionable)
    mask = np.full(nodes.rows, True)
    for offers, elsewise in zip(suiting, provisionable, strict=True):
        mask &= _within_reach(nodes, offers) | elsewise
    return mask


def _suiting(snapshot: Snapshot, claim: PersistentVolumeClaim) -> list[Offer]:
    """The volumes that suit the claim on any node; none if a node is selected for a new one."""
    if _SELECTED_NODE in (claim.metadata.annotations or {}):
        return []
    reserved = _large_enough(claim, snapshot.volumes.reserved(claim))
    if reserved:
        return reserved[:1]
    modes, selector = frozenset(claim.spec.access_modes or ()), claim.spec.selector
    free = _large_enough(claim, snapshot.volumes.free(class_of_claim(claim)))
    offers = [offer for offer in free if modes <= offer.access_modes]
    if selector is None:
        return offers
    try:
        selects = label_matcher(selector)
    except SelectorError:
        return []
    return [offer for offer in offers if selects(offer.labels)]


def _large_enough(claim: PersistentVolumeClaim, offers: list[Offer]) -> list[Offer]:
    """The volumes of the claim's kind that hold what it asks for."""
    size, spec = requested(claim), claim.spec
    kind = (spec.volume_mode, spec.volume_attributes_class_name or "")
    return [offer for offer in offers if offer.kind == kind and offer.capacity >= size]


def _within_reach(nodes: Nodes, offers: list[Offer]) -> Mask:
    """Nodes that reach one of the volumes.

    Nearly all volumes ask for values of one label: these are looked at together.
    """
    mask = np.full(nodes.rows, False)
    values: dict[str, set[str]] = {}
    for reach in {offer.reach_key: offer.reach for offer in offers}.values():
        terms = (reach.node_selector_terms or ()) if reach else ()
        rows = terms[0].match_expressions or () if len(terms) == 1 and not terms[0].match_fields else ()
        if len(rows) == 1 and rows[0].operator == "In" and rows[0].values:
            values.setdefault(rows[0].key, set()).update(rows[0].values)
        else:
            mask |= affinity_mask(nodes, reach, fields=False)
    for key, of_key in values.items():
        mask |= nodes.has_label_in(key, of_key)
    return mask


def _competing(nodes: Nodes, suiting: list[list[Offer]], provisionable: list[Mask]) -> Mask:
    """Nodes where each claim in turn finds a volume left, or one can be provisioned."""
    suits = [{offer.name for offer in some} for some in suiting]
    groups: dict[bytes, dict[str, Offer]] = {}
    for offer in chain(*suiting):
        groups.setdefault(offer.reach_key, {})[offer.name] = offer
    within = [[*some.values()] for some in groups.values()]

    @cache
    def satisfied(reachable: bytes, may_provision: bytes) -> bool:
        rows = np.flatnonzero(np.frombuffer(reachable, np.bool_)).tolist()
        here = chain(*(within[row] for row in rows))
        left = [name for _, name in sorted((offer.capacity, offer.name) for offer in here)]
        for mine, provisioned in zip(suits, may_provision, strict=True):
            smallest = next((name for name in left if name in mine), None)
            if smallest is not None:
                left.remove(smallest)
            elif not provisioned:
                return False
        return True

    reaches = (some[0].reach for some in within)
    reach = np.stack([affinity_mask(nodes, some, fields=False) for some in reaches], axis=1)
    provision = np.stack(provisionable, axis=1)
    answers = [satisfied(row.tobytes(), may.tobytes()) for row, may in zip(reach, provision, strict=True)]
    return np.array(answers, np.bool_)


def _provisionable(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Mask:
    """Nodes, by row, where class and selected node let a volume be made."""
    nodes = snapshot.nodes
    storage_class = snapshot.storage_classes.get(class_of_claim(claim))
    if storage_class is None or storage_class.provisioner in _NOT_PROVISIONED:
        return np.full(nodes.rows, False)
    terms = []
    for term in storage_class.allowed_topologies or ():
        rows = []
        for row in term.get("matchLabelExpressions") or ():
            values = [*map(str, row.get("values") or ())]
            rows.append(Requirement(str(row.get("key", "")), "In", values))
        terms.append(NodeSelectorTerm(match_expressions=rows))
    mask = affinity_mask(nodes, NodeSelector(node_selector_terms=terms) if terms else None)
    selected = (claim.metadata.annotations or {}).get(_SELECTED_NODE)
    if selected is not None:
        row = nodes.find(selected)
        mask &= np.arange(nodes.rows) == (-1 if row is None else row)
    return mask
