"""The best of the candidate nodes (docs/semantics.md D6, kube-scheduler's `pickOneNodeForPreemption`).

`RANKING` is the only place that knows by what candidates are compared, in which order, and how people are told of it;
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
from webhook.preemption.victims.costs import COST_KEYS, CostKey, VictimCosts, last_end, seconds
from webhook.preemption.victims.rules import Rules

PRIORITY_OFFSET = 2**31
"""Added to every priority in a sum, so that among negative priorities fewer pods win."""


_RAISED_SUM = ("victims", "priority_sum")
"""The keys that people read for the raised sum, in their order there."""


class Score(NamedTuple):
    """What one candidate is compared by, by the names of the keys of `RANKING`; in the sum every priority is raised."""

    node: str
    values: dict[str, Any]


class RankedCandidates(NamedTuple):
    """What is compared: the candidates, by these rules, at the time `now` in seconds, and what their victims cost."""

    candidates: Candidates
    rules: Rules
    now: float
    costs: VictimCosts | None = None

    def cost(self, key: CostKey) -> NDArray[Any] | None:
        """What each candidate's victims cost by this key; None if the policy does not count it."""
        if self.costs is None or not key.counts(self.costs.cost):
            return None
        return key.total(self.costs, self.candidates, self.now)


class RankingKey(NamedTuple):
    """One key by which candidates are compared: the smallest value wins, or the largest if `most` says a word for that.

    `values` gives one entry a candidate, of which there is at least one, or None if these rules do not look at the key.
    `heading` and what is `shown` are for people, and `because` says why the winner is preferred.
    """

    name: str
    values: Callable[[RankedCandidates], NDArray[Any] | None]
    heading: str
    because: str
    shown: Callable[[Any], str] = str
    most: str = ""

    def text(self, score: Score) -> str:
        """The key of a candidate, for people: the sum of priorities as these are."""
        return self.shown(sum_of_priorities(score) if self.name == "priority_sum" else score.values[self.name])


def _end(of: RankedCandidates) -> Floats | None:
    """In how many seconds the last victim is expected to be gone; kube-scheduler does not look."""
    candidates, rules = of.candidates, of.rules
    if rules.policy is None or (of.costs is not None and of.costs.cost.grace_period):
        return None
    return last_end(candidates, rules.policy.grace_period_seconds, of.now)


def _earliest_start(of: RankedCandidates) -> Floats:
    """When the first of the victims of highest priority started, in seconds."""
    pods, candidates = of.candidates.snapshot.pods, of.candidates
    if of.costs is None and candidates.units is None:  # then it stands first
        first: Floats = pods.start[candidates.pods[candidates.starts]]
        return first
    priority = candidates.priority_of(candidates.pods)
    top = priority == np.repeat(priority[candidates.starts], candidates.sizes)
    earliest: Floats = np.minimum.reduceat(np.where(top, pods.start[candidates.pods], np.inf), candidates.starts)
    return earliest


def sum_of_priorities(score: Score) -> int:
    """The victims' priorities added up as they are, for people: the key raises each of them."""
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
    *(
        RankingKey(key.name, partial(RankedCandidates.cost, key=key), key.heading, key.because, key.text)
        for key in COST_KEYS
    ),
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
        values=lambda of: of.candidates.elsewhere() if of.rules.across else None,
        heading="victims on other nodes",
        because="fewer of its victims are on other nodes",
    ),
)
"""The keys in their order: each narrows what the ones before left. What is left in the end is equally good.

Of these the first by the node's name is taken, so that the answer is always the same.
"""


class Ranking:
    """Candidates compared by the keys that the rules look at; a candidate is a number into `candidates`."""

    def __init__(self, candidates: Candidates, keys: list[tuple[RankingKey, NDArray[Any]]]) -> None:
        self.candidates = candidates
        self._keys = keys
        self._names = candidates.snapshot.nodes.alphabetical()[candidates.nodes]
        left = np.arange(len(self._names))
        for key, column in self._keys:
            values = column if len(left) == len(column) else column[left]
            good = values == (values.max() if key.most else values.min())
            left = left if good.all() else left[good]
        self.equally_good: list[int] = left[np.argsort(self._names[left])].tolist()
        """The best candidates, by name; the first one is selected."""

    def best_of_nodes(self) -> Mask:
        """Which candidates are the best ones of their nodes, if there are several of a node."""
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


def rank(candidates: Candidates, rules: Rules, now: float, costs: VictimCosts | None = None) -> Ranking:
    """Compare the candidates at `now`, in seconds since the epoch, by their `costs` too."""
    if not len(candidates.nodes):
        return Ranking(candidates, [])
    compared = RankedCandidates(candidates, rules, now, costs)
    columns = [(key, key.values(compared)) for key in RANKING]
    return Ranking(candidates, [(key, values) for key, values in columns if values is not None])


def decisive(winner: Score, other: Score) -> str:
    """The name of the key that decides between two candidates, empty if it is the node's name.

    The raised sum is smaller mostly because there are fewer victims; then that is what decides.
    """
    name = next((name for name, value in winner.values.items() if value != other.values[name]), "")
    fewer: bool = winner.values["victims"] < other.values["victims"]
    return "victims" if name == "priority_sum" and fewer else name


def preferred_because(winner: Score, other: Score) -> str:
    """Why the winner is preferred to the other candidate, for people."""
    name = decisive(winner, other)
    because = next(
        (key.because for key in RANKING if key.name == name), "its name comes first; the two are equally good"
    )
    return f"{winner.node} is preferred to {other.node} because {because}"


def how_compared(headings: Collection[str]) -> str:
    """How people read the columns of these headings: in which order, and what is better."""
    keys = {key.name: key for key in RANKING if key.heading in headings}
    order, raised = "compared from left to right", [keys[name].heading for name in _RAISED_SUM if name in keys]
    if len(raised) > 1:
        order += f", {' and '.join(raised)} as one"
    more = [f"for {key.heading}, {key.most} is better" for key in keys.values() if key.most]
    return "; ".join((order, "less is better", *more))


def shown_keys(score: Score) -> list[RankingKey]:
    """The keys that a candidate is compared by in the order in which people read them.

    The number of victims stands before the sum of priorities, because it mostly decides which sum is smaller.
    """
    keys = [key for key in RANKING if key.name in score.values]
    victims = next(key for key in keys if key.name == "victims")
    keys.remove(victims)
    keys.insert(next(place for place, key in enumerate(keys) if key.name == "priority_sum"), victims)
    return keys
