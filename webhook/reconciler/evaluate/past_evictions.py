"""What the evictions of the past mean for one preemptor: who was evicted recently, and whose evictor it would evict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.limits import CycleKeeper
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Unschedulable, Waits
from webhook.reconciler.evictions.log import BARE, EvictionLog, name_of
from webhook.reconciler.state.state import State

_SHOWN = 3


class PastEvictions:
    """The log of evictions as a decision under a policy counts it; `now` is in monotonic seconds.

    `pods` is the preemptor, or the members of a gang that are placed together. A preemptor of workload A closes a cycle
    if pods of A were evicted for B within the policy's window, and it would evict pods of B. The chain may be longer:
    pods of B were evicted for C, and it would evict pods of C. `stay` are the pods, by row, that the policy keeps
    because of that, None if there are none.
    """

    def __init__(
        self, state: State, log: EvictionLog, pods: Iterable[Pod], policy: PreemptionPolicy, now: float
    ) -> None:
        self._state, self._log, self._now = state, log, now
        self._recent, self._within = policy.victims.cost.recent_evictions, policy.limits.cycles.window
        own = dict.fromkeys(workload for pod in pods if (workload := workload_of(pod)))
        self._evictors: dict[str, str] = {}
        for workload in own:
            evictors = log.evictors(workload, self._within, now)
            self._evictors |= {
                key: evicted for key, evicted in evictors.items() if key not in {**own, **self._evictors}
            }
        self.stay: NDArray[np.bool_] | None = None
        if self._evictors and policy.limits.cycles.keep is CycleKeeper.EVICTOR:
            self.stay = np.zeros(state.snapshot.pods.rows, np.bool_)
            for evictor in self._evictors:
                self.stay[state.snapshot.pod_rows(self._pods_of(evictor))] = True

    def _pods_of(self, evictor: str) -> list[str]:
        """The pods of an evictor by `namespace/name`: those of a workload, or the bare pod of that name."""
        bare = [evictor.removeprefix(BARE)] if evictor.startswith(BARE) else []
        return [*self._state.index.owned.get(evictor, ()), *bare]

    def evicted_lately(self) -> NDArray[np.int64] | None:
        """How often the workload of each pod, by row, was evicted recently; None if the policy does not count it."""
        if self._recent is None:
            return None
        snapshot = self._state.snapshot
        column = np.zeros(snapshot.pods.rows, np.int64)
        for workload, count in self._log.counts(self._recent, self._now).items():
            column[snapshot.pod_rows(self._state.index.owned.get(workload, ()))] = count
        return column

    def closed_by(self, outcome: Evicts) -> Evicts:
        """The outcome with the cycles that it closes, if it closes any."""
        closed = sorted(set(map(name_of, outcome.victims)) & self._evictors.keys())
        return replace(outcome, cycles=tuple(map(self._cycle, closed))) if closed else outcome

    def kept_from(self, outcome: Unschedulable) -> Unschedulable:
        """The outcome. If pods stay so that no cycle is closed, it says so."""
        if self.stay is None or not self.stay.any():
            return outcome
        names = ", ".join(list(self._evictors)[:_SHOWN])
        why = f"pods of {names} stay, for which pods of its own workload were evicted within {self._within:g} s"
        return replace(outcome, reason=f"{outcome.reason.rstrip('.')}; {why}", limited=True)

    def told_of(self, outcome: Outcome) -> Outcome:
        """The outcome for one preemptor, with what there is to tell of cycles."""
        match outcome:
            case Evicts():
                return self.closed_by(outcome)
            case Unschedulable():
                return self.kept_from(outcome)
            case Fits() | Waits() | Asks():
                return outcome

    def _cycle(self, evictor: str) -> tuple[str, ...]:
        """From an evictor back to the preemptor's own workload, each evicted for the one before."""
        cycle = [evictor]
        while evicted := self._evictors.get(cycle[-1]):
            cycle.append(evicted)
        return tuple(cycle)
