"""Disruption budgets and how many more pods each lets go (SEMANTICS D4).

Which budgets cover a pod depends on its namespace and labels alone, so it is kept per distinct label set. Pods in
`status.disruptedPods` are already counted and do not use a budget again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import PodDisruptionBudget
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.pods import Pods
from webhook.preemption.reading import Identity

__all__ = ["Budget", "Budgets"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Budget(NamedTuple):
    """A budget as the decision needs it; a selector that is empty or cannot be parsed covers nothing."""

    namespace: str
    name: str
    allowed: int
    disrupted: frozenset[str]
    covers: Matcher
    selector: object


class Budgets:
    """All budgets by row, and the budgets of every distinct label set as a column over the pods' identities."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._rows: list[Budget | None] = []
        self._index: dict[tuple[str, str], int] = {}
        self._sets: list[tuple[int, ...]] = [()]
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._column: NDArray[np.int32] = np.zeros(0, np.int32)
        self._stale = True
        self._seen = 0
        self._epoch = 0

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget. A change of numbers alone costs nothing."""
        meta, selector = budget.metadata, budget.spec.selector
        key = (meta.namespace, meta.name)
        row = self._index.get(key)
        before = self._rows[row] if row is not None else None
        matcher = before.covers if before and before.selector == selector else _matcher(budget)
        after = Budget(
            namespace=meta.namespace,
            name=meta.name,
            allowed=budget.status.disruptions_allowed,
            disrupted=frozenset(budget.status.disrupted_pods or ()),
            covers=matcher,
            selector=selector,
        )
        if row is None:
            self._index[key] = len(self._rows)
            self._rows.append(after)
            self._stale = True
        else:
            self._rows[row] = after
            self._stale |= before is None or before.selector != selector

    def remove(self, namespace: str, name: str) -> None:
        """Forget a budget."""
        row = self._index.pop((namespace, name), None)
        if row is not None:
            self._rows[row] = None
            self._stale = True

    def of(self, row: int) -> list[Budget]:
        """The budgets that the pod in this row uses when it goes."""
        mine = self._sets[self._by_identity()[self._pods.identity[row]]]
        found = [budget for number in mine if (budget := self._rows[number])]
        return [budget for budget in found if self._pods.names[row] not in budget.disrupted]

    def covered(self, rows: NDArray[np.intp]) -> Mask:
        """Which of the pods, in any shape, are covered by a budget at all."""
        if len(self._by_identity()) == 0 or len(self._sets) == 1:
            return np.zeros(rows.shape, np.bool_)
        covered: Mask = (self._column != 0)[self._pods.identity[rows]]
        return covered

    def exhausted(self, rows: NDArray[np.intp]) -> Mask:
        """Which of the pods are covered by a budget that lets no pod go at all."""
        sets = self._by_identity()[self._pods.identity[rows]]
        result: Mask = self._spent_sets()[sets]
        positions, _ = self._uses(
            rows, sets, self._numbers(lambda budget: budget.allowed <= 0 and bool(budget.disrupted))
        )
        result[positions] = True
        return result

    def violating(self, rows: NDArray[np.intp], nodes: NDArray[np.intp], *, least_important_first: bool) -> Mask:
        """Which pods go beyond a budget, counted node by node and pod by pod.

        `rows` are pods in order of importance within each node, `nodes` a number per pod that is the same on one
        node. Kubernetes counts from the most important pod (`filterPodsWithPDBViolation`); counting from
        the least important one gives the budget to those who should go first.
        """
        sets = self._by_identity()[self._pods.identity[rows]]
        result: Mask = self._spent_sets()[sets]
        positions, numbers = self._uses(
            rows, sets, self._numbers(lambda budget: budget.allowed > 0 or bool(budget.disrupted))
        )
        if len(positions):
            allowed = np.array([budget.allowed if budget else 0 for budget in self._rows], np.int64)
            group = nodes[positions] * len(self._rows) + numbers
            rank = _rank_in_group(group, from_end=least_important_first)
            result[positions[rank >= allowed[numbers]]] = True
        return result

    def over(self, rows: NDArray[np.intp], nodes: NDArray[np.intp]) -> set[int]:
        """The numbers in `nodes` where these pods together are more than one of their budgets allows."""
        violating = self.violating(rows, nodes, least_important_first=False)
        return set(nodes[violating].tolist())

    def _numbers(self, chosen: Callable[[Budget], bool]) -> Mask:
        return np.array([budget is not None and chosen(budget) for budget in self._rows], np.bool_)

    def _spent_sets(self) -> Mask:
        """Which sets have a budget that lets no pod go, whichever pod it is."""
        spent = self._numbers(lambda budget: budget.allowed <= 0 and not budget.disrupted)
        return np.array([any(spent[number] for number in mine) for mine in self._sets], np.bool_)

    def _uses(self, rows: NDArray[np.intp], sets: NDArray[np.int32], chosen: Mask) -> tuple[NDArray[np.intp], Ints]:
        """Every (position in `rows`, number of a chosen budget) in which the pod would use it, by position."""
        positions: list[NDArray[np.intp]] = []
        numbers: list[Ints] = []
        for place in range(max(map(len, self._sets)) if chosen.any() else 0):
            member = np.array([mine[place] if place < len(mine) else -1 for mine in self._sets], np.int64)
            wanted = (member >= 0) & chosen[member]
            found = np.flatnonzero(wanted[sets])
            positions.append(found)
            numbers.append(member[sets[found]])
        if not positions:
            return np.zeros(0, np.intp), np.zeros(0, np.int64)
        at, which = np.concatenate(positions), np.concatenate(numbers)
        if len(positions) > 1:
            order = np.argsort(at, kind="stable")
            at, which = at[order], which[order]
        return self._without_disrupted(rows, at, which)

    def _without_disrupted(
        self, rows: NDArray[np.intp], at: NDArray[np.intp], which: Ints
    ) -> tuple[NDArray[np.intp], Ints]:
        keep = np.ones(len(at), np.bool_)
        for number, budget in enumerate(self._rows):
            if budget is None or not budget.disrupted:
                continue
            found = [self._pods.find(budget.namespace, name) for name in budget.disrupted]
            gone = [row for row in found if row is not None]
            keep &= ~((which == number) & np.isin(rows[at], gone))
        return at[keep], which[keep]

    def _by_identity(self) -> NDArray[np.int32]:
        identities = self._pods.identities
        if len(self._column) < len(identities):
            grown = np.zeros(2 * len(identities), np.int32)
            grown[: len(self._column)] = self._column
            self._column = grown
        if self._stale or self._epoch != identities.epoch:
            self._stale, self._epoch, self._seen = False, identities.epoch, len(identities.log)
            self._sets, self._set_ids = [()], {(): 0}
            self._fill(list(range(len(identities))))
        elif self._seen < len(identities.log):
            pending, self._seen = identities.log[self._seen :], len(identities.log)
            self._fill(pending)
        return self._column

    def _fill(self, numbers: list[int]) -> None:
        by_namespace: dict[str, list[tuple[int, Budget]]] = {}
        for number, budget in enumerate(self._rows):
            if budget is not None:
                by_namespace.setdefault(budget.namespace, []).append((number, budget))
        for number in numbers:
            identity = self._pods.identities.values[number]
            if identity is not None:
                self._column[number] = self._set_of(identity, by_namespace.get(identity.namespace, []))

    def _set_of(self, identity: Identity, budgets: list[tuple[int, Budget]]) -> int:
        if not identity.labels:
            return 0
        mine = tuple(number for number, budget in budgets if budget.covers(identity.labels))
        known = self._set_ids.get(mine)
        if known is None:
            known = self._set_ids[mine] = len(self._sets)
            self._sets.append(mine)
        return known


def _matcher(budget: PodDisruptionBudget) -> Matcher:
    selector = budget.spec.selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return nothing
    try:
        return label_matcher(selector)
    except SelectorError:
        return nothing


def _rank_in_group(group: Ints, *, from_end: bool) -> Ints:
    """How many of the same group come before (or after) each one."""
    bits = len(group).bit_length()
    keyed = np.sort((group << bits) | np.arange(len(group)))
    order, ordered = keyed & ((1 << bits) - 1), keyed >> bits
    first = np.ones(len(group), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(group)))
    within = np.arange(len(group)) - np.repeat(starts, sizes)
    if from_end:
        within = np.repeat(sizes, sizes) - 1 - within
    rank = np.empty(len(group), np.int64)
    rank[order] = within
    return rank
