"""Victims on every candidate node at once (SEMANTICS D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. Step k handles
the k-th pod of every node together, so that the number of steps is the number of pods on the fullest node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.candidates import Plans, per_node
from webhook.preemption.filters import Problem
from webhook.preemption.snapshot import Snapshot
from webhook.preemption.victims import MAY_GO, Verdicts

__all__ = ["find_victims"]

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class _Evictable(NamedTuple):
    """The pods that may go from the candidate nodes: `pods` of `nodes[i]` from `starts[i]` on, `column` = i."""

    nodes: Index
    starts: Index
    pods: Index
    column: Index

    def counts(self) -> Index:
        """How many pods may go from each node."""
        return np.diff(np.append(self.starts, len(self.pods)))

    def only(self, nodes: Mask) -> tuple[_Evictable, Mask]:
        """The chosen nodes with their pods, and which pods those are."""
        pods, counts = nodes[self.column], self.counts()[nodes]
        column = np.repeat(np.arange(len(counts)), counts)
        return _Evictable(self.nodes[nodes], np.cumsum(counts) - counts, self.pods[pods], column), pods


class _Shares(NamedTuple):
    """What each evictable pod adds on its node: by counter, in taken ports, in matches of required affinity."""

    counters: list[Ints]
    ports: Ints | None
    matches: Ints | None

    def taken(self, pods: Index | Mask) -> _Shares:
        """The shares of some of the pods, in the given order."""
        counters = [column[pods] for column in self.counters]
        ports = None if self.ports is None else self.ports[pods]
        return _Shares(counters, ports, None if self.matches is None else self.matches[pods])


def find_victims(problem: Problem, verdicts: Verdicts, nodes: Index) -> Plans:
    """Find the victims on the given nodes (rows); nodes that preemption does not help are left out."""
    snapshot, strict = problem.snapshot, verdicts.rules.strict_budgets
    evictable = _evictable(snapshot, verdicts, nodes)
    binding = _binding(problem, evictable.nodes)
    shares = _shares(problem, binding, evictable)
    room = _Room.without(problem, binding, evictable, shares, np.arange(len(evictable.nodes)))
    fits = room.fits()
    if not fits.all():
        evictable, pods = evictable.only(fits)
        shares = shares.taken(pods)
    violating = snapshot.budgets.violating(evictable.pods, evictable.column, least_important_first=strict)
    kept = _put_back(problem, binding, evictable, shares, violating)
    return _plans(snapshot, evictable, violating, ~kept, strict=strict)


def _evictable(snapshot: Snapshot, verdicts: Verdicts, nodes: Index) -> _Evictable:
    slots = snapshot.pods.slots_of(nodes)
    may_go = (verdicts.code == MAY_GO)[slots]
    counts = np.count_nonzero(may_go, axis=1)
    chosen = np.flatnonzero(counts)
    counts = counts[chosen]
    return _Evictable(
        nodes=nodes[chosen],
        starts=np.cumsum(counts) - counts,
        pods=slots[may_go].astype(np.intp),
        column=np.repeat(np.arange(len(chosen)), counts),
    )


def _binding(problem: Problem, nodes: Index) -> list[int]:
    """The counters that matter: those over their limit on one of the nodes now. Removing pods only lowers them."""
    over = (problem.base[:, nodes] > problem.limit[:, nodes]).any(axis=1)
    crowd = problem.nominated
    if crowd is not None:
        over |= (problem.base[:, crowd.nodes] + crowd.shares > problem.limit[:, crowd.nodes]).any(axis=1)
    return np.flatnonzero(over).tolist()


def _shares(problem: Problem, binding: list[int], evictable: _Evictable) -> _Shares:
    pods, on = evictable.pods, evictable.nodes[evictable.column]
    return _Shares(
        counters=[problem.counters[number].share(pods, on) for number in binding],
        ports=problem.ports.bits(pods) if problem.ports else None,
        matches=problem.affinity.share(pods, on) if problem.affinity else None,
    )


class _Room:
    """The room left on the candidate nodes while pods go and come back; one column a node.

    `slack` is how much each binding counter may still grow, `crowd` what nominated pods take of it on the columns
    `crowded`; `ports` are the conflicting ports taken, `matches` the change in matches of required affinity.
    """

    def __init__(self, problem: Problem, binding: list[int], nodes: Index) -> None:
        self.columns = len(nodes)
        self.slack: list[Ints] = [problem.limit[number, nodes] - problem.base[number, nodes] for number in binding]
        self.ports = problem.ports.base[nodes] if problem.ports else None
        self.matches = np.zeros(len(nodes), np.int64) if problem.affinity else None
        self.least = problem.affinity.least[nodes] if problem.affinity else None
        self.most = problem.affinity.most[nodes] if problem.affinity else None
        self._crowd_in(problem, binding, nodes)

    @classmethod
    def without(
        cls, problem: Problem, binding: list[int], evictable: _Evictable, shares: _Shares, order: Index
    ) -> _Room:
        """The room on the nodes, taken in `order`, with all evictable pods gone."""
        room = cls(problem, binding, evictable.nodes[order])
        starts = evictable.starts
        room.slack = [
            slack + per_node(share, starts)[order] for slack, share in zip(room.slack, shares.counters, strict=True)
        ]
        if room.ports is not None and shares.ports is not None and len(starts):
            room.ports &= ~np.bitwise_or.reduceat(shares.ports, starts)[order]
        if room.matches is not None and shares.matches is not None:
            room.matches -= per_node(shares.matches, starts)[order]
        return room

    def fits(self) -> Mask:
        """Where the preemptor fits now, with the nominated pods and without."""
        nothing = np.zeros(self.columns, np.int64)
        return self.fits_with(self.columns, [nothing] * len(self.slack), self.ports, self.matches)

    def fits_with(self, width: int, more: list[Ints], ports: Ints | None, matches: Ints | None) -> Mask:
        """Where the preemptor fits if `more` is used up on the first columns, with these ports and matches."""
        fits = np.ones(width, np.bool_)
        for slack, share in zip(self.slack, more, strict=True):
            fits &= share <= slack[:width]
        if ports is not None:
            fits &= ports == 0
        if matches is not None:
            fits &= self._affine(matches, slice(0, width))
        crowded = self.crowded[: np.searchsorted(self.crowded, width)]
        if len(crowded):
            fits[crowded] &= self._fits_crowded(more, matches, crowded)
        return fits

    def _fits_crowded(self, more: list[Ints], matches: Ints | None, crowded: Index) -> Mask:
        """The same with the nominated pods, on columns that have some."""
        count = len(crowded)
        fits: Mask = self.crowd_ports[:count] == 0
        for slack, share, crowd in zip(self.slack, more, self.crowd, strict=True):
            fits &= share[crowded] <= slack[crowded] - crowd[:count]
        if matches is not None:
            fits &= self._affine(matches[crowded] + self.crowd_matches[:count], crowded)
        return fits

    def _affine(self, matches: Ints, at: slice | Index) -> Mask:
        assert self.least is not None
        assert self.most is not None
        affine: Mask = (matches >= self.least[at]) | (matches <= self.most[at])
        return affine

    def _crowd_in(self, problem: Problem, binding: list[int], nodes: Index) -> None:
        nominated = problem.nominated
        place = np.full(problem.base.shape[1], -1, np.intp)
        if nominated is not None:
            place[nominated.nodes] = np.arange(len(nominated.nodes))
        mine = place[nodes]
        self.crowded = np.flatnonzero(mine >= 0)
        mine = mine[self.crowded]
        self.crowd = [nominated.shares[number, mine] if nominated else mine for number in binding]
        self.crowd_ports = nominated.bits[mine] if nominated else mine
        self.crowd_matches = nominated.matches[mine] if nominated else mine


def _put_back(problem: Problem, binding: list[int], evictable: _Evictable, shares: _Shares, violating: Mask) -> Mask:
    """Put the pods back one after the other on all nodes together; returns which of them may stay."""
    kept = np.zeros(len(evictable.pods), np.bool_)
    if not len(kept):
        return kept
    order, sequence, widths = _steps(evictable, violating)
    room = _Room.without(problem, binding, evictable, shares, order)
    ordered = shares.taken(sequence)
    stayed = np.zeros(len(kept), np.bool_)
    first = 0
    for width in widths:
        span = slice(first, first + width)
        stayed[span] = _one_step(room, ordered, span)
        first += width
    kept[sequence] = stayed
    return kept


def _one_step(room: _Room, shares: _Shares, span: slice) -> Mask:
    """Put back one pod on each of the first nodes, and take it away again where the preemptor does not fit."""
    width = span.stop - span.start
    more = [share[span] for share in shares.counters]
    ports = matches = None
    if room.ports is not None and shares.ports is not None:
        ports = room.ports[:width] | shares.ports[span]
    if room.matches is not None and shares.matches is not None:
        matches = room.matches[:width] + shares.matches[span]
    stays = room.fits_with(width, more, ports, matches)
    for slack, share in zip(room.slack, more, strict=True):
        np.subtract(slack[:width], share, out=slack[:width], where=stays)
    if room.ports is not None and shares.ports is not None and ports is not None:
        room.ports[:width] = np.where(stays, ports, room.ports[:width] & ~shares.ports[span])
    if room.matches is not None and matches is not None:
        np.copyto(room.matches[:width], matches, where=stays)
    return stays


def _steps(evictable: _Evictable, violating: Mask) -> tuple[Index, Index, list[int]]:
    """Nodes by falling number of pods; all pods step by step, in that order of nodes; how many nodes take part."""
    starts, counts = evictable.starts, evictable.counts()
    step = np.arange(len(evictable.pods), dtype=np.int32) - np.repeat(starts.astype(np.int32), counts)
    if violating.any():
        before = np.cumsum(violating, dtype=np.int32) - violating
        first = before[starts]
        beyond = np.diff(np.append(first, before[-1] + violating[-1]))
        before -= np.repeat(first, counts)
        step += np.repeat(beyond, counts)
        step -= before
        np.copyto(step, before, where=violating)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    widths = len(counts) - np.cumsum(np.bincount(counts))[:-1]
    offsets = np.cumsum(widths) - widths
    sequence = np.empty(len(step), np.intp)
    sequence[offsets[step] + np.repeat(place, counts)] = np.arange(len(step))
    return order, sequence, widths.tolist()


def _plans(snapshot: Snapshot, evictable: _Evictable, violating: Mask, evicted: Mask, *, strict: bool) -> Plans:
    chosen = np.flatnonzero(evicted)
    if strict and (violating & evicted).any():
        over = snapshot.budgets.over(evictable.pods[chosen], evictable.column[chosen])
        chosen = chosen[~np.isin(evictable.column[chosen], list(over))]
    column = evictable.column[chosen]
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    beyond = np.zeros(len(chosen), np.bool_) if strict else violating[chosen]
    return Plans(snapshot, evictable.nodes[column[starts]], starts, evictable.pods[chosen], beyond)
