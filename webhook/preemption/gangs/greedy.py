"""Room for a gang, member by member: each goes where it costs least beside what is paid already.

Every member is a preemptor of its own. All filters judge it, with the members before it placed and the victims so far
gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from webhook.preemption.filters.filtering import Failures, PreFilterState, nodes_where_preemption_might_help
from webhook.preemption.gangs.eviction_units import EvictionUnits, Unit
from webhook.preemption.gangs.placement import Gone, MemberShape, Placed, Placer
from webhook.preemption.ranking import rank
from webhook.preemption.snapshot.columns import Rows
from webhook.preemption.victims.eligible import Exclusion
from webhook.preemption.victims.selection import find_victims

_SHARE = 4
"""Room is made for one of so many members that are left at a time: with 4, for a quarter of them."""


class Solution(NamedTuple):
    """Units whose removal makes room, and where the members go then."""

    units: tuple[Unit, ...]
    placed: tuple[Placed, ...]


def find_room(
    placer: Placer, shapes: Sequence[MemberShape], need: int, units: EvictionUnits, gone: Rows
) -> Solution | None:
    """Find room for `need` members once the pods in the rows `gone` are gone; None if there is none.

    Several of many members find their nodes at a time. The last ones are decided for one by one.
    """
    evictions = _Evictions(units, gone)
    placed = placer.in_turn(shapes, need, evictions)
    return None if placed is None else Solution(tuple(evictions.chosen.values()), tuple(placed))


class _Evictions(Gone):
    """The victims so far: their rows are part of `rows`, and `chosen` has the units by their first rows."""

    def __init__(self, units: EvictionUnits, gone: Rows) -> None:
        super().__init__(gone)
        self._units = units
        self._code = units.victims.code.copy()
        self._code[gone] = Exclusion.EXCLUDED
        self.chosen: dict[int, Unit] = {}

    def make_room(self, state: PreFilterState, failures: Failures, most: int) -> list[int]:
        """Take the cheapest victims that make room on a share of `most` nodes, at least on one; their rows."""
        victims, most = self._units.victims, max(1, most // _SHARE)
        candidates = find_victims(state, victims._replace(code=self._code), nodes_where_preemption_might_help(failures))
        order = rank(candidates, victims.rules, victims.now, victims.costs).first(len(candidates.nodes))
        for start in range(0, len(order), most):
            helped = [number for number in order[start : start + most] if self._takes(candidates.victims_of(number))]
            if helped:
                return [int(node) for node in candidates.nodes[helped]]
        return []

    def _takes(self, victims: Rows) -> bool:
        """Let the victims of a candidate go, unless strict budgets keep them after those that go already."""
        units, budgets = self._units, self._units.snapshot.budgets
        going = np.union1d(victims, [row for unit in self.chosen.values() for row in unit.rows]).astype(np.intp)
        keeps_budgets = units.keeps_budgets and len(budgets)
        if keeps_budgets and units.beyond_budget(going).any():
            return False
        self.chosen |= {unit.rows[0]: unit for unit in units.among(victims)}
        self.rows = np.union1d(self.rows, victims).astype(np.intp)
        self._code[victims] = Exclusion.EXCLUDED
        if keeps_budgets:  # if the victims use up a strict budget, no other pod of that budget may go
            left = np.flatnonzero((self._code == Exclusion.NONE) & (units.snapshot.pods.node[: len(self._code)] >= 0))
            spent = left[budgets.spent_by(going, left, evicts=units.victims.rules.evicts)]
            self._code[spent] = Exclusion.BUDGET
            if (groups := units.victims.units) is not None:
                self._code[groups.kept_by(self._code == Exclusion.BUDGET)] = Exclusion.GROUP
        return True
