"""The scheduler's picture of the cluster: caches feeding a Snapshot, with pods assumed to be where they will be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from webhook.kube.informer import Change, Informer
from webhook.kube.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    StorageClass,
)
from webhook.kube.resources import (
    CSI_NODE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    STORAGE_CLASS,
    Resource,
)
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.scheduling.default_spread import SELECTING, Selecting, Selectors
from webhook.scheduling.scores import View
from webhook.scheduling.tally import Tally

__all__ = ["ClusterState", "Informers"]

log = logging.getLogger(__name__)


class Informers(Protocol):
    """Where the copies of resources come from."""

    def cache(self, resource: Resource, type_: type[Any]) -> Informer[Any]:
        """The copy of a resource, decoded to the type."""
        ...


class ClusterState:
    """Keeps `snapshot` current.

    `on_pod` and `on_node` are called after a change was taken over, `on_other` with the kind of anything else
    that changed.
    """

    def __init__(
        self,
        informers: Informers,
        on_pod: Callable[[Change[Pod]], None],
        on_node: Callable[[Change[Node]], None],
        on_other: Callable[[str], None],
    ) -> None:
        self.snapshot = Snapshot()
        self.tally = Tally()
        self.selectors = Selectors()
        self.pods = informers.cache(POD, Pod)
        self._assumed: dict[str, Pod] = {}
        self._on_pod = on_pod
        self._on_node = on_node
        self.pods.handlers.append(self._pod_changed)
        informers.cache(NODE, Node).handlers.append(self._node_changed)
        take = self.snapshot
        rows: list[tuple[Any, Any, Callable[[Any], None], Callable[[str], None]]] = [
            (NAMESPACE, Namespace, take.set_namespace, take.remove_namespace),
            (PERSISTENT_VOLUME, PersistentVolume, take.set_persistent_volume, take.remove_persistent_volume),
            (
                PERSISTENT_VOLUME_CLAIM,
                PersistentVolumeClaim,
                take.set_persistent_volume_claim,
                take.remove_persistent_volume_claim,
            ),
            (CSI_NODE, CSINode, take.set_csi_node, take.remove_csi_node),
            (STORAGE_CLASS, StorageClass, take.set_storage_class, take.remove_storage_class),
            (POD_DISRUPTION_BUDGET, PodDisruptionBudget, take.set_budget, take.remove_budget),
        ]
        for resource in SELECTING:
            informers.cache(resource, Selecting).handlers.append(partial(self.selectors.changed, resource))
        for resource, type_, set_, remove in rows:
            informers.cache(resource, type_).handlers.append(_feed(resource.kind, set_, remove, on_other))

    @property
    def view(self) -> View:
        """What scores look at."""
        return View(self.snapshot, self.tally, self.selectors)

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
            self.snapshot.remove_pod(key)
            self.tally.drop(key)
        else:
            self.snapshot.set_pod(pod)
            self.tally.put(key, pod)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self.snapshot.remove_node(change.key)
        else:
            self.snapshot.set_node(change.new)
        self._on_node(change)


def _feed(
    kind: str, set_: Callable[[Any], None], remove: Callable[[str], None], tell: Callable[[str], None]
) -> Callable[[Change[Any]], None]:
    def handler(change: Change[Any]) -> None:
        try:
            if change.new is not None:
                set_(change.new)
        except ClusterError as error:
            log.warning("%s %s is ignored: %s", kind, change.key, error)
            remove(change.key)
        if change.new is None:
            remove(change.key)
        tell(kind)

    return handler
