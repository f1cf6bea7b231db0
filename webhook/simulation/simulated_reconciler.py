"""The reconciler in a simulated cluster: its real code, fed by the object tracker instead of list and watch.

Everything that the simulation needs to know of `webhook.reconciler` is in this file.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, cast

from prometheus_client import CollectorRegistry

from webhook.clusters.simulated.api import Api, SimulatedClient
from webhook.clusters.simulated.clock import VirtualClock
from webhook.clusters.simulated.history import SimulationHistory
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.client import Client
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.reconciler.evaluate.outcomes import Fits, Outcome, Unschedulable
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.queue.queue import QueueState
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Line, ReconcilerMetrics, Reporter
from webhook.reconciler.state.state import State


class _Reporter(Reporter):
    """Notes when time alone may change what was found for a preemptor."""

    def __init__(self, history: SimulationHistory) -> None:
        super().__init__(ReconcilerMetrics(CollectorRegistry()), self._hear, None)
        self._history = history
        self.waits_for_time: dict[str, bool] = {}

    def evaluated(self, pod: Pod, outcome: Outcome, plan: Plan | None, **more: Any) -> None:
        """A preemptor was evaluated."""
        waits = outcome.due is not None if isinstance(outcome, Unschedulable) else isinstance(outcome, Fits)
        self.waits_for_time[key_of(pod)] = waits
        super().evaluated(pod, outcome, plan, **more)

    def _hear(self, message: str, **line: Any) -> None:
        """Take a line of the log."""
        match message:
            case Line.DECISION:
                self._history.decided(line)
            case Line.PLAN_ENDED:
                self._history.endings[line["ending"]] += 1
            case Line.BUDGET_REFUSED:
                self._history.budget_refusals += 1


class SimulatedReconciler:
    """One reconciler that leads from the start."""

    def __init__(self, api: Api, policies: Policies, clock: VirtualClock) -> None:
        client = cast("Client", SimulatedClient(api, "giveway"))
        policy_set = PolicySet(policies)
        self._state = State(client, policy_set.annotations())
        for resource, informer in self._state.caches.items():
            api.tracker.cache(resource).followers.append(informer)
        self._reporter = _Reporter(api.history)
        self._reconciler = Reconciler(client, self._state, policy_set, self._reporter, clock, fence=lambda: math.inf)
        self.run = self._reconciler.lead
        """Lead until cancelled."""
        self.use = self._reconciler.use
        """Take other policies into use."""

    def is_at_rest(self) -> bool:
        """Whether no plan is under way and every preemptor waits for an event, so that time alone changes nothing."""
        return not len(self._reconciler.plans) and all(
            entry.state is QueueState.UNSCHEDULABLE and not self._reporter.waits_for_time.get(entry.key, True)
            for entry in self._reconciler.queue.entries.values()
        )

    def why(self, key: str) -> str:
        """Why nothing is done for a preemptor; empty for a pod that is none."""
        entry = self._reconciler.queue.entries.get(key)
        return entry.reason if entry is not None else ""

    def minimums(self) -> dict[GroupKey, int]:
        """How many members groups need, where a PodGroup says it."""
        known = self._state.snapshot.pods.grouped.objects
        return {key: group.minimum for key, group in known.items() if group.minimum}

    def policy_of(self, pod: Any) -> str:
        """The name of the policy that manages a pod; empty without one."""
        policy = self._reconciler.policy_set.policy_of(pod)
        return policy.name if policy else ""


def offline_state(objects: ClusterObjects, annotations: Collection[str]) -> State:
    """The state of a reconciler that has listed these objects and will hear of nothing more."""
    state = State(cast("Client", None), annotations)
    for resource, cache in state.caches.items():
        for key, item in objects.of(resource.title).items():
            cache.take(key, item)
        cache.synced.set()
    return state
