"""The cluster and the past as decisions and looks at plans ask for them: who leaves, who goes in vain, what fits."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from webhook.kube.objects.pod import Pod
from webhook.preemption.decision import fits_on
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.reconciler.clock import MeasuringClock, Now
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.preemptors import SchedulerActivity
from webhook.reconciler.state.state import State

_OVERDUE = 60.0
"""Seconds after which a pod that should be gone is not counted on any more."""


class Evaluator:
    """The cluster and the past, and what they mean for a preemptor."""

    def __init__(self, state: State, log: EvictionLog, clock: MeasuringClock) -> None:
        self.state = state
        self.log = log
        self.schedulers = SchedulerActivity()
        self.clock = clock
        self._asked: dict[tuple[int, str, bytes], tuple[Pod, bool]] = {}
        """What was asked since the last event: which pod fits on which node without which others."""
        self._asked_at = -1

    def exclusions(self, now: float) -> Mask:
        """The pods, by row, that go on running however often they are evicted, by what was seen.

        The API server refused to remove them, or their owners put them back.
        """
        refused, owners = self.log.excluded(now)
        return mask_of(self.state, np.append(self.state.snapshot.pod_rows(refused), self.owned(owners)))

    def owned(self, owners: Iterable[str]) -> Rows:
        """The rows of the pods of these owners that are on nodes."""
        known = self.state.index.owned
        return self.state.snapshot.pod_rows([key for owner in owners for key in known.get(owner, ())])

    def room_within(self, seconds: float, at: Now) -> Rows:
        """Rows of pods whose room comes up by then. An owner that puts its pods back takes their room at once."""
        rows, (_, owners) = self.leaving_within(seconds, at), self.log.excluded(at.monotonic)
        return np.setdiff1d(rows, self.owned(owners), assume_unique=True) if len(rows) else rows

    def leaving_within(self, seconds: float, at: Now) -> Rows:
        """The rows of the pods that will be gone from their nodes by then; a long overdue pod is not counted on."""
        pods = self.state.snapshot.pods
        rows = pods.leaving()
        ends = pods.gone_at[rows]
        leaving: Rows = rows[(at.wall - _OVERDUE <= ends) & (ends <= at.wall + seconds)]
        return leaving

    def has_room(self, pod: Pod, node: str, *, but: Collection[str] = ()) -> bool:
        """Whether the pod fits on the node once every pod that is leaving is gone, and `but` for these pods."""
        snapshot = self.state.snapshot
        gone, later = snapshot.pods.leaving(), snapshot.pod_rows(but)
        return self.fits_on(pod, node, np.union1d(gone, later) if len(later) else gone)

    def fits_on(self, pod: Pod, node: str, without: Rows = NO_PODS) -> bool:
        """Whether the pod fits without the pods in these rows: worked out once between two events, for the same pod."""
        snapshot = self.state.snapshot
        if self._asked_at != snapshot.version:
            self._asked_at = snapshot.version
            self._asked.clear()
        question = id(pod), node, without.tobytes()
        if question not in self._asked:
            self._asked[question] = pod, fits_on(snapshot, pod, node, without=without)  # the pod, so that its id stays
        return self._asked[question][1]


def mask_of(state: State, rows: Rows) -> Mask:
    """The pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask
