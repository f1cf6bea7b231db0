"""Disruption budgets, which pods each covers, and how many more it lets go (docs/semantics.md D4).

Coverage is kept per distinct namespace and labels, as a column over the pods' identities. kube-scheduler and the API
server differ: to the scheduler an empty selector and a pod without labels mean no budget, to the API server an empty
selector means every pod of the namespace. `strict` asks what the API server would let go, otherwise what kube-scheduler
reckons with. Pods in `status.disruptedPods` are already counted and do not use a budget again; nor do, to the API
server, terminating ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import LabelSelector, key_of
from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.kube.selectors import Labels, Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.amounts import int32
from webhook.preemption.snapshot.columns import Columns, Interner, Ints, Mask, Rows, Table, array, listed
from webhook.preemption.snapshot.pod_view import STARTING, UNREADY, Identity
from webhook.preemption.snapshot.pods import Pods


class Budget(NamedTuple):
    """A budget as the decision needs it; a selector that cannot be parsed selects nothing.

    `stale` is one whose status is older than its spec: the API server lets no pod go by it until the two agree.
    `lenient` is one that does not keep the Eviction API from taking pods that are not ready (`is_lenient`).
    """

    namespace: str
    name: str
    allowed: int
    stale: bool
    lenient: bool
    disrupted: frozenset[str]
    selects: Matcher
    selector: LabelSelector | None

    def covers(self, labels: Labels, *, strict: bool) -> bool:
        """Whether it counts a pod of its namespace with these labels.

        `strict` as the Eviction API does (policy/v1), else as kube-scheduler does (`filterPodsWithPDBViolation`).
        """
        if strict:
            return self.selects(labels)
        some = self.selector is not None and bool(self.selector.match_labels or self.selector.match_expressions)
        return some and bool(labels) and self.selects(labels)


def is_lenient(budget: PodDisruptionBudget) -> bool:
    """Whether the Eviction API takes pods that are not ready past the budget, without spending a disruption of it."""
    status = budget.status
    always = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
    return always or status.current_healthy >= status.desired_healthy > 0


def _as_budget(budget: PodDisruptionBudget) -> Budget:
    """What the decision needs of a budget. Raises ClusterError for a number that is no int32."""
    meta, selector, status = budget.metadata, budget.spec.selector, budget.status
    try:
        selects = label_matcher(selector)
    except SelectorError:
        selects = nothing
    return Budget(
        namespace=meta.namespace,
        name=meta.name,
        allowed=int32(status.disruptions_allowed, f"poddisruptionbudget {key_of(budget)}: status.disruptionsAllowed"),
        stale=(status.observed_generation or 0) < (meta.generation or 0),
        lenient=is_lenient(budget),
        disrupted=frozenset(status.disrupted_pods or ()),
        selects=selects,
        selector=selector,
    )


class _Coverage:
    """The budgets of every distinct identity: an index into `sets`, each a tuple of numbers of `budgets`."""

    def __init__(self, identities: Interner[Any, Identity], budgets: Sequence[Budget | None], *, strict: bool) -> None:
        self._identities = identities
        self._budgets = budgets
        self._strict = strict
        self.forget()

    def forget(self) -> None:
        """Look at everything again when asked next: a budget came, went, or selects other pods."""
        self.sets: list[tuple[int, ...]] = [()]
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._members: Ints = np.full((1, 0), -1, np.int64)
        self._by_namespace: dict[str, list[tuple[int, Budget]]] | None = None
        self._table = Table(self._identities, np.int32, self._set_of)

    def column(self) -> NDArray[np.int32]:
        """The place in `sets` by identity, up to date."""
        return self._table.column()

    def members(self) -> Ints:
        """The sets as rows of a matrix, -1 if a set has no more budgets; as of the last call of `column`."""
        if len(self._members) != len(self.sets):
            width = max(map(len, self.sets))
            self._members = np.array([[*mine, *[-1] * (width - len(mine))] for mine in self.sets], np.int64)
        return self._members

    def of(self, namespace: str, labels: Labels) -> tuple[int, ...]:
        """The numbers of the budgets that cover such a pod."""
        if self._by_namespace is None:
            self._by_namespace = defaultdict(list)
            for number, budget in enumerate(self._budgets):
                if budget is not None:
                    self._by_namespace[budget.namespace].append((number, budget))
        budgets = self._by_namespace.get(namespace, ())
        return tuple(number for number, budget in budgets if budget.covers(labels, strict=self._strict))

    def _set_of(self, identity: Identity) -> int:
        mine = self.of(identity.namespace, identity.labels)
        known = self._set_ids.setdefault(mine, len(self.sets))
        if known == len(self.sets):
            self.sets.append(mine)
        return known


class DisruptionBudgets(Columns):
    """All budgets by row, and which of them cover a pod.

    Columns by row: `_allowed` disruptions as the status says, `_granted` those that the API server would grant now,
    whether some pods are `_disrupted` already, and whether it is `_lenient` with pods that are not ready.
    """

    _allowed = array(np.int64)
    _granted = array(np.int64)
    _disrupted = array(np.bool_)
    _lenient = array(np.bool_)
    _budgets: list[Budget | None] = listed(None)

    def __init__(self, pods: Pods) -> None:
        super().__init__()
        self._pods = pods
        self._index: dict[str, int] = {}
        self._coverage = {strict: _Coverage(pods.identities, self._budgets, strict=strict) for strict in (False, True)}

    def __len__(self) -> int:
        return len(self._index)

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget. A change of numbers alone costs nothing. Raises ClusterError for what is no int32."""
        key = key_of(budget)
        row = self._index.get(key)
        before = self._budgets[row] if row is not None else None
        after = _as_budget(budget)
        if row is None:
            row = self._index[key] = self.new_row()
        self._budgets[row] = after
        self._allowed[row] = after.allowed
        self._granted[row] = 0 if after.stale else after.allowed
        self._disrupted[row] = bool(after.disrupted)
        self._lenient[row] = after.lenient
        if before is None or before.selector != after.selector:
            self._look_again()

    def remove(self, key: str) -> None:
        """Forget the budget `namespace/name`."""
        row = self._index.pop(key, None)
        if row is not None:
            self.free(row)
            self._look_again()

    def covering(self, namespace: str, labels: Labels) -> list[str]:
        """The budgets, `namespace/name`, in which the Eviction API counts a pod with these labels."""
        budgets = (self._budgets[number] for number in self._coverage[True].of(namespace, labels))
        return [f"{budget.namespace}/{budget.name}" for budget in budgets if budget is not None]

    def of(self, row: int, *, strict: bool) -> list[Budget]:
        """The budgets that the pod in this row uses when it goes."""
        coverage = self._coverage[strict]
        which = int(self._sets(np.array([row]), strict=strict)[0])  # may make the sets again
        budgets = [budget for number in coverage.sets[which] if (budget := self._budgets[number])]
        return [budget for budget in budgets if self._pods.names[row] not in budget.disrupted]

    def unguarded(self, rows: Rows) -> Mask:
        """Which of the pods the Eviction API lets go without a look at what budgets have left (`canIgnorePDB`).

        Those that are still starting, and those that are not ready, if the one budget that covers them is lenient.
        """
        health = self._pods.health.take(rows)
        sets = self._coverage[True].column()  # may make the members again
        members = self._coverage[True].members()
        lenient = np.append(self._lenient[: self.rows], False)[members].any(axis=1)
        spares = lenient & (np.count_nonzero(members >= 0, axis=1) == 1)
        result: Mask = health == STARTING
        if spares.any():
            unready = np.flatnonzero(health == UNREADY)
            result[unready] = spares[sets[self._pods.identity[rows[unready]]]]
        return result

    def refused(self, rows: Rows, *, strict: bool, evicts: bool) -> tuple[Rows, Rows]:
        """Those of the pods that no eviction can take now: by a budget that lets no pod go, and by several budgets.

        The first are looked for if budgets are `strict`, the second if pods go by the Eviction API (`evicts`): it lets
        no pod go that more than one budget covers, whatever they have left.
        """
        exhausted = several = rows[:0]
        if evicts and self._index:
            rows = rows[~self.unguarded(rows)]
            crowded = np.count_nonzero(self._coverage[True].members() >= 0, axis=1) > 1
            several = rows[crowded[self._sets(rows, strict=True)]]
        if strict and self._index:
            positions, numbers = self._uses(rows, strict=True)
            exhausted = rows[positions[self._left(strict=True)[numbers] <= 0]]
        return exhausted, several

    def violating(self, rows: Rows, victims: Mask, *, strict: bool, evicts: bool, from_end: bool = False) -> Mask:
        """Which of the `victims` go beyond a budget, counted node by node and pod by pod.

        `rows` has a column a node, its pods in order of importance; the answer has its shape. Kubernetes counts from
        the most important pod (`filterPodsWithPDBViolation`); counting from the least important one, `from_end`, gives
        the budget to those who should go first. If pods go by the Eviction API (`evicts`), those it lets go anyway
        violate nothing.
        """
        result = np.zeros(rows.shape, np.bool_)
        if not self._index:
            return result
        places = np.flatnonzero(victims)
        groups = places % max(1, rows.shape[1])
        result.ravel()[places] = self.violating_by(
            rows.take(places), groups, strict=strict, evicts=evicts, from_end=from_end
        )
        return result

    def violating_by(
        self, rows: Rows, groups: NDArray[Any], *, strict: bool, evicts: bool, from_end: bool = False
    ) -> Mask:
        """Which of the pods in these rows go beyond a budget, counted pod by pod within each group, as `violating`."""
        result = np.zeros(len(rows), np.bool_)
        if not self._index:
            return result
        strict = strict or evicts  # the Eviction API counts what it would grant now, whatever the policy says
        covered: Mask = self._coverage[strict].column() != 0
        places = np.flatnonzero(covered.take(self._pods.identity.take(rows)))
        if evicts:
            places = places[~self.unguarded(rows[places])]
        positions, numbers = self._uses(rows[places], strict=strict)
        users, left = places[positions], self._left(strict=strict)[numbers]
        result[users[left <= 0]] = True
        users, numbers, left = (column[left > 0] for column in (users, numbers, left))
        rank = _rank_in_group(groups[users].astype(np.intp) * self.rows + numbers, from_end=from_end)
        result[users[rank >= left]] = True
        return result

    def spent_by(self, gone: Rows, rows: Rows, *, evicts: bool) -> Mask:
        """Which of the pods in `rows` no strict budget lets go any more once those in the rows `gone` went."""
        result = np.zeros(len(rows), np.bool_)
        if not self._index or not len(gone) or not len(rows):
            return result
        _, used = self._uses(gone[~self.unguarded(gone)] if evicts else gone, strict=True)
        left = self._left(strict=True) - np.bincount(used, minlength=self.rows)
        positions, numbers = self._uses(rows, strict=True)
        result[positions[left[numbers] <= 0]] = True
        if evicts:
            result &= ~self.unguarded(rows)
        return result

    def _look_again(self) -> None:
        for coverage in self._coverage.values():
            coverage.forget()

    def _sets(self, rows: Rows, *, strict: bool) -> NDArray[np.int32]:
        """The pods' places in the coverage's sets; 0 is the empty one."""
        sets: NDArray[np.int32] = self._coverage[strict].column().take(self._pods.identity.take(rows))
        if strict:
            sets[self._pods.terminating.take(rows)] = 0
        return sets

    def _left(self, *, strict: bool) -> Ints:
        """How many more pods each budget lets go."""
        return (self._granted if strict else self._allowed)[: self.rows]

    def _uses(self, rows: Rows, *, strict: bool) -> tuple[Rows, Ints]:
        """Every (position in `rows`, number of a budget) in which the pod would use the budget, by position."""
        sets, members = self._sets(rows, strict=strict), self._coverage[strict].members()
        positions = [np.flatnonzero((member >= 0)[sets]) for member in members.T]
        at = np.concatenate([*positions, rows[:0]])
        which = np.concatenate(
            [*(member[sets[using]] for member, using in zip(members.T, positions, strict=True)), rows[:0]]
        )
        if len(positions) > 1:
            order = np.argsort(at, kind="stable")
            at, which = at[order], which[order]
        keep = np.ones(len(at), np.bool_)  # without those that `status.disruptedPods` names
        for number in np.flatnonzero(self._disrupted).tolist():
            if (budget := self._budgets[number]) is not None:
                gone = self._pods.rows_of((budget.namespace, name) for name in budget.disrupted)
                keep &= ~((which == number) & np.isin(rows[at], gone))
        return at[keep], which[keep]


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
