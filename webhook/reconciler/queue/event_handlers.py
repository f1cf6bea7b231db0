"""What the watches show, taken in: preemptors come to the queue and go, who could be helped wakes, plans hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.kube.informer import Change
from webhook.kube.objects import Node, Pod
from webhook.reconciler.clock import Clock
from webhook.reconciler.plans.plan import Plans
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.policy_set import PolicySet
from webhook.reconciler.queue import queueing_hints
from webhook.reconciler.queue.queue import Entry, Queue
from webhook.reconciler.state.annotations import decision_of
from webhook.reconciler.state.preemptors import ineligible_reason, instant, is_marked, unschedulable_since
from webhook.reconciler.state.state import State

__all__ = ["EventHandlers"]


class EventHandlers:
    """Turns changes of the cluster into moves of the queue (docs/semantics.md F3). Calls `wake` if there is work."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        plans: Plans,
        *,
        plan_manager: PlanManager,
        clock: Clock,
        policy_set: Callable[[], PolicySet],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._queue = queue
        self._plans = plans
        self._plan_manager = plan_manager
        self._clock = clock
        self._policy_set = policy_set
        self._work_arrived = wake

    def changed(self, kind: str, change: Change[Any]) -> None:
        """An object of this kind changed, and the state has taken it in."""
        if kind == "pod":
            self._pod_changed(change)
        elif kind == "node":
            self._node_changed(change)
        elif queueing_hints.budget_helps(change) if kind == "budget" else queueing_hints.relevant_difference(change):
            self._wake()

    def _pod_changed(self, change: Change[Pod]) -> None:
        key, new = change.key, change.new
        self._plan_manager.pod_changed(key, new)
        self.offer(key, new)
        if queueing_hints.pod_changed(change):
            self._queue.wake(self._clock.monotonic(), lambda entry: entry.key == key)
            self._work_arrived()
        if queueing_hints.frees_room(change):
            self._wake()
        if queueing_hints.makes_company(change):
            self._crowded(change)
        elif new is not None and new.status.nominated_node_name and not new.spec.node_name:
            before = change.old.status.nominated_node_name if change.old else ""
            if before != new.status.nominated_node_name and self._plans.get(key) is None:
                self._plan_manager.touch(new.status.nominated_node_name, new)

    def _crowded(self, change: Change[Pod]) -> None:
        """A pod came to a node: the plans there may have lost their room, and who wants company may have found it."""
        assert change.new is not None
        self._plan_manager.touch(change.new.spec.node_name, change.new)
        self._queue.wake(self._clock.monotonic(), self._wants_company)
        self._work_arrived()

    def _node_changed(self, change: Change[Node]) -> None:
        if queueing_hints.node_helps(change):
            self._wake()
        if change.new is None or queueing_hints.node_helps(change):
            self._plan_manager.touch(change.key)

    def _wake(self) -> None:
        if self._queue.wake(self._clock.monotonic()):
            self._work_arrived()

    def _wants_company(self, entry: Entry) -> bool:
        pod = self._state.pod(entry.key)
        return pod is not None and pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None

    def offer(self, key: str, pod: Pod | None) -> None:
        """Take a pod into the queue, or out of it."""
        policy = self._policy_set().policy_of(pod) if pod and is_marked(pod) else None
        if pod is None or policy is None or ineligible_reason(pod, policy):
            if key in self._queue and self._plans.get(key) is None:
                self._queue.remove(key)
            return
        if (known := self._queue.get(key)) is not None and known.uid == pod.metadata.uid:
            return
        now = self._clock.monotonic()
        since = unschedulable_since(pod) or 0.0
        waited = min(max(0.0, self._clock.wall() - since), policy.preemptors.delay)
        entry = self._queue.offer(
            key,
            uid=pod.metadata.uid,
            priority=pod.spec.priority or 0,
            created=since,
            now=now,
            due=now + policy.preemptors.delay - waited,
        )
        decision = decision_of(pod)
        if decision is not None:
            entry.attempts = max(0, decision.attempt if decision.victims else decision.attempt - 1)
            entry.attempted = now - max(0.0, self._clock.wall() - instant(decision.at))
            entry.decay(now)
        self._work_arrived()
