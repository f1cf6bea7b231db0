"""Victims on all nodes at once (docs/semantics.md D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away. Where the preemptor then fits, they are put back one by one: those
beyond a budget first, then the others, most important first. Each stays if the preemptor still fits.
Nodes are the columns of matrices whose k-th row holds the k-th pod of every node: one step handles a
pod of each. Nodes with many pods are handled apart: a few full ones would make all rows long.

Pods of one node that go together are one step, that of the first; the others are in further *layers*
there.

Across nodes (D15) pods elsewhere that stand in the way are put back with those of the node. That does
not always find the cheapest set, so small ones are tried, too.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations, islice, product

import numpy as np

from webhook.preemption.filters.counters import Counter, MeterRoom, ThingsInUse
from webhook.preemption.filters.devices import DeviceFilter
from webhook.preemption.filters.filtering import (
    NO_PODS,
    PreFilterState,
    Usage,
    nodes_where_preemption_might_help,
    run_filters,
)
from webhook.preemption.snapshot.columns import Mask, Rows, ranked
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import PotentialVictims
from webhook.preemption.victims.units import PodsOfNodes

Meter = Usage | DeviceFilter
_MOST_PODS, _MOST_CLEARED = 32, 1000
"""So many pods of a domain are looked at for one reason, and so many nodes."""
_SMALL, _MOST_NODES, _MOST_SETS = 3, 8, 1200
"""Units in small sets beside those that must go; on so many nodes; so many sets."""

_Victims = tuple[Rows, Rows, Mask, Rows]
"""Of each victim its node, row, whether it is beyond a budget, and its set."""


class _Room:
    """The room on some nodes once all that may go have left, and while they come back.

    Pods on other nodes count only for what counts by topology, within its reach.
    """

    def __init__(self, state: PreFilterState, meters: list[Meter], pods: PodsOfNodes) -> None:
        gone = np.moveaxis(pods.rows, 1, 0)
        nodes, on = pods.nodes, state.snapshot.pods.node
        here = gone * (on[gone] == nodes) if pods.across else gone
        self.rooms, self.width = list[MeterRoom](), len(nodes)
        for meter in meters:
            if pods.across and isinstance(meter, Counter) and meter.reach is not None:
                self.rooms += meter.rooms(nodes, gone, on)
            else:
                self.rooms += meter.rooms(nodes, here)

    def put_back(self, step: int, back: Mask) -> Mask:
        """Put the step's pods `back` where the preemptor still fits; returns where."""
        stays = self.fits_beside(step, back)
        for room in self.rooms:
            room.put_back(stays)
        return stays

    def fits_beside(self, step: int | None = None, among: Mask | None = None) -> Mask:
        """Where `among` these it fits beside the step's pods, also without nominated ones."""
        fits = np.ones(self.width, np.bool_) if among is None else among.copy()
        for room in self.rooms:
            room.fits_beside(step, fits)
        return fits


def _meters(state: PreFilterState, nodes: Rows) -> list[Meter]:
    """What matters when pods leave: of counters, which only get lower, those over their limit."""
    meters: list[Meter] = []
    for meter in state.meters:
        counts_once = isinstance(meter, Counter) and meter.again is None
        if not counts_once or (meter.beside[nodes] > meter.limit[nodes]).any():
            meters.append(meter)
    if state.devices and state.devices.searched.any():
        meters.append(state.devices)
    return meters


def find_victims(state: PreFilterState, victims: PotentialVictims, nodes: Rows, *, across: bool = False) -> Candidates:
    """Find the victims on these nodes (rows); nodes that preemption does not help are left out.

    With `across` they may be elsewhere, too, and a node may have several sets. The caller looks at
    what they mean for other domains.
    """
    elsewhere = np.zeros((len(nodes), 0), np.intp)
    if across:
        nodes, elsewhere = in_the_way(state, victims, nodes)
    meters = _meters(state, nodes)
    # Nodes with similar numbers of pods are handled together: up to 16, 32, 64 and so on
    groups = np.frexp(np.maximum(state.snapshot.nodes.pod_count[nodes] - 1, 15).astype(np.float64))[1]
    parts: list[_Victims] = [(NO_PODS, NO_PODS, NO_PODS > 0, NO_PODS)]
    for here in (groups == group for group in np.flatnonzero(np.bincount(groups))):
        pods = _pods_of(victims, nodes[here], elsewhere[here])
        if len(pods.nodes):
            parts.append(_victims_on(state, victims, meters, pods))
    if across:
        pods = _pods_of(victims, nodes[:_MOST_NODES], elsewhere[:_MOST_NODES])
        if len(pods.nodes):
            parts.append(_small_sets(state, meters, pods))
    on, rows, violating, of = map(np.concatenate, zip(*parts, strict=True))
    snapshot, units = state.snapshot, victims.units
    candidates = Candidates.on_nodes(snapshot, on, rows, violating, units=units, of=of)
    budgets, strict = snapshot.budgets, victims.rules.strict_budgets
    if not len(budgets) or not (across or candidates.group.any()):
        return candidates
    # Budgets count over all nodes; no set of victims goes beyond a strict one
    of, evicts = candidates.numbers, victims.rules.evicts
    beyond = budgets.violating(candidates.pods, strict=strict, evicts=evicts, groups=of)
    violations = np.bincount(of[beyond], minlength=len(candidates.nodes)).astype(np.int64)
    if strict:
        return candidates.only(violations == 0)
    return candidates._replace(violations=violations, violating=beyond)


def _pods_of(victims: PotentialVictims, nodes: Rows, elsewhere: Rows) -> PodsOfNodes:
    """The pods of these nodes that may go, and those `elsewhere` in the way; only nodes with any."""
    across = elsewhere.size > 0
    slots = victims.slots_of(nodes, elsewhere if across else None)
    rows = np.ascontiguousarray(slots.T, np.intp)
    rows *= victims.may_go.take(rows)
    pods = PodsOfNodes(nodes, rows[:, None], across=across)
    some = pods.units.any(axis=0)
    if not some.all():
        pods = pods.only(np.flatnonzero(some))
    return pods if victims.units is None else pods.in_units(victims.units)


def fits_without(state: PreFilterState, leaving: Mask, nodes: Rows) -> Mask:
    """The nodes (rows) where the pod fits once those `leaving`, by pod row, are gone."""
    failures = run_filters(state)
    fits = np.isin(nodes, failures.fits)
    rows = np.ascontiguousarray(state.snapshot.pods.slots_of(nodes).T, np.intp)
    rows *= leaving.take(rows)
    helped = np.isin(nodes, nodes_where_preemption_might_help(failures))
    here = np.flatnonzero(rows.any(axis=0) & (fits | helped))
    if len(here):
        pods = PodsOfNodes(nodes[here], rows[:, None, here])
        fits[here] = _Room(state, _meters(state, nodes), pods).fits_beside()
    return fits


def _victims_on(state: PreFilterState, victims: PotentialVictims, meters: list[Meter], pods: PodsOfNodes) -> _Victims:
    """The victims on nodes with similar numbers of pods."""
    strict, evicts = victims.rules.strict_budgets, victims.rules.evicts
    beyond = partial(state.snapshot.budgets.violating, strict=strict, evicts=evicts)
    make_room = partial(_Room, state, meters)
    # Take away all that may go; only nodes where the preemptor then fits are left
    room = make_room(pods)
    fits = room.fits_beside()
    if not fits.all():
        pods = pods.only(np.flatnonzero(fits))
        room = make_room(pods)
    # Put back whom it fits beside; a strict budget belongs to the least important of its pods
    violating = beyond(pods.rows, from_end=strict)
    evicted = _put_back(room, pods, violating, victims.leaving)
    if strict and (violating & evicted[:, None]).any():
        # Where that does not make the room it belongs to the most important, as kube-scheduler counts
        over = np.flatnonzero(beyond(pods.of(evicted)).any(axis=(0, 1)))
        there = pods.only(over)
        evicted[:, over] = _put_back(make_room(there), there, beyond(there.rows), victims.leaving)
        # Where that does not either, the node is no candidate
        still = beyond(there.of(evicted[:, over])).any(axis=(0, 1))
        evicted[:, over[still]] = False
    of, rows, counted = _listed(pods, evicted, violating & (not strict))
    return pods.nodes[of], rows, counted, pods.nodes[of]


def _listed(pods: PodsOfNodes, going: Mask, violating: Mask) -> tuple[Rows, Rows, Mask]:
    """The pods of `going` units: their column, their row, who is `violating`."""
    column, step = np.divmod(np.flatnonzero(going.T), len(going))
    rows = pods.rows[step, :, column]
    is_pod = rows > 0
    return np.repeat(column, is_pod.sum(axis=1)), rows[is_pod], violating[step, :, column][is_pod]


def _small_sets(state: PreFilterState, meters: list[Meter], pods: PodsOfNodes) -> _Victims:
    """Small sets of units on these nodes that make the room, for all that meters tell."""
    room = _Room(state, meters, pods)
    # 1. Who must go: beside whom it does not fit even if everybody else goes
    fits = room.fits_beside()
    beside = [room.fits_beside(step, fits) for step in range(len(pods.rows))]
    forced = fits & ~np.stack(beside) & pods.units
    # 2. A few more, the small sets first, and the least important units
    free = [np.flatnonzero(column)[::-1].tolist() for column in (pods.units & ~forced).T]
    sizes = product(range(_SMALL + 1), enumerate(free))
    each = ((column, some) for size, (column, few) in sizes for some in combinations(few, size))
    chosen = list(islice(each, _MOST_SETS))
    columns = np.array([column for column, _ in chosen], np.intp)
    going = forced[:, columns]
    for number, (_, some) in enumerate(chosen):
        going[some, number] = True
    # 3. Those that are enough. Things in use count by node: one set there at a time
    sets = pods.only(columns)
    sets = sets._replace(rows=sets.of(going))
    turn = ranked(columns)[0] * any(isinstance(meter, ThingsInUse) for meter in meters)
    enough = np.zeros(len(columns), np.bool_)
    for number in range(turn.max() + 1):
        here = np.flatnonzero(turn == number)
        enough[here] = _Room(state, meters, sets.only(here)).fits_beside()
    of, rows, nobody = _listed(sets, sets.units & enough, np.zeros(sets.rows.shape, np.bool_))
    return sets.nodes[of], rows, nobody, state.snapshot.nodes.rows + of


def _put_back(room: _Room, pods: PodsOfNodes, violating: Mask, leaving: Mask | None) -> Mask:
    """Put units back, first those beyond a budget, last those `leaving`; the others go."""
    units, columns = pods.units, np.arange(len(pods.nodes))
    kept = np.zeros(units.shape, np.bool_)
    beyond = np.asarray(violating.any(axis=1))
    turn = (~beyond).view(np.int8)
    if leaving is not None:
        turn[leaving[pods.rows[:, 0]]] = 2
    if pods.core is not None:
        turn = np.maximum(turn, np.take_along_axis(turn, pods.core, axis=0))
    for number in range(turn.min(initial=2), turn.max(initial=0) + 1):
        phase = units & (turn == number)
        for step in np.flatnonzero(phase.any(axis=1)).tolist():
            back = phase[step]
            if pods.core is not None:  # whom a group can spare stays only if the rest of it does
                back = back & ((pods.core[step] == step) | kept[pods.core[step], columns])
            kept[step] |= room.put_back(step, back)
    return units & ~kept


def in_the_way(state: PreFilterState, victims: PotentialVictims, nodes: Rows) -> tuple[Rows, Rows]:
    """The nodes (rows) whose domains can be cleared, the best first, and for each pods elsewhere.

    These are a row a node, 0 for no more; of too many the less important ones.
    """
    pods, rows, tables = state.snapshot.pods, victims.rows, []
    for counter in state.counters:
        over = (counter.beside - counter.limit)[nodes]
        # Whoever spread counts may matter once others are gone; of the rest what refuses a node
        if counter.reach is None or not (counter.stage == "spread" or (over > 0).any()):
            continue
        _, domains = counter.reach
        share = counter.share(rows, pods.node[rows].astype(np.intp))
        adding, share = rows[share > 0], share[share > 0]
        where = domains[pods.node[adding]]
        order = np.lexsort((-pods.start[adding], pods.priority[adding], where))
        adding, where = adding[order], where[order]
        given = np.bincount(where, share[order], domains.max(initial=0) + 1)
        nodes = nodes[np.append(given, 0)[domains[nodes]] >= over]
        place = np.arange(len(where)) - np.searchsorted(where, where)
        kept = place < _MOST_PODS
        table = np.zeros((len(given) + 1, _MOST_PODS), np.intp)
        table[where[kept], place[kept]] = adding[kept]
        tables.append((domains, table))
    found_by = [table[domains[nodes]] for domains, table in tables]
    elsewhere = np.concatenate([np.zeros((len(nodes), 0), np.intp), *found_by], axis=1)
    elsewhere[pods.node[elsewhere] == nodes[:, None]] = 0
    # Each of them once, by name: the order of the input does not matter
    rank = np.zeros(pods.rows, np.intp)
    rank[elsewhere] = 1
    there = np.flatnonzero(rank).tolist()
    there.sort(key=lambda row: (pods.names[row], pods.namespaces[row]))
    rank[there] = np.arange(len(there))
    elsewhere = np.take_along_axis(elsewhere, np.argsort(rank[elsewhere], axis=1), axis=1)
    elsewhere[:, 1:][elsewhere[:, 1:] == elsewhere[:, :-1]] = 0
    # In a large cluster the nodes for which the least important and the fewest go
    highest = pods.priority[elsewhere].max(axis=1, initial=-(2**31))
    best = np.lexsort((nodes, np.count_nonzero(elsewhere, axis=1), highest))[:_MOST_CLEARED]
    elsewhere = elsewhere[best]
    return nodes[best], elsewhere[:, elsewhere.any(axis=0)]
