"""Victims on every candidate node at once (SEMANTICS D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. Step k handles
the k-th pod of every node together, so that the number of steps is the number of pods on the fullest node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters import Problem
from webhook.preemption.plan import Candidate, Victim
from webhook.preemption.ranking import PRIORITY_OFFSET, Keys
from webhook.preemption.snapshot import Snapshot
from webhook.preemption.victims import MAY_GO, Verdicts

__all__ = ["Plans", "find_victims"]

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Plans(NamedTuple):
    """The victims of all candidates: `pods` (rows) of `nodes[i]` from `starts[i]` on, most important first."""

    snapshot: Snapshot
    nodes: Rows
    starts: Index
    pods: Rows
    violating: Mask

    def keys(self) -> Keys:
        """What the candidates are compared by."""
        pods = self.snapshot.pods
        first = self.pods[self.starts]
        return Keys(
            violations=_per_node(self.violating.astype(np.int64), self.starts),
            highest_priority=pods.priority[first],
            priority_sum=_per_node(pods.priority[self.pods] + PRIORITY_OFFSET, self.starts),
            victims=np.diff(np.append(self.starts, len(self.pods))),
            earliest_start=pods.start[first],
            names=_Names(self.snapshot, self.nodes),
        )

    def candidate(self, number: int) -> Candidate:
        """One candidate with its victims; equally important ones beyond a budget come first, as in Kubernetes."""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.pods)
        span = slice(int(self.starts[number]), int(end))
        rows, violating = self.pods[span].tolist(), self.violating[span].tolist()
        pods = self.snapshot.pods
        order = sorted(range(len(rows)), key=lambda i: (-pods.priority[rows[i]], pods.start[rows[i]], not violating[i]))
        node = self.snapshot.nodes.names[self.nodes[number]]
        return Candidate(node, [_victim(self.snapshot, rows[i], node) for i in order], sum(violating))


class _Names(list[str]):
    """Node names by candidate, looked up only for those that are asked for."""

    def __init__(self, snapshot: Snapshot, nodes: Rows) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: int) -> str:  # type: ignore[override]  # slices are not used
        name: str = self._snapshot.nodes.names[self._nodes[number]]
        return name


class _Evictable(NamedTuple):
    """The pods that may go from the candidate nodes: `pods` of `nodes[i]` from `starts[i]` on, `column` = i."""

    nodes: Rows
    starts: Index
    pods: Rows
    column: Index


def find_victims(problem: Problem, verdicts: Verdicts, nodes: Index) -> Plans:
    """Find the victims on the given nodes (rows); nodes that preemption does not help are left out."""
    snapshot, strict = problem.snapshot, verdicts.rules.strict_budgets
    evictable = _evictable(snapshot, verdicts, nodes)
    shares = problem.shares(evictable.pods, evictable.nodes[evictable.column])
    state = _State.without(problem, evictable, shares)
    evictable, shares, state = _where_it_fits(evictable, shares, state)
    violating = snapshot.budgets.violating(
        evictable.pods, evictable.column.astype(np.int64), least_important_first=strict
    )
    kept = _put_back(state, evictable, shares, violating)
    return _plans(snapshot, evictable, violating, ~kept, strict=strict)


def _evictable(snapshot: Snapshot, verdicts: Verdicts, nodes: Index) -> _Evictable:
    pods = snapshot.pods
    slots = pods.slots_of(nodes)
    may_go = (verdicts.code == MAY_GO)[slots]
    flat = np.flatnonzero(may_go)
    counts = np.count_nonzero(may_go, axis=1)
    chosen = np.flatnonzero(counts)
    counts = counts[chosen]
    return _Evictable(
        nodes=nodes[chosen].astype(np.int32),
        starts=np.cumsum(counts) - counts,
        pods=slots.ravel()[flat],
        column=np.repeat(np.arange(len(chosen)), counts),
    )


class _State:
    """The counters of the candidate nodes while pods go and come back; one column a node."""

    def __init__(self, problem: Problem, nodes: Rows, counters: Ints, ports: Ints, matches: Ints) -> None:
        self.problem = problem
        self.nodes = nodes
        self.counters = counters
        self.ports = ports
        self.matches = matches
        self.limit = problem.limit[:, nodes]
        self.least = problem.affinity.least[nodes] if problem.affinity else None
        self.most = problem.affinity.most[nodes] if problem.affinity else None
        self.crowded, self.crowd = _crowd(problem, nodes)

    @classmethod
    def without(cls, problem: Problem, evictable: _Evictable, shares: Ints) -> _State:
        """The candidate nodes with all evictable pods gone."""
        nodes, starts, pods = evictable.nodes, evictable.starts, evictable.pods
        counters = problem.base[:, nodes] - _per_node(shares, starts)
        ports = np.zeros(len(nodes), np.int64)
        matches = np.zeros(len(nodes), np.int64)
        if problem.ports and len(nodes):
            ports = problem.ports.base[nodes] & ~np.bitwise_or.reduceat(problem.ports.bits(pods), starts)
        if problem.affinity:
            matches = -_per_node(problem.affinity.share(pods, nodes[evictable.column]), starts)
        return cls(problem, nodes, counters, ports, matches)

    def taken(self, columns: Index) -> _State:
        """The state of some of the nodes, in the given order."""
        return _State(
            self.problem, self.nodes[columns], self.counters[:, columns], self.ports[columns], self.matches[columns]
        )

    def fits(self, counters: Ints, ports: Ints, matches: Ints) -> Mask:
        """Where the preemptor fits in such a state of the first columns, with the nominated pods and without."""
        width = counters.shape[1]
        fits = self._holds(counters, ports, matches, slice(0, width))
        if len(self.crowded):
            at = self.crowded[self.crowded < width]
            crowd = self.crowd[: len(at)]
            nominated = self.problem.nominated
            assert nominated is not None
            fits[at] &= self._holds(
                counters[:, at] + nominated.shares[:, crowd],
                ports[at] | nominated.bits[crowd],
                matches[at] + nominated.matches[crowd],
                at,
            )
        return fits

    def _holds(self, counters: Ints, ports: Ints, matches: Ints, at: slice | Index) -> Mask:
        holds: Mask = (counters <= self.limit[:, at]).all(axis=0)
        if self.problem.ports:
            holds = holds & (ports == 0)
        if self.least is not None and self.most is not None:
            holds = holds & ((matches >= self.least[at]) | (matches <= self.most[at]))
        return holds


def _crowd(problem: Problem, nodes: Rows) -> tuple[Index, Index]:
    """The columns with nominated pods, rising, and their places in `problem.nominated`."""
    if problem.nominated is None:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    place = np.full(problem.base.shape[1], -1, np.intp)
    place[problem.nominated.nodes] = np.arange(len(problem.nominated.nodes))
    mine = place[nodes]
    columns = np.flatnonzero(mine >= 0)
    return columns, mine[columns]


def _where_it_fits(evictable: _Evictable, shares: Ints, state: _State) -> tuple[_Evictable, Ints, _State]:
    """Only the nodes on which the preemptor fits once all evictable pods are gone."""
    fits = state.fits(state.counters, state.ports, state.matches)
    if fits.all():
        return evictable, shares, state
    chosen = np.flatnonzero(fits)
    stay = fits[evictable.column]
    counts = np.diff(np.append(evictable.starts, len(evictable.pods)))[chosen]
    kept = _Evictable(
        nodes=evictable.nodes[chosen],
        starts=np.cumsum(counts) - counts,
        pods=evictable.pods[stay],
        column=np.repeat(np.arange(len(chosen)), counts),
    )
    return kept, shares[:, stay], state.taken(chosen)


def _put_back(state: _State, evictable: _Evictable, shares: Ints, violating: Mask) -> Mask:
    """Put the pods back one after the other on all nodes together; returns which of them may stay."""
    problem, pods = state.problem, evictable.pods
    kept = np.zeros(len(pods), np.bool_)
    if not len(pods):
        return kept
    steps, order, widths = _steps(evictable, violating)
    state = state.taken(order)
    bits = problem.ports.bits(pods) if problem.ports else None
    matches = problem.affinity.share(pods, evictable.nodes[evictable.column]) if problem.affinity else None
    for step, width in enumerate(widths):
        back = steps[step, :width]
        counters = state.counters[:, :width] + shares[:, back]
        ports, found = state.ports[:width], state.matches[:width]
        if bits is not None:
            ports = ports | bits[back]
        if matches is not None:
            found = found + matches[back]
        stays = state.fits(counters, ports, found)
        kept[back] = stays
        np.copyto(state.counters[:, :width], counters, where=stays)
        if matches is not None:
            np.copyto(state.matches[:width], found, where=stays)
        if bits is not None:
            state.ports[:width] = np.where(stays, ports, state.ports[:width] & ~bits[back])
    return kept


def _steps(evictable: _Evictable, violating: Mask) -> tuple[Index, Index, list[int]]:
    """Which pod each node puts back at each step; nodes in order of falling number of pods, and how many take part."""
    starts, column = evictable.starts, evictable.column
    counts = np.diff(np.append(starts, len(evictable.pods)))
    within = np.arange(len(column)) - starts[column]
    if violating.any():
        before: Ints = np.cumsum(violating) - violating
        ahead: Ints = before - before[starts][column]
        beyond = _per_node(violating.astype(np.int64), starts)
        within = np.where(violating, ahead, beyond[column] + within - ahead)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    steps = np.zeros((int(counts.max()), len(counts)), np.intp)
    steps[within, place[column]] = np.arange(len(column))
    falling = -counts[order]
    widths = [int(np.searchsorted(falling, -step, side="left")) for step in range(len(steps))]
    return steps, order, widths


def _plans(snapshot: Snapshot, evictable: _Evictable, violating: Mask, evicted: Mask, *, strict: bool) -> Plans:
    chosen = np.flatnonzero(evicted)
    if strict and (violating & evicted).any():
        over = snapshot.budgets.over(evictable.pods[chosen], evictable.column[chosen].astype(np.int64))
        chosen = chosen[~np.isin(evictable.column[chosen], list(over))]
    column = evictable.column[chosen]
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    beyond = np.zeros(len(chosen), np.bool_) if strict else violating[chosen]
    return Plans(snapshot, evictable.nodes[column[starts]], starts, evictable.pods[chosen], beyond)


def _per_node(values: Ints, starts: Index) -> Ints:
    """Sums over each node's pods; every node has at least one."""
    if not len(starts):
        return np.zeros((*values.shape[:-1], 0), np.int64)
    sums: Ints = np.add.reduceat(values, starts, axis=-1)
    return sums


def _victim(snapshot: Snapshot, row: int, node: str) -> Victim:
    pods = snapshot.pods
    return Victim(
        namespace=pods.namespaces[row],
        name=pods.names[row],
        uid=pods.uids[row],
        priority=int(pods.priority[row]),
        start_time=float(pods.start[row]),
        node=node,
    )
