"""The best candidate (docs/semantics.md D6, kube-scheduler's `pickOneNodeForPreemption`).

Only `RANKING` knows what compares candidates, in which order, and how people are told.
`gangs.eviction_units.Price` compares for gangs, by the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import rfc3339
from webhook.preemption.snapshot.columns import Floats, Mask
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.costs import COST_KEYS, CostKey, last_end, seconds
from webhook.preemption.victims.eligible import PotentialVictims

PRIORITY_OFFSET = 2**31
"""Added to each priority in a sum: fewer pods win, also with negative ones."""
_RAISED_SUM = ("victims", "priority_sum")
"""The keys that people read for the raised sum, in their order there."""


class Score(NamedTuple):
    """A candidate's values by the keys' names; in the sum priorities are raised."""

    node: str
    values: dict[str, Any]


class RankingKey(NamedTuple):
    """One key: the smallest value wins, or the largest if `most` has a word for that.

    `values` has an entry for each of one or more candidates, None if the rules do not look. For
    people are `heading`, what is `shown`, and `because`, why the winner is preferred.
    """

    name: str
    values: Callable[[Ranking], NDArray[Any] | None]
    heading: str
    because: str
    shown: Callable[[Any], str] = str
    most: str = ""

    def text(self, score: Score) -> str:
        """A candidate's value for people, the sum of priorities as they are."""
        return self.shown(sum_of_priorities(score) if self.name == "priority_sum" else score.values[self.name])


class Ranking:
    """Candidates compared by the rules and the costs of these `victims`.

    A candidate is a number into `candidates`.
    """

    def __init__(self, candidates: Candidates, victims: PotentialVictims) -> None:
        self.candidates, self.victims = candidates, victims
        self._names = candidates.snapshot.nodes.alphabetical()[candidates.nodes]
        left = np.arange(len(self._names))
        columns = [(key, key.values(self)) for key in RANKING] if len(left) else []
        self._keys = [(key, values) for key, values in columns if values is not None]
        for key, column in self._keys:
            values = column if len(left) == len(column) else column[left]
            good = values == (values.max() if key.most else values.min())
            left = left if good.all() else left[good]
        self.equally_good: list[int] = left[np.argsort(self._names[left])].tolist()
        """The best candidates, by name; the first one is selected."""

    def cost(self, key: CostKey) -> NDArray[Any] | None:
        """What candidates cost by this key; None if it does not count."""
        costs = self.victims.costs
        if costs is None or not key.counts(costs.cost):
            return None
        return key.total(costs, self.candidates, self.victims.now)

    def best_of_nodes(self) -> Mask:
        """Which candidates are the best ones of their nodes."""
        numbers = np.array(self.first(len(self._names)), np.intp)
        _, best = np.unique(self.candidates.nodes[numbers], return_index=True)
        return np.isin(np.arange(len(numbers)), numbers[best])

    def first(self, count: int) -> Sequence[int]:
        """The first `count` candidates, best first."""
        if len(self.equally_good) >= count:
            return self.equally_good[:count]
        columns = [-values if key.most else values for key, values in reversed(self._keys)]
        order: list[int] = np.lexsort((self._names, *columns))[:count].tolist()
        return order

    def scores(self, numbers: Sequence[int]) -> list[Score]:
        """What these candidates are compared by."""
        return [
            Score(node, {key.name: values[number].item() for key, values in self._keys})
            for number, node in zip(numbers, self.candidates.names(numbers), strict=True)
        ]


def _end(of: Ranking) -> Floats | None:
    """In how many seconds the last victim is gone; kube-scheduler does not look."""
    policy, costs = of.victims.rules.policy, of.victims.costs
    if policy is None or (costs is not None and costs.cost.grace_period):
        return None
    return last_end(of.candidates, policy.grace_period_seconds, of.victims.now)


def _earliest_start(of: Ranking) -> Floats:
    """When the first victim of highest priority started, in seconds."""
    candidates, starts = of.candidates, of.candidates.starts
    started = candidates.snapshot.pods.start
    if of.victims.costs is None and candidates.units is None:  # then it stands first
        first: Floats = started[candidates.pods[starts]]
        return first
    priority = candidates.priority_of(candidates.pods)
    top = priority == np.repeat(priority[starts], candidates.sizes)
    earliest: Floats = np.minimum.reduceat(np.where(top, started[candidates.pods], np.inf), starts)
    return earliest


def sum_of_priorities(score: Score) -> int:
    """The victims' priorities summed as they are: the key raises each."""
    total: int = score.values["priority_sum"] - score.values["victims"] * PRIORITY_OFFSET
    return total


RANKING = (
    RankingKey(
        name="violations",
        values=lambda of: of.candidates.violations,
        heading="violated budgets",
        because="it violates fewer budgets",
    ),
    RankingKey(
        name="highest_priority",
        values=lambda of: of.candidates.priority_of(of.candidates.pods[of.candidates.starts]),
        heading="highest priority",
        because="its most important victim has a lower priority",
    ),
    RankingKey(
        name="groups",
        values=lambda of: of.candidates.count_of(of.candidates.group) if of.candidates.group.any() else None,
        heading="groups",
        because="fewer groups of pods go for it",
    ),
    RankingKey(
        name="priority_sum",
        values=lambda of: of.candidates.summed(of.candidates.priority_of(of.candidates.pods) + PRIORITY_OFFSET),
        heading="sum of priorities",
        because="its victims' priorities add up to less",
    ),
    RankingKey(
        name="victims",
        values=lambda of: of.candidates.sizes,
        heading="victims",
        because="it has fewer victims",
    ),
    *(RankingKey(key.name, partial(Ranking.cost, key=key), key.heading, key.because, key.text) for key in COST_KEYS),
    RankingKey(
        name="earliest_start",
        values=_earliest_start,
        heading="earliest start",
        shown=lambda start: "not started" if math.isinf(start) else rfc3339(start),
        because="its most important victims started later",
        most="later",
    ),
    RankingKey(
        name="end",
        values=_end,
        heading="gone after",
        shown=seconds,
        because="its victims are expected to be gone sooner",
    ),
    RankingKey(
        name="elsewhere",
        values=lambda of: of.candidates.elsewhere() if of.victims.rules.across else None,
        heading="victims on other nodes",
        because="fewer of its victims are on other nodes",
    ),
)
"""The keys in their order: each narrows what the ones before left. The rest is equally good.

The first by the node's name is taken, so the answer is always the same.
"""


def decisive(winner: Score, other: Score) -> str:
    """The key that decides between two candidates, by name; empty if their nodes' names do.

    The raised sum is mostly smaller for fewer victims; then these decide.
    """
    name = next((name for name, value in winner.values.items() if value != other.values[name]), "")
    fewer: bool = winner.values["victims"] < other.values["victims"]
    return "victims" if name == "priority_sum" and fewer else name


def preferred_because(winner: Score, other: Score) -> str:
    """Why the winner is preferred to the other, for people."""
    name = decisive(winner, other)
    by_name = "its name comes first; the two are equally good"
    because = next((key.because for key in RANKING if key.name == name), by_name)
    return f"{winner.node} is preferred to {other.node} because {because}"


def how_compared(headings: Collection[str]) -> str:
    """How to read columns of these headings: order, and what is better."""
    keys = {key.name: key for key in RANKING if key.heading in headings}
    order = "compared from left to right"
    raised = [keys[name].heading for name in _RAISED_SUM if name in keys]
    if len(raised) > 1:
        order += f", {' and '.join(raised)} as one"
    more = [f"for {key.heading}, {key.most} is better" for key in keys.values() if key.most]
    return "; ".join((order, "less is better", *more))


def shown_keys(score: Score) -> list[RankingKey]:
    """The keys that a candidate is compared by, as people read them.

    The number of victims stands before the sum of priorities, since it mostly decides.
    """
    names = [key.name for key in RANKING if key.name in score.values]
    names.remove("victims")
    names.insert(names.index("priority_sum"), "victims")
    by_name = {key.name: key for key in RANKING}
    return [by_name[name] for name in names]
