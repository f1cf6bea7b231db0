"""What may go for a gang, as units, what they cost, and cheaper ones, found by trying.

`fits` says whether the members have room once the pods in some rows are gone. An answer may take a
placement, so tries are bounded (docs/semantics.md D12).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from webhook.preemption.filters.filtering import Failures, nodes_where_preemption_might_help
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.eligible import PotentialVictims

_SAY_HOW_MANY = ("resources", "anti-affinity", "existing-anti-affinity")
"""Stages of counters that tell how many fit on a node; affinity, spread and claims do not."""


class Price(NamedTuple):
    """What a set of units costs, by the keys of `RANKING` in order; lower is better.

    `highest_priority` and `priority_sum` take each pod at the priority that counts for it. Priorities
    may be negative, so `victims` stands before the sum. `costs` is what the policy counts beyond
    priority (`victims.costs`).
    """

    violations: int = 0
    highest_priority: int = -(2**63)
    groups: int = 0
    victims: int = 0
    priority_sum: int = 0
    costs: tuple[float, ...] = ()


class Unit(NamedTuple):
    """Pods, by row, that go together.

    `group` is the id of a group that goes whole, else 0. `spared_by` is that of the group that can
    spare this pod, else 0: if that goes, so does the pod.
    """

    rows: tuple[int, ...]
    priority: int
    group: int = 0
    spared_by: int = 0


class EvictionUnits(NamedTuple):
    """The units that may go for a gang; with `keeps_budgets` no set of them violates a budget."""

    victims: PotentialVictims
    keeps_budgets: bool

    @property
    def snapshot(self) -> Snapshot:
        """The cluster."""
        return self.victims.snapshot

    def among(self, rows: Rows) -> list[Unit]:
        """The units of the pods in these rows that may go, the most important first.

        What counts: the higher priority; a group, a single pod, a spared one; the larger group or lower
        index; the higher costs; the earlier start.
        """
        victims, members = self.victims, self.snapshot.pods.grouped.members
        units, made = victims.units, dict[tuple[int, int], Unit]()
        for row in rows[victims.may_go[rows]].tolist():
            group = int(units.group[row]) if units is not None else 0
            above = int(units.above[row]) if units is not None and units.above is not None else 0
            if not group:
                made[row, 0] = Unit((row,), victims.priority_of(row), spared_by=above)
            elif (0, group) not in made:
                made[0, group] = Unit(tuple(members(group).tolist()), victims.priority_of(row), group)
        return self.by_importance(made.values())

    def by_importance(self, chosen: Iterable[Unit]) -> list[Unit]:
        """Units in the order of `among`."""
        return sorted(chosen, key=self._importance)

    def price(self, chosen: Iterable[Unit]) -> Price:
        """What a set of units costs."""
        units = list(chosen)
        if not units:
            return Price()
        groups = {unit.group for unit in units if unit.group}
        # Whom a group can spare is among the rows of that group
        units = [unit for unit in units if unit.spared_by not in groups]
        rows = rows_of(units)
        return Price(
            violations=int(np.count_nonzero(self.beyond_budget(rows))),
            highest_priority=max(unit.priority for unit in units),
            groups=len(groups),
            victims=len(rows),
            priority_sum=sum(unit.priority * len(unit.rows) for unit in units),
            costs=self.costs(rows),
        )

    def costs(self, rows: Sequence[int] | Rows) -> tuple[float, ...]:
        """What the policy counts beyond priority if these pods go, key by key."""
        counted = self.victims.costs
        if counted is None:
            return ()
        pods, together = np.asarray(rows, np.intp), np.zeros(len(rows), np.intp)
        candidate = Candidates.on_nodes(self.snapshot, together, pods, together > 0)
        return tuple(float(column[0]) for column in counted.totals(candidate, self.victims.now))

    def beyond_budget(self, rows: Rows) -> Mask:
        """Which pods go beyond a budget by the rules, if all of these go."""
        rules, together = self.victims.rules, np.zeros(len(rows), np.int64)
        return self.snapshot.budgets.violating(rows, strict=rules.strict_budgets, evicts=rules.evicts, groups=together)

    def _importance(self, unit: Unit) -> tuple[int, int, int, tuple[float, ...], float, str]:
        pods, row = self.snapshot.pods, unit.rows[0]
        kind = 0 if unit.group else 2 if unit.spared_by else 1
        size = int(pods.member_index[row]) if unit.spared_by else -len(unit.rows)
        costs = tuple(-cost for cost in self.costs(unit.rows))
        start = min(float(pods.start[member]) for member in unit.rows)
        return -unit.priority, kind, size, costs, start, pods.key(row)


class _SpentError(Exception):
    """All tries are used up."""


def fewer_units(
    units: Sequence[Unit], prices: EvictionUnits, fits: Callable[[Rows], bool], tries: int
) -> list[Unit] | None:
    """Units that make room, as cheap as is found; None if all make none.

    Of `units`, the most important first, each stays that is not needed. Then one or two that go are
    exchanged for another one, or for none, while that is cheaper.
    """
    known: dict[frozenset[tuple[int, int]], bool] = {}

    def are_enough(some: Sequence[Unit]) -> bool:
        key = frozenset((unit.rows[0], unit.group) for unit in some)
        if key not in known:
            if len(known) == tries:
                raise _SpentError
            known[key] = fits(rows_of(some))
        return known[key]

    def cheaper(going: list[Unit]) -> list[Unit] | None:
        price = prices.price(going)
        others = [unit for unit in reversed(units) if unit not in going]
        for out in chain(combinations(going, 1), combinations(going, 2)):
            rest = [unit for unit in going if unit not in out]
            for instead in (rest, *([*rest, unit] for unit in others)):
                if prices.price(instead) < price and are_enough(instead):
                    return instead
        return None

    going: list[Unit] | None = None
    with contextlib.suppress(_SpentError):
        if not are_enough(units):
            return None
        going = list(units)
        for unit in units:
            without = [other for other in going if other is not unit]
            going = without if are_enough(without) else going
        while (instead := cheaper(going)) is not None:
            going = instead
    return None if going and prices.keeps_budgets and prices.price(going).violations else going


def rows_of(units: Iterable[Unit]) -> Rows:
    """The pods of these units, by row, ascending."""
    return np.array(sorted({row for unit in units for row in unit.rows}), np.intp)


def nodes_to_use(failures: Failures) -> Rows:
    """The nodes (rows) where a member fits, or evicting may help it."""
    return np.union1d(failures.fits, nodes_where_preemption_might_help(failures))


class LikeMembers:
    """`need` members alike that only use up resources, and the `failures` of one.

    What is free on a node says how many fit there: of others it is a guess.
    """

    def __init__(self, failures: Failures, need: int) -> None:
        self.state, self._need = failures.state, need
        nodes, amounts = nodes_to_use(failures), self.state.incoming.amounts
        counters = [some for some in self.state.counters if some.stage in _SAY_HOW_MANY]
        self._demand = np.array([amounts.get(counter.name, 1) for counter in counters], np.int64)
        left = np.stack([counter.limit[nodes] - counter.beside[nodes] for counter in counters], axis=1)
        self._free, self._counters = left + self._demand, counters
        self._place = np.full(self.state.snapshot.nodes.rows + 1, -1)  # -1, no node, reads the last one
        self._place[nodes] = np.arange(len(nodes))

    def rooms(self, gone: Rows) -> Ints:
        """By node (row) how many members fit without these pods (rows), at most those needed."""
        free = self._free.copy()
        np.add.at(free, *self._freed_by(gone))
        rooms: Ints = np.append(self._fitting(free), 0)[self._place[:-1]]
        return rooms

    def spared(self, units: Iterable[Unit]) -> list[Unit]:
        """The needed units; the most important ones may stay first."""
        chosen, free = list(units), self._free.copy()
        freed = [self._freed_by(np.array(unit.rows, np.intp)) for unit in chosen]
        for places, shares in freed:
            np.add.at(free, places, shares)
        fits = self._fitting(free)
        depended_on = {unit.spared_by for unit in chosen} - {0}
        needed = []
        for unit, (places, shares) in zip(chosen, freed, strict=True):
            there = np.unique(places)
            less = free[there]
            np.subtract.at(less, np.searchsorted(there, places), shares)
            now = self._fitting(less)
            left = fits.sum() - fits[there].sum() + now.sum()
            if unit.group in depended_on or left < self._need:
                needed.append(unit)
            else:
                free[there], fits[there] = less, now
        return needed

    def _freed_by(self, rows: Rows) -> tuple[Rows, Ints]:
        """What these pods (rows) free: their nodes' places, and rows of amounts."""
        nodes = self.state.snapshot.pods.node[rows].astype(np.intp)
        here = self._place[nodes] >= 0
        rows, nodes = rows[here], nodes[here]
        shares = [counter.share(rows, nodes) for counter in self._counters]
        return self._place[nodes], np.stack(shares, axis=1)

    def _fitting(self, free: Ints) -> Ints:
        """How many members fit on each node."""
        fitting: Ints = np.clip((free // self._demand).min(axis=1), 0, self._need)
        return fitting
