"""What a decision says: where the pod fits, what stands in its way elsewhere, who would have to go, and who goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.victims.eligible import ExcludedPod
from webhook.preemption.victims.rules import VictimReason

__all__ = ["Candidate", "Decision", "Score", "StaleDecisionError", "Victim"]


class StaleDecisionError(RuntimeError):
    """The snapshot changed since the decision; only `selected` and what was read before can still be read."""


class Victim(NamedTuple):
    """A pod that would go; `start_time` is in seconds, infinite for one that has not started."""

    namespace: str
    name: str
    uid: str
    priority: int
    start_time: float
    node: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Candidate(NamedTuple):
    """A node that the preemptor fits on once the victims, most important first, are gone."""

    node: str
    victims: list[Victim]
    pdb_violations: int


class Score(NamedTuple):
    """What a candidate is compared by (docs/semantics.md D6); in the sum every priority is raised by 2**31; seconds."""

    node: str
    violations: int
    highest_priority: int
    priority_sum: int
    victims: int
    earliest_start: float
    end: float | None = None
    """Seconds until the last victim is expected to be gone; None if candidates are not compared by it."""

    @property
    def key(self) -> tuple[float, ...]:
        """The numbers to compare in this order, smaller is better."""
        own = (self.violations, self.highest_priority, self.priority_sum, self.victims, -self.earliest_start)
        return own if self.end is None else (*own, self.end)


class Source(NamedTuple):
    """Where a decision's longer parts come from when they are read."""

    version: Callable[[], int]
    fits: Callable[[], list[str]]
    unresolvable: Callable[[], list[str]]
    node_reasons: Callable[[], dict[str, str]]
    fits_without: Callable[[NDArray[np.intp]], list[str]]
    candidates: Callable[[], list[Candidate]]
    shortlist: Callable[[int], list[Candidate]]
    scores: Callable[[int], list[Score]]
    equally_good: Callable[[], list[str]]
    excluded: Callable[[str], list[ExcludedPod]]
    victim_reason: Callable[[str], VictimReason]


class Decision:
    """The outcome for one preemptor.

    `eligible` and `reason` say whether it may preempt at all; `selected` is the plan, one of `candidate_count`. The
    lists over all nodes are made when they are first read, and raise StaleDecisionError if the snapshot has changed by
    then. `rejections` are the codes by which the caller's filter rejected candidates.
    """

    def __init__(
        self,
        source: Source,
        *,
        eligible: bool,
        reason: str,
        selected: Candidate | None,
        candidate_count: int = 0,
        rejections: frozenset[int] = frozenset(),
    ) -> None:
        self.eligible = eligible
        self.reason = reason
        self.selected = selected
        self.candidate_count = candidate_count
        self.rejections = rejections
        self._source = source
        self._version = source.version()
        self._fits: list[str] | None = None
        self._unresolvable: list[str] | None = None
        self._candidates: list[Candidate] | None = None
        self._node_reasons: dict[str, str] | None = None

    @property
    def fits(self) -> list[str]:
        """Nodes on which the pod fits without preemption, sorted."""
        if self._fits is None:
            self._fits = self._fresh().fits()
        return self._fits

    def fits_without(self, gone: NDArray[np.intp]) -> list[str]:
        """Nodes on which the pod would fit were the pods in these rows, all of them on nodes, gone; sorted."""
        return self._fresh().fits_without(gone)

    @property
    def unresolvable(self) -> list[str]:
        """Nodes on which no preemption could help, sorted."""
        if self._unresolvable is None:
            self._unresolvable = self._fresh().unresolvable()
        return self._unresolvable

    @property
    def candidates(self) -> list[Candidate]:
        """Every node that preemption would make room on, sorted by name; none if the pod fits or is not eligible."""
        if self._candidates is None:
            self._candidates = self._fresh().candidates()
        return self._candidates

    def shortlist(self, count: int) -> list[Candidate]:
        """The first `count` candidates in the order of preference; far cheaper than all of them."""
        return self._fresh().shortlist(count)

    def scores(self, count: int) -> list[Score]:
        """What the first `count` candidates are compared by; cheaper still than the candidates."""
        return self._fresh().scores(count)

    @property
    def equally_good(self) -> list[str]:
        """The nodes that are as good as the selected one, itself included; the first by name was taken."""
        return self._fresh().equally_good()

    @property
    def node_reasons(self) -> dict[str, str]:
        """Why the pod does not fit on a node, in kube-scheduler's words, by node name."""
        if self._node_reasons is None:
            self._node_reasons = self._fresh().node_reasons()
        return self._node_reasons

    def excluded(self, node: str) -> list[ExcludedPod]:
        """The pods on a node that may not be victims, most important first, each with the rule that excludes it."""
        return self._fresh().excluded(node)

    def victim_reason(self, victim: str) -> VictimReason:
        """By which `policy/rule` the victim `namespace/name` may go."""
        return self._fresh().victim_reason(victim)

    def _fresh(self) -> Source:
        if self._source.version() != self._version:
            raise StaleDecisionError("the snapshot has changed since this decision was made: decide again")
        return self._source
