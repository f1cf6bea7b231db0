"""What the evictions of the past mean for one preemptor: who was evicted recently, and whose evictor it would evict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model import CycleKeeper, PreemptionPolicy
from webhook.reconciler.evaluate.outcomes import Evicts, Outcome, Unschedulable
from webhook.reconciler.evaluate.workload_history import WorkloadHistory
from webhook.reconciler.state.state import State

__all__ = ["PastEvictions"]


class PastEvictions:
    """The history of evictions as a decision for one preemptor under a policy counts it; `now` is in monotonic seconds.

    A cycle is a preemptor that would evict pods of a workload for which pods of its own workload were evicted within
    the policy's window. `stay` are the pods, by row, that the policy keeps because of that, None if there are none.
    """

    def __init__(self, state: State, history: WorkloadHistory, pod: Pod, policy: PreemptionPolicy, now: float) -> None:
        self._state, self._history, self._now = state, history, now
        self._recent, self._within = policy.victims.cost.recent_evictions, policy.limits.cycles.window
        own = workload_of(pod)
        self._evictors = history.evictors(own, self._within, now) - {own} if own else frozenset[str]()
        self.stay: NDArray[np.bool_] | None = None
        if self._evictors and policy.limits.cycles.keep is CycleKeeper.EVICTOR:
            self.stay = np.zeros(state.snapshot.pods.rows, np.bool_)
            for evictor in self._evictors:
                self.stay[state.snapshot.pod_rows(state.index.owned.get(evictor, ()))] = True

    def evicted_lately(self) -> NDArray[np.int64] | None:
        """How often the workload of each pod, by row, was evicted recently; None if the policy does not count it."""
        if self._recent is None:
            return None
        snapshot = self._state.snapshot
        column = np.zeros(snapshot.pods.rows, np.int64)
        for workload, count in self._history.counts(self._recent, self._now).items():
            column[snapshot.pod_rows(self._state.index.owned.get(workload, ()))] = count
        return column

    def told_of(self, outcome: Outcome) -> Outcome:
        """The outcome, which says if it closes a cycle, or if pods stay so that none is closed."""
        if isinstance(outcome, Evicts):
            closed = sorted({workload_of(victim) for victim in outcome.victims} & self._evictors)
            return replace(outcome, cycle=tuple(closed)) if closed else outcome
        if isinstance(outcome, Unschedulable) and self.stay is not None and self.stay.any():
            names = ", ".join(sorted(self._evictors)[:3])
            why = f"pods of {names} stay, for which pods of its own workload were evicted within {self._within:g} s"
            return replace(outcome, reason=f"{outcome.reason.rstrip('.')}; {why}", limited=True)
        return outcome
