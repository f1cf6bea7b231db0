"""Room for a gang, member by member: each goes where it costs least beside what is paid already.

Every member is a preemptor of its own. All filters judge it, with the members before it placed and the victims so far
gone. What is the same for all nodes that nothing has happened to is not worked out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from webhook.preemption.filters.filtering import Failures, PreFilterState, nodes_where_preemption_might_help
from webhook.preemption.gangs.eviction_units import EvictionUnits, Price, Unit
from webhook.preemption.gangs.placement import MemberShape, Placed, Placer
from webhook.preemption.snapshot.columns import Ints, Rows
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.costs import VictimSets
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims
from webhook.preemption.victims.selection import find_victims

_SHARE = 4
"""One of so many members that are left finds its node at a time: with 4, a quarter of them."""


_HIGHEST = Price._fields.index("highest_priority")


class Solution(NamedTuple):
    """Units whose removal makes room, and where the members go then."""

    units: tuple[Unit, ...]
    placed: tuple[Placed, ...]


class _Costs:
    """What one more member of a shape costs on each node (column), by the keys of `Price` (rows), and who goes."""

    def __init__(self, nodes: int, units: EvictionUnits) -> None:
        self._victims = units.victims
        keys = len(Price._fields) - 1 + len(units.costs(()))
        self.table = np.full((keys, nodes), np.inf)
        self._candidates: list[Candidates] = []
        self._which: Ints = np.zeros((2, nodes), np.int64)

    def put(self, nodes: Rows, candidates: Candidates) -> None:
        """Replace what is known of these nodes (rows)."""
        self.table[:, nodes] = np.inf
        if not len(candidates.nodes):
            return
        count, costs = candidates.victim_counts(), self._victims.costs
        sets = VictimSets(*candidates.all_victims(), len(count), self._victims.now) if costs is not None else None
        self.table[:, candidates.nodes] = (
            candidates.violations,
            candidates.priority_of(candidates.pods[candidates.starts]),
            candidates.costs.groups if candidates.costs is not None else np.zeros(len(count), np.int64),
            count,
            candidates.priority_sums(0),
            *(costs.totals(sets) if costs is not None and sets is not None else ()),
        )
        self._which[0, candidates.nodes] = len(self._candidates)
        self._which[1, candidates.nodes] = np.arange(len(candidates.nodes))
        self._candidates.append(candidates)

    def victims(self, node: int) -> Rows:
        """The rows of those that go for one more member on the node."""
        search, number = self._which[:, node].tolist()
        rows: Rows = self._candidates[search].victims_of(number)
        return rows

    def cheapest(self, most: int, paid: int, nodes: Nodes) -> list[int]:
        """The cheapest nodes (rows), best first, if victims of the priority `paid` cost nothing more by that key."""
        left = np.flatnonzero(self.table[0] < np.inf)
        keys = self.table[:, left]
        keys[_HIGHEST] = np.maximum(keys[_HIGHEST], paid)
        order: list[int] = left[np.lexsort((nodes.alphabetical()[left], *keys[::-1]))[:most]].tolist()
        return order

    def drop(self, node: int) -> None:
        """Nobody goes there."""
        self.table[:, node] = np.inf


def find_room(
    placer: Placer, shapes: Sequence[MemberShape], need: int, units: EvictionUnits, gone: Rows, *, optional: bool
) -> Solution | None:
    """Find room for `need` members once the pods in the rows `gone` are gone; None if there is none.

    With `optional` members without room may be left out, since more wait than are needed. Several of many members
    find their nodes at a time. The last ones are decided for one by one. In the end the trial is as before.
    """
    search = _Search(units, gone)
    try:
        for shape in shapes:
            costs: _Costs | None = None
            pods = list(shape.pods)
            while pods and len(placer.placed) < need:
                state, failures = placer.look(shape, search.gone)
                if failures.error:
                    return None
                nodes = placer.put_on_fitting(pods, state, failures, need)
                if not nodes:
                    if costs is None or not state.is_local:
                        costs, search.touched = _Costs(state.width, units), None
                    left = min(len(pods), need - len(placer.placed))
                    nodes = search.evict(state, failures, costs, left // _SHARE if state.is_local else 1)
                    if state.devices is not None and nodes:
                        state, _ = placer.look(shape, search.gone)  # the victims' devices are free now
                    for node in nodes:
                        placer.put(pods.pop(0), node, state)
                if not nodes:
                    break
                search.touch(np.array(nodes, np.intp))
            if pods and len(placer.placed) < need and not optional:
                return None
        if len(placer.placed) < need:
            return None
        return Solution(tuple(search.chosen.values()), tuple(placer.placed))
    finally:
        placer.clear()


class _Search:
    """The victims so far: their rows are part of `gone`. `touched` are the nodes to look at again, None for all."""

    def __init__(self, units: EvictionUnits, gone: Rows) -> None:
        self._units = units
        self._code = units.victims.code.copy()
        self._code[gone] = Exclusion.EXCLUDED
        self.gone = gone
        self.paid = -(2**63)
        self.chosen: dict[int, Unit] = {}
        """By the first row of the unit."""
        self.touched: Rows | None = None

    def touch(self, nodes: Rows) -> None:
        """Something has happened to these nodes (rows)."""
        if self.touched is not None:
            self.touched = np.union1d(self.touched, nodes).astype(np.intp)

    def evict(self, state: PreFilterState, failures: Failures, costs: _Costs, most: int) -> list[int]:
        """Take the cheapest victims that make room for a member on up to `most` nodes, at least on one; their rows."""
        might_help = nodes_where_preemption_might_help(failures)
        nodes = might_help if self.touched is None else np.intersect1d(might_help, self.touched)
        costs.put(nodes if self.touched is None else self.touched, find_victims(state, self._victims(), nodes))
        self.touched = np.zeros(0, np.intp)
        helped: list[int] = []
        while not helped and (cheapest := costs.cheapest(max(1, most), self.paid, state.snapshot.nodes)):
            for node in cheapest:
                rows = costs.victims(node)
                if self._may_go(rows):
                    self._take(rows)
                    helped.append(node)
                costs.drop(node)
        return helped

    def _victims(self) -> PotentialVictims:
        return self._units.victims._replace(code=self._code)

    def _may_go(self, rows: Rows) -> bool:
        """Whether strict budgets let these pods go after those that go already."""
        if not self._units.keeps_budgets or not len(self._units.snapshot.budgets):
            return True
        before = [row for unit in self.chosen.values() for row in unit.rows]
        return not self._units.violations(np.union1d(rows, np.array(before, np.intp)).astype(np.intp))

    def _take(self, rows: Rows) -> None:
        pods = self._units.snapshot.pods
        for unit in self._units.among(rows):
            self.chosen[unit.rows[0]] = unit
            self.paid = max(self.paid, unit.priority)
        self.gone = np.union1d(self.gone, rows).astype(np.intp)
        self._code[rows] = Exclusion.EXCLUDED
        self.touch(np.unique(pods.node[rows]).astype(np.intp))
        self._spare_budgets()

    def _spare_budgets(self) -> None:
        """If the victims use up a strict budget, no other pod of that budget may go."""
        budgets, rules = self._units.snapshot.budgets, self._units.rules
        if not self._units.keeps_budgets or not len(budgets):
            return
        taken = np.array([row for unit in self.chosen.values() for row in unit.rows], np.intp)
        rows = np.flatnonzero((self._code == Exclusion.NONE) & (self._units.snapshot.pods.node[: len(self._code)] >= 0))
        spent = rows[budgets.spent_by(taken, rows, evicts=rules.evicts)]
        self._code[spent] = Exclusion.BUDGET
        units = self._units.victims.units
        if units is not None:
            self._code[units.kept_by(self._code == Exclusion.BUDGET)] = Exclusion.GROUP
        self.touched = None if len(spent) else self.touched
