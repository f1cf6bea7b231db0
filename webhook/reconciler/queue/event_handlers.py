"""What the watches show, as moves of the queue: preemptors come and go, and who could be helped is tried again."""

from __future__ import annotations

from typing import Any

from webhook.kube.informer import Change
from webhook.kube.objects import Pod
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.policy_set import PolicySet
from webhook.reconciler.queue.queue import Queue, QueuedPreemptor
from webhook.reconciler.state.annotations import decision_of
from webhook.reconciler.state.preemptors import ineligible_reason, instant, is_marked, unschedulable_since
from webhook.reconciler.state.state import State
from webhook.reconciler.state.watched import WatchedKind, frees_room, makes_company, spec_changed

__all__ = ["EventHandlers"]


class EventHandlers:
    """Turns changes of the cluster into moves of the queue (docs/semantics.md F3); each says whether there is work."""

    def __init__(self, state: State, queue: Queue, policy_set: PolicySet, clock: MeasuringClock) -> None:
        self._state = state
        self._queue = queue
        self._policy_set = policy_set
        self._clock = clock

    def changed(self, kind: WatchedKind, change: Change[Any]) -> bool:
        """An object of another kind than a pod changed, and the state has taken it in."""
        return kind.helps(change) and self._queue.wake(self._clock.monotonic()) > 0

    def pod_changed(self, change: Change[Pod], *, has_plan: bool) -> bool:
        """A pod changed, for which a plan is under way or not, and the state has taken it in."""
        key, now = change.key, self._clock.monotonic()
        work = self.offer(key, change.new, has_plan=has_plan)
        if spec_changed(change):
            self._queue.wake(now, lambda entry: entry.key == key)
            work = True
        if frees_room(change):
            work = self._queue.wake(now) > 0 or work
        if makes_company(change):
            self._queue.wake(now, self._wants_company)
            work = True
        return work

    def offer(self, key: str, pod: Pod | None, *, has_plan: bool) -> bool:
        """Take a pod into the queue, or out of it; one with a plan stays until that has ended."""
        policy = self._policy_set.policy_of(pod) if pod and is_marked(pod) else None
        if pod is None or policy is None or ineligible_reason(pod, policy):
            if not has_plan:
                self._queue.remove(key)
            return False
        if (known := self._queue.get(key)) is not None and known.uid == pod.metadata.uid:
            return False
        now, wall = self._clock.monotonic(), self._clock.wall()
        since = unschedulable_since(pod) or 0.0
        waited = min(max(0.0, wall - since), policy.preemptors.delay)
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
            # An attempt of an earlier leader counts if it evicted somebody.
            entry.attempts = max(0, decision.attempt if decision.victims else decision.attempt - 1)
            entry.attempted = now - max(0.0, wall - instant(decision.at))
            entry.decay(now)
        return True

    def _wants_company(self, entry: QueuedPreemptor) -> bool:
        """Whether a pod that comes to a node could help it: it has pod affinity."""
        pod = self._state.pod(entry.key)
        return pod is not None and pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None
