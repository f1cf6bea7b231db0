"""Whether claims that wait for their first consumer could be bound or provisioned on each node.

Mirrors `findMatchingVolumes` and `checkVolumeProvisions` of kube-scheduler's volume binder: the smallest free volume
that suits is taken for each claim, smallest claim first; a claim without one must be provisionable there. A volume
that is reserved for the claim is the only one it takes.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from webhook.kube.objects.meta import Requirement
from webhook.kube.objects.placement import NodeSelector, NodeSelectorTerm
from webhook.kube.objects.storage import PersistentVolumeClaim
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.preemption.filters.placement import affinity_mask
from webhook.preemption.snapshot.columns import Mask
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import Offer, class_of_claim, requested

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NOT_PROVISIONED = ("", "kubernetes.io/no-provisioner")


def find_volumes(snapshot: Snapshot, claims: list[PersistentVolumeClaim]) -> Mask:
    """Nodes, by row, on which every one of the claims could be satisfied.

    Raises ClusterError for a claim that asks for what is not a quantity.
    """
    claims = sorted(claims, key=requested)
    suiting = [_suiting(snapshot, claim) for claim in claims]
    provisionable = [_provisionable(snapshot, claim) for claim in claims]
    names = [offer.name for offers in suiting for offer in offers]
    if len(suiting) > 1 and len(set(names)) < len(names):
        return _competing(snapshot.nodes, suiting, provisionable)
    mask = np.ones(snapshot.nodes.rows, np.bool_)
    for offers, elsewise in zip(suiting, provisionable, strict=True):
        mask &= _within_reach(snapshot.nodes, offers) | elsewise
    return mask


def _suiting(snapshot: Snapshot, claim: PersistentVolumeClaim) -> list[Offer]:
    """The volumes that the claim could take, whatever the node; none once a node was selected to provision one for."""
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
    """The volumes of the claim's kind that hold as much as it asks for."""
    size, mode = requested(claim), claim.spec.volume_mode
    attributes = claim.spec.volume_attributes_class_name or ""
    return [
        offer
        for offer in offers
        if offer.capacity >= size and offer.volume_mode == mode and offer.attributes_class == attributes
    ]


def _within_reach(nodes: Nodes, offers: list[Offer]) -> Mask:
    """Nodes from which one of the volumes can be reached.

    Volumes that ask for values of one label, as nearly all do, are looked at together.
    """
    mask = np.zeros(nodes.rows, np.bool_)
    values: dict[str, set[str]] = {}
    for reach in {offer.reach_key: offer.reach for offer in offers}.values():
        terms = (reach.node_selector_terms or []) if reach else []
        rows = (terms[0].match_expressions or []) if len(terms) == 1 and not terms[0].match_fields else []
        if len(rows) == 1 and rows[0].operator == "In" and rows[0].values:
            values.setdefault(rows[0].key, set()).update(rows[0].values)
        else:
            mask |= affinity_mask(nodes, reach, fields=False)
    for key, wanted in values.items():
        mask |= nodes.has_label_in(key, wanted)
    return mask


def _competing(nodes: Nodes, suiting: list[list[Offer]], provisionable: list[Mask]) -> Mask:
    """Nodes where each claim in turn finds the smallest volume that is left, or one can be provisioned for it."""
    suits = [{offer.name for offer in some} for some in suiting]
    groups: dict[bytes, dict[str, Offer]] = {}
    for offer in (offer for some in suiting for offer in some):
        groups.setdefault(offer.reach_key, {})[offer.name] = offer
    within = [list(some.values()) for some in groups.values()]

    @cache
    def satisfied(reachable: bytes, may_provision: bytes) -> bool:
        rows = np.flatnonzero(np.frombuffer(reachable, np.bool_)).tolist()
        here = sorted((offer for row in rows for offer in within[row]), key=lambda offer: (offer.capacity, offer.name))
        left = [offer.name for offer in here]
        for mine, provisioned in zip(suits, may_provision, strict=True):
            chosen = next((name for name in left if name in mine), None)
            if chosen is not None:
                left.remove(chosen)
            elif not provisioned:
                return False
        return True

    reach = np.stack([affinity_mask(nodes, some[0].reach, fields=False) for some in within], axis=1)
    provision = np.stack(provisionable, axis=1)
    answers = [satisfied(row.tobytes(), may.tobytes()) for row, may in zip(reach, provision, strict=True)]
    return np.array(answers, np.bool_)


def _provisionable(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Mask:
    """Nodes, by row, for which a volume could be made: by its class's allowed topologies, or only the selected node."""
    nodes = snapshot.nodes
    storage_class = snapshot.storage_classes.get(class_of_claim(claim))
    if storage_class is None or storage_class.provisioner in _NOT_PROVISIONED:
        return np.zeros(nodes.rows, np.bool_)
    terms = []
    for term in storage_class.allowed_topologies or ():
        rows = [
            Requirement(key=str(row.get("key", "")), operator="In", values=[str(v) for v in row.get("values") or ()])
            for row in term.get("matchLabelExpressions") or ()
        ]
        terms.append(NodeSelectorTerm(match_expressions=rows))
    mask = affinity_mask(nodes, NodeSelector(node_selector_terms=terms) if terms else None)
    selected = (claim.metadata.annotations or {}).get(_SELECTED_NODE)
    if selected is not None:
        row = nodes.find(selected)
        mask &= np.arange(nodes.rows) == (-1 if row is None else row)
    return mask
