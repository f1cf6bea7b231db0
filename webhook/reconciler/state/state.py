"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot.

The caches hold objects as the server sent them, the snapshot and the indexes with what was
done and is not seen yet. Between an act and its watch event decisions must count victims
as leaving and preemptors as nominated. Else a pod is chosen twice, and two preemptors are
promised one hole.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from msgspec import Struct

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
"""Seconds of reading pods again before others get their turn."""


class ServerTime(Struct, frozen=True):
    """A moment of the second `made` since the epoch: the first `known` of those `seen` were there."""

    made: float = -math.inf
    seen: dict[str, int] = {}
    known: int = 0

    def is_before(self, pod: Pod) -> bool:
        """Whether the pod was made after this moment."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        if made == self.made:
            return self.seen.get(pod.metadata.uid, math.inf) > self.known
        return made > self.made

    def after(self, pod: Pod) -> ServerTime:
        """The moment at which this pod, too, has been seen: it is not younger."""
        made = epoch_or(pod.metadata.creation_timestamp, -math.inf)
        if made < self.made:
            return self
        seen = self.seen if made == self.made else {}
        seen.setdefault(pod.metadata.uid, len(seen) + 1)
        return ServerTime(made, seen, len(seen))


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are what the rules read.

    A handler that is added to a cache hears of each change after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations, under_policy=True)
        self.index = PodIndexes(self.snapshot)
        self.newest = ServerTime()
        """Now, by the pods that were ever seen."""
        self.caches: dict[Resource, Informer[Any]] = {}
        for kind in SNAPSHOT_KINDS:
            transform = SharedPods() if kind is PODS else None
            paths, optional = kind.resource.paths(), kind.optional
            cache = Informer[Any](client, paths, kind.type_, transform=transform, optional=optional)
            cache.handlers.append(partial(self._changed, kind))
            self.caches[kind.resource] = cache
        self.pods: Informer[Pod] = self.caches[PODS.resource]
        self.nodes: Informer[Node] = self.caches[NODES.resource]
        self.budgets: Informer[PodDisruptionBudget] = self.caches[BUDGETS.resource]
        self.pending = Pending(self.pods.items(), self.budgets.items(), self.snapshot, self.index, self._take)
        self._unread: list[str] = []
        """Pods to read again, for annotations not kept before."""

    def keep(self, annotations: Collection[str]) -> None:
        """Keep these annotations, too; their pods are read again."""
        if added := set(annotations) - self.snapshot.pods.annotations:
            self.snapshot.pods.annotations |= added
            pods = self.pods.items().items()
            self._unread += [key for key, pod in pods if not added.isdisjoint(pod.metadata.annotations or ())]

    async def run(self) -> None:
        """Keep everything current until cancelled; pods come last."""
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
        """Wait until every cache has been filled once, and all is here."""
        await asyncio.gather(*(cache.synced.wait() for cache in self.caches.values()))
        await self.wait_until_whole()

    @property
    def whole(self) -> bool:
        """Whether all that decisions read is here, and no cache takes in a list."""
        return not self._unread and all(cache.whole.is_set() for cache in self.caches.values())

    async def wait_until_whole(self) -> None:
        """Wait until all is here; if so, others get no turn."""
        while not self.whole:
            end = time.perf_counter() + _TURN
            while self._unread and time.perf_counter() <= end:
                self._take(PODS, (self._unread.pop(),))
            await asyncio.gather(*(cache.whole.wait() for cache in self.caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before."""
        return {resource.plural: cache.age() for resource, cache in self.caches.items()}

    def pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod of that key and uid; None if it is gone."""
        pod = self.pods.get(key)
        return pod if pod and pod.metadata.uid == uid else None

    def waiting_members(self, group: GroupKey) -> list[Pod]:
        """The pods of a group without a node, also those with scheduling gates."""
        return list(filter(None, map(self.pods.get, sorted(self.index.members.get(group, ())))))

    def hold_devices(self, key: str, uid: str, devices: Collection[DeviceId]) -> None:
        """Count these devices as taken for a preemptor, and no others."""
        namespace, _, name = key.partition("/")
        self.snapshot.release_devices(uid, namespace)
        if devices:
            preemptor = ClaimConsumer(resource="pods", name=name, uid=uid)
            self.snapshot.hold_devices(uid, namespace, preemptor, devices)

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """The watch has shown a change: take it in."""
        old, new = change.old, change.new
        if kind is BUDGETS:
            self.pending.budget_changed(change)
        elif kind is PODS:
            if new and not old:
                self.newest = self.newest.after(new)
            elif new and old and old.spec.node_name and old.status.start_time:
                # The first start counts: who writes another one changes nothing.
                new.status.start_time = old.status.start_time
            self.pending.pod_changed(change)
        self._take(kind, (change.key,))
        if kind is not PODS:
            self.index.changed(change)

    def _take(self, kind: SnapshotKind, keys: Iterable[str]) -> None:
        """Take objects in, as expected; what cannot be read is left out."""
        for key in keys:
            item = expected = self.pending.expected(kind, key, self.caches[kind.resource].get(key))
            uid = self.snapshot.uid_of(*key.split("/", 1)) if kind is PODS else ""
            try:
                if item is not None:
                    self.snapshot.put(kind, item)
            except ClusterError as error:
                log.warning("a %s is ignored: %s", kind.resource.kind, error)
                item = None
            if item is None:
                self.snapshot.remove(kind, key)
            if kind is PODS:
                self.pending.expect_deallocated(expected.metadata.uid if expected else uid, gone=not expected)
                self._take(CLAIMS, self.index.put(key, item))
