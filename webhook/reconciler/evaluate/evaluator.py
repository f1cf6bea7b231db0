"""What decisions and looks ask: who leaves, who goes in vain, what is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.bounded import Newest
from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.counters import UNBOUNDED
from webhook.preemption.filters.devices import nodes_served
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, claims_of, conflicts
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.clock import MeasuringClock, Now
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.preemptors import SchedulerActivity
from webhook.reconciler.state.state import State

_OVERDUE = 60.0
"""Seconds after which nobody counts on a pod that should be gone."""
_REMEMBERED = 1000
"""Answers of `fits_on` that are kept."""
_NOWHERE = 2**40
"""More pods than a node takes."""


class Evaluator:
    """The cluster and the past, and what they mean for a preemptor."""

    def __init__(self, state: State, log: EvictionLog, clock: MeasuringClock) -> None:
        self.state = state
        self.log = log
        self.schedulers = SchedulerActivity()
        self.clock = clock
        self._fits: Newest[tuple[int, int, str, bytes], tuple[Pod, bool]] = Newest(_REMEMBERED)
        """With the pod asked about, so that its id stays."""

    def exclusions(self, now: float) -> Mask:
        """The pods, by row, that go on running however often they are evicted.

        The API server refused that, or their owners put them back.
        """
        pods, owners, _ = self.log.excluded(now)
        rows = self.state.snapshot.pod_rows(pods)
        return mask_of(self.state, np.append(rows, self.owned(owners)))

    def owned(self, owners: Iterable[str]) -> Rows:
        """The rows of these owners' pods on nodes."""
        keys = [key for owner in owners for key in self.state.index.owned.get(owner, ())]
        return self.state.snapshot.pod_rows(keys)

    def room_within(self, seconds: float, at: Now) -> Rows:
        """Rows of pods whose room is free by then: not those that owners put back."""
        rows = self.leaving_within(seconds, at)
        _, owners, _ = self.log.excluded(at.monotonic)
        return np.setdiff1d(rows, self.owned(owners), assume_unique=True) if len(rows) else rows

    def leaving_within(self, seconds: float, at: Now) -> Rows:
        """Rows of pods that are gone by then, long overdue ones left out."""
        pods = self.state.snapshot.pods
        rows = pods.leaving()
        ends = pods.gone_at[rows]
        return rows[(at.wall - _OVERDUE <= ends) & (ends <= at.wall + seconds)]

    def has_room(self, pod: Pod, node: str, *, but: Collection[str] = ()) -> bool:
        """Whether the pod fits once all leaving pods are gone, `but` for these."""
        snapshot = self.state.snapshot
        gone, later = snapshot.pods.leaving(), snapshot.pod_rows(but)
        return self.fits_on(pod, node, np.union1d(gone, later) if len(later) else gone)

    def fits_on(self, pod: Pod, node: str, without: Rows = NO_PODS) -> bool:
        """Whether the pod fits without these, worked out once between events."""
        snapshot = self.state.snapshot
        question = snapshot.version, id(pod), node, without.tobytes()
        if question not in self._fits:
            self._fits[question] = pod, fits_on(snapshot, pod, node, without=without)
        return self._fits[question][1]


def mask_of(state: State, rows: Rows) -> Mask:
    """The pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


def on_nodes(snapshot: Snapshot, rows: Rows, nodes: Iterable[str]) -> Rows:
    """Those of these pods (rows) that are on these nodes."""
    return rows[np.isin(snapshot.pods.node[rows], snapshot.nodes.rows_of(nodes))]


# What is free, and what pods need: a row for pods, then one for each resource.


def needed_by(snapshot: Snapshot, incoming: PodInfo) -> Ints:
    """What a pod uses up: one pod, then its amount of each resource.

    More pods than a node takes if neither nodes nor devices have such a resource.
    """
    index = snapshot.nodes.resources
    need = np.zeros(1 + len(index), np.int64)
    need[0] = 1
    for name, amount in incoming.amounts.items():
        if name in index:
            need[1 + index[name]] = amount
        elif name not in snapshot.devices.class_of_resource:
            need[0] = _NOWHERE
    return need


def free_without(candidates: Candidates) -> Ints:
    """What is free on the candidates without their victims, as `needed_by` counts."""
    snapshot, rows = candidates.snapshot, candidates.nodes
    nodes, victims = snapshot.nodes, candidates.pods[candidates.here()]
    free = amounts_on(candidates, victims, snapshot.pods.node[victims])
    free[0] += nodes.pod_limit[rows] - nodes.pod_count[rows]
    free[1 : 1 + len(nodes.used)] += nodes.allocatable[:, rows] - nodes.used[:, rows]
    for name in snapshot.devices.class_of_resource.keys() & nodes.resources.keys():
        free[1 + nodes.resources[name], nodes_served(snapshot, name)[rows]] = UNBOUNDED
    return free


def amounts_on(candidates: Candidates, rows: Rows, nodes: NDArray[Any]) -> Ints:
    """What these pods use on the candidates, each on its one of `nodes`."""
    snapshot, columns = candidates.snapshot, _columns_of(candidates)[nodes]
    rows, columns = rows[columns >= 0], columns[columns >= 0]
    total = np.zeros((1 + len(snapshot.nodes.resources), len(candidates.nodes)), np.int64)
    np.add.at(total[0], columns, 1)
    for used, amounts in zip(total[1:], snapshot.pods.amounts, strict=False):
        np.add.at(used, columns, amounts[rows])
    return total


def count_on(candidates: Candidates, names: Iterable[str]) -> Ints:
    """How often each candidate's node is among the names (maybe empty)."""
    columns = _columns_of(candidates)[candidates.snapshot.nodes.rows_of(names)]
    return np.bincount(columns[columns >= 0], minlength=len(candidates.nodes))


def share_no_node(
    snapshot: Snapshot, incoming: PodInfo, other: PodInfo, nodes: Rows, elsewhere: Rows | None = None
) -> Mask:
    """The nodes (rows) closed to one if the other is there, or on one of `elsewhere`.

    A host port forbids it, a claim for one pod alone, or anti-affinity of either.
    """
    clash = any(conflicts(own, port) for port in other.ports for own in incoming.ports)
    claims, others = claims_of(incoming.pod), claims_of(other.pod)
    shared = claims.named & others.named if claims and others else ()
    for claim in map(snapshot.claims.get, shared):
        clash |= claim is not None and "ReadWriteOncePod" in (claim.spec.access_modes or ())
    if clash and elsewhere is None:
        return np.ones(len(nodes), np.bool_)
    apart = np.zeros(len(nodes), np.bool_)
    for terms, pod in ((incoming.anti_affinity, other), (other.anti_affinity, incoming)):
        namespace = snapshot.namespace_labels(pod.namespace)
        for term in terms:
            if term.selects(pod.namespace, pod.labels, namespace):
                domains = snapshot.nodes.label(term.topology_key)
                taken = domains[nodes if elsewhere is None else elsewhere]
                apart |= np.isin(domains[nodes], taken[taken >= 0])
    return apart


def _columns_of(candidates: Candidates) -> Rows:
    """By node its column among the candidates, else -1; the last is for no node."""
    columns = np.full(candidates.snapshot.nodes.rows + 1, -1, np.intp)
    columns[candidates.nodes] = np.arange(len(candidates.nodes))
    return columns
