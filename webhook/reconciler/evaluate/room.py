"""What is free on candidates and what pods need there, as columns: one row for pods, then one for each resource."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.counters import UNBOUNDED
from webhook.preemption.filters.devices import nodes_served
from webhook.preemption.snapshot.columns import Ints, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, affinity_terms, claims_of, conflicts, host_ports
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates


def needed_by(snapshot: Snapshot, incoming: PodInfo) -> Ints | None:
    """What a pod uses up: one pod, then its amount of each resource; None if no node has one of them.

    Where devices serve a resource no node need have it.
    """
    index = snapshot.nodes.resources
    need = np.zeros(1 + len(index), np.int64)
    need[0] = 1
    for name, amount in incoming.amounts.items():
        if name in index:
            need[1 + index[name]] = amount
        elif name not in snapshot.devices.class_of_resource:
            return None
    return need


def free_without(candidates: Candidates) -> Ints:
    """What is free on the candidates once their victims are gone, as `needed_by` counts it."""
    snapshot, rows, victims = candidates.snapshot, candidates.nodes, candidates.pods[candidates.here()]
    nodes, free = snapshot.nodes, amounts_on(candidates, victims, snapshot.pods.node[victims])
    free[0] += nodes.pod_limit[rows] - nodes.pod_count[rows]
    free[1 : 1 + len(nodes.used)] += nodes.allocatable[:, rows] - nodes.used[:, rows]
    for name in snapshot.devices.class_of_resource.keys() & nodes.resources.keys():
        free[1 + nodes.resources[name], nodes_served(snapshot, name)[rows]] = UNBOUNDED
    return free


def amounts_on(candidates: Candidates, rows: Rows, nodes: NDArray[Any]) -> Ints:
    """What the pods in these rows use by candidate, as `needed_by` counts it, if each is on that one of the nodes."""
    snapshot, columns = candidates.snapshot, _columns_of(candidates)[nodes]
    rows, columns = rows[columns >= 0], columns[columns >= 0]
    total = np.zeros((1 + len(snapshot.nodes.resources), len(candidates.nodes)), np.int64)
    np.add.at(total[0], columns, 1)
    for used, amounts in zip(total[1:], snapshot.pods.amounts, strict=False):
        np.add.at(used, columns, amounts[rows])
    return total


def count_on(candidates: Candidates, names: Iterable[str]) -> Ints:
    """How many of the names, each that of a node or empty, are those of each candidate."""
    columns = _columns_of(candidates)[candidates.snapshot.nodes.rows_of(names)]
    return np.bincount(columns[columns >= 0], minlength=len(candidates.nodes))


def share_no_node(snapshot: Snapshot, incoming: PodInfo, other: Pod, nodes: Rows) -> NDArray[np.bool_]:
    """On which of the nodes (rows) the two pods cannot be together.

    That is by a host port, a claim that only one pod may use, or by anti-affinity of either.
    """
    own_claims, claims = claims_of(incoming.pod), claims_of(other)
    shared = [snapshot.claims.get(key) for key in own_claims.named & claims.named] if own_claims and claims else []
    exclusive = any(claim and "ReadWriteOncePod" in (claim.spec.access_modes or ()) for claim in shared)
    if exclusive or any(conflicts(own, port) for port in host_ports(other) for own in incoming.ports):
        return np.ones(len(nodes), np.bool_)
    apart, meta = np.zeros(len(nodes), np.bool_), other.metadata
    pairs = [(term, meta.namespace, meta.labels or {}) for term in incoming.anti_affinity]
    pairs += [(term, incoming.namespace, incoming.labels) for term in affinity_terms(other, anti=True)]
    for term, namespace, labels in pairs:
        if term.selects(namespace, labels, snapshot.namespace_labels(namespace)):
            apart |= snapshot.nodes.label(term.topology_key)[nodes] >= 0
    return apart


def _columns_of(candidates: Candidates) -> Rows:
    """Node's row to its column among the candidates, -1 for others, and for no node: that reads the last entry."""
    columns = np.full(candidates.snapshot.nodes.rows + 1, -1, np.intp)
    columns[candidates.nodes] = np.arange(len(candidates.nodes))
    return columns
