"""Counters over topology domains: (anti-)affinity in both directions, and topology spread.

A node's counter is the number of matching pods in its domain. As the InterPodAffinity and
PodTopologySpread plugins of kube-scheduler 1.36, peculiarities included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.placement import PodAffinityTerm
from webhook.preemption.filters.counters import UNBOUNDED, Counter, PlacedPods
from webhook.preemption.filters.placement import required_mask, taint_mask
from webhook.preemption.snapshot.columns import Ints, Ints32, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, SpreadConstraint, Term, compile_terms
from webhook.preemption.snapshot.pod_view import Identity
from webhook.preemption.snapshot.snapshot import Snapshot

STAGES = frozenset(("spread", "anti-affinity", "existing-anti-affinity"))
"""The stages of the counters that count by topology."""


def affinity_counters(incoming: PodInfo, live: PlacedPods, inside: PlacedPods) -> list[Counter]:
    """The preemptor's affinity, its anti-affinity by term, and existing pods' by topology.

    Affinity is to `live` pods, anti-affinity to all that are or will be `inside` a domain.
    Without own terms, and existing ones that hit it, kube-scheduler skips the plugin, even
    for nominated pods.
    """
    existing = _existing_anti_affinity(incoming, inside)
    hit = any(counter.base.any() for counter in existing)
    if not (hit or incoming.affinity or incoming.anti_affinity):
        return []
    snapshot = live.snapshot
    counters = [_own_affinity(incoming, live)] if incoming.affinity else []
    for term in incoming.anti_affinity:
        key, ids = term.topology_key, snapshot.pods.identity
        matches = _term_matches(snapshot, [term])
        counters.append(_nobody("anti-affinity", inside, key, ids, matches))
    return counters + existing


def spread_counters(incoming: PodInfo, live: PlacedPods) -> list[Counter]:
    """A counter each hard constraint: matching pods in a domain, against the fewest."""
    nodes = live.snapshot.nodes
    labelled = nodes.valid[: nodes.rows].copy()
    for constraint in incoming.spread:
        labelled &= nodes.label(constraint.topology_key) >= 0
    return [_spread(incoming, constraint, labelled.copy(), live) for constraint in incoming.spread]


def _spread(incoming: PodInfo, constraint: SpreadConstraint, included: Mask, live: PlacedPods) -> Counter:
    """A terminating pod does not count.

    In kube-scheduler its removal lowers the number (`updateWithPod`), so others go in
    vain; under a policy it changes nothing.
    """
    snapshot, key = live.snapshot, constraint.topology_key
    nodes, pods = snapshot.nodes, snapshot.pods
    if constraint.honor_affinity:
        included &= required_mask(nodes, incoming.pod)
    if constraint.honor_taints:
        included &= ~taint_mask(nodes, incoming.pod.spec.tolerations)
    table = ("spread", constraint.namespace, constraint.key)
    matches: Mask = snapshot.table(table, pods.identities, np.bool_, constraint.selects)
    rows, on = live.those(pods.identity, matches)
    counted = included.take(on) & ~pods.terminating.take(rows) & (not constraint.counts_nothing)
    domains = nodes.label(key)
    counts = _domain_counts(snapshot, key, on.take(np.flatnonzero(counted)))
    eligible = np.full(len(counts), False)
    eligible[domains[included]] = True
    room = constraint.max_skew - int(constraint.matches(incoming.labels))
    nothing = pods.terminating if snapshot.under_policy else None
    counter = Counter(
        stage="spread",
        base=counts[domains],
        limit=_spread_limit(room, constraint.min_domains, counts, eligible, domains),
        share=_share(pods.identity, matches, included, nothing),
        name=key,
        reach=(key, domains),
    )
    if constraint.counts_nothing:  # but pods that are nominated to the node itself
        counter.nominate(live.coming, pods.nominated[live.coming].astype(np.intp))
    return counter


def _own_affinity(incoming: PodInfo, live: PlacedPods) -> Counter:
    """How many matches may go from a node's domains before required affinity fails.

    It fits while every term's domain has a match. If it matches its own terms, it may be the
    first, where none remains anywhere.
    """
    snapshot = live.snapshot
    nodes, identity = snapshot.nodes, snapshot.pods.identity
    matches = _term_matches(snapshot, incoming.affinity)
    _, on = live.those(identity, matches)
    fewest = np.full(nodes.rows, UNBOUNDED)
    anywhere = np.full(nodes.rows, False)
    for term in incoming.affinity:
        domains = nodes.label(term.topology_key)
        counts = _domain_counts(snapshot, term.topology_key, on)
        fewest = np.minimum(fewest, counts[domains])
        anywhere |= domains >= 0
    own = snapshot.namespace_labels(incoming.namespace)
    itself = (incoming.namespace, incoming.labels, own)
    may_be_first = all(term.selects(*itself) for term in incoming.affinity)
    total = int(np.count_nonzero(anywhere[on])) if may_be_first else UNBOUNDED
    return Counter(
        stage="affinity",
        base=np.full(nodes.rows, 0),
        limit=fewest - 1,
        share=lambda rows, _nodes: -(matches.take(identity.take(rows)) & (rows > 0)).astype(np.int64),
        again=np.full(nodes.rows, total),
    )


def _existing_anti_affinity(incoming: PodInfo, live: PlacedPods) -> list[Counter]:
    """By topology key: how many terms of pods in a domain forbid the preemptor."""
    snapshot, pods = live.snapshot, live.snapshot.pods
    if len(pods.anti.values) <= 1:
        return []
    own = snapshot.namespace_labels(incoming.namespace)
    itself = (incoming.namespace, incoming.labels, own)

    def forbidding(value: tuple[str, tuple[PodAffinityTerm, ...]]) -> tuple[str, ...]:
        terms = compile_terms(*value)
        return tuple(term.topology_key for term in terms if term.selects(*itself))

    labels = tuple(sorted(incoming.labels.items()))
    table = ("hits", snapshot.namespaces.version, incoming.namespace, labels)
    keys_of = snapshot.table(table, pods.anti, np.object_, forbidding)
    weights: dict[str, Ints] = {}
    for identity, _ in pods.anti.used():
        for key in keys_of[identity]:
            weights.setdefault(key, np.zeros(len(pods.anti), np.int64))[identity] += 1
    stage = "existing-anti-affinity"
    by_key = sorted(weights.items())
    return [_nobody(stage, live, key, pods.anti_set, terms) for key, terms in by_key]


def _nobody(stage: str, live: PlacedPods, key: str, ids: Ints32, values: NDArray[Any]) -> Counter:
    """Of the pods whose id has a value none may be in the node's domain."""
    rows, on = live.those(ids, values > 0)
    domains = live.snapshot.nodes.label(key)
    base = _domain_counts(live.snapshot, key, on, values.take(ids.take(rows)))[domains]
    share = _share(ids, values, domains >= 0)
    return Counter(stage, base, np.zeros_like(base), share, reach=(key, domains))


def _spread_limit(room: int, min_domains: int, counts: Ints, eligible: Mask, domains: Ints32) -> Ints:
    """The most matching pods in a domain: skew is measured against the fewest in others."""
    if room < 0:
        return np.full(len(domains), -UNBOUNDED)
    if np.count_nonzero(eligible) < min_domains:
        return np.full(len(domains), room)
    fewest, next_fewest = np.append(np.sort(counts[eligible]), UNBOUNDED)[:2]
    others = np.full(len(counts), fewest)
    others[np.flatnonzero(eligible & (counts == fewest))] = next_fewest
    return room + others[domains]


def _term_matches(snapshot: Snapshot, terms: Sequence[Term]) -> Mask:
    """Which pods' identities all the terms select."""

    def matches(identity: Identity) -> bool:
        labels = snapshot.namespace_labels(identity.namespace)
        it = (identity.namespace, identity.labels, labels)
        return all(term.selects(*it) for term in terms)

    key = ("terms", snapshot.namespaces.version, *(term.key for term in terms))
    return snapshot.table(key, snapshot.pods.identities, np.bool_, matches)


def _domain_counts(snapshot: Snapshot, key: str, on: Rows, weights: Ints | None = None) -> Ints:
    """How many pods on these nodes are in each domain, by value id; the last, for none, has 0."""
    domains = snapshot.nodes.label(key).take(on)
    counts = np.bincount(domains + 1, weights, len(snapshot.nodes.values_of(key)) + 1)
    counts[0] = 0
    return np.roll(counts, -1).astype(np.int64)


def _share(ids: Ints32, values: NDArray[Any], where: Mask, nothing: Mask | None = None) -> Callable[[Rows, Rows], Ints]:
    """What pods add on nodes where that counts: the value of their id; `ids` is by pod row.

    Row 0 and those marked in `nothing`, by pod row, add nothing.
    """

    def share(pods: Rows, nodes: Rows) -> Ints:
        counts = where[nodes] & (pods > 0)
        if nothing is not None:
            counts &= ~nothing.take(pods)
        added = values.take(ids.take(pods)) * counts
        return added.astype(np.int64, copy=False)

    return share
