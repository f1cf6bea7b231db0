"""What is free on candidates and what pods need there, as columns: one row for pods, then one for each resource."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.preemption.filters.counters import UNBOUNDED
from webhook.preemption.filters.devices import nodes_served
from webhook.preemption.snapshot.pod_info import PodInfo, affinity_terms, claims_of, conflicts, host_ports
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates

Ints = NDArray[np.int64]


def pods_there(snapshot: Snapshot, columns: NDArray[np.intp], nodes: Iterable[str], size: int) -> Ints:
    """How many pods there are by candidate, if each of them is for one of these nodes, or for none: an empty name."""
    count = np.zeros(size, np.int64)
    for node in filter(None, nodes):
        row = snapshot.nodes.find(node)
        if row is not None and columns[row] >= 0:
            count[columns[row]] += 1
    return count


def needed_by(snapshot: Snapshot, incoming: PodInfo) -> Ints | None:
    """What a pod uses up: one pod, then its amount of each resource; None if no node has one of them.

    Where devices serve a resource no node need have it.
    """
    index = snapshot.nodes.resources
    amounts = {
        name: amount
        for name, amount in incoming.amounts.items()
        if name in index or name not in snapshot.devices.class_of_resource
    }
    if not index.keys() >= amounts.keys():
        return None
    need = np.zeros(1 + len(index), np.int64)
    need[0] = 1
    for name, amount in amounts.items():
        need[1 + index[name]] = amount
    return need


def free_without(snapshot: Snapshot, candidates: Candidates) -> Ints:
    """What is free on the candidates once their victims are gone, as `needed_by` counts it."""
    free = free_now(snapshot, candidates.nodes)
    columns, here = np.repeat(np.arange(len(candidates.nodes)), candidates.sizes), candidates.here()
    add_amounts(free, snapshot.pods.amounts, candidates.pods[here], columns[here])
    return free


def free_now(snapshot: Snapshot, rows: NDArray[np.intp]) -> Ints:
    """What is free on the nodes in these rows as things are, as `needed_by` counts it."""
    nodes = snapshot.nodes
    free = np.zeros((1 + len(nodes.resources), len(rows)), np.int64)
    free[0] = nodes.pod_limit[rows] - nodes.pod_count[rows]
    free[1 : 1 + len(nodes.used)] = nodes.allocatable[:, rows] - nodes.used[:, rows]
    for name in snapshot.devices.class_of_resource.keys() & nodes.resources.keys():
        free[1 + nodes.resources[name], nodes_served(snapshot, name)[rows]] = UNBOUNDED
    return free


def kept_for_equals(snapshot: Snapshot, candidates: Candidates, incoming: PodInfo) -> Ints:
    """What nominated pods of the preemptor's own priority hold on the candidates, as `needed_by` counts it."""
    pods = snapshot.pods
    place = columns_of(snapshot, candidates)
    nominees = pods.nominees()
    equal = nominees[(pods.priority[nominees] == incoming.priority) & (place[pods.nominated[nominees]] >= 0)]
    equal = equal[equal != pods.find(incoming.namespace, incoming.name)]
    kept = np.zeros((1 + len(snapshot.nodes.resources), len(candidates.nodes)), np.int64)
    add_amounts(kept, pods.amounts, equal, place[pods.nominated[equal]])
    return kept


def rows_with(rows: NDArray[np.intp], others: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows and the others, each once; mostly there are no others."""
    return np.union1d(rows, others).astype(np.intp) if len(others) else rows


def rows_without(rows: NDArray[np.intp], others: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows that are not among the others, in their order; mostly there are no others."""
    return rows[~np.isin(rows, others)] if len(others) else rows


def columns_of(snapshot: Snapshot, candidates: Candidates) -> NDArray[np.intp]:
    """Node's row to its column among the candidates, -1 for others."""
    place = np.full(snapshot.nodes.rows, -1, np.intp)
    place[candidates.nodes] = np.arange(len(candidates.nodes))
    return place


def add_amounts(total: Ints, amounts: Ints, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
    """Add what these pods use to the columns of their nodes."""
    np.add.at(total[0], columns, 1)
    for resource in range(len(amounts)):
        np.add.at(total[1 + resource], columns, amounts[resource, rows])


def times_in(free: Ints, need: Ints) -> Ints:
    """How many times something fits into what is free, by candidate."""
    wanted = need > 0
    times: Ints = (free[wanted] // need[wanted][:, None]).min(axis=0)
    return np.maximum(times, 0)


def share_no_node(snapshot: Snapshot, incoming: PodInfo, other: Pod, nodes: NDArray[np.intp]) -> NDArray[np.bool_]:
    """On which of the nodes (rows) the two pods cannot be together.

    That is by a host port, a claim that only one pod may use, or by anti-affinity of either.
    """
    own_claims, claims = claims_of(incoming.pod), claims_of(other)
    shared = [snapshot.claims.get(key) for key in own_claims.named & claims.named] if own_claims and claims else []
    exclusive = any(claim and "ReadWriteOncePod" in (claim.spec.access_modes or ()) for claim in shared)
    if exclusive or any(conflicts(own, port) for port in host_ports(other) for own in incoming.ports):
        return np.ones(len(nodes), np.bool_)
    apart = np.zeros(len(nodes), np.bool_)
    meta, pod = other.metadata, incoming.pod
    if not incoming.anti_affinity and other.spec.affinity is None:
        return apart
    theirs = affinity_terms(other, anti=True)
    pairs = [(term, meta.namespace, meta.labels or {}) for term in incoming.anti_affinity]
    pairs += [(term, pod.metadata.namespace, incoming.labels) for term in theirs]
    for term, namespace, labels in pairs:
        if term.selects(namespace, labels, snapshot.namespace_labels(namespace)):
            apart |= snapshot.nodes.label(term.topology_key)[nodes] >= 0
    return apart
