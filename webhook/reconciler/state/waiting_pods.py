"""The pods that wait for a node, grouped by what their scheduler sees of them: the most important go first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.pod_info import claims_of, label_keys_read, node_of, shape_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import claim_key, claim_shape

_Shape = tuple[int, bytes]

_MOST_KEYS = 1000
"""Keys of labels that are remembered as read, at most; with more of them every label counts as read."""


class WaitingGroup(NamedTuple):
    """Pods of one priority that are alike to the scheduler, by `namespace/name`; never empty."""

    priority: int
    pods: dict[str, Pod]

    @property
    def example(self) -> Pod:
        """One of them."""
        return next(iter(self.pods.values()))


class WaitingPods:
    """The pods without a node that their scheduler may place at any moment, whoever preempts for them.

    Of labels only those tell pods apart that an affinity or a spread constraint of some pod reads, or once read, and of
    claims what they allow (`claim_shape`).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._claim_shape = partial(claim_shape, snapshot.claims, snapshot.volumes)
        self._of_scheduler: dict[str, dict[_Shape, WaitingGroup]] = {}
        self._place: dict[str, tuple[str, _Shape]] = {}
        self._read: set[str] = set()
        self._grouped_by: frozenset[str] = frozenset()
        """The keys of labels by which the pods are grouped now."""
        self._users: dict[str, dict[str, Pod]] = {}
        """By claim, the pods that wait with it."""

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod; one that has a node, has ended, is being deleted or is held back does not wait."""
        meta, spec = pod.metadata, pod.spec
        self.drop(key)
        if len(self._read) <= _MOST_KEYS:
            self._read |= label_keys_read(pod)
        if not (spec.node_name or spec.scheduling_gates or meta.deletion_timestamp or is_terminal(pod)):
            self._group(key, pod)

    def _group(self, key: str, pod: Pod) -> None:
        read = self._grouped_by if len(self._grouped_by) <= _MOST_KEYS else (pod.metadata.labels or {}).keys()
        shape = pod.spec.priority or 0, shape_of(pod, read, self._claim_shape)
        self._place[key] = pod.spec.scheduler_name, shape
        for claim in _claims(pod):
            self._users.setdefault(claim, {})[key] = pod
        groups = self._of_scheduler.setdefault(pod.spec.scheduler_name, {})
        groups.setdefault(shape, WaitingGroup(shape[0], {})).pods[key] = pod

    def changed(self, change: Change[Any]) -> None:
        """The snapshot has taken in another claim or volume: the pods that wait with that claim are grouped again."""
        for claim in {claim_key(change.old), claim_key(change.new)}:
            for key, pod in list(self._users.get(claim, {}).items()):
                self.put(key, pod)

    def _groups(self) -> dict[str, dict[_Shape, WaitingGroup]]:
        """By scheduler; first those pods are grouped again that have labels which are read only now."""
        if len(self._read) > len(self._grouped_by):
            new, self._grouped_by = self._read - self._grouped_by, frozenset(self._read)
            waiting = [
                item
                for groups in self._of_scheduler.values()
                for group in groups.values()
                for item in group.pods.items()
            ]
            for key, pod in waiting:
                if len(self._read) > _MOST_KEYS or not new.isdisjoint(pod.metadata.labels or ()):
                    self.drop(key)
                    self._group(key, pod)
        return self._of_scheduler

    def shape(self, key: str) -> tuple[str, int, bytes] | None:
        """The pod's scheduler, its priority and what filters read of it; None if it does not wait."""
        groups = self._groups()
        scheduler, shape = self._place.get(key, ("", None))
        if shape is None:
            return None
        priority, text = shape
        return scheduler, priority, text + node_of(groups[scheduler][shape].pods[key]).encode()

    def drop(self, key: str) -> None:
        """Forget a pod."""
        scheduler, shape = self._place.pop(key, ("", None))
        if shape is None:
            return
        groups = self._of_scheduler[scheduler]
        pods = groups[shape].pods
        for claim in _claims(pods.pop(key)):
            del self._users[claim][key]
            if not self._users[claim]:
                del self._users[claim]
        if not pods:
            del groups[shape]
        if not groups:
            del self._of_scheduler[scheduler]

    def keys(self) -> Iterable[str]:
        """All of them, by `namespace/name`."""
        return self._place.keys()

    def groups(self) -> Iterable[WaitingGroup]:
        """All groups, of all schedulers."""
        return chain.from_iterable(groups.values() for groups in self._groups().values())

    def ahead_of(self, pod: Pod, most: int) -> Iterable[WaitingGroup]:
        """The groups that the pod's scheduler tries before it, the most important first; at most so many."""
        priority = pod.spec.priority or 0
        groups = self._groups().get(pod.spec.scheduler_name, {}).values()
        return heapq.nlargest(most, (group for group in groups if group.priority > priority), key=_priority)


def _claims(pod: Pod) -> frozenset[str]:
    return frozenset().union(*(claims_of(pod) or ()))


def _priority(group: WaitingGroup) -> int:
    return group.priority
