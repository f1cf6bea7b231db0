"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot in place.

Over what the watch shows lies what was done but is not seen yet: between an act and the watch event that tells of it,
the next decision must already count the victims as leaving and the preemptor as nominated. Else a pod is chosen twice,
and two preemptors are promised one hole. The snapshot and the indexes here hold the pods *with* that overlay, the
caches hold them as the server sent them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.instants import epoch_or
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ClaimConsumer
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.resources import Resource
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, NODES, PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.pending import Pending
from webhook.reconciler.state.pod_indexes import PodIndexes

log = logging.getLogger(__name__)

_TURN = 0.005
"""Seconds of reading pods again after which others get their turn."""


class ServerTime(NamedTuple):
    """A second since the epoch, and its pods that were `known` by then: those `seen` first, by their order."""

    made: float
    seen: Mapping[str, int] = MappingProxyType({})
    known: int = 0

    def is_before(self, pod: Pod) -> bool:
        """Whether the pod was made after this moment."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        return made > self.made or (made == self.made and self.seen.get(pod.metadata.uid, math.inf) > self.known)


class Creations:
    """The youngest pods that were ever seen: those of one second, by uid with the order in which they were seen."""

    def __init__(self) -> None:
        self._made = -math.inf
        self._seen: dict[str, int] = {}

    def note(self, pod: Pod) -> None:
        """A pod is seen for the first time."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        if made > self._made:
            self._made, self._seen = made, {}
        if made == self._made:
            self._seen.setdefault(pod.metadata.uid, len(self._seen) + 1)

    def now(self) -> ServerTime:
        """This moment: pods that have been seen are not younger."""
        return ServerTime(self._made, self._seen, len(self._seen))


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are the ones the rules read.

    A handler that is added to one of the caches hears of each change after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations, under_policy=True)
        self.index = PodIndexes(self.snapshot)
        self.creations = Creations()
        self.caches: dict[Resource, Informer[Any]] = {}
        for kind in SNAPSHOT_KINDS:
            transform = SharedPods() if kind is PODS else None
            paths = kind.resource.paths()
            cache = Informer[Any](client, paths, kind.type_, transform=transform, optional=kind.optional)
            cache.handlers.append(partial(self._changed, kind))
            self.caches[kind.resource] = cache
        self.pods: Informer[Pod] = self.caches[PODS.resource]
        self.nodes: Informer[Node] = self.caches[NODES.resource]
        self.budgets: Informer[PodDisruptionBudget] = self.caches[BUDGETS.resource]
        self.pending = Pending(self.pods.items(), self.budgets.items(), self.snapshot, self.index, self._take)
        self._unread: list[str] = []
        """Pods that are yet to be read again, for annotations that were not kept before."""

    def keep(self, annotations: Collection[str]) -> None:
        """Have the snapshot keep these pod annotations, too; it is whole once the pods were read again for that."""
        if added := set(annotations) - self.snapshot.pods.annotations:
            self.snapshot.pods.annotations |= added
            pods = self.pods.items().items()
            self._unread += [key for key, pod in pods if not added.isdisjoint(pod.metadata.annotations or ())]

    async def run(self) -> None:
        """Keep everything current until it is cancelled; pods come last, when what they are judged by is there."""
        async with asyncio.TaskGroup() as tasks:
            others = [cache for cache in self.caches.values() if cache is not self.pods]
            for cache in others:
                tasks.create_task(cache.run())
            await asyncio.gather(*(cache.synced.wait() for cache in others))
            tasks.create_task(self.pods.run())

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled once."""
        return all(cache.synced.is_set() for cache in self.caches.values())

    async def wait_for_sync(self) -> None:
        """Wait until every cache has been filled once, and none is taking in a list."""
        await asyncio.gather(*(cache.synced.wait() for cache in self.caches.values()))
        await self.wait_until_whole()

    @property
    def whole(self) -> bool:
        """Whether all is here that decisions read, and no cache is taking in a list: then this is one state."""
        return not self._unread and all(cache.whole.is_set() for cache in self.caches.values())

    async def wait_until_whole(self) -> None:
        """Wait until all is here; returns without giving others a turn if it is."""
        while not self.whole:
            end = time.perf_counter() + _TURN
            while self._unread and time.perf_counter() <= end:
                self._take(PODS, (self._unread.pop(),))
            await asyncio.gather(*(cache.whole.wait() for cache in self.caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before the first time."""
        return {resource.plural: cache.age() for resource, cache in self.caches.items()}

    def pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod of that key and uid; None if it is gone, whoever has its name now."""
        pod = self.pods.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None

    def waiting_members(self, group: GroupKey) -> list[Pod]:
        """The pods of a group that have no node, those held back by scheduling gates included."""
        known = map(self.pods.get, sorted(self.index.members.get(group, ())))
        return [pod for pod in known if pod is not None]

    def hold_devices(self, preemptor: tuple[str, str], devices: Collection[DeviceId]) -> None:
        """Count the devices as taken for the preemptor (key, uid), and no others."""
        (namespace, _, name), uid = preemptor[0].partition("/"), preemptor[1]
        self.snapshot.release_devices(uid, namespace)
        if devices:
            self.snapshot.hold_devices(uid, namespace, ClaimConsumer(resource="pods", name=name, uid=uid), devices)

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """The watch has shown a change: take it in."""
        old, new = change.old, change.new
        if kind is BUDGETS:
            self.pending.budget_changed(change)
        elif kind is PODS:
            if new is not None and old is None:
                self.creations.note(new)
            if new is not None and old is not None and old.spec.node_name and old.status.start_time:
                # What was said first of its start counts: whoever may write it later changes nothing.
                new.status.start_time = old.status.start_time
            self.pending.pod_changed(change)
        self._take(kind, (change.key,))
        if kind is not PODS:
            self.index.changed(change)

    def _take(self, kind: SnapshotKind, keys: Iterable[str]) -> None:
        """Take objects in, with what is expected of them; those that cannot be read are left out."""
        for key in keys:
            item = expected = self.pending.expected(kind, key, self.caches[kind.resource].get(key))
            before = self.snapshot.uid_of(*key.split("/", 1)) if kind is PODS else ""
            try:
                if item is not None:
                    self.snapshot.put(kind, item)
            except ClusterError as error:
                log.warning("a %s is ignored: %s", kind.resource.kind, error)
                item = None
            if item is None:
                self.snapshot.remove(kind, key)
            if kind is PODS:
                gone = expected is None
                self.pending.expect_deallocated(before if gone else expected.metadata.uid, gone=gone)
                self._take(CLAIMS, self.index.put(key, item))
