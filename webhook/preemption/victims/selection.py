"""Victims on every candidate node at once (docs/semantics.md D3, kube-scheduler's `SelectVictimsOnNode`).

All pods that may go are taken away; where the preemptor then fits, they are put back one by one, those beyond a
budget first and then the others, most important first, each staying if the preemptor still fits. The nodes are the
columns of matrices whose k-th row holds the k-th pod of every node, so one step handles a pod of every node.
Nodes with many pods are handled apart from those with few, so that a few full ones do not make all rows long.

Pods of one node that go together are one step: the place of the first of them, the *leader*, stands for all, and the
others are its *followers*.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.devices import DeviceFilter
from webhook.preemption.filters.filtering import PreFilterState, nodes_where_preemption_might_help, run_filters
from webhook.preemption.filters.volume_limits import Attached
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims
from webhook.preemption.victims.pods_of_nodes import Followers, PodsOfNodes
from webhook.preemption.victims.rules import Rules

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class _Shares(NamedTuple):
    """What each evictable pod adds on its node: by counter, in taken ports, in matches of required affinity.

    `ports` and `volumes` have one more axis before the others: words (`PortUsage`), and pairs (`AttachLimits`)
    for what is attached for the pod. `claims` are the rows of pods whose removal may free devices, else 0, with
    one more axis for the pods of a unit.
    """

    counters: list[Ints]
    ports: Ints | None
    matches: Ints | None
    volumes: Index | None
    claims: Index | None

    def only(self, columns: Index) -> _Shares:
        """The same of some of the nodes."""
        counters = [share[:, columns] for share in self.counters]
        ports = None if self.ports is None else self.ports[:, :, columns]
        volumes = None if self.volumes is None else self.volumes[:, :, columns]
        claims = None if self.claims is None else self.claims[:, :, columns]
        return _Shares(counters, ports, None if self.matches is None else self.matches[:, columns], volumes, claims)

    def of(self, chosen: Mask) -> _Shares:
        """The same where all but the chosen pods add nothing."""
        counters = [share * chosen for share in self.counters]
        ports = None if self.ports is None else self.ports * chosen
        volumes = None if self.volumes is None else self.volumes * chosen
        claims = None if self.claims is None else self.claims * chosen
        return _Shares(counters, ports, None if self.matches is None else self.matches * chosen, volumes, claims)

    def of_units(self, followers: Followers | None) -> _Shares:
        """The same with what the pods of a unit add together at the place of its leader."""
        if followers is None:
            return self
        step, column, to = followers

        def summed(share: Ints) -> Ints:
            total = share.copy()
            np.add.at(total, (to, column), share[step, column])
            total[step, column] = 0
            return total

        ports = None if self.ports is None else self.ports.copy()
        for word in () if ports is None else ports:
            np.bitwise_or.at(word, (to, column), word[step, column])
            word[step, column] = 0
        volumes = None if self.volumes is None else _stacked(self.volumes, step, to, column)
        matches = None if self.matches is None else summed(self.matches)
        claims = None if self.claims is None else _stacked(self.claims, step, to, column)
        return _Shares([summed(share) for share in self.counters], ports, matches, volumes, claims)

    def at(self, step: int) -> _Shares:
        """One pod of every node."""
        counters = [share[step] for share in self.counters]
        ports = None if self.ports is None else self.ports[:, step]
        volumes = None if self.volumes is None else self.volumes[:, step]
        claims = None if self.claims is None else self.claims[:, step]
        return _Shares(counters, ports, None if self.matches is None else self.matches[step], volumes, claims)

    def together(self) -> _Shares:
        """All pods of every node."""
        counters = [share.sum(axis=0) for share in self.counters]
        ports = None if self.ports is None else np.bitwise_or.reduce(self.ports, axis=1)
        volumes = None if self.volumes is None else np.concatenate(self.volumes)
        matches = None if self.matches is None else self.matches.sum(axis=0)
        claims = None if self.claims is None else np.concatenate(self.claims)
        return _Shares(counters, ports, matches, volumes, claims)


def _stacked(volumes: Index, step: Index, to: Index, column: Index) -> Index:
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


class _Victims(NamedTuple):
    """The victims node by node, most important first: of each its node and its row.

    Further whether it is beyond a budget, and whether it stands for its unit on the node.
    """

    nodes: Index
    pods: Index
    violating: Mask
    leads: Mask


_NO_VICTIMS = _Victims(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.bool_), np.zeros(0, np.bool_))


class _DeviceRoom:
    """The pods `gone` from each node that may have held devices: rows, one column a node, 0 for none.

    On nodes that `DeviceFilter.states` tells of, the devices that are taken are bits; of the others it is remembered
    which pods are gone. `_known` says on which nodes the preemptor's claims can be had as things stand.
    """

    def __init__(self, devices: DeviceFilter, nodes: Index, gone: Index) -> None:
        self._devices, self._nodes = devices, nodes
        searched = devices.searched[nodes]
        self._known = ~searched
        self._told = searched & devices.states.told[nodes]
        self._taken = devices.states.taken[nodes] & ~self._held_by(gone)
        others = np.flatnonzero(searched & ~self._told)
        self._gone = dict(zip(others.tolist(), (set(rows) - {0} for rows in gone[:, others].T.tolist()), strict=True))

    def fits_beside(self, more: Index, fits: Mask) -> None:
        """Take out of `fits` the nodes on which the devices cannot be had once the pods `more` are back, too.

        `more` has the rows of one pod a node, or of the pods of one unit, one column a node.
        """
        asked = fits & (more.any(axis=0) | ~self._known)
        told = np.flatnonzero(asked & self._told)
        if len(told):
            taken = self._taken[told] | self._held_by(more[:, told])
            fits[told] = self._devices.fit_in_states(self._nodes[told], taken)
        for column in np.flatnonzero(asked & ~self._told).tolist():
            if column in self._gone:
                gone = self._gone[column].difference(more[:, column].tolist())
                fits[column] = self._devices.fits(int(self._nodes[column]), gone)

    def put_back(self, pods: Index, stays: Mask) -> None:
        """The pods in these rows, one column a node, are back where they may stay."""
        self._known |= stays
        self._taken[stays] |= self._held_by(pods[:, stays])
        for column in np.flatnonzero(stays & ~self._told).tolist():
            if column in self._gone:
                self._gone[column].difference_update(pods[:, column].tolist())

    def _held_by(self, rows: Index) -> NDArray[np.uint64]:
        held: NDArray[np.uint64] = np.bitwise_or.reduce(self._devices.states.of_pod[rows], axis=0)
        return held


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
        self.ports, self.reserved = load.ports[:, nodes], load.reserved[:, nodes]
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
        self.devices: _DeviceRoom | None = None
        if state.devices is not None and gone.claims is not None:
            self.devices = _DeviceRoom(state.devices, nodes, gone.claims)
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
        if self.devices is not None and pods.claims is not None:
            self.devices.put_back(pods.claims, stays)
        return stays

    def fits_beside(self, more: _Shares) -> Mask:
        """Where the preemptor fits beside these pods, with the nominated pods and without."""
        fits = np.ones(len(self.matches), np.bool_)
        for slack, share in zip(self.slack, more.counters, strict=True):
            fits &= share <= slack
        if more.ports is not None:
            fits &= ~(self.ports | self.reserved | more.ports).any(axis=0)
        if more.matches is not None:
            without = self.matches + more.matches
            for matches in (without, without + self.company):
                fits &= (matches >= self.least) | (matches <= self.most)
        if more.volumes is not None:
            for attached in self.attached:
                fits &= attached.fits_beside(more.volumes)
        if self.devices is not None and more.claims is not None:
            self.devices.fits_beside(more.claims, fits)
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
    parts = [_NO_VICTIMS]
    parts += [
        _victims_on(state, victims, binding, nodes[groups == group]) for group in np.flatnonzero(np.bincount(groups))
    ]
    candidates = Candidates.on_nodes(
        state.snapshot,
        np.concatenate([some.nodes for some in parts]),
        np.concatenate([some.pods for some in parts]),
        np.concatenate([some.violating for some in parts]),
        units=victims.units,
        leads=np.concatenate([some.leads for some in parts]),
    )
    return _count_elsewhere(candidates, victims.rules) if candidates.costs is not None else candidates


def fits_without(state: PreFilterState, leaving: Mask, nodes: Index) -> Mask:
    """On which of the nodes (rows) the pod fits once those of the node's own pods go that are `leaving`, by pod row."""
    failures = run_filters(state)
    fits = np.isin(nodes, failures.fits)
    rows = np.ascontiguousarray(state.snapshot.pods.slots_of(nodes).T, np.intp)
    may_help = fits | np.isin(nodes, nodes_where_preemption_might_help(failures))
    here = np.flatnonzero(leaving[rows].any(axis=0) & may_help)
    if len(here):
        binding = np.flatnonzero((state.with_nominated.counters > state.limit).any(axis=1)).tolist()
        rows = rows.take(here, axis=1)
        shares = _shares_of(state, binding, PodsOfNodes(nodes[here], rows, leaving[rows]))
        room = _Room(state, binding, nodes[here], shares.together())
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


def _victims_on(state: PreFilterState, victims: PotentialVictims, binding: list[int], nodes: Index) -> _Victims:
    """The victims on nodes with similar numbers of pods."""
    rules = victims.rules
    beyond = partial(state.snapshot.budgets.violating, strict=rules.strict_budgets, evicts=rules.evicts)
    # Take away all that may go; only nodes on which the preemptor then fits are left
    slots, leaders = victims.slots_of(nodes)
    rows = np.ascontiguousarray(slots.T, np.intp)
    pods = PodsOfNodes(nodes, rows, (victims.code == Exclusion.NONE).take(rows))
    if leaders is not None and victims.units is not None:
        pods = pods.in_units(leaders, victims.units)
    some = pods.may_go.any(axis=0)
    if not some.any():
        return _NO_VICTIMS
    if not some.all():
        pods = pods.only(np.flatnonzero(some))
    shares = _shares_of(state, binding, pods)
    room = _Room(state, binding, pods.nodes, shares.together())
    fits = room.fits_beside(shares.at(0).of(np.zeros(1, np.bool_)))
    if not fits.all():
        columns = np.flatnonzero(fits)
        pods, shares = pods.only(columns), shares.only(columns)
        room = _Room(state, binding, pods.nodes, shares.together())
    shares = shares.of_units(pods.followers)
    # Put back whom it fits beside; a strict budget belongs to the least important of its pods
    violating = beyond(pods.rows, pods.may_go, from_end=rules.strict_budgets)
    evicted = _put_back(room, shares, violating, pods, victims.leaving)
    if rules.strict_budgets and (violating & evicted).any():
        # Where that does not make the room it belongs to the most important, as kube-scheduler counts
        over = np.flatnonzero(beyond(pods.rows, evicted).any(axis=0))
        there, theirs = pods.only(over), shares.only(over)
        room = _Room(state, binding, there.nodes, theirs.together())
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
    )


def _shares_of(state: PreFilterState, binding: list[int], pods: PodsOfNodes) -> _Shares:
    """What each pod that may go adds; the others add nothing."""
    return _Shares(
        counters=[state.counters[number].share(pods.rows, pods.nodes) for number in binding],
        ports=state.ports.bits(pods.rows) if state.ports else None,
        matches=state.affinity.share(pods.rows, pods.nodes) if state.affinity else None,
        volumes=state.limits.pairs_of(pods.rows) if state.limits else None,
        claims=state.devices.holders(pods.rows)[np.newaxis] if state.devices and state.devices.searched.any() else None,
    ).of(pods.may_go)


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
