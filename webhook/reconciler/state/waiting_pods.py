"""The pods that wait for a node, grouped by what their scheduler sees of them: the most important go first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.pod_info import claims_of, label_keys_read, node_of, shape_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.snapshot.volume_index import claim_key, claim_shape
from webhook.reconciler.state.index import Index


class _Shape(NamedTuple):
    scheduler: str
    priority: int
    read: bytes
    """What filters read of the pod."""


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
        self._pods: Index[_Shape, Pod] = Index(self._shapes)
        self._users: Index[str, Pod] = Index(lambda pod: frozenset().union(*(claims_of(pod) or ())))
        """By claim, the pods that wait with it."""
        self._read: set[str] = set()
        self._grouped_by: frozenset[str] = frozenset()
        """The keys of labels by which the pods are grouped now."""

    def put(self, key: str, pod: Pod | None) -> None:
        """Add or update a pod; one that has a node, is being deleted or held back does not wait, nor does None."""
        if pod is not None and len(self._read) <= _MOST_KEYS:
            self._read |= label_keys_read(pod)
        waits = pod and not (pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp)
        for index in (self._pods, self._users):
            index.put(key, pod if waits else None)

    def _shapes(self, pod: Pod) -> tuple[_Shape]:
        read = self._grouped_by if len(self._grouped_by) <= _MOST_KEYS else (pod.metadata.labels or {}).keys()
        return (_Shape(pod.spec.scheduler_name, pod.spec.priority or 0, shape_of(pod, read, self._claim_shape)),)

    def changed(self, change: Change[Any]) -> None:
        """The snapshot has taken in another claim or volume: the pods that wait with that claim are grouped again."""
        for claim in {claim_key(change.old), claim_key(change.new)}:
            for key, pod in list(self._users.get(claim, {}).items()):
                self._pods.put(key, pod)

    def _grouped(self) -> Index[_Shape, Pod]:
        """The pods by their shape; first those are grouped again that have labels which are read only now."""
        if len(self._read) > len(self._grouped_by):
            new, self._grouped_by = self._read - self._grouped_by, frozenset(self._read)
            for key, pod in [item for pods in self._pods.values() for item in pods.items()]:
                if len(self._read) > _MOST_KEYS or not new.isdisjoint(pod.metadata.labels or ()):
                    self._pods.put(key, pod)
        return self._pods

    def shape(self, key: str) -> tuple[str, int, bytes] | None:
        """The pod's scheduler, its priority and what filters read of it; None if it does not wait."""
        pods = self._grouped()
        for shape in pods.of(key):
            return shape.scheduler, shape.priority, shape.read + node_of(pods[shape][key]).encode()
        return None

    def keys(self) -> Iterable[str]:
        """All of them, by `namespace/name`."""
        return self._pods.known

    def groups(self, ahead_of: Pod | None = None) -> list[WaitingGroup]:
        """All groups, or those that a pod's scheduler tries before it, the most important first."""
        groups = list(self._grouped().items())
        if ahead_of is not None:
            priority, scheduler = ahead_of.spec.priority or 0, ahead_of.spec.scheduler_name
            groups = [row for row in groups if row[0].priority > priority and row[0].scheduler == scheduler]
        groups.sort(key=lambda row: -row[0].priority)
        return [WaitingGroup(shape.priority, pods) for shape, pods in groups]
