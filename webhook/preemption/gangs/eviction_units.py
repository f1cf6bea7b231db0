"""What may go for a gang, as units, and what a set of them costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.costs import VictimSets
from webhook.preemption.victims.eligible import Exclusion, PotentialVictims
from webhook.preemption.victims.rules import Rules


class Price(NamedTuple):
    """What a set of units costs, by the keys of `RANKING` in their order; the lower is the better (a test holds it).

    `highest_priority` and `priority_sum` take each pod at the priority that counts for it. A priority may be negative,
    so `victims` stands before the sum. `costs` is what the policy counts beyond priority, key by key
    (`victims.costs`).
    """

    violations: int = 0
    highest_priority: int = -(2**63)
    groups: int = 0
    victims: int = 0
    priority_sum: int = 0
    costs: tuple[float, ...] = ()


class Unit(NamedTuple):
    """Pods, by row, that go together.

    `group` is the id of the group if it goes whole. `spared_by` is the id of the group that can spare this pod, else 0:
    if that group goes, so does the pod.
    """

    rows: tuple[int, ...]
    priority: int
    group: int = 0
    spared_by: int = 0


class EvictionUnits:
    """The units that may go for a gang; `beyond_budget` counts as the rules do.

    With `keeps_budgets` no set of units may violate a budget.
    """

    def __init__(self, victims: PotentialVictims, rules: Rules, *, keeps_budgets: bool) -> None:
        self.keeps_budgets = keeps_budgets
        self.victims = victims
        self.rules = rules
        self.snapshot: Snapshot = victims.snapshot

    def among(self, rows: Rows) -> list[Unit]:
        """The units of the pods in these rows that may go, the most important first.

        What comes first: the higher priority, a group, a single pod that no group spares, the larger group, the higher
        costs, the earlier start.
        """
        may_go = rows[self.victims.code[rows] == Exclusion.NONE]
        units, pods = self.victims.units, self.snapshot.pods
        groups: dict[int, Unit] = {}
        singles: list[Unit] = []
        for row in may_go.tolist():
            group = int(units.group[row]) if units is not None else 0
            above = int(units.above[row]) if units is not None and units.above is not None else 0
            priority = self.victims.priority_of(row)
            if not group:
                singles.append(Unit((row,), priority, spared_by=above))
            elif group not in groups:
                groups[group] = Unit(tuple(pods.grouped.members(group).tolist()), priority, group)
        return self.by_importance([*groups.values(), *singles])

    def by_importance(self, chosen: Iterable[Unit]) -> list[Unit]:
        """Units, the most important first, as `among` orders them."""
        return sorted(chosen, key=self._importance)

    def price(self, chosen: Iterable[Unit]) -> Price:
        """What a set of units costs."""
        units = list(chosen)
        if not units:
            return Price()
        groups = {unit.group for unit in units if unit.group}
        with_groups = [unit for unit in units if unit.spared_by not in groups]
        rows = np.array(sorted({row for unit in with_groups for row in unit.rows}), np.intp)
        return Price(
            violations=self.violations(rows),
            highest_priority=max(unit.priority for unit in with_groups),
            groups=len(groups),
            victims=len(rows),
            priority_sum=sum(unit.priority * len(unit.rows) for unit in with_groups),
            costs=self.costs(rows),
        )

    def costs(self, rows: Sequence[int] | Rows) -> tuple[float, ...]:
        """What the policy counts beyond priority if these pods go, key by key; empty if nothing."""
        counted = self.victims.costs
        if counted is None:
            return ()
        sets = VictimSets(np.zeros(len(rows), np.intp), np.asarray(rows, np.intp), 1, self.victims.now)
        return tuple(float(column[0]) for column in counted.totals(sets))

    def joined(self, costs: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
        """What two sets cost together beyond priority."""
        return () if self.victims.costs is None else self.victims.costs.joined(costs, other)

    def violations(self, rows: Rows) -> int:
        """How many of the pods go beyond a budget if all of these go."""
        return int(np.count_nonzero(self.beyond_budget(rows)))

    def beyond_budget(self, rows: Rows) -> Mask:
        """Which of the pods go beyond a budget if all of these go."""
        budgets = self.snapshot.budgets
        together = np.zeros(len(rows), np.int64)
        return budgets.violating_by(rows, together, strict=self.rules.strict_budgets, evicts=self.rules.evicts)

    def _importance(self, unit: Unit) -> tuple[int, int, int, tuple[float, ...], float, str]:
        pods, row = self.snapshot.pods, unit.rows[0]
        kind = 0 if unit.group else 2 if unit.spared_by else 1
        size = int(pods.member_index[row]) if unit.spared_by else -len(unit.rows)
        costs = tuple(-cost for cost in self.costs(unit.rows))
        start = min(float(pods.start[member]) for member in unit.rows)
        return -unit.priority, kind, size, costs, start, pods.key(row)
