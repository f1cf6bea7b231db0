"""What an eviction costs beyond priority, by the keys of a policy (docs/semantics.md D13).

Only `COST_KEYS` knows what a key looks at. Of victims of equal priority the costlier ones are put back
first. Candidates of equal priority are compared by what their victims cost (`ranking.RANKING`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.pods import deletion_cost
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.snapshot.columns import Floats, Ints, Rows
from webhook.preemption.snapshot.pod_view import HEALTHY, Profile
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.rules import Rules


class VictimCosts(NamedTuple):
    """What a policy counts of each pod.

    `grace_period` is what the policy gives instead of the pods' own. `evicted` is by pod row how often
    the pod's workload was evicted recently, None if nobody knows or counts it.
    """

    snapshot: Snapshot
    cost: EvictionCost
    grace_period: int | None
    evicted: Ints | None = None

    def order_of(self, rows: Rows) -> list[Ints | Floats]:
        """What orders pods of equal priority: by key an array in the shape of `rows`."""
        return [key.order(self, rows) for key in COST_KEYS if key.counts(self.cost)]

    def deletion_cost(self, rows: Rows) -> Ints:
        """The value of `controller.kubernetes.io/pod-deletion-cost`; 0 for no int32."""

        def said_by(profile: Profile) -> int:
            return deletion_cost(dict(profile.annotations))

        pods = self.snapshot.pods
        costs: Ints = self.snapshot.table(("deletion cost",), pods.profiles, np.int64, said_by)
        return costs[pods.profile[rows]]

    def saved(self, rows: Rows) -> Floats:
        """When work was last saved, in seconds since the epoch; infinite before the start."""
        pods = self.snapshot.pods
        keys = self.cost.lost_work.checkpoints if self.cost.lost_work else ()
        starts = pods.start[rows]
        if not keys:
            return starts

        def made_at(profile: Profile) -> float:
            return checkpoint(dict(profile.annotations), keys)

        made: Floats = self.snapshot.table(("checkpoint", keys), pods.profiles, np.float64, made_at)
        return np.maximum(starts, made[pods.profile[rows]])

    def lost(self, rows: Rows, now: float) -> Ints:
        """How many whole seconds of work the pods lose by going at `now`."""
        saved = self.saved(rows)
        since = now - np.where(np.isfinite(saved), saved, now)
        return np.maximum(np.floor(since), 0.0).astype(np.int64)

    def totals(self, candidates: Candidates, now: float) -> list[Ints | Floats]:
        """What candidates cost if their victims go at `now`, by each key that counts."""
        return [key.total(self, candidates, now) for key in COST_KEYS if key.counts(self.cost)]


def last_end(candidates: Candidates, grace_period: int | None, now: float) -> Floats:
    """In how many seconds each candidate's last victim is gone, as `ends_in`."""
    ends = ends_in(candidates.snapshot, candidates.pods, grace_period, now)
    last: Floats = np.maximum.reduceat(ends, candidates.starts)
    return last


def ends_in(snapshot: Snapshot, rows: Rows, grace_period: int | None, now: float) -> Floats:
    """In how many seconds the pods should be gone if asked `now`.

    A pod takes its grace period, or the one given; a leaving one takes the rest of it.
    """
    pods = snapshot.pods
    graces = pods.grace[rows] if grace_period is None else grace_period
    rest = np.maximum(pods.gone_at[rows] - now, 0.0)
    return np.where(pods.terminating[rows], rest, graces)


def seconds(amount: float) -> str:
    """So many seconds for people; infinitely many are unknown."""
    return "unknown" if math.isinf(amount) else f"{amount:.0f} s"


class CostKey(NamedTuple):
    """One key: whether a policy `counts` it, what orders pods, and what sets cost.

    The pod with the larger value of `order` stays. Of two sets that of the smaller `totals` goes, by
    default sums of the order. `heading`, `because` and `text` are those of the ranking's key.
    """

    name: str
    counts: Callable[[EvictionCost], bool]
    order: Callable[[VictimCosts, Rows], Ints | Floats]
    heading: str
    because: str
    totals: Callable[[VictimCosts, Candidates, float], Ints | Floats] | None = None
    text: Callable[[Any], str] = str

    def total(self, costs: VictimCosts, candidates: Candidates, now: float) -> Ints | Floats:
        """What the victims of each candidate cost by this key if they go at `now`."""
        if self.totals is not None:
            return self.totals(costs, candidates, now)
        return candidates.summed(self.order(costs, candidates.pods))


COST_KEYS = (
    CostKey(
        name="readiness",
        heading="ready pods",
        because="fewer of its victims are ready",
        counts=lambda cost: cost.readiness,
        order=lambda costs, rows: np.where(costs.snapshot.pods.health[rows] == HEALTHY, 1, 0),
    ),
    CostKey(
        name="group_restarts",
        heading="groups that lose pods",
        because="fewer groups of pods lose a member for it",
        counts=lambda cost: cost.group_restarts,
        order=lambda costs, rows: np.where(costs.snapshot.pods.group[rows] > 0, 1, 0),
        totals=lambda costs, those, _now: those.count_of(costs.snapshot.pods.group[those.pods]),
    ),
    CostKey(
        name="deletion_cost",
        heading="deletion cost",
        because="its victims have a lower deletion cost",
        counts=lambda cost: cost.deletion_cost,
        order=VictimCosts.deletion_cost,
    ),
    CostKey(
        name="lost_work",
        heading="work lost",
        because="its victims lose less work",
        text=seconds,
        counts=lambda cost: cost.lost_work is not None,
        order=lambda costs, rows: -costs.saved(rows),
        totals=lambda costs, those, now: those.summed(costs.lost(those.pods, now)),
    ),
    CostKey(
        name="recent_evictions",
        heading="recent evictions",
        because="its victims' workloads were recently evicted less often",
        counts=lambda cost: cost.recent_evictions is not None,
        order=lambda costs, rows: 0 * rows if costs.evicted is None else costs.evicted[rows],
    ),
    CostKey(
        name="grace_period",
        heading="grace period",
        because="its victims have the shorter grace period",
        text=seconds,
        counts=lambda cost: cost.grace_period,
        order=lambda costs, rows: np.where(costs.grace_period is None, costs.snapshot.pods.grace[rows], 0),
        totals=lambda costs, those, now: last_end(those, costs.grace_period, now),
    ),
)
"""The keys in their order."""


def victim_costs(snapshot: Snapshot, rules: Rules, evicted: Ints | None = None) -> VictimCosts | None:
    """What these rules count beyond priority; None for nothing, as in plain Kubernetes.

    `evicted` is as in `VictimCosts`.
    """
    policy = rules.policy
    if policy is None or not any(key.counts(policy.victims.cost) for key in COST_KEYS):
        return None
    if policy.victims.cost.recent_evictions is None:
        evicted = None
    return VictimCosts(snapshot, policy.victims.cost, policy.grace_period_seconds, evicted)


def checkpoint(annotations: Mapping[str, str], keys: Iterable[str]) -> float:
    """When work was last saved, in seconds since the epoch, by the first key that says it; else -inf."""
    for key in keys:
        if (at := epoch_or(annotations.get(key), -math.inf)) > -math.inf:
            return at
    return -math.inf
