"""Which disruption budgets cover a pod, kept per distinct namespace and labels as a column over the pods' identities.

kube-scheduler and the API server differ: to the scheduler an empty selector and a pod without labels mean no budget,
to the API server an empty selector means every pod of the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import LabelSelector, PodDisruptionBudget
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.amounts import int32
from webhook.preemption.snapshot.interning import Interner
from webhook.preemption.snapshot.pod_view import Identity

__all__ = ["Budget", "Coverage", "as_budget", "covers_by_api_server", "covers_by_scheduler"]


class Budget(NamedTuple):
    """A budget as the decision needs it; a selector that cannot be parsed selects nothing.

    `stale` is one whose status is older than its spec: the API server lets no pod go by it until the two agree.
    `lenient` is one that does not keep the Eviction API from taking pods that are not ready: its policy says so, or
    as many as it wants are healthy.
    """

    namespace: str
    name: str
    allowed: int
    stale: bool
    lenient: bool
    disrupted: frozenset[str]
    selects: Matcher
    selector: LabelSelector | None


Covers = Callable[[Budget, Identity], bool]


def as_budget(budget: PodDisruptionBudget, before: Budget | None) -> Budget:
    """What the decision needs of a budget; `before` is what was known of it.

    Raises ClusterError for a number that is no int32.
    """
    meta, selector, status = budget.metadata, budget.spec.selector, budget.status
    place = f"poddisruptionbudget {meta.namespace}/{meta.name}: status.disruptionsAllowed"
    return Budget(
        namespace=meta.namespace,
        name=meta.name,
        allowed=int32(status.disruptions_allowed, place),
        stale=(status.observed_generation or 0) < (meta.generation or 0),
        lenient=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        or status.current_healthy >= status.desired_healthy > 0,
        disrupted=frozenset(status.disrupted_pods or ()),
        selects=before.selects if before and before.selector == selector else _matcher(selector),
        selector=selector,
    )


def covers_by_scheduler(budget: Budget, identity: Identity) -> bool:
    """Whether kube-scheduler counts the pod against the budget (`filterPodsWithPDBViolation`)."""
    selector = budget.selector
    some = selector is not None and bool(selector.match_labels or selector.match_expressions)
    return some and bool(identity.labels) and budget.selects(identity.labels)


def covers_by_api_server(budget: Budget, identity: Identity) -> bool:
    """Whether the Eviction API asks the budget before it lets the pod go (policy/v1)."""
    return budget.selects(identity.labels)


class Coverage:
    """The budgets of every distinct identity: an index into `sets`, each a tuple of numbers of `budgets`."""

    def __init__(self, identities: Interner[Any, Identity], budgets: Sequence[Budget | None], covers: Covers) -> None:
        self.sets: list[tuple[int, ...]] = [()]
        self._identities = identities
        self._budgets = budgets
        self._covers = covers
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._members: NDArray[np.int64] = np.full((1, 0), -1, np.int64)
        self._column: NDArray[np.int32] = np.zeros(0, np.int32)
        self._stale = True
        self._seen = 0
        self._epoch = 0

    def forget(self) -> None:
        """Look at everything again when asked next: a budget came, went, or selects other pods."""
        self._stale = True

    def column(self) -> NDArray[np.int32]:
        """The place in `sets` by identity, up to date."""
        identities = self._identities
        if len(self._column) < len(identities):
            grown = np.zeros(2 * len(identities), np.int32)
            grown[: len(self._column)] = self._column
            self._column = grown
        if self._stale or self._epoch != identities.epoch:
            self._stale, self._epoch, self._seen = False, identities.epoch, len(identities.log)
            self.sets, self._set_ids = [()], {(): 0}
            self._members = np.full((1, 0), -1, np.int64)
            self._fill(list(range(len(identities))))
        elif self._seen < len(identities.log):
            pending, self._seen = identities.log[self._seen :], len(identities.log)
            self._fill(pending)
        return self._column

    def members(self) -> NDArray[np.int64]:
        """The sets as rows of a matrix, -1 if a set has no more budgets; as of the last call of `column`."""
        if len(self._members) != len(self.sets):
            width = max(map(len, self.sets))
            self._members = np.array([[*mine, *[-1] * (width - len(mine))] for mine in self.sets], np.int64)
        return self._members

    def _fill(self, numbers: list[int]) -> None:
        by_namespace: dict[str, list[tuple[int, Budget]]] = {}
        for number, budget in enumerate(self._budgets):
            if budget is not None:
                by_namespace.setdefault(budget.namespace, []).append((number, budget))
        for number in numbers:
            identity = self._identities.values[number]
            if identity is not None:
                self._column[number] = self._set_of(identity, by_namespace.get(identity.namespace, []))

    def _set_of(self, identity: Identity, budgets: list[tuple[int, Budget]]) -> int:
        mine = tuple(number for number, budget in budgets if self._covers(budget, identity))
        known = self._set_ids.get(mine)
        if known is None:
            known = self._set_ids[mine] = len(self.sets)
            self.sets.append(mine)
        return known


def _matcher(selector: LabelSelector | None) -> Matcher:
    try:
        return label_matcher(selector)
    except SelectorError:
        return nothing
