"""The cheapest room for a small gang of like members, by trying every set of groups (docs/semantics.md D12).

The members use up resources and nothing else, so what is free on a node says how many fit there. A single pod makes
room on its own node alone, so the best single pods are chosen node by node. Groups are few: every set is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.filters.filtering import PreFilterState
from webhook.preemption.gangs.eviction_units import EvictionUnits, Price, Unit

Rows = NDArray[np.intp]
Amounts = tuple[int, ...]
_MOST_SETS = 3000
"""At most so many sets of groups are tried."""
_MOST_SINGLES = 9
"""Every set of at most so many single pods of a node is tried."""
_MOST_BRANCHES = 40
"""At most so many ways to keep budgets are tried."""


class TooManySetsError(Exception):
    """There are too many units to try every set of them."""


class _Choice(NamedTuple):
    """Units that go: so many pods, the sum of their priorities, and what they cost beyond that."""

    pods: int
    priority_sum: int
    costs: tuple[float, ...]
    units: tuple[Unit, ...]

    def is_cheaper(self, other: _Choice | None) -> bool:
        """Whether this one is to be preferred."""
        return other is None or self[:3] < other[:3]


class LikeMembers:
    """`need` members alike that use up only resources, on some nodes (rows); `state` is that of one of them."""

    def __init__(self, state: PreFilterState, nodes: Rows, need: int) -> None:
        self.need = need
        self.nodes: list[int] = nodes.tolist()
        names = [counter.name for counter in state.counters]
        self.demand = np.array([state.incoming.amounts.get(name, 0) if name else 1 for name in names], np.int64)
        load = state.with_nominated.counters[:, nodes]
        self._free = (state.limit[:, nodes] - load + self.demand[:, None]).T
        self._place = {node: place for place, node in enumerate(self.nodes)}
        self._state = state

    def makes(self, rows: Sequence[int]) -> dict[int, Amounts]:
        """What becomes free if the pods in these rows go, by the place of the node."""
        pods = self._state.snapshot.pods
        freed: dict[int, NDArray[np.int64]] = {}
        there = np.array([row for row in rows if int(pods.node[row]) in self._place], np.intp)
        if not len(there):
            return {}
        nodes = pods.node[there].astype(np.intp)
        for node, share in zip(nodes.tolist(), self._state.shares(there, nodes).T, strict=True):
            place = self._place[node]
            freed[place] = freed[place] + share if place in freed else share
        return {place: tuple(share.tolist()) for place, share in freed.items()}

    def free(self) -> list[Amounts]:
        """What is free on each node now."""
        return [tuple(row) for row in self._free.tolist()]

    def room_without(self, rows: Rows) -> int:
        """How many members fit once the pods in these rows, all of them on the nodes, are gone."""
        free = self._free.copy()
        places = np.array([self._place[node] for node in self._state.snapshot.pods.node[rows].tolist()], np.intp)
        np.add.at(free, places, self._state.shares(rows, self._state.snapshot.pods.node[rows].astype(np.intp)).T)
        return int(np.clip((free // self.demand).min(axis=1), 0, self.need).sum())

    def fitting(self, free: Amounts) -> int:
        """How many members fit into what is free on a node, at most as many as are needed."""
        fits: int = min(have // want for have, want in zip(free, self.demand.tolist(), strict=True))
        return max(0, min(fits, self.need))

    def spared(self, units: Iterable[Unit]) -> list[Unit]:
        """The units that are needed. The others stay; the most important unit is the first that may stay."""
        chosen = list(units)
        free = self._free.copy()
        made = {unit.rows[0]: self.makes(unit.rows) for unit in chosen}
        for parts in made.values():
            for place, share in parts.items():
                free[place] += share
        fits = np.clip((free // self.demand).min(axis=1), 0, self.need)
        needed = []
        for unit in chosen:
            parts = made[unit.rows[0]]
            places = list(parts)
            less = free[places] - np.array([parts[place] for place in places]) if places else free[:0]
            now = np.clip((less // self.demand).min(axis=1), 0, self.need) if places else fits[:0]
            depends = any(other.spared_by == unit.group for other in chosen if unit.group)
            if not depends and fits.sum() - fits[places].sum() + now.sum() >= self.need:
                free[places], fits[places] = less, now
            else:
                needed.append(unit)
        return needed


def cheapest_units(members: LikeMembers, units: Sequence[Unit], prices: EvictionUnits) -> list[Unit] | None:
    """The cheapest units that make room; None if no set of them does, within strict budgets.

    Every way to keep the budgets is tried, up to a number of ways. Raises TooManySetsError.
    """
    best: list[Unit] | None = None
    lowest: Price | None = None
    waiting: list[frozenset[int]] = [frozenset()]
    seen = set(waiting)
    for tried, kept in enumerate(waiting):
        if tried == _MOST_BRANCHES:
            break
        cheapest = _cheapest(members, [unit for unit in units if unit.rows[0] not in kept], prices)
        if cheapest is None:
            continue
        price = prices.price(cheapest)
        if not (price.violations and prices.keeps_budgets) and (lowest is None or price < lowest):
            best, lowest = cheapest, price
        for unit in cheapest if price.violations else ():
            more = kept | {unit.rows[0]}
            if more not in seen and prices.is_covered(unit):
                seen.add(more)
                waiting.append(more)
    return best


def _cheapest(members: LikeMembers, units: Sequence[Unit], prices: EvictionUnits) -> list[Unit] | None:
    """The cheapest units by all keys but budgets."""
    made = {unit.rows[0]: members.makes(unit.rows) for unit in units}
    for highest in sorted({unit.priority for unit in units}):
        usable = [unit for unit in units if unit.priority <= highest and made[unit.rows[0]]]
        fewest = _Sets(members, usable, made, prices).fewest()
        if fewest is not None:
            return fewest
    return None


class _Sets:
    """Sets of the usable units."""

    def __init__(
        self, members: LikeMembers, units: list[Unit], made: dict[int, dict[int, Amounts]], prices: EvictionUnits
    ) -> None:
        self._members = members
        self._prices = prices
        self._each = {
            unit.rows[0]: _Choice(len(unit.rows), unit.priority * len(unit.rows), prices.costs(unit.rows), (unit,))
            for unit in units
        }
        self._nobody = _Choice(0, 0, prices.costs(()), ())
        self._made = made
        self._groups = [unit for unit in units if unit.group]
        self._singles: dict[int, list[Unit]] = {}
        for unit in units:
            if not unit.group:
                (place,) = made[unit.rows[0]]
                self._singles.setdefault(place, []).append(unit)
        self._free = members.free()
        self._known: dict[tuple[int, Amounts, tuple[int, ...]], list[tuple[int, _Choice]]] = {}
        self._tried = 0

    def fewest(self) -> list[Unit] | None:
        """The units with the fewest groups, then the fewest pods; None if all together make no room."""
        if self._most(self._groups) < self._members.need:
            return None
        for size in range(len(self._groups) + 1):
            best: _Choice | None = None
            for groups in combinations(self._groups, size):
                self._tried += 1
                if self._tried > _MOST_SETS:
                    raise TooManySetsError
                if self._most(groups) < self._members.need or (singles := self._singles_beside(groups)) is None:
                    continue
                choice = self._joined(self._all_of(groups), singles)
                if choice.is_cheaper(best):
                    best = choice
            if best is not None:
                return list(best.units)
        return None

    def _joined(self, choice: _Choice, other: _Choice) -> _Choice:
        costs = self._prices.joined(choice.costs, other.costs)
        return _Choice(
            choice.pods + other.pods, choice.priority_sum + other.priority_sum, costs, (*choice.units, *other.units)
        )

    def _all_of(self, units: Iterable[Unit]) -> _Choice:
        return reduce(self._joined, (self._each[unit.rows[0]] for unit in units), self._nobody)

    def _without(self, groups: Iterable[Unit]) -> list[Amounts]:
        free = list(self._free)
        for unit in groups:
            for place, share in self._made[unit.rows[0]].items():
                free[place] = tuple(map(sum, zip(free[place], share, strict=True)))
        return free

    def _left(self, place: int, groups: Iterable[Unit]) -> list[Unit]:
        """The single pods of a node that do not go with these groups anyway."""
        gone = {unit.group for unit in groups}
        return [unit for unit in self._singles.get(place, ()) if unit.spared_by not in gone]

    def _most(self, groups: Sequence[Unit]) -> int:
        """How many members fit if these groups and all single pods go."""
        total = 0
        for place, free in enumerate(self._without(groups)):
            more = free
            for unit in self._left(place, groups):
                more = tuple(map(sum, zip(more, self._made[unit.rows[0]][place], strict=True)))
            total += self._members.fitting(more)
        return total

    def _singles_beside(self, groups: Sequence[Unit]) -> _Choice | None:
        """The cheapest single pods that make the room together with these groups."""
        need = self._members.need
        best: list[_Choice | None] = [self._nobody, *[None] * need]
        for place, free in enumerate(self._without(groups)):
            options = self._options(place, free, self._left(place, groups))
            after: list[_Choice | None] = [None] * (need + 1)
            for have, before in enumerate(best):
                for fits, choice in options if before is not None else ():
                    assert before is not None
                    to = min(need, have + fits)
                    made = self._joined(before, choice)
                    if made.is_cheaper(after[to]):
                        after[to] = made
            best = after
        return best[need]

    def _options(self, place: int, free: Amounts, singles: list[Unit]) -> list[tuple[int, _Choice]]:
        """How many members can fit on the node, and which single pods have to go for as many."""
        key = place, free, tuple(unit.rows[0] for unit in singles)
        if (known := self._known.get(key)) is not None:
            return known
        if len(singles) > _MOST_SINGLES:
            raise TooManySetsError
        cheapest: dict[int, _Choice] = {self._members.fitting(free): self._nobody}
        for size in range(1, len(singles) + 1):
            for chosen in combinations(singles, size):
                more = free
                for unit in chosen:
                    more = tuple(map(sum, zip(more, self._made[unit.rows[0]][place], strict=True)))
                fits = self._members.fitting(more)
                made = self._all_of(chosen)
                if made.is_cheaper(cheapest.get(fits)):
                    cheapest[fits] = made
        self._known[key] = list(cheapest.items())
        return self._known[key]
