"""That nothing helps preemptors of one shape: found once, and true for all of them for a while.

Thousands of preemptors wait for the same in a full cluster. What a decision says depends on what a pod asks for, not on
its name, so the verdict on one is the verdict on all. It holds until something happens that could help. During the
back-off of the pod that was tried it holds even then. So a shape costs as many decisions as one pod.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from webhook.kube.bounded import Newest
from webhook.reconciler.evaluate.outcomes import Unschedulable

_LONGEST = 30.0
"""Seconds for which a verdict holds at most: the flush of the queue."""
_REMEMBERED = 10_000

Key = tuple[Hashable, ...]
"""The name of a policy, and what it and a decision read of a preemptor: its shape."""


class Moment(NamedTuple):
    """Monotonic seconds, how much has happened so far that could help, and the seconds that the pod backs off for."""

    now: float
    events: int
    back_off: float


class _Verdict(NamedTuple):
    outcome: Unschedulable
    events: int
    retried: float
    until: float


class Verdicts:
    """The verdicts that hold, by policy and shape."""

    def __init__(self) -> None:
        self._known: Newest[Key, _Verdict] = Newest(_REMEMBERED)

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all of them: the rules have changed."""
        self._known.clear()

    def find(self, shape: Key, moment: Moment) -> Unschedulable | None:
        """The verdict that holds now, None if there is none.

        If something has happened since that could help, it says when to look again.
        """
        known = self._known.get(shape)
        if known is None or moment.now >= known.until:
            return None
        if known.events == moment.events:
            return known.outcome
        if moment.now >= known.retried:
            return None
        again, due = max(known.retried, moment.now + moment.back_off), known.outcome.due
        return replace(known.outcome, due=again if due is None else min(due, again))

    def note(self, shape: Key, moment: Moment, outcome: object) -> None:
        """What was decided for a preemptor of this shape."""
        self._known.pop(shape, None)
        if isinstance(outcome, Unschedulable):
            until = moment.now + _LONGEST if outcome.due is None else min(moment.now + _LONGEST, outcome.due)
            self._known[shape] = _Verdict(outcome, moment.events, moment.now + moment.back_off, until)
