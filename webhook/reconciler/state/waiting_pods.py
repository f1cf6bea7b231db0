"""The pods that wait for a node, grouped by what their scheduler sees of them: the most important go first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import msgspec

from webhook.kube.objects import Pod
from webhook.kube.pods import is_terminal

__all__ = ["WaitingGroup", "WaitingPods"]

_Shape = tuple[int, str, bytes]


class WaitingGroup(NamedTuple):
    """Pods of one priority that are alike to the scheduler, by `namespace/name`; never empty."""

    priority: int
    pods: dict[str, Pod]

    @property
    def example(self) -> Pod:
        """One of them."""
        return next(iter(self.pods.values()))


class WaitingPods:
    """The pods without a node that their scheduler may place at any moment, whoever preempts for them."""

    def __init__(self) -> None:
        self._of_scheduler: dict[str, dict[_Shape, WaitingGroup]] = {}
        self._place: dict[str, tuple[str, _Shape]] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod; one that has a node, has ended, is being deleted or is held back does not wait."""
        meta, spec = pod.metadata, pod.spec
        self.drop(key)
        if spec.node_name or spec.scheduling_gates or meta.deletion_timestamp or is_terminal(pod):
            return
        labels = sorted((meta.labels or {}).items())
        shape = spec.priority or 0, meta.namespace, msgspec.json.encode((spec, labels))
        self._place[key] = spec.scheduler_name, shape
        groups = self._of_scheduler.setdefault(spec.scheduler_name, {})
        groups.setdefault(shape, WaitingGroup(shape[0], {})).pods[key] = pod

    def drop(self, key: str) -> None:
        """Forget a pod."""
        scheduler, shape = self._place.pop(key, ("", None))
        if shape is None:
            return
        groups = self._of_scheduler[scheduler]
        pods = groups[shape].pods
        del pods[key]
        if not pods:
            del groups[shape]
        if not groups:
            del self._of_scheduler[scheduler]

    def keys(self) -> Iterable[str]:
        """All of them, by `namespace/name`."""
        return self._place.keys()

    def groups(self) -> Iterable[WaitingGroup]:
        """All groups, of all schedulers."""
        return chain.from_iterable(groups.values() for groups in self._of_scheduler.values())

    def ahead_of(self, pod: Pod, most: int) -> Iterable[WaitingGroup]:
        """The groups that the pod's scheduler tries before it, the most important first; at most so many."""
        priority = pod.spec.priority or 0
        groups = self._of_scheduler.get(pod.spec.scheduler_name, {}).values()
        return heapq.nlargest(most, (group for group in groups if group.priority > priority), key=_priority)


def _priority(group: WaitingGroup) -> int:
    return group.priority
