"""Victims on every candidate node at once (docs/semantics.md D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. The nodes are the
columns of matrices whose k-th row holds the k-th pod of every node, so one step handles a pod of every node.
Nodes with many pods are handled apart from those with few, so that a few full ones do not make all rows long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.filtering import PreFilterState
from webhook.preemption.filters.volume_limits import Attached
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims
from webhook.preemption.victims.rules import Rules

__all__ = ["find_victims"]

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class _Pods(NamedTuple):
    """The pods of some nodes: one column a node, most important first; `may_go` are the evictable ones."""

    nodes: Index
    rows: Index
    may_go: Mask

    def only(self, columns: Index) -> _Pods:
        """The same of some of the nodes."""
        return _Pods(self.nodes[columns], self.rows[:, columns], self.may_go[:, columns])


class _Shares(NamedTuple):
    """What each evictable pod adds on its node: by counter, in taken ports, in matches of required affinity.

    `volumes` are those attached for it, as pairs of `AttachLimits`, which have an axis of their own before the others.
    """

    counters: list[Ints]
    ports: Ints | None
    matches: Ints | None
    volumes: Index | None

    def only(self, columns: Index) -> _Shares:
        """The same of some of the nodes."""
        counters = [share[:, columns] for share in self.counters]
        ports = None if self.ports is None else self.ports[:, columns]
        volumes = None if self.volumes is None else self.volumes[:, :, columns]
        return _Shares(counters, ports, None if self.matches is None else self.matches[:, columns], volumes)

    def of(self, chosen: Mask) -> _Shares:
        """The same where all but the chosen pods add nothing."""
        counters = [share * chosen for share in self.counters]
        ports = None if self.ports is None else self.ports * chosen
        volumes = None if self.volumes is None else self.volumes * chosen
        return _Shares(counters, ports, None if self.matches is None else self.matches * chosen, volumes)

    def at(self, step: int) -> _Shares:
        """One pod of every node."""
        counters = [share[step] for share in self.counters]
        ports = None if self.ports is None else self.ports[step]
        volumes = None if self.volumes is None else self.volumes[:, step]
        return _Shares(counters, ports, None if self.matches is None else self.matches[step], volumes)

    def together(self) -> _Shares:
        """All pods of every node."""
        counters = [share.sum(axis=0) for share in self.counters]
        ports = None if self.ports is None else np.bitwise_or.reduce(self.ports, axis=0)
        volumes = None if self.volumes is None else np.concatenate(self.volumes)
        return _Shares(counters, ports, None if self.matches is None else self.matches.sum(axis=0), volumes)


class _Room:
    """The room left on some nodes while pods go and come back; one entry a node.

    `slack` is how much each binding counter may still grow beside the nominated pods; `ports` are the conflicting
    ports taken and `reserved` those of the nominated pods; `matches` is the change in matches of required affinity,
    to which the nominated pods add `company`; `attached` are the volumes beside the nominated pods, and without.
    """

    def __init__(self, state: PreFilterState, binding: list[int], nodes: Index) -> None:
        load = state.with_nominated
        self.slack: list[Ints] = [state.limit[number, nodes] - load.counters[number, nodes] for number in binding]
        self.ports, self.reserved = load.ports[nodes], load.reserved[nodes]
        self.company = load.matches[nodes]
        self.matches = np.zeros(len(nodes), np.int64)
        self.least = state.affinity.least[nodes] if state.affinity else self.matches
        self.most = state.affinity.most[nodes] if state.affinity else self.matches
        self.attached: list[Attached] = []
        if state.limits:
            users = (
                [load.volumes] if state.without_nominated is load else [load.volumes, state.without_nominated.volumes]
            )
            self.attached = [Attached(state.limits, some, nodes) for some in users]

    def remove(self, pods: _Shares) -> None:
        """Take pods away, one entry a node."""
        self.slack = [slack + share for slack, share in zip(self.slack, pods.counters, strict=True)]
        if pods.ports is not None:
            self.ports = self.ports & ~pods.ports
        if pods.matches is not None:
            self.matches = self.matches - pods.matches
        if pods.volumes is not None:
            for attached in self.attached:
                attached.remove(pods.volumes)

    def put_back(self, pods: _Shares) -> Mask:
        """Put one pod back on every node where the preemptor still fits then; returns where it does."""
        stays = self.fits_beside(pods)
        for slack, share in zip(self.slack, pods.counters, strict=True):
            np.subtract(slack, share, out=slack, where=stays)
        if pods.ports is not None:
            self.ports = np.where(stays, self.ports | pods.ports, self.ports & ~pods.ports)
        if pods.matches is not None:
            np.add(self.matches, pods.matches, out=self.matches, where=stays)
        if pods.volumes is not None:
            for attached in self.attached:
                attached.add(pods.volumes, stays)
        return stays

    def fits_beside(self, more: _Shares) -> Mask:
        """Where the preemptor fits beside these pods, with the nominated pods and without."""
        fits = np.ones(len(self.matches), np.bool_)
        for slack, share in zip(self.slack, more.counters, strict=True):
            fits &= share <= slack
        if more.ports is not None:
            fits &= (self.ports | self.reserved | more.ports) == 0
        if more.matches is not None:
            without = self.matches + more.matches
            for matches in (without, without + self.company):
                fits &= (matches >= self.least) | (matches <= self.most)
        if more.volumes is not None:
            for attached in self.attached:
                fits &= attached.fits_beside(more.volumes)
        return fits


def find_victims(state: PreFilterState, victims: PotentialVictims, nodes: Index) -> Candidates:
    """Find the victims on the given nodes (rows); nodes that preemption does not help are left out."""
    # The counters that matter: those over their limit on one of the nodes now. Removing pods only lowers them
    among = np.zeros(state.limit.shape[1], np.bool_)
    among[nodes] = True
    over = ((state.with_nominated.counters > state.limit) & among).any(axis=1)
    binding = np.flatnonzero(over).tolist()
    found = [_find(state, victims, binding, some) for some in _by_size(state, nodes)]
    return Candidates.joined(state.snapshot, found)


def _by_size(state: PreFilterState, nodes: Index) -> Iterator[Index]:
    """The nodes in groups of similar numbers of pods: up to 16, 32, 64 and so on."""
    sizes = np.maximum(state.snapshot.nodes.pod_count[nodes] - 1, 15)
    groups = np.frexp(sizes.astype(np.float64))[1]
    if len(nodes) and groups.min() == groups.max():
        yield nodes
        return
    for group in np.unique(groups):
        yield nodes[groups == group]


def _find(state: PreFilterState, victims: PotentialVictims, binding: list[int], nodes: Index) -> Candidates:
    """The candidates among nodes with similar numbers of pods."""
    pods, rules = _pods(state, victims, nodes), victims.rules
    shares = _shares(state, binding, pods)
    room = _Room(state, binding, pods.nodes)
    room.remove(shares.together())
    fits = (
        room.fits_beside(shares.of(np.zeros(1, np.bool_)).at(0)) if len(pods.rows) else np.zeros(len(nodes), np.bool_)
    )
    if not fits.all():
        columns = np.flatnonzero(fits)
        pods, shares = pods.only(columns), shares.only(columns)
        room = _Room(state, binding, pods.nodes)
        room.remove(shares.together())
    violating = _violating(state, pods, rules)
    evicted = pods.may_go & ~_put_back(room, shares, violating, pods, victims.leaving)
    if rules.strict_budgets and (violating & evicted).any():
        over = _over(state, pods, evicted, rules)
        evicted[:, over] = _by_importance(state, binding, pods.only(over), shares.only(over), victims)
        stays = np.setdiff1d(np.arange(len(pods.nodes)), over[_over(state, pods.only(over), evicted[:, over], rules)])
        pods, violating, evicted = pods.only(stays), violating[:, stays], evicted[:, stays]
    column, step = np.nonzero(evicted.T)
    rows = pods.rows[step, column]
    beyond = violating[step, column] if violating.any() else np.zeros(len(column), np.bool_)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    return Candidates(state.snapshot, pods.nodes[column[starts]], starts, rows, beyond & (not rules.strict_budgets))


def _pods(state: PreFilterState, victims: PotentialVictims, nodes: Index) -> _Pods:
    """The pods of those of the nodes that have at least one that may go."""
    rows = np.ascontiguousarray(state.snapshot.pods.slots_of(nodes).T, np.intp)
    may_go = (victims.code == Exclusion.NONE)[rows]
    pods = _Pods(nodes, rows, may_go)
    some = may_go.any(axis=0)
    return pods if some.all() else pods.only(np.flatnonzero(some))


def _shares(state: PreFilterState, binding: list[int], pods: _Pods) -> _Shares:
    rows, nodes = pods.rows, pods.nodes
    shares = _Shares(
        counters=[state.counters[number].share(rows, nodes) for number in binding],
        ports=state.ports.bits(rows) if state.ports else None,
        matches=state.affinity.share(rows, nodes) if state.affinity else None,
        volumes=state.limits.pairs_of(rows) if state.limits else None,
    )
    return shares.of(pods.may_go)


def _by_importance(
    state: PreFilterState, binding: list[int], pods: _Pods, shares: _Shares, victims: PotentialVictims
) -> Mask:
    """The victims if each budget belongs to the most important of its pods, as kube-scheduler counts.

    For nodes where the least important of a budget's pods do not make the room: a more important one may.
    """
    room = _Room(state, binding, pods.nodes)
    room.remove(shares.together())
    violating = _violating(state, pods, victims.rules, most_important_first=True)
    return pods.may_go & ~_put_back(room, shares, violating, pods, victims.leaving)


def _over(state: PreFilterState, pods: _Pods, evicted: Mask, rules: Rules) -> Index:
    """The columns whose victims together are more than one of their budgets allows."""
    column, step = np.nonzero(evicted.T)
    rows = pods.rows[step, column]
    if rules.evicts:
        guarded = ~state.snapshot.budgets.unguarded(rows)
        rows, column = rows[guarded], column[guarded]
    return state.snapshot.budgets.over(rows, column)


def _violating(state: PreFilterState, pods: _Pods, rules: Rules, *, most_important_first: bool = False) -> Mask:
    """Which of the pods that may go are beyond a budget, `Budgets.violating`."""
    budgets, strict = state.snapshot.budgets, rules.strict_budgets
    violating = np.zeros(pods.rows.shape, np.bool_)
    if not len(budgets):
        return violating
    covered = np.flatnonzero(budgets.covered(pods.rows, strict=strict) & pods.may_go)
    if rules.evicts:
        covered = covered[~budgets.unguarded(pods.rows.ravel()[covered])]
    beyond = budgets.violating(
        pods.rows.ravel()[covered],
        covered % max(1, len(pods.nodes)),
        strict=strict,
        from_end=strict and not most_important_first,
    )
    violating.ravel()[covered[beyond]] = True
    return violating


def _put_back(room: _Room, shares: _Shares, violating: Mask, pods: _Pods, leaving: Mask | None) -> Mask:
    """Put the pods back, those beyond a budget first, those that go anyway last; returns which of them may stay."""
    may_go = pods.may_go
    kept = np.zeros(may_go.shape, np.bool_)
    phases = [violating, may_go & ~violating] if violating.any() else [may_go]
    if leaving is not None:
        last = may_go & leaving[pods.rows]
        phases = [*(phase & ~last for phase in phases), last]
    for phase in phases:
        for step in np.flatnonzero(phase.any(axis=1)).tolist():
            kept[step] |= room.put_back(shares.at(step).of(phase[step])) & phase[step]
    return kept
