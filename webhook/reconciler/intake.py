"""What the watches show, taken in: preemptors come to the queue and go, who could be helped wakes, plans hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.kube.cache import Change
from webhook.kube.objects import Node, Pod
from webhook.reconciler import waking
from webhook.reconciler.book import PolicyBook
from webhook.reconciler.candidates import instant, is_marked, standing, unschedulable_since
from webhook.reconciler.clock import Clock
from webhook.reconciler.plans import Plans
from webhook.reconciler.queue import Entry, Queue
from webhook.reconciler.record import decision_of
from webhook.reconciler.state import State
from webhook.reconciler.tending import Tender

__all__ = ["Intake"]


class Intake:
    """Turns changes of the cluster into moves of the queue (docs/semantics.md F3). Calls `stir` if there is work."""

    def __init__(
        self,
        state: State,
        queue: Queue,
        plans: Plans,
        *,
        tender: Tender,
        clock: Clock,
        book: Callable[[], PolicyBook],
        stir: Callable[[], None],
    ) -> None:
        self._state = state
        self._queue = queue
        self._plans = plans
        self._tender = tender
        self._clock = clock
        self._book = book
        self._stir = stir

    def changed(self, kind: str, change: Change[Any]) -> None:
        """An object of this kind changed, and the state has taken it in."""
        if kind == "pod":
            self._pod_changed(change)
        elif kind == "node":
            self._node_changed(change)
        elif waking.budget_helps(change) if kind == "budget" else waking.relevant_difference(change):
            self._wake()

    def _pod_changed(self, change: Change[Pod]) -> None:
        key, new = change.key, change.new
        self._tender.pod_changed(key, new)
        self.offer(key, new)
        if waking.pod_changed(change):
            self._queue.wake(self._clock.monotonic(), lambda entry: entry.key == key)
            self._stir()
        if waking.frees_room(change):
            self._wake()
        if waking.makes_company(change):
            self._crowded(change)
        elif new is not None and new.status.nominated_node_name and not new.spec.node_name:
            before = change.old.status.nominated_node_name if change.old else ""
            if before != new.status.nominated_node_name and self._plans.get(key) is None:
                self._tender.touch(new.status.nominated_node_name, new)

    def _crowded(self, change: Change[Pod]) -> None:
        """A pod came to a node: the plans there may have lost their room, and who wants company may have found it."""
        assert change.new is not None
        self._tender.touch(change.new.spec.node_name, change.new)
        self._queue.wake(self._clock.monotonic(), self._wants_company)
        self._stir()

    def _node_changed(self, change: Change[Node]) -> None:
        if waking.node_helps(change):
            self._wake()
        if change.new is None or waking.node_helps(change):
            self._tender.touch(change.key)

    def _wake(self) -> None:
        if self._queue.wake(self._clock.monotonic()):
            self._stir()

    def _wants_company(self, entry: Entry) -> bool:
        pod = self._state.pod(entry.key)
        return pod is not None and pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None

    def offer(self, key: str, pod: Pod | None) -> None:
        """Take a pod into the queue, or out of it."""
        policy = self._book().policy_of(pod) if pod and is_marked(pod) else None
        if pod is None or policy is None or standing(pod, policy):
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
        self._stir()
