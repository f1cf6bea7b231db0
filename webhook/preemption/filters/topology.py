"""Counters over topology domains: inter-pod (anti-)affinity in both directions, and topology spread.

A node's counter is the number of matching pods in its domain; a pod on the node is one of them. Mirrors the
InterPodAffinity and PodTopologySpread plugins of kube-scheduler 1.36, peculiarities included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.placement import PodAffinityTerm
from webhook.preemption.filters.counters import UNBOUNDED, Counter, PlacedPods
from webhook.preemption.filters.placement import required_mask, taint_mask
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, SpreadConstraint, Term, compile_terms
from webhook.preemption.snapshot.pod_view import Identity
from webhook.preemption.snapshot.snapshot import Snapshot

STAGES = frozenset(("spread", "anti-affinity", "existing-anti-affinity"))
"""The stages of the counters that count by topology."""


def affinity_counters(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods, inside: PlacedPods) -> list[Counter]:
    """The preemptor's affinity, its anti-affinity by term, and existing pods' by topology.

    Affinity is to pods that are `live`, anti-affinity to all that are or will be `inside` a domain. Without any term of
    its own and without an existing pod's term that hits it, kube-scheduler skips the plugin, even for pods that are
    only nominated; so nothing is returned then.
    """
    existing = _existing_anti_affinity(snapshot, incoming, inside)
    hit = any(counter.base.any() for counter in existing)
    if not (hit or incoming.affinity or incoming.anti_affinity):
        return []
    nodes, identity = snapshot.nodes, snapshot.pods.identity
    own = []
    for term in incoming.anti_affinity:
        matches, domains = _term_matches(snapshot, [term]), nodes.label(term.topology_key)
        counts = _domain_counts(snapshot, term.topology_key, inside.those(identity, matches)[1])
        nobody = np.zeros(nodes.rows, np.int64)
        share, reach = _share(identity, matches, domains >= 0), (term.topology_key, domains)
        own.append(Counter("anti-affinity", _by_node(counts, domains), nobody, share, reach=reach))
    affinity = [_own_affinity(snapshot, incoming, live)] if incoming.affinity else []
    return [*affinity, *own, *existing]


def spread_counters(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods) -> list[Counter]:
    """A counter each hard constraint: matching pods in the node's domain, against the fewest.

    A terminating pod is not counted. To kube-scheduler its removal makes the number smaller all the same
    (`updateWithPod`), so it evicts others in vain; under a policy it changes nothing.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    labelled = nodes.valid[: nodes.rows].copy()
    for constraint in incoming.spread:
        labelled &= nodes.label(constraint.topology_key) >= 0
    counters = []
    for constraint in incoming.spread:
        included = labelled.copy()
        if constraint.honor_affinity:
            included &= required_mask(nodes, incoming.pod)
        if constraint.honor_taints:
            included &= ~taint_mask(nodes, incoming.pod.spec.tolerations)
        table = ("spread", constraint.namespace, constraint.key)
        matches: Mask = snapshot.table(table, pods.identities, np.bool_, constraint.selects)
        rows, on = live.those(pods.identity, matches)
        counted = included[on] & ~pods.terminating[rows]
        if constraint.counts_nothing:
            counted[:] = False
        domains = nodes.label(constraint.topology_key)
        eligible = np.zeros(len(nodes.values_of(constraint.topology_key)), np.bool_)
        eligible[domains[included]] = True
        counts = _domain_counts(snapshot, constraint.topology_key, on[counted])
        counters.append(
            Counter(
                stage="spread",
                base=_by_node(counts, domains),
                limit=_spread_limit(constraint, int(constraint.matches(incoming.labels)), counts, eligible, domains),
                share=_share(pods.identity, matches, included, pods.terminating if snapshot.under_policy else None),
                name=constraint.topology_key,
                reach=(constraint.topology_key, domains),
            )
        )
    return counters


def _own_affinity(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods) -> Counter:
    """The required affinity: how many matches may go from a node's domains before it fails.

    It fits while a match remains in every term's domain. If it matches its own terms, it may also be the first: once
    no match remains anywhere.
    """
    nodes = snapshot.nodes
    matches = _term_matches(snapshot, incoming.affinity)
    _, on = live.those(snapshot.pods.identity, matches)
    fewest = np.full(nodes.rows, UNBOUNDED, np.int64)
    anywhere = np.zeros(nodes.rows, np.bool_)
    for term in incoming.affinity:
        domains = nodes.label(term.topology_key)
        fewest = np.minimum(fewest, _by_node(_domain_counts(snapshot, term.topology_key, on), domains))
        anywhere |= domains >= 0
    own = snapshot.namespace_labels(incoming.namespace)
    may_be_first = all(term.selects(incoming.namespace, incoming.labels, own) for term in incoming.affinity)
    total = int(np.count_nonzero(anywhere[on])) if may_be_first else UNBOUNDED
    share = _share(snapshot.pods.identity, matches, np.ones(nodes.rows, np.bool_))
    return Counter(
        stage="affinity",
        base=np.zeros(nodes.rows, np.int64),
        limit=fewest - 1,
        share=lambda rows, on_nodes: -share(rows, on_nodes),
        again=np.full(nodes.rows, total, np.int64),
    )


def _existing_anti_affinity(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods) -> list[Counter]:
    """Per topology key: how many terms of pods in the node's domain forbid the preemptor."""
    pods, nodes = snapshot.pods, snapshot.nodes
    if len(pods.anti.values) <= 1:
        return []
    own = snapshot.namespace_labels(incoming.namespace)

    def forbidding(value: tuple[str, tuple[PodAffinityTerm, ...]]) -> tuple[str, ...]:
        """The topology keys of those of an existing pod's terms that forbid the preemptor."""
        selecting = (term for term in compile_terms(*value) if term.selects(incoming.namespace, incoming.labels, own))
        return tuple(term.topology_key for term in selecting)

    labels = tuple(sorted(incoming.labels.items()))
    table = ("hits", snapshot.namespaces.version, incoming.namespace, labels)
    keys_of = snapshot.table(table, pods.anti, np.object_, forbidding)
    weights: dict[str, Ints] = {}
    for identity, _ in pods.anti.used():
        for key in keys_of[identity]:
            weights.setdefault(key, np.zeros(len(pods.anti), np.int64))[identity] += 1
    if not weights:
        return []
    counters = []
    for key, terms in sorted(weights.items()):
        rows, on = live.those(pods.anti_set, terms > 0)
        counts, domains = _domain_counts(snapshot, key, on, terms[pods.anti_set[rows]]), nodes.label(key)
        nobody, share = np.zeros(nodes.rows, np.int64), _share(pods.anti_set, terms, domains >= 0)
        at = _by_node(counts, domains)
        counters.append(Counter("existing-anti-affinity", at, nobody, share, reach=(key, domains)))
    return counters


def _spread_limit(
    constraint: SpreadConstraint, own: int, counts: Ints, eligible: Mask, domains: NDArray[np.int32]
) -> Ints:
    """The most matching pods a domain may hold: skew is measured against the fewest in others."""
    if own > constraint.max_skew:
        return np.full(len(domains), -UNBOUNDED, np.int64)
    room = constraint.max_skew - own
    if np.count_nonzero(eligible) < constraint.min_domains:
        return np.full(len(domains), room, np.int64)
    ranked = np.sort(counts[eligible])
    others = np.full(len(counts) + 1, ranked[0], np.int64)
    if len(ranked) == 1:
        others[np.flatnonzero(eligible)] = UNBOUNDED
    elif ranked[0] < ranked[1]:
        others[np.flatnonzero(eligible & (counts == ranked[0]))] = ranked[1]
    return room + others[domains]


def _term_matches(snapshot: Snapshot, terms: Sequence[Term]) -> Mask:
    """Which distinct label sets all the terms select, by the pods' identities."""

    def matches(identity: Identity) -> bool:
        of_namespace = snapshot.namespace_labels(identity.namespace)
        return all(term.selects(identity.namespace, identity.labels, of_namespace) for term in terms)

    key = ("terms", snapshot.namespaces.version, *(term.key for term in terms))
    return snapshot.table(key, snapshot.pods.identities, np.bool_, matches)


def _domain_counts(snapshot: Snapshot, key: str, on: Rows, weights: Ints | None = None) -> Ints:
    """How many pods (given by their nodes) lie in each domain of the topology, by value id."""
    domains = snapshot.nodes.label(key)[on]
    inside = domains >= 0
    counts = np.bincount(
        domains[inside],
        weights=None if weights is None else weights[inside],
        minlength=len(snapshot.nodes.values_of(key)),
    )
    return counts.astype(np.int64)


def _by_node(counts: Ints, domains: NDArray[np.int32]) -> Ints:
    """Each node's domain's count, 0 for a node outside the topology."""
    return np.append(counts, 0)[domains]


def _share(
    ids: NDArray[np.int32], values: NDArray[Any], where: Mask, nothing: Mask | None = None
) -> Callable[[Rows, Rows], Ints]:
    """What pods add where that counts: the value of what they share, which `ids` has by pod row.

    Row 0 and those that are marked in `nothing`, by pod row, add nothing.
    """

    def share(pods: Rows, nodes: Rows) -> Ints:
        added = values[ids[pods]] * (where[nodes] & (pods > 0))
        return (added if nothing is None else added & ~nothing[pods]).astype(np.int64, copy=False)

    return share
