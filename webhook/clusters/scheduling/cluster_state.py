"""The scheduler's picture of the cluster: caches feeding a Snapshot, with pods assumed to be where they will be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from webhook.clusters.scheduling.default_spread import SELECTING, Selecting, Selectors
from webhook.clusters.scheduling.scores import View
from webhook.clusters.scheduling.tally import Tally
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import Resource
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import NODES, PODS, PRIORITY_CLASSES, SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.snapshot import Snapshot

log = logging.getLogger(__name__)


class Informers(Protocol):
    """Where the copies of resources come from."""

    def cache(self, resource: Resource, type_: type[Any], *, optional: bool = False) -> ObjectCache[Any]:
        """The copy of a resource, decoded to the type; an `optional` one may be missing, and is empty then."""
        ...


class ClusterState:
    """Keeps `snapshot` current.

    `on_pod` is called after a change of a pod was taken over, `on_other` after that of any other object.
    """

    def __init__(
        self,
        informers: Informers,
        on_pod: Callable[[Change[Pod]], None],
        on_other: Callable[[Resource, Change[Any]], None],
    ) -> None:
        self.snapshot = Snapshot()
        self.view = View(self.snapshot, Tally(), Selectors())
        """What scores look at."""
        self.pods: ObjectCache[Pod] = informers.cache(PODS.resource, Pod)
        self._assumed: dict[str, Pod] = {}
        self._on_pod = on_pod
        self._on_other = on_other
        self.pods.handlers.append(self._pod_changed)
        for kind in (NODES, *(kind for kind in SNAPSHOT_KINDS if kind not in {PODS, NODES, PRIORITY_CLASSES})):
            cache = informers.cache(kind.resource, kind.type_, optional=kind.optional)
            cache.handlers.append(partial(self._other_changed, kind))
        for resource in SELECTING:
            informers.cache(resource, Selecting).handlers.append(partial(self.view.selectors.changed, resource))

    def assume(self, key: str, pod: Pod, node: str) -> None:
        """Count a pod as running on a node before the API server says so."""
        bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        self._assumed[key] = bound
        self._set_or_remove(key, bound)

    def forget(self, key: str) -> None:
        """Take back an assumption: the binding failed."""
        self._assumed.pop(key, None)
        self._set_or_remove(key, self.pods.get(key))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, assumed = change.new, self._assumed.get(change.key)
        if assumed is not None and pod is not None and pod.metadata.uid == assumed.metadata.uid:
            if not pod.spec.node_name:
                return
            del self._assumed[change.key]
        elif assumed is not None:
            del self._assumed[change.key]
        self._set_or_remove(change.key, pod)
        self._on_pod(change)

    def _set_or_remove(self, key: str, pod: Pod | None) -> None:
        if pod is None:
            self.snapshot.remove(PODS, key)
            self.view.tally.drop(key)
        else:
            self.snapshot.put(PODS, pod)
            self.view.tally.put(key, pod)

    def _other_changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        new = change.new
        try:
            if new is not None:
                self.snapshot.put(kind, new)
        except ClusterError as error:
            log.warning("%s %s is ignored: %s", kind.resource.kind, change.key, error)
            new = None
        if new is None:
            self.snapshot.remove(kind, change.key)
        self._on_other(kind.resource, change)
