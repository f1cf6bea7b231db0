"""The best of the candidate nodes (docs/semantics.md D6, kube-scheduler's `pickOneNodeForPreemption`).

`RANKING` is the only place that knows by what candidates are compared, in which order, and how people are told of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import rfc3339
from webhook.preemption.victims.candidates import Candidates
from webhook.preemption.victims.rules import Rules

__all__ = ["RANKING", "Ranking", "Score", "decisive", "preferred_because", "rank", "shown_keys", "sum_of_priorities"]

PRIORITY_OFFSET = 2**31
"""Added to every priority in a sum, so that among negative priorities fewer pods win."""


class Score(NamedTuple):
    """What one candidate is compared by, by the names of the keys of `RANKING`; in the sum every priority is raised."""

    node: str
    values: dict[str, Any]


class RankingKey(NamedTuple):
    """One key by which candidates are compared: the smallest value wins, or the largest if `most` is set.

    `values` gives one entry a candidate, of which there is at least one, at the time `now`, in seconds, or None if
    these rules do not look at the key. `heading` and `text` show it to people, and `because` says why the winner is
    preferred.
    """

    name: str
    values: Callable[[Candidates, Rules, float], NDArray[Any] | None]
    heading: str
    text: Callable[[Score], str]
    because: str
    most: bool = False


def _end(candidates: Candidates, rules: Rules, now: float) -> NDArray[np.float64] | None:
    """In how many seconds the last victim is expected to be gone; kube-scheduler does not look at it.

    A pod that is asked now stays for its grace period, or for the policy's. A pod that leaves already stays for the
    rest of it.
    """
    if rules.policy is None:
        return None
    pods, rows = candidates.snapshot.pods, candidates.pods
    given = rules.policy.grace_period
    graces = pods.grace[rows] if given is None else np.full(len(rows), given, np.float64)
    ends = np.where(pods.terminating[rows], np.maximum(pods.gone_at[rows] - now, 0.0), graces)
    latest: NDArray[np.float64] = np.maximum.reduceat(ends, candidates.starts)
    return latest


def sum_of_priorities(score: Score) -> int:
    """The victims' priorities added up as they are, for people: the key raises each of them."""
    total: int = score.values["priority_sum"] - score.values["victims"] * PRIORITY_OFFSET
    return total


RANKING = (
    RankingKey(
        name="violations",
        values=lambda candidates, _rules, _now: candidates.violations,
        heading="violated budgets",
        text=lambda score: str(score.values["violations"]),
        because="it violates fewer budgets",
    ),
    RankingKey(
        name="highest_priority",
        values=lambda candidates, _rules, _now: candidates.priority_of(candidates.pods[candidates.starts]),
        heading="highest priority",
        text=lambda score: str(score.values["highest_priority"]),
        because="its most important victim has a lower priority",
    ),
    RankingKey(
        name="groups",
        values=lambda candidates, _rules, _now: candidates.costs.groups if candidates.costs else None,
        heading="groups",
        text=lambda score: str(score.values["groups"]),
        because="fewer groups of pods go for it",
    ),
    RankingKey(
        name="priority_sum",
        values=lambda candidates, _rules, _now: candidates.priority_sums(PRIORITY_OFFSET),
        heading="sum of priorities",
        text=lambda score: str(sum_of_priorities(score)),
        because="its victims' priorities add up to less",
    ),
    RankingKey(
        name="victims",
        values=lambda candidates, _rules, _now: candidates.victim_counts(),
        heading="victims",
        text=lambda score: str(score.values["victims"]),
        because="it has fewer victims",
    ),
    RankingKey(
        name="earliest_start",
        values=lambda candidates, _rules, _now: candidates.snapshot.pods.start[candidates.pods[candidates.starts]],
        heading="earliest start",
        text=lambda score: (
            "not started" if math.isinf(score.values["earliest_start"]) else rfc3339(score.values["earliest_start"])
        ),
        because="its most important victims started later",
        most=True,
    ),
    RankingKey(
        name="end",
        values=_end,
        heading="gone after",
        text=lambda score: "unknown" if math.isinf(score.values["end"]) else f"{score.values['end']:.0f} s",
        because="its victims are expected to be gone sooner",
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
            found = column if len(left) == len(column) else column[left]
            good = found == (found.max() if key.most else found.min())
            left = left if good.all() else left[good]
        self.equally_good: list[int] = left[np.argsort(self._names[left])].tolist()
        """The best candidates, by name; the first one is selected."""

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


def rank(candidates: Candidates, rules: Rules, now: float) -> Ranking:
    """Compare the candidates; `now` is in seconds since the epoch."""
    if not len(candidates.nodes):
        return Ranking(candidates, [])
    columns = [(key, key.values(candidates, rules, now)) for key in RANKING]
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


def shown_keys(score: Score) -> list[RankingKey]:
    """The keys that a candidate is compared by in the order in which people read them.

    The number of victims stands before the sum of priorities, because it mostly decides which sum is smaller.
    """
    keys = [key for key in RANKING if key.name in score.values]
    victims = next(key for key in keys if key.name == "victims")
    keys.remove(victims)
    keys.insert(next(place for place, key in enumerate(keys) if key.name == "priority_sum"), victims)
    return keys
