"""Where of the nodes it fits on a pod goes: the score plugins of kube-scheduler's default profile, 1.36.

Each plugin gives every node 0 to 100, in whole numbers as kube-scheduler rounds them; the sum by weight decides, and of
equally good nodes the first by name, where kube-scheduler takes one at random. Not known are images on nodes
(ImageLocality) and devices (DynamicResources). All nodes are scored, not a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.clusters.scheduling.default_spread import Selectors
from webhook.clusters.scheduling.tally import Counts, Tally, asked_by, nonzero_requests, preferences_of
from webhook.kube.objects.placement import NodeSelector, TopologySpreadConstraint
from webhook.kube.objects.pod import Pod
from webhook.kube.selectors import SelectorError, tolerates
from webhook.preemption.filters.filtering import Failures
from webhook.preemption.filters.placement import affinity_mask, required_mask, taint_mask
from webhook.preemption.snapshot.amounts import CPU, MEMORY
from webhook.preemption.snapshot.pod_info import PodInfo, compile_spread
from webhook.preemption.snapshot.snapshot import Snapshot

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_MOST = 100
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_SYSTEM_SPREAD = ((_HOSTNAME, 3), (_ZONE, 5))
"""Topology key and `maxSkew` of the constraints for pods that have none."""


class View(NamedTuple):
    """The cluster as scores look at it."""

    snapshot: Snapshot
    tally: Tally
    selectors: Selectors


def best_node(view: View, incoming: PodInfo, failures: Failures) -> str | None:
    """The nominated node if the pod fits there, else the one with the best score, of equals the first by name."""
    nodes = view.snapshot.nodes
    fitting = failures.fits
    if not len(fitting):
        return None
    nominated = nodes.find(incoming.pod.status.nominated_node_name)
    if nominated is not None and nominated in fitting:
        return nodes.names[nominated]
    if len(fitting) == 1:
        return nodes.names[int(fitting[0])]
    total = scores(view, incoming, fitting)
    best = fitting[total == total.max()]
    return nodes.names[int(best[int(np.argmin(nodes.alphabetical()[best]))])]


def scores(view: View, incoming: PodInfo, rows: Rows) -> Ints:
    """The weighted sum of a pod's scores on the nodes in `rows`, on all of which it fits."""
    total = np.zeros(len(rows), np.int64)
    for plugin, weight in _PLUGINS.values():
        given = plugin(view, incoming, rows)
        if given is not None:
            total += weight * given
    return total


def _least_allocated(view: View, incoming: PodInfo, rows: Rows) -> Ints:
    """Free share after the pod is there, cpu and memory alike (`leastResourceScorer`)."""
    nodes, asked = view.snapshot.nodes, nonzero_requests(incoming.pod)
    total, counted = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    more = np.zeros((2, nodes.rows), np.int64)  # what the defaults of its pods add to each node
    for node, amounts in view.tally.more.items():
        row = nodes.find(node)
        if row is not None:
            more[:, row] = amounts
    for number, name in enumerate((CPU, MEMORY)):
        capacity = nodes.allocatable[number, rows]
        used = nodes.used[number, rows] + more[number][rows] + asked.get(name, 0)
        free = np.maximum(capacity - used, 0)
        total += free * _MOST // np.maximum(capacity, 1)
        counted += capacity > 0
    return total // np.maximum(counted, 1)


def _balanced(view: View, incoming: PodInfo, rows: Rows) -> Ints | None:
    """How much more alike the pod makes the used shares of cpu and memory: 75 if it changes nothing, 50 to 100.

    `balancedResourceScorer` (docs/kubernetes-behaviour.md K23); a pod that asks for nothing skips.
    """
    asked = [incoming.amounts.get(name, 0) for name in (CPU, MEMORY)]
    if not any(asked):
        return None
    nodes = view.snapshot.nodes
    capacity, used = nodes.allocatable[:2, rows], nodes.used[:2, rows]
    has_both = (capacity > 0).all(axis=0)

    def alike(amounts: Ints) -> Ints:
        shares = np.minimum(amounts / np.maximum(capacity, 1), 1.0)
        return ((1 - np.where(has_both, np.abs((shares[0] - shares[1]) / 2), 0.0)) * float(_MOST)).astype(np.int64)

    return _MOST // 2 + (_MOST // 2 + alike(used + np.array([asked]).T) - alike(used)) // 2


def _tolerated_taints(view: View, incoming: PodInfo, rows: Rows) -> Ints | None:
    """Fewer taints PreferNoSchedule that the pod does not tolerate are better."""
    nodes = view.snapshot.nodes
    tolerations = [
        toleration
        for toleration in incoming.pod.spec.tolerations or ()
        if toleration.effect in {"", "PreferNoSchedule"}
    ]
    bothers = np.zeros(len(nodes.taint_sets), np.int64)
    for identity, taints in nodes.taint_sets.used():
        soft = (taint for taint in taints if taint.effect == "PreferNoSchedule")
        bothers[identity] = sum(not tolerates(tolerations, taint) for taint in soft)
    counts = bothers[nodes.taints[rows]]
    most = int(counts.max(initial=0))
    return _MOST - _MOST * counts // most if most else None


def _node_preferences(view: View, incoming: PodInfo, rows: Rows) -> Ints | None:
    affinity = incoming.pod.spec.affinity
    of_nodes = affinity.node_affinity if affinity else None
    preferred = of_nodes.preferred_during_scheduling_ignored_during_execution if of_nodes else None
    if not preferred:
        return None
    total = np.zeros(len(rows), np.int64)
    for row in preferred:
        selector = NodeSelector(node_selector_terms=[row.preference])
        total += row.weight * affinity_mask(view.snapshot.nodes, selector)[rows]
    most = int(total.max(initial=0))
    return _MOST * total // most if most else None


def _company(view: View, incoming: PodInfo, rows: Rows) -> Ints | None:
    """Preferred company, of the pod and of those that are there (`interpodaffinity/scoring.go`)."""
    by_topology: dict[str, Ints] = {}
    snapshot, tally, _ = view
    nodes = snapshot.nodes

    def add(key: str, weight: int, counts: Counts) -> None:
        domains = nodes.label(key)
        totals = by_topology.setdefault(key, np.zeros(len(nodes.values_of(key)) + 1, np.int64))
        for node, count in counts.items():
            row = nodes.find(node)
            if row is not None and domains[row] >= 0:
                totals[domains[row]] += weight * count

    for preference in preferences_of(incoming.pod, incoming=True):
        for counts in tally.selected(preference, snapshot.namespace_labels):
            add(preference.term.topology_key, preference.weight, counts)
    own = snapshot.namespace_labels(incoming.namespace)
    for preference, counts in tally.wishing(incoming.namespace, incoming.labels, own):
        add(preference.term.topology_key, preference.weight, counts)
    if not by_topology:
        return None
    total = np.zeros(len(rows), np.int64)
    for key, totals in by_topology.items():
        totals[-1] = 0  # what label -1, none, reads
        total += totals[nodes.label(key)[rows]]
    least, most = int(total.min()), int(total.max())
    if least == most:
        return None
    return (float(_MOST) * ((total - least) / float(most - least))).astype(np.int64)


def _spread(view: View, incoming: PodInfo, rows: Rows) -> Ints | None:
    """Fewer matching pods in the node's domain are better (`podtopologyspread/scoring.go`)."""
    pod = incoming.pod
    given = pod.spec.topology_spread_constraints or []
    constraints = [constraint for constraint in given if constraint.when_unsatisfiable != "DoNotSchedule"]
    if not given:
        selector = view.selectors.of(pod)
        constraints = [
            TopologySpreadConstraint(
                max_skew=skew, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=selector
            )
            for key, skew in (_SYSTEM_SPREAD if selector else ())
        ]
    if not constraints:
        return None
    nodes = view.snapshot.nodes
    whole = np.ones(nodes.rows, np.bool_)
    for constraint in constraints if given else ():
        whole &= nodes.label(constraint.topology_key) >= 0
    counted = whole[rows]
    total: Floats = np.zeros(len(rows))
    for constraint in constraints:
        total += _skew(view, pod, constraint, rows, whole)
    rounded = np.floor(total + 0.5).astype(np.int64)
    if not counted.any():
        return np.zeros(len(rows), np.int64)
    least, most = int(rounded[counted].min()), int(rounded[counted].max())
    if not most:
        return np.where(counted, _MOST, 0)
    return np.where(counted, _MOST * (most + least - rounded) // most, 0)


def _skew(view: View, pod: Pod, constraint: TopologySpreadConstraint, rows: Rows, whole: NDArray[np.bool_]) -> Floats:
    """What one constraint adds on each of the nodes; nothing on a node without its label.

    A selector that is empty or cannot be read counts nobody.
    """
    nodes, key = view.snapshot.nodes, constraint.topology_key
    domains = nodes.label(key)
    counts = np.zeros(nodes.rows, np.int64)
    try:
        compiled = compile_spread(pod, constraint)
    except SelectorError:
        compiled = None
    if compiled is not None and not compiled.counts_nothing:
        asked = asked_by(constraint.label_selector)
        for group in view.tally.matching(pod.metadata.namespace, asked, compiled.matches):
            for node, count in group.items():
                row = nodes.find(node)
                if row is not None:
                    counts[row] += count
    here = rows[whole[rows]]
    if key == _HOSTNAME:
        size, matching = len(here), counts[rows]
    else:
        included = whole & nodes.valid[: nodes.rows]
        if constraint.node_affinity_policy in {None, "Honor"}:
            included &= required_mask(nodes, pod)
        if constraint.node_taints_policy == "Honor":
            included &= ~taint_mask(nodes, pod.spec.tolerations)
        size = int(np.count_nonzero(np.bincount(domains[here] + 1)))
        per_domain = np.bincount(domains[included] + 1, counts[included], len(nodes.values_of(key)) + 1)
        matching = per_domain[domains[rows] + 1].astype(np.int64)
    worth = matching * math.log(size + 2) + (constraint.max_skew - 1)
    return np.where(domains[rows] >= 0, worth, 0.0)


_PLUGINS: dict[str, tuple[Callable[[View, PodInfo, Rows], Ints | None], int]] = {
    "TaintToleration": (_tolerated_taints, 3),
    "NodeAffinity": (_node_preferences, 2),
    "NodeResourcesFit": (_least_allocated, 1),
    "PodTopologySpread": (_spread, 2),
    "InterPodAffinity": (_company, 2),
    "NodeResourcesBalancedAllocation": (_balanced, 1),
}
"""The plugins that are played here, each with its weight in the default profile; None adds nothing."""
