"""What the watches show, as moves of the queue: preemptors come and go, and who could be helped is tried again.

Which changes could help a preemptor that found no room is said by the hints of docs/semantics.md F3, which
kube-scheduler calls queueing hints. They are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from webhook.kube.instants import epoch_or
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, NODES, SnapshotKind
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.preemptors import PolicySet, unschedulable_since
from webhook.reconciler.queue.queue import Queue
from webhook.reconciler.state.annotations import decision_of, not_own


class EventHandlers:
    """Turns changes of the cluster into moves of the queue (docs/semantics.md F3); each says whether there is work."""

    def __init__(self, queue: Queue, policy_set: PolicySet, clock: MeasuringClock) -> None:
        self._queue = queue
        self._policy_set = policy_set
        self._clock = clock
        self._wanting_company: dict[str, None] = {}
        """Preemptors with pod affinity: a pod that comes to a node may be what they want beside them."""

    def changed(self, kind: SnapshotKind, change: Change[Any]) -> bool:
        """An object of another kind than a pod changed, and the state has taken it in."""
        helps = _HINTS.get(kind, relevant_difference)
        return helps(change) and self._queue.wake(self._clock.monotonic())

    def pod_changed(self, change: Change[Pod], *, has_plan: bool) -> bool:
        """A pod changed, for which a plan is under way or not, and the state has taken it in."""
        key, old, new = change.key, change.old, change.new
        queue, now = self._queue, self._clock.monotonic()
        # 1. Who could be helped by the change is tried again: by room, or by a pod that goes first and waits no more.
        work = frees_room(change) and queue.wake(now)
        waits = new is not None and not new.spec.node_name and not new.metadata.deletion_timestamp
        if queue.behind and old is not None and not old.spec.node_name and not waits:
            work |= queue.wake(now, queue.behind)
        # 2. So is one that asks for something else than before, or that has company.
        if old is not None and new is not None and _asked_by_pods(old) != _asked_by_pods(new):
            work |= queue.wake(now, (key,))
        if self._wanting_company and makes_company(change):
            work |= queue.wake(now, self._wanting_company)
        # 3. It comes to the queue or leaves it.
        return self.offer(key, new, has_plan=has_plan) or work

    def offer(self, key: str, pod: Pod | None, *, has_plan: bool) -> bool:
        """Take a pod into the queue, or out of it; one with a plan stays until that has ended."""
        policy = self._policy_set.policy_to_act_by(pod) if pod else None
        if pod is None or policy is None:
            if not has_plan:
                self._queue.remove(key)
                self._wanting_company.pop(key, None)
            return False
        if (known := self._queue.entries.get(key)) is not None and known.uid == pod.metadata.uid:
            return False
        now, wall, delay = self._clock.monotonic(), self._clock.wall(), policy.preemptors.delay
        since = unschedulable_since(pod) or 0.0
        due = now + delay - min(max(0.0, wall - since), delay)
        entry = self._queue.offer(
            key, uid=pod.metadata.uid, priority=pod.spec.priority or 0, created=since, now=now, due=due
        )
        if pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None:
            self._wanting_company[key] = None
        if (decision := decision_of(pod)) is not None:
            # An attempt of an earlier leader counts if it evicted somebody.
            entry.attempts = max(0, decision.attempt - (not decision.victims and not decision.more_victims))
            entry.attempted = now - max(0.0, wall - epoch_or(decision.at, 0.0))
            entry.decay(now)
        return True


def frees_room(change: Change[Pod]) -> bool:
    """Whether a pod's change leaves more room, or more pods that may be asked to leave."""
    old, new = change.old, change.new
    if old is None:
        return False
    if new is None or is_terminal(new):
        return bool(old.spec.node_name or old.status.nominated_node_name) and not is_terminal(old)
    if old.status.nominated_node_name != new.status.nominated_node_name and old.status.nominated_node_name:
        return True
    return bool(new.spec.node_name) and (
        _read_of_pods(old) != _read_of_pods(new)
        or bool(new.metadata.deletion_timestamp) != bool(old.metadata.deletion_timestamp)
        or (old.metadata.annotations != new.metadata.annotations and not_own(old) != not_own(new))
    )


def makes_company(change: Change[Pod]) -> bool:
    """Whether a pod came to a node, which can only help a preemptor with pod affinity."""
    old, new = change.old, change.new
    return new is not None and bool(new.spec.node_name) and (old is None or not old.spec.node_name)


def node_helps(change: Change[Node]) -> bool:
    """Whether a node came or changed in what the filters look at; a heartbeat is no such change."""
    old, new = change.old, change.new
    return new is not None and (old is None or _read_of_nodes(old) != _read_of_nodes(new))


def budget_helps(change: Change[PodDisruptionBudget]) -> bool:
    """Whether a budget is gone, covers other pods, was counted again, or has more disruptions left."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is None
    more = new.status.disruptions_allowed > old.status.disruptions_allowed
    return more or _read_of_budgets(old) != _read_of_budgets(new)


def claim_helps(change: Change[ResourceClaim]) -> bool:
    """Whether a claim on devices came, asks for something else, or leaves devices or users behind."""
    old, new = change.old, change.new
    if old is None or new is None:
        return new is None or new.status.allocation is None
    if old.status.allocation is not None and old.status.allocation != new.status.allocation:
        return True
    users, left = ({consumer.uid for consumer in claim.status.reserved_for or ()} for claim in (old, new))
    return bool(users - left) or _read_of_claims(old) != _read_of_claims(new)


def relevant_difference(change: Change[Any]) -> bool:
    """Whether an object of a minor kind (class, namespace, volume) differs in anything that is read of it."""
    old, new = change.old, change.new
    if old is None or new is None or _read_of_all(old) != _read_of_all(new):
        return True
    return bool(msgspec.structs.replace(old, metadata=new.metadata) != new)


_read_of_all = attrgetter("metadata.labels", "metadata.annotations")
_asked_by_pods = attrgetter("spec", "metadata.labels")
_read_of_pods = attrgetter("metadata.labels", "status.start_time", "spec.containers", "status.container_statuses")
_read_of_nodes = attrgetter("spec", "metadata.labels", "status.allocatable", "status.declared_features")
_read_of_budgets = attrgetter("spec.selector", "status.disrupted_pods", "status.observed_generation")
_read_of_claims = attrgetter("spec", "metadata.finalizers")
_HINTS: dict[SnapshotKind, Callable[[Change[Any]], bool]] = {
    NODES: node_helps,
    BUDGETS: budget_helps,
    CLAIMS: claim_helps,
}
"""By kind: whether a change could help a preemptor that found no room; `relevant_difference` says it of others."""
