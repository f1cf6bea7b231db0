"""Victims on every candidate node at once (docs/semantics.md D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. The nodes are the
columns of matrices whose k-th row holds the k-th pod of every node, so one step handles a pod of every node.
Nodes with many pods are handled apart from those with few, so that a few full ones do not make all rows long.

Pods of one node that go together are one step: the place of the first of them, the *leader*, stands for all, and the
others are its *followers*.

Across nodes (D15) the pods on others that stand in the preemptor's way are put back with those of the node. What that
finds is not always the cheapest set, so small ones are tried as well.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np

from webhook.preemption.filters.counters import Counter, Share
from webhook.preemption.filters.devices import DeviceFilter
from webhook.preemption.filters.filtering import (
    PreFilterState,
    Usage,
    nodes_where_preemption_might_help,
    run_filters,
)
from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims
from webhook.preemption.victims.rules import Rules
from webhook.preemption.victims.units import PodsOfNodes

Meter = Usage | DeviceFilter
_MOST_PODS, _MOST_CLEARED = 32, 1000
"""Pods of one domain on other nodes that are looked at for one reason, and nodes whose domains can be cleared."""
_SMALL, _MOST_NODES, _MOST_SETS = 3, 8, 1200
"""Across nodes all sets of so many units beside those that have to go are tried, on so many nodes, and as many sets."""


class _Shares(NamedTuple):
    """What each evictable pod adds to each of the `meters`: layers with one row a pod and one column a node."""

    meters: list[Meter]
    values: list[Share]

    @classmethod
    def of_pods(cls, meters: list[Meter], pods: PodsOfNodes) -> _Shares:
        """What each pod that may go adds; the others add nothing."""
        return cls(meters, [_shares(meter, pods) for meter in meters]).of(pods.may_go)

    def only(self, columns: Rows) -> _Shares:
        """The same of some of the nodes."""
        return _Shares(self.meters, [share[:, :, columns] for share in self.values])

    def of(self, chosen: Mask) -> _Shares:
        """The same where all but the chosen pods add nothing."""
        return _Shares(self.meters, [share * chosen for share in self.values])

    def at(self, step: int) -> _Shares:
        """One pod of every node."""
        return _Shares(self.meters, [share[:, step] for share in self.values])

    def together(self) -> list[Share]:
        """All pods of every node."""
        return [
            np.concatenate(share) if meter.adds is None else meter.adds.reduce(share, axis=1)
            for meter, share in zip(self.meters, self.values, strict=True)
        ]

    def of_units(self, pods: PodsOfNodes) -> _Shares:
        """The same with what the pods of a unit add together at the place of its leader."""
        if pods.leaders is None:
            return self
        step, column, to = pods.followers()
        values = []
        for meter, share in zip(self.meters, self.values, strict=True):
            if meter.adds is None:
                values.append(_stacked(share, step, to, column))
                continue
            total = share.copy()
            for layer in total:
                meter.adds.at(layer, (to, column), layer[step, column])
                layer[step, column] = 0
            values.append(total)
        return _Shares(self.meters, values)


def _stacked(volumes: Rows, step: Rows, to: Rows, column: Rows) -> Rows:
    """The pairs or rows of each unit at the place of its leader: a layer for each further pod of the fullest."""
    layers = [volumes.copy()]
    layers[0][:, step, column] = 0
    while len(step):
        _, first = np.unique(to * volumes.shape[2] + column, return_index=True)
        layer = np.zeros_like(volumes)
        layer[:, to[first], column[first]] = volumes[:, step[first], column[first]]
        layers.append(layer)
        rest = np.ones(len(step), np.bool_)
        rest[first] = False
        step, to, column = step[rest], to[rest], column[rest]
    return np.concatenate(layers)


def _shares(meter: Meter, pods: PodsOfNodes) -> Share:
    """What each pod adds on the node of its column; one on another node only within reach of the meter."""
    reach = meter.reach if isinstance(meter, Counter) else None
    share = meter.shares(pods.rows, pods.nodes if pods.on is None or reach is None else pods.on)
    if pods.on is not None:
        here, there = (pods.on, pods.nodes) if reach is None else (reach[1][pods.on], reach[1][pods.nodes])
        share = share * (here == there)
    return share


class _Victims(NamedTuple):
    """The victims node by node, most important first: of each its node and its row.

    Further whether it is beyond a budget, whether it stands for its unit on the node, and which set it is `of`.
    """

    nodes: Rows
    pods: Rows
    violating: Mask
    leads: Mask
    of: Rows


_NOBODY, _NONE = np.zeros(0, np.intp), np.zeros(0, np.bool_)
_NO_VICTIMS = _Victims(_NOBODY, _NOBODY, _NONE, _NONE, _NOBODY)


class _Room:
    """The room left on some nodes once the `gone` have left together, and while they come back; one entry a node."""

    def __init__(self, nodes: Rows, gone: _Shares) -> None:
        self._width = len(nodes)
        self._rooms = [meter.rooms(nodes, share) for meter, share in zip(gone.meters, gone.together(), strict=True)]

    def put_back(self, pods: _Shares) -> Mask:
        """Put one pod back on every node where the preemptor still fits then; returns where it does."""
        stays = self.fits_beside(pods)
        for rooms, share in zip(self._rooms, pods.values, strict=True):
            for room in rooms:
                room.put_back(share, stays)
        return stays

    def fits_beside(self, more: _Shares) -> Mask:
        """Where the preemptor fits beside these pods, with the nominated pods and without."""
        fits = np.ones(self._width, np.bool_)
        for rooms, share in zip(self._rooms, more.values, strict=True):
            for room in rooms:
                room.fits_beside(share, fits)
        return fits


def _meters(state: PreFilterState, nodes: Rows) -> list[Meter]:
    """What matters when pods are removed from these nodes.

    Of the counters those over their limit on one of them now: removing pods only lowers a counter.
    """
    meters: list[Meter] = [
        meter
        for meter in state.meters
        if not isinstance(meter, Counter) or meter.again is not None or (meter.beside[nodes] > meter.limit[nodes]).any()
    ]
    return [*meters, state.devices] if state.devices and state.devices.searched.any() else meters


def find_victims(state: PreFilterState, victims: PotentialVictims, nodes: Rows, *, across: bool = False) -> Candidates:
    """Find the victims on the given nodes (rows); nodes that preemption does not help are left out.

    With `across` they may be on other nodes, too, and some nodes have several sets of them. What the victims mean for
    other domains is left to the caller.
    """
    nodes, elsewhere = in_the_way(state, victims, nodes) if across else (nodes, np.zeros((len(nodes), 0), np.intp))
    meters = _meters(state, nodes)
    # Nodes with similar numbers of pods are handled together: up to 16, 32, 64 and so on
    groups = np.frexp(np.maximum(state.snapshot.nodes.pod_count[nodes] - 1, 15).astype(np.float64))[1]
    parts = [_NO_VICTIMS]
    for here in (groups == group for group in np.flatnonzero(np.bincount(groups))):
        parts.append(_victims_on(state, victims, meters, _pods_of(victims, nodes[here], elsewhere[here])))  # noqa: PERF401
    if across and (pods := _pods_of(victims, nodes[:_MOST_NODES], elsewhere[:_MOST_NODES])).may_go.any():
        parts.append(_small_sets(state, meters, pods))
    on, rows, violating, leads, of = map(np.concatenate, zip(*parts, strict=True))
    candidates = Candidates.on_nodes(state.snapshot, on, rows, violating, units=victims.units, leads=leads, of=of)
    return _count_elsewhere(candidates, victims.rules) if across or candidates.costs is not None else candidates


def _pods_of(victims: PotentialVictims, nodes: Rows, elsewhere: Rows) -> PodsOfNodes:
    """The pods of these nodes, and those `elsewhere` that stand in the way there."""
    slots, leaders = victims.slots_of(nodes, elsewhere)
    rows = np.ascontiguousarray(slots.T, np.intp)
    on = victims.snapshot.pods.node[rows].astype(np.intp) if elsewhere.size else None
    pods = PodsOfNodes(nodes, rows, (victims.code == Exclusion.NONE).take(rows), on=on)
    return pods if leaders is None or victims.units is None else pods.in_units(leaders, victims.units)


def fits_without(state: PreFilterState, leaving: Mask, nodes: Rows) -> Mask:
    """On which of the nodes (rows) the pod fits once those of the node's own pods go that are `leaving`, by pod row."""
    failures = run_filters(state)
    fits = np.isin(nodes, failures.fits)
    rows = np.ascontiguousarray(state.snapshot.pods.slots_of(nodes).T, np.intp)
    may_help = fits | np.isin(nodes, nodes_where_preemption_might_help(failures))
    here = np.flatnonzero(leaving[rows].any(axis=0) & may_help)
    if len(here):
        meters = _meters(state, nodes)
        rows = rows.take(here, axis=1)
        shares = _Shares.of_pods(meters, PodsOfNodes(nodes[here], rows, leaving[rows]))
        room = _Room(nodes[here], shares)
        fits[here] = room.fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    return fits


def _count_elsewhere(candidates: Candidates, rules: Rules) -> Candidates:
    """The candidates with the budgets of victims on other nodes counted, too; without those beyond a strict budget."""
    budgets = candidates.snapshot.budgets
    if not len(budgets):
        return candidates
    of, rows = candidates.all_victims()
    beyond = budgets.violating_by(rows, of, strict=rules.strict_budgets, evicts=rules.evicts)
    violations = np.bincount(of[beyond], minlength=len(candidates.nodes)).astype(np.int64)
    if rules.strict_budgets:
        return candidates.only(violations == 0)
    return candidates._replace(violations=violations)


def _victims_on(state: PreFilterState, victims: PotentialVictims, meters: list[Meter], pods: PodsOfNodes) -> _Victims:
    """The victims on nodes with similar numbers of pods."""
    rules = victims.rules
    beyond = partial(state.snapshot.budgets.violating, strict=rules.strict_budgets, evicts=rules.evicts)
    # Take away all that may go; only nodes on which the preemptor then fits are left
    some = pods.may_go.any(axis=0)
    if not some.any():
        return _NO_VICTIMS
    if not some.all():
        pods = pods.only(np.flatnonzero(some))
    shares = _Shares.of_pods(meters, pods)
    room = _Room(pods.nodes, shares)
    fits = room.fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    if not fits.all():
        columns = np.flatnonzero(fits)
        pods, shares = pods.only(columns), shares.only(columns)
        room = _Room(pods.nodes, shares)
    shares = shares.of_units(pods)
    # Put back whom it fits beside; a strict budget belongs to the least important of its pods
    violating = beyond(pods.rows, pods.may_go, from_end=rules.strict_budgets)
    evicted = _put_back(room, shares, violating, pods, victims.leaving)
    if rules.strict_budgets and (violating & evicted).any():
        # Where that does not make the room it belongs to the most important, as kube-scheduler counts
        over = np.flatnonzero(beyond(pods.rows, evicted).any(axis=0))
        there, theirs = pods.only(over), shares.only(over)
        room = _Room(there.nodes, theirs)
        evicted[:, over] = _put_back(room, theirs, beyond(there.rows, there.may_go), there, victims.leaving)
        # Where that does not either, the node is no candidate
        evicted[:, over[beyond(there.rows, evicted[:, over]).any(axis=0)]] = False
    column, step = np.nonzero(evicted.T)
    counts = violating.any() and not rules.strict_budgets
    return _Victims(
        pods.nodes[column],
        pods.rows[step, column],
        violating[step, column] if counts else np.zeros(len(column), np.bool_),
        pods.leads()[step, column],
        pods.nodes[column],
    )


def _small_sets(state: PreFilterState, meters: list[Meter], pods: PodsOfNodes) -> _Victims:
    """Small sets of units on these nodes that make the room, as far as the meters tell."""
    shares, leads = _Shares.of_pods(meters, pods), pods.of_units(pods.may_go)
    # 1. Who has to go in any case: beside whom it does not fit even if everybody else goes
    room, shares = _Room(pods.nodes, shares), shares.of_units(pods)
    fits = room.fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    forced = np.stack([fits & ~room.fits_beside(shares.at(step)) for step in range(len(pods.rows))]) & leads
    # 2. A few more, the small sets first, and the least important units
    free = [np.flatnonzero(column)[::-1].tolist() for column in (leads & ~forced).T]
    each = (
        (at, some) for size in range(_SMALL + 1) for at in range(len(free)) for some in combinations(free[at], size)
    )
    chosen = list(islice(each, _MOST_SETS))
    columns = np.array([column for column, _ in chosen], np.intp)
    going = forced[:, columns]
    for number, (_, some) in enumerate(chosen):
        going[some, number] = True
    # 3. Those of them that are enough
    going = pods.only(columns).members(going) & pods.may_go[:, columns]
    rows = pods.rows[:, columns]
    sets = PodsOfNodes(pods.nodes[columns], rows, going, on=state.snapshot.pods.node[rows].astype(np.intp))
    shares = _Shares.of_pods(meters, sets)
    enough = _Room(sets.nodes, shares).fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    of, step = np.nonzero((going & enough).T)
    at, nobody = columns[of], np.zeros(len(of), np.bool_)
    return _Victims(pods.nodes[at], pods.rows[step, at], nobody, pods.leads()[step, at], state.width + of)


def _put_back(room: _Room, shares: _Shares, violating: Mask, pods: PodsOfNodes, leaving: Mask | None) -> Mask:
    """Put the pods back, those beyond a budget first, those that go anyway last; returns which of them have to go."""
    may_go, violating = pods.of_units(pods.may_go), pods.of_units(violating)
    kept = np.zeros(may_go.shape, np.bool_)
    turn = (~violating).view(np.int8)
    if leaving is not None:
        turn[leaving[pods.rows]] = 2
    if pods.core is not None:
        turn = np.maximum(turn, np.take_along_axis(turn, pods.core, axis=0))
    columns = np.arange(may_go.shape[1])
    for number in range(turn.min(initial=2), turn.max(initial=0) + 1):
        phase = may_go & (turn == number)
        for step in np.flatnonzero(phase.any(axis=1)).tolist():
            back = phase[step]
            if pods.core is not None:  # whom a group can spare stays only if the rest of it does
                back = back & ((pods.core[step] == step) | kept[pods.core[step], columns])
            kept[step] |= room.put_back(shares.at(step).of(back)) & back
    return pods.members(may_go & ~kept)


def in_the_way(state: PreFilterState, victims: PotentialVictims, nodes: Rows) -> tuple[Rows, Rows]:
    """Of these nodes (rows) those whose domains can be cleared, and the pods on others that count there and may go.

    The most promising nodes come first. The pods are a row a node, 0 for no more; of too many the less important ones.
    """
    pods, tables = state.snapshot.pods, []
    rows = victims.rows
    for counter in state.counters:
        over = (counter.beside - counter.limit)[nodes]
        # Whoever spread counts may matter once others are gone; of the rest what refuses a node
        if counter.reach is None or not (counter.stage == "spread" or (over > 0).any()):
            continue
        _, domains = counter.reach
        adding = rows[counter.share(rows, pods.node[rows].astype(np.intp)) > 0]
        where = domains[pods.node[adding]]
        order = np.lexsort((-pods.start[adding], pods.priority[adding], where))
        adding, where = adding[order], where[order]
        given = np.bincount(where, counter.share(adding, pods.node[adding].astype(np.intp)), domains.max(initial=0) + 1)
        nodes = nodes[np.append(given, 0)[domains[nodes]] >= over]
        place = np.arange(len(where)) - np.searchsorted(where, where)
        table, kept = np.zeros((len(given) + 1, _MOST_PODS), np.intp), place < _MOST_PODS
        table[where[kept], place[kept]] = adding[kept]
        tables.append((domains, table))
    empty = np.zeros((len(nodes), 0), np.intp)
    elsewhere = np.concatenate([empty, *(table[domains[nodes]] for domains, table in tables)], axis=1)
    elsewhere[pods.node[elsewhere] == nodes[:, None]] = 0
    # Each of them once, by name: the order of the input does not matter
    rank = np.zeros(pods.rows, np.intp)
    rank[elsewhere] = 1
    by_name = sorted(np.flatnonzero(rank).tolist(), key=lambda row: (pods.names[row], pods.namespaces[row]))
    rank[by_name] = np.arange(len(by_name))
    elsewhere = np.take_along_axis(elsewhere, np.argsort(rank[elsewhere], axis=1), axis=1)
    elsewhere[:, 1:][elsewhere[:, 1:] == elsewhere[:, :-1]] = 0
    # In a large cluster the nodes for which the least important ones and the fewest go
    count, highest = np.count_nonzero(elsewhere, axis=1), pods.priority[elsewhere].max(axis=1, initial=-(2**31))
    best = np.lexsort((nodes, count, highest))[:_MOST_CLEARED]
    return nodes[best], elsewhere[best][:, elsewhere[best].any(axis=0)]
