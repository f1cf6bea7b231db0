"""What the eviction of a pod costs beyond its priority, by the keys of a policy (docs/semantics.md D13).

`COST_KEYS` is the only place that knows what a key looks at. Among victims of equal priority the costlier ones are put
back first, and candidates that are equal by priority are compared by what their victims cost (`ranking.RANKING`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import InstantError, epoch
from webhook.policy.model import POD_DELETION_COST, EvictionCost
from webhook.preemption.snapshot.pod_view import HEALTHY, Profile
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

__all__ = ["COST_KEYS", "VictimCosts", "victim_costs"]

_DELETION_COST = re.compile(r"0|-\d{1,10}|[1-9]\d{0,9}", re.ASCII)
Rows = NDArray[np.intp]
Column = NDArray[np.float64]
Ints = NDArray[np.int64]


class VictimCosts(NamedTuple):
    """What a policy counts of each pod.

    `evicted` is how often the workload of each pod, by row, was evicted recently, None if nobody knows. `grace_period`
    is what the policy gives instead of the pods' own.
    """

    snapshot: Snapshot
    cost: EvictionCost
    grace_period: int | None
    evicted: Ints | None = None

    def order_of(self, rows: Rows) -> list[Column]:
        """What the pods in an array of rows are put in order by among equal priority: an array of that shape a key."""
        return [key.order(self, rows) for key in COST_KEYS if key.counts(self.cost)]

    @property
    def outside(self) -> tuple[Ints, ...]:
        """What the order looks at that is not written on the pods."""
        return () if self.evicted is None or self.cost.recent_evictions is None else (self.evicted,)

    def ready(self, rows: Rows) -> Ints:
        """1 for pods that are ready."""
        ready: Ints = (self.snapshot.pods.health[rows] == HEALTHY).astype(np.int64)
        return ready

    def deletion_cost(self, rows: Rows) -> Ints:
        """What `controller.kubernetes.io/pod-deletion-cost` says; 0 if it is not there or no int32."""
        pods = self.snapshot.pods
        costs: Ints = self.snapshot.table(("deletion cost",), pods.profiles, np.int64, _deletion_cost)
        return costs[pods.profile[rows]]

    def saved(self, rows: Rows) -> Column:
        """When the pods last had no work to lose, in seconds since the epoch; infinite if they have not started."""
        pods = self.snapshot.pods
        keys = self.cost.lost_work.checkpoints if self.cost.lost_work else ()
        starts = pods.start[rows]
        if not keys:
            return starts

        def checkpoint(profile: Profile) -> float:
            return _checkpoint(profile, keys)

        made: Column = self.snapshot.table(("checkpoint", keys), pods.profiles, np.float64, checkpoint)
        return np.maximum(starts, made[pods.profile[rows]])

    def lost(self, rows: Rows, now: float) -> Ints:
        """How many whole seconds of work the pods lose if they go at `now`."""
        saved = self.saved(rows)
        return np.maximum(np.floor(now - np.where(np.isfinite(saved), saved, now)), 0.0).astype(np.int64)

    def evicted_lately(self, rows: Rows) -> Ints:
        """How often the workloads of the pods were evicted recently."""
        return np.zeros(len(rows), np.int64) if self.evicted is None else self.evicted[rows]


class CostKey(NamedTuple):
    """One key: whether the policy `counts` it, and by what the pods of a node are put in `order`, the larger stays."""

    name: str
    counts: Callable[[EvictionCost], bool]
    order: Callable[[VictimCosts, Rows], Column]


COST_KEYS = (
    CostKey("readiness", lambda cost: cost.readiness, lambda costs, rows: costs.ready(rows).astype(np.float64)),
    CostKey(
        "group_restarts",
        lambda cost: cost.group_restarts,
        lambda costs, rows: (costs.snapshot.pods.group[rows] > 0).astype(np.float64),
    ),
    CostKey(
        "deletion_cost",
        lambda cost: cost.deletion_cost,
        lambda costs, rows: costs.deletion_cost(rows).astype(np.float64),
    ),
    CostKey("lost_work", lambda cost: cost.lost_work is not None, lambda costs, rows: -costs.saved(rows)),
    CostKey(
        "recent_evictions",
        lambda cost: cost.recent_evictions is not None,
        lambda costs, rows: (np.zeros(rows.shape) if costs.evicted is None else costs.evicted[rows]).astype(np.float64),
    ),
    CostKey(
        "grace_period",
        lambda cost: cost.grace_period,
        lambda costs, rows: costs.snapshot.pods.grace[rows] if costs.grace_period is None else np.zeros(rows.shape),
    ),
)
"""The keys in their order."""


def victim_costs(snapshot: Snapshot, rules: Rules | None, evicted: Ints | None = None) -> VictimCosts | None:
    """What these rules count beyond priority; None if nothing, as for plain Kubernetes.

    `evicted` is by pod row how often the pod's workload was evicted recently.
    """
    cost = rules.policy.victims.cost if rules is not None and rules.policy is not None else None
    if cost is None or not any(key.counts(cost) for key in COST_KEYS):
        return None
    assert rules is not None
    assert rules.policy is not None
    return VictimCosts(snapshot, cost, rules.policy.grace_period, evicted)


def _deletion_cost(profile: Profile) -> int:
    """As Kubernetes reads it: an int32 without plus or leading zeros; anything else counts as 0."""
    text = dict(profile.annotations).get(POD_DELETION_COST, "0")
    value = int(text) if _DELETION_COST.fullmatch(text) else 0
    return value if -(2**31) <= value < 2**31 else 0


def _checkpoint(profile: Profile, keys: tuple[str, ...]) -> float:
    """When the pod was saved last; minus infinity if it does not say so readably."""
    annotations = dict(profile.annotations)
    for key in keys:
        if text := annotations.get(key):
            try:
                return epoch(text)
            except InstantError:
                continue
    return -math.inf
