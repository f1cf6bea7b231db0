"""Disruption budgets, which pods they cover, and how many more they let go (docs/semantics.md D4).

Coverage is a column over the pods' identities. `strict` asks what the API server would let go,
otherwise what kube-scheduler reckons with. There an empty selector and a pod without labels
mean no budget; to the API server an empty selector means all pods of the namespace, and
terminating pods use no budget. To kube-scheduler those in `status.disruptedPods` use none:
for a new pod of that name the server grants another disruption (`checkAndDecrement`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import LabelSelector, key_of
from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.kube.selectors import Labels, Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.amounts import int32
from webhook.preemption.snapshot.columns import Ints, Mask, Rows, Table, ranked
from webhook.preemption.snapshot.pod_view import STARTING, UNREADY, Identity
from webhook.preemption.snapshot.pods import Pods


class Budget(NamedTuple):
    """A budget. A selector that cannot be parsed selects nothing.

    While its status is older than its spec it is `stale`: the API server lets no pod go. If it
    is `lenient`, the Eviction API takes unready pods.
    """

    namespace: str
    name: str
    allowed: int
    stale: bool
    lenient: bool
    disrupted: frozenset[str]
    selects: Matcher
    selector: LabelSelector | None

    @property
    def granted(self) -> int:
        """How many disruptions the API server would grant now."""
        return 0 if self.stale else self.allowed

    @property
    def is_used(self) -> bool:
        """Whether its status names pods that have used it."""
        return bool(self.disrupted)

    @property
    def is_plain(self) -> bool:
        """Whether kube-scheduler counts by it: no empty selector (`filterPodsWithPDBViolation`)."""
        selector = self.selector
        return selector is not None and bool(selector.match_labels or selector.match_expressions)


def is_lenient(budget: PodDisruptionBudget) -> bool:
    """Whether the Eviction API takes unready pods without spending a disruption."""
    status = budget.status
    always = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
    return always or status.current_healthy >= status.desired_healthy > 0


def _as_budget(budget: PodDisruptionBudget) -> Budget:
    """What the decision needs. Raises ClusterError for a number that is no int32."""
    meta, selector, status = budget.metadata, budget.spec.selector, budget.status
    place = f"poddisruptionbudget {key_of(budget)}"
    try:
        selects = label_matcher(selector)
    except SelectorError:
        selects = nothing
    return Budget(
        namespace=meta.namespace,
        name=meta.name,
        allowed=int32(status.disruptions_allowed, f"{place}: status.disruptionsAllowed"),
        stale=(status.observed_generation or 0) < (meta.generation or 0),
        lenient=is_lenient(budget),
        disrupted=frozenset(status.disrupted_pods or ()),
        selects=selects,
        selector=selector,
    )


class DisruptionBudgets:
    """All budgets, numbered as they came, and which ones cover a pod."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._budgets: dict[str, Budget] = {}
        self._look_again()

    def __len__(self) -> int:
        return len(self._budgets)

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget. Raises ClusterError for a number that is no int32."""
        key, after = key_of(budget), _as_budget(budget)
        before = self._budgets.get(key)
        self._budgets[key] = after
        self._columns.clear()
        if before is None or before.selector != after.selector:
            self._look_again()

    def remove(self, key: str) -> None:
        """Forget the budget `namespace/name`."""
        if self._budgets.pop(key, None) is not None:
            self._look_again()

    def covering(self, namespace: str, labels: Labels) -> dict[str, int]:
        """By `namespace/name`, the budgets (numbers) that cover such a pod to the Eviction API."""
        if not self._by_namespace:
            for number, (key, budget) in enumerate(self._budgets.items()):
                self._by_namespace.setdefault(budget.namespace, {})[key] = number
        known = self._by_namespace.get(namespace, {})
        return {key: number for key, number in known.items() if self._budgets[key].selects(labels)}

    def of(self, row: int) -> list[Budget]:
        """The budgets that this pod (row) uses to the API server."""
        _, numbers = self._uses(np.array([row]), strict=True)
        return [[*self._budgets.values()][number] for number in numbers.tolist()]

    def unguarded(self, rows: Rows) -> Mask:
        """Which of the pods the Eviction API lets go whatever budgets say (`canIgnorePDB`).

        Those that are starting, or not ready if their only budget is lenient.
        """
        health = self._pods.health.take(rows)
        sets, members = self._coverage[True].column(), self._members()
        lenient = np.append(self._column("lenient") > 0, False)[members].any(axis=1)
        spares = lenient & (np.count_nonzero(members >= 0, axis=1) == 1)
        result: Mask = health == STARTING
        if spares.any():
            unready = np.flatnonzero(health == UNREADY)
            result[unready] = spares[sets[self._pods.identity[rows[unready]]]]
        return result

    def refused(self, rows: Rows, *, strict: bool, evicts: bool, gone: Rows | None = None) -> tuple[Rows, Rows]:
        """Which pods no eviction can take: their budget lets nobody go, or several cover them.

        The first if budgets are `strict`, once the pods in the rows `gone` went. The second if
        pods go by the Eviction API (`evicts`).
        """
        exhausted = several = rows[:0]
        if not self._budgets:
            return exhausted, several
        at, numbers = self._uses(rows, strict=True, evicts=evicts)
        if evicts:
            several = rows[at[1:][at[1:] == at[:-1]]]
        if strict:
            left = self._column("granted")
            if gone is not None:
                used = self._uses(gone, strict=True, evicts=evicts)[1]
                left = left - np.bincount(used, minlength=len(self))
            exhausted = rows[at.compress(left[numbers] <= 0)]
        return exhausted, several

    def violating(
        self,
        rows: Rows,
        *,
        strict: bool,
        evicts: bool,
        from_end: bool = False,
        groups: NDArray[Any] | None = None,
    ) -> Mask:
        """Which of these pods (rows, 0 for none) go beyond a budget, counted by group, else by node.

        The last axis is the nodes, along the others are their pods by importance. Kubernetes
        counts from the most important one (`filterPodsWithPDBViolation`), `from_end` from those
        who should go first. With `evicts` pods that the Eviction API lets go violate nothing.
        """
        result = np.zeros(rows.shape, np.bool_)
        if not self._budgets:
            return result
        strict = strict or evicts  # the Eviction API counts what it would grant
        at, numbers = self._uses(rows.ravel(), strict=strict, evicts=evicts)
        left = self._column("granted" if strict else "allowed")[numbers]
        result.ravel()[at.compress(left <= 0)] = True
        more = np.flatnonzero(left > 0)
        at, numbers, left = at[more], numbers[more], left[more]
        group = at % rows.shape[-1] if groups is None else groups[at].astype(np.intp)
        rank, _, size = ranked(group * len(self) + numbers)
        result.ravel()[at[(size - 1 - rank if from_end else rank) >= left]] = True
        return result

    def _look_again(self) -> None:
        """Budgets came, went, or select others: coverage is worked out when asked for."""
        self._columns: dict[str, Ints] = {}
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._matrix = np.zeros((0, 0), np.int64)
        self._by_namespace: dict[str, dict[str, int]] = {}
        self._coverage = {
            strict: Table(self._pods.identities, np.int32, partial(self._set_of, strict=strict))
            for strict in (False, True)
        }

    def _set_of(self, identity: Identity, *, strict: bool) -> int:
        """The number of the set of budgets that cover such pods."""
        covering = self.covering(identity.namespace, identity.labels)
        numbers = tuple(covering.values())
        if not strict:
            plain = (number for key, number in covering.items() if self._budgets[key].is_plain)
            numbers = tuple(plain) if identity.labels else ()
        return self._sets.setdefault(numbers, len(self._sets))

    def _column(self, field: str) -> Ints:
        """A number or a truth of each budget."""
        if field not in self._columns:
            values = [getattr(budget, field) for budget in self._budgets.values()]
            self._columns[field] = np.array(values, np.int64)
        return self._columns[field]

    def _members(self) -> Ints:
        """The sets as rows, -1 for no more, as of the last look at coverage."""
        if len(self._matrix) != len(self._sets):
            width = max(map(len, self._sets))
            self._matrix = np.array([[*mine, *[-1] * (width - len(mine))] for mine in self._sets], np.int64)
        return self._matrix

    def _uses(self, rows: Rows, *, strict: bool, evicts: bool = False) -> tuple[Rows, Ints]:
        """Every (position in `rows`, number of a budget that the pod would use), by position.

        With `evicts` without pods that the Eviction API lets go anyway.
        """
        sets = self._coverage[strict].column().take(self._pods.identity.take(rows))
        at = np.flatnonzero(sets > 0)
        pods = rows.take(at)
        uses = pods > 0
        if strict:
            uses &= ~self._pods.terminating.take(pods)
        if evicts:
            uses &= ~self.unguarded(pods)
        at = at.compress(uses)
        numbers = self._members().take(sets.take(at), axis=0)
        at, which = at.repeat(numbers.shape[1]), numbers.ravel()
        if (which < 0).any():
            at, which = at.compress(which >= 0), which.compress(which >= 0)
        if strict:
            return at, which
        keep = np.ones(len(at), np.bool_)
        for number in np.flatnonzero(self._column("is_used")).tolist():
            budget = [*self._budgets.values()][number]
            gone = self._pods.rows_of((budget.namespace, name) for name in budget.disrupted)
            keep &= ~((which == number) & np.isin(rows[at], gone))
        return at[keep], which[keep]
