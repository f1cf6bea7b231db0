"""The best of the candidate nodes (docs/semantics.md D6, kube-scheduler's `pickOneNodeForPreemption`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.result import Candidate, Score
from webhook.preemption.snapshot.nodes import alphabetical

__all__ = ["Keys", "best", "decisive", "in_order", "keys_of", "preferred_because", "sum_of_priorities"]

Ints = NDArray[np.int64]

PRIORITY_OFFSET = 2**31
"""Added to every priority in a sum, so that among negative priorities fewer pods win."""
_FIELDS = ("violations", "highest_priority", "priority_sum", "victims", "earliest_start", "end")
_BECAUSE = {
    "violations": "it violates fewer budgets",
    "highest_priority": "its most important victim has a lower priority",
    "priority_sum": "its victims' priorities add up to less",
    "victims": "it has fewer victims",
    "earliest_start": "its most important victims started later",
    "end": "its victims are expected to be gone sooner",
    "": "its name comes first; the two are equally good",
}
"""By the field of a Score in which two candidates differ first, why the one that is smaller there is preferred."""


class Keys(NamedTuple):
    """What candidates are compared by, one entry a candidate; times in seconds, names as places in the alphabet."""

    violations: Ints
    highest_priority: Ints
    priority_sum: Ints
    victims: Ints
    earliest_start: NDArray[np.float64]
    name: Ints
    end: NDArray[np.float64] | None = None
    """Seconds until the last victim is expected to be gone; None if candidates are not compared by it."""

    def score(self, number: int, node: str) -> Score:
        """What one candidate is compared by."""
        return Score(
            node,
            int(self.violations[number]),
            int(self.highest_priority[number]),
            int(self.priority_sum[number]),
            int(self.victims[number]),
            float(self.earliest_start[number]),
            None if self.end is None else float(self.end[number]),
        )


def best(keys: Keys) -> list[int]:
    """The candidates in the order of preference that counts: each key narrows what the ones before left.

    1. fewest violated budgets
    2. lowest priority of the most important victim
    3. smallest sum of priorities, each raised by 2**31
    4. fewest victims
    5. latest start among the earliest started of each candidate's victims of highest priority
    6. earliest expected end of the last victim, if that is known; kube-scheduler does not look at it
    7. what is left is equally good; the first by node name is taken, so that the answer is always the same

    Returns the equally good ones by name.
    """
    good = _equally_good(keys)
    by_name: list[int] = good[np.argsort(keys.name[good])].tolist()
    return by_name


def in_order(keys: Keys, count: int) -> list[int]:
    """The first `count` candidates by the same keys, best first."""
    order: list[int] = np.lexsort((keys.name, *reversed(_columns(keys))))[:count].tolist()
    return order


def sum_of_priorities(score: Score) -> int:
    """The victims' priorities added up as they are, for people: the key raises each of them."""
    return score.priority_sum - score.victims * PRIORITY_OFFSET


def decisive(winner: Score, other: Score) -> str:
    """The field of the two scores that decides between them, empty if it is the node's name.

    The raised sum is smaller mostly because there are fewer victims; then that is what decides.
    """
    pairs = zip(_FIELDS, winner.key, other.key, strict=False)
    field = next((name for name, own, others in pairs if own != others), "")
    return "victims" if field == "priority_sum" and winner.victims < other.victims else field


def preferred_because(winner: Score, other: Score) -> str:
    """Why the winner is preferred to the other candidate, for people."""
    return f"{winner.node} is preferred to {other.node} because {_BECAUSE[decisive(winner, other)]}"


def _equally_good(keys: Keys) -> NDArray[np.intp]:
    left = np.arange(len(keys.victims))
    for column in _columns(keys) if len(left) else ():
        values = column if len(left) == len(column) else column[left]
        good = values == values.min()
        left = left if good.all() else left[good]
    return left


def _columns(keys: Keys) -> tuple[NDArray[Any], ...]:
    """The numbered keys of `best`, each better the smaller it is."""
    own = (keys.violations, keys.highest_priority, keys.priority_sum, keys.victims, -keys.earliest_start)
    return own if keys.end is None else (*own, keys.end)


def keys_of(candidates: list[Candidate]) -> Keys:
    """The keys of candidates given as objects, as extenders return them; each has at least one victim."""
    highest = [max(victim.priority for victim in candidate.victims) for candidate in candidates]
    return Keys(
        violations=np.array([candidate.pdb_violations for candidate in candidates], np.int64),
        highest_priority=np.array(highest, np.int64),
        priority_sum=np.array([sum(v.priority + PRIORITY_OFFSET for v in c.victims) for c in candidates], np.int64),
        victims=np.array([len(candidate.victims) for candidate in candidates], np.int64),
        earliest_start=np.array(
            [
                min(victim.start_time for victim in candidate.victims if victim.priority == top)
                for candidate, top in zip(candidates, highest, strict=True)
            ],
            np.float64,
        ),
        name=alphabetical([candidate.node for candidate in candidates]),
    )
