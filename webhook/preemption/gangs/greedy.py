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
from webhook.preemption.gangs.placement import MemberShape, Placed, Placer
from webhook.preemption.snapshot.columns import Rows
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.costs import VictimSets
from webhook.preemption.victims.eligible import Exclusion
from webhook.preemption.victims.selection import find_victims

_SHARE = 4
"""One of so many members that are left finds its node at a time: with 4, a quarter of them."""


class Solution(NamedTuple):
    """Units whose removal makes room, and where the members go then."""

    units: tuple[Unit, ...]
    placed: tuple[Placed, ...]


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
            pods = list(shape.pods)
            while pods and len(placer.placed) < need:
                state, failures = placer.look(shape, search.gone)
                if failures.error:
                    return None
                nodes = placer.put_on_fitting(pods, state, failures, need)
                if not nodes:
                    left = min(len(pods), need - len(placer.placed))
                    nodes = search.evict(state, failures, left // _SHARE if state.is_local else 1)
                    if state.devices is not None and nodes:
                        state, _ = placer.look(shape, search.gone)  # the victims' devices are free now
                    for node in nodes:
                        placer.put(pods.pop(0), node, state)
                if not nodes:
                    break
            if pods and len(placer.placed) < need and not optional:
                return None
        if len(placer.placed) < need:
            return None
        return Solution(tuple(search.chosen.values()), tuple(placer.placed))
    finally:
        placer.clear()


class _Search:
    """The victims so far: their rows are part of `gone`, and `chosen` has the units by their first rows."""

    def __init__(self, units: EvictionUnits, gone: Rows) -> None:
        self._units = units
        self._code = units.victims.code.copy()
        self._code[gone] = Exclusion.EXCLUDED
        self._paid = -(2**63)
        self.gone = gone
        self.chosen: dict[int, Unit] = {}

    def evict(self, state: PreFilterState, failures: Failures, most: int) -> list[int]:
        """Take the cheapest victims that make room for a member on up to `most` nodes, at least on one; their rows."""
        nodes = nodes_where_preemption_might_help(failures)
        candidates = find_victims(state, self._units.victims._replace(code=self._code), nodes)
        order, most = self._cheapest_first(candidates), max(1, most)
        for start in range(0, len(order), most):
            helped = [number for number in order[start : start + most] if self._takes(candidates, number)]
            if helped:
                return [int(node) for node in candidates.nodes[helped]]
        return []

    def _cheapest_first(self, candidates: Candidates) -> list[int]:
        """The candidates by the keys of `Price`, if victims of the priority that is paid cost nothing more by that."""
        if not len(candidates.nodes):
            return []
        costs, count = self._units.victims.costs, candidates.victim_counts()
        sets = VictimSets(*candidates.all_victims(), len(count), self._units.victims.now) if costs is not None else None
        keys = (
            candidates.violations,
            np.maximum(candidates.priority_of(candidates.pods[candidates.starts]), self._paid),
            candidates.costs.groups if candidates.costs is not None else np.zeros(len(count), np.int64),
            count,
            candidates.priority_sums(0),
            *(costs.totals(sets) if costs is not None and sets is not None else ()),
            candidates.snapshot.nodes.alphabetical()[candidates.nodes],
        )
        order: list[int] = np.lexsort(keys[::-1]).tolist()
        return order

    def _takes(self, candidates: Candidates, number: int) -> bool:
        """Let the victims of a candidate go, unless strict budgets keep them after those that go already."""
        rows, budgets = candidates.victims_of(number), self._units.snapshot.budgets
        taken = np.array([row for unit in self.chosen.values() for row in unit.rows], np.intp)
        keeps_budgets = self._units.keeps_budgets and len(budgets)
        if keeps_budgets and self._units.beyond_budget(np.union1d(rows, taken).astype(np.intp)).any():
            return False
        for unit in self._units.among(rows):
            self.chosen[unit.rows[0]] = unit
            self._paid = max(self._paid, unit.priority)
        self.gone = np.union1d(self.gone, rows).astype(np.intp)
        self._code[rows] = Exclusion.EXCLUDED
        pods = self._units.snapshot.pods
        if keeps_budgets:  # if the victims use up a strict budget, no other pod of that budget may go
            taken = np.array([row for unit in self.chosen.values() for row in unit.rows], np.intp)
            left = np.flatnonzero((self._code == Exclusion.NONE) & (pods.node[: len(self._code)] >= 0))
            spent = left[budgets.spent_by(taken, left, evicts=self._units.victims.rules.evicts)]
            self._code[spent] = Exclusion.BUDGET
            if (groups := self._units.victims.units) is not None:
                self._code[groups.kept_by(self._code == Exclusion.BUDGET)] = Exclusion.GROUP
        return True
