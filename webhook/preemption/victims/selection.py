"""Victims on every candidate node at once (docs/semantics.md D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. The nodes are the
columns of matrices whose k-th row holds the k-th pod of every node, so one step handles a pod of every node.
Nodes with many pods are handled apart from those with few, so that a few full ones do not make all rows long.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.filtering import PreFilterState
from webhook.preemption.filters.volume_limits import Attached
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims

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


class _Victims(NamedTuple):
    """The victims node by node, most important first: of each its node, its row, and whether it is beyond a budget."""

    nodes: Index
    pods: Index
    violating: Mask


_NO_VICTIMS = _Victims(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.bool_))


class _Room:
    """The room left on some nodes once the pods `gone` have left together, and while they come back; one entry a node.

    `slack` is how much each binding counter may still grow beside the nominated pods; `ports` are the conflicting
    ports taken and `reserved` those of the nominated pods; `matches` is the change in matches of required affinity,
    to which the nominated pods add `company`; `attached` are the volumes beside the nominated pods, and without.
    """

    def __init__(self, state: PreFilterState, binding: list[int], nodes: Index, gone: _Shares) -> None:
        load = state.with_nominated
        self.slack: list[Ints] = [
            state.limit[number, nodes] - load.counters[number, nodes] + share
            for number, share in zip(binding, gone.counters, strict=True)
        ]
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
        if gone.ports is not None:
            self.ports = self.ports & ~gone.ports
        if gone.matches is not None:
            self.matches = self.matches - gone.matches
        if gone.volumes is not None:
            for attached in self.attached:
                attached.remove(gone.volumes)

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
    # Nodes with similar numbers of pods are handled together: up to 16, 32, 64 and so on
    groups = np.frexp(np.maximum(state.snapshot.nodes.pod_count[nodes] - 1, 15).astype(np.float64))[1]
    found = [_NO_VICTIMS]
    found += [
        _victims_on(state, victims, binding, nodes[groups == group]) for group in np.flatnonzero(np.bincount(groups))
    ]
    return Candidates.on_nodes(
        state.snapshot,
        np.concatenate([some.nodes for some in found]),
        np.concatenate([some.pods for some in found]),
        np.concatenate([some.violating for some in found]),
    )


def _victims_on(state: PreFilterState, victims: PotentialVictims, binding: list[int], nodes: Index) -> _Victims:
    """The victims on nodes with similar numbers of pods."""
    rules = victims.rules
    beyond = partial(state.snapshot.budgets.violating, strict=rules.strict_budgets, evicts=rules.evicts)
    # Take away all that may go; only nodes on which the preemptor then fits are left
    rows = np.ascontiguousarray(state.snapshot.pods.slots_of(nodes).T, np.intp)
    pods = _Pods(nodes, rows, (victims.code == Exclusion.NONE)[rows])
    some = pods.may_go.any(axis=0)
    if not some.any():
        return _NO_VICTIMS
    if not some.all():
        pods = pods.only(np.flatnonzero(some))
    shares = _Shares(
        counters=[state.counters[number].share(pods.rows, pods.nodes) for number in binding],
        ports=state.ports.bits(pods.rows) if state.ports else None,
        matches=state.affinity.share(pods.rows, pods.nodes) if state.affinity else None,
        volumes=state.limits.pairs_of(pods.rows) if state.limits else None,
    ).of(pods.may_go)
    room = _Room(state, binding, pods.nodes, shares.together())
    fits = room.fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    if not fits.all():
        columns = np.flatnonzero(fits)
        pods, shares = pods.only(columns), shares.only(columns)
        room = _Room(state, binding, pods.nodes, shares.together())
    # Put back whom it fits beside; a strict budget belongs to the least important of its pods
    violating = beyond(pods.rows, pods.may_go, from_end=rules.strict_budgets)
    evicted = pods.may_go & ~_put_back(room, shares, violating, pods, victims.leaving)
    if rules.strict_budgets and (violating & evicted).any():
        # Where that does not make the room it belongs to the most important, as kube-scheduler counts
        over = np.flatnonzero(beyond(pods.rows, evicted).any(axis=0))
        there, theirs = pods.only(over), shares.only(over)
        room = _Room(state, binding, there.nodes, theirs.together())
        evicted[:, over] = there.may_go & ~_put_back(
            room, theirs, beyond(there.rows, there.may_go), there, victims.leaving
        )
        # Where that does not either, the node is no candidate
        evicted[:, over[beyond(there.rows, evicted[:, over]).any(axis=0)]] = False
    column, step = np.nonzero(evicted.T)
    counts = violating.any() and not rules.strict_budgets
    return _Victims(
        pods.nodes[column],
        pods.rows[step, column],
        violating[step, column] if counts else np.zeros(len(column), np.bool_),
    )


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
