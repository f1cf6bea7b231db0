"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot in place.

Over what the watch shows lies what was done but is not seen yet: between an act and the watch event that tells of it,
the next decision must already count the victims as leaving and the preemptor as nominated. Else a pod is chosen twice,
and two preemptors are promised one hole. The snapshot and the indexes here hold the pods *with* that overlay, the
caches hold them as the server sent them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ClaimConsumer
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import is_terminal, workload_of
from webhook.kube.resources import Resource
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, NODES, PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.claims import Claims
from webhook.reconciler.state.confined_pods import ConfinedPods
from webhook.reconciler.state.creations import Creations
from webhook.reconciler.state.pending import Pending, Touched
from webhook.reconciler.state.waiting_pods import WaitingPods

log = logging.getLogger(__name__)

_Group = TypeVar("_Group", str, GroupKey)
_TURN = 0.005
"""Seconds of reading pods again after which others get their turn."""


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are the ones the rules read.

    A handler that is added to one of the caches hears of each change after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations, under_policy=True)
        self.pending = Pending()
        self.claims = Claims()
        self.index = Indexes()
        self.waiting = WaitingPods(self.snapshot)
        self.confined = ConfinedPods(self.snapshot)
        self.creations = Creations()
        self._unread: list[str] = []
        """Pods that are yet to be read again for the annotations `_added` to those that are kept."""
        self._added: set[str] = set()
        self._kept = asyncio.Event()
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

    def keep(self, annotations: Collection[str]) -> None:
        """Have the snapshot keep these pod annotations, too; it is whole once the pods were read again for that."""
        if added := set(annotations) - self.snapshot.pods.annotations:
            self.snapshot.pods.annotations |= added
            self._added |= added
            self._unread = list(self.pods.items())
            self._kept.set()

    def _read_on(self) -> None:
        """Read for a moment pods that may have annotations that were not kept before."""
        end = time.perf_counter() + _TURN
        while self._unread and time.perf_counter() <= end:
            key = self._unread.pop()
            pod = self.pods.get(key)
            if pod is not None and not self._added.isdisjoint(pod.metadata.annotations or ()):
                self._take(PODS, key, pod)
        if not self._unread:
            self._added.clear()

    async def _read_what_is_kept(self) -> None:
        while True:
            await self._kept.wait()
            self._kept.clear()
            await self.wait_until_whole()

    async def run(self) -> None:
        """Keep everything current until it is cancelled; pods come last, when what they are judged by is there."""
        async with asyncio.TaskGroup() as tasks:
            others = [cache for cache in self.caches.values() if cache is not self.pods]
            for cache in others:
                tasks.create_task(cache.run())
            await asyncio.gather(*(cache.synced.wait() for cache in others))
            tasks.create_task(self._read_what_is_kept())
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
            if self._unread:
                self._read_on()
                await asyncio.sleep(0)
                continue
            await asyncio.gather(*(cache.whole.wait() for cache in self.caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before the first time."""
        return {resource.plural: cache.age() for resource, cache in self.caches.items()}

    def overlaid(self) -> int:
        """How many pods and budgets count otherwise than the watch shows them, or are remembered and are gone."""
        return len(self.pending) + len(self.pending.cleared.keys() - self.pods.items().keys())

    def pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod of that key and uid; None if it is gone, whoever has its name now."""
        pod = self.pods.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None

    def pods_on(self, node: str) -> list[PlanVictim]:
        """The pods on a node, as a plan names its victims."""
        return [PlanVictim(pod.namespace, pod.name, pod.uid) for pod in self.snapshot.pods_on(node)]

    def waiting_members(self, group: GroupKey) -> list[Pod]:
        """The pods of a group that have no node, those held back by scheduling gates included."""
        return [pod for key in sorted(self.index.members.get(group, ())) if (pod := self.pods.get(key)) is not None]

    def lower_nominated(self, node: str, priority: int, but: str) -> list[Pod]:
        """Pending pods of lower priority nominated to the node, as the watch last showed them."""
        pods = [self.pods.get(key) for key in self.index.nominated.get(node, ()) if key != but]
        return [pod for pod in pods if pod is not None and (pod.spec.priority or 0) < priority]

    # What was done but is not seen yet.

    def expect(self, plan: str, victims: Iterable[Pod], ends: Mapping[str, float]) -> None:
        """Count the victims as leaving; `ends` says when each, by uid, will be gone, in seconds since the epoch."""
        pods = list(victims)
        budgets = {pod.metadata.uid: self.pending.expect_leaving(pod, plan, ends[pod.metadata.uid]) for pod in pods}
        self._take_again(PODS, map(key_of, pods))
        self._take_again(BUDGETS, chain.from_iterable(budgets.values()))

    def hold(self, plan: str, preemptor: tuple[str, str], node: str) -> None:
        """Count the preemptor (key, uid) as nominated, also if the scheduler has cleared its nomination."""
        key, uid = preemptor
        self.pending.expect_nominated(key, uid, plan, node)
        self._take_again(PODS, (key,))

    def hold_devices(self, preemptor: tuple[str, str], devices: Collection[DeviceId]) -> None:
        """Count the devices as taken for the preemptor (key, uid), and no others."""
        (namespace, _, name), uid = preemptor[0].partition("/"), preemptor[1]
        self.snapshot.release_devices(uid, namespace)
        if devices:
            self.snapshot.hold_devices(uid, namespace, ClaimConsumer(resource="pods", name=name, uid=uid), devices)

    def has_devices(self, pod: Pod) -> bool:
        """Whether a claim that the pod names itself has its devices already, so that no other pod is like it."""
        names = [str(entry.get("resourceClaimName") or "") for entry in pod.spec.resource_claims or ()]
        names += [str(status.get("resourceClaimName") or "") for status in pod.status.resource_claim_statuses or ()]
        claims = self.snapshot.device_claims.claims
        named = [claims.get(f"{pod.metadata.namespace}/{name}") for name in names]
        return any(claim is not None and claim.status.allocation is not None for claim in named)

    def expect_deallocated(self, uid: str) -> None:
        """The pod with this uid is gone: its claims count as they will be once they are taken back."""
        if claims := self.snapshot.device_claims.used_by(uid):
            self.claims.expect_deallocated(uid, claims)
            self._take_again(CLAIMS, claims)

    def count_as_gone(self, plan: str) -> None:
        """Take the victims of a rehearsed plan out of account, as if they had left and been replaced elsewhere."""
        self._take_touched(self.pending.expect_gone(plan))

    def expect_cleared(self, plan: str, node: str, pod: Pod, *, done: bool) -> None:
        """This plan for that node is being taken off the pod; once that is `done` the pod is as given.

        What the watch shows of it before that is over.
        """
        key = key_of(pod)
        if self.pod_of(key, pod.metadata.uid) is not None:
            self.pending.expect_cleared(key, plan, node, pod, done=done)
            self._take_again(PODS, (key,))

    def expect_not_cleared(self, keys: Iterable[str]) -> None:
        """Count the nominations of these pods that the watch shows: this process clears them no more."""
        known = [key for key in keys if self.pending.cleared.pop(key, None) is not None]
        self._take_again(PODS, known)

    def give_up(self, plan: str, leaving: Collection[str], nominated: Collection[str] = ()) -> None:
        """Expect of a plan only that the pods of these uids leave, and that those of these keys are `nominated`."""
        self._take_touched(self.pending.give_up(plan, leaving, nominated))

    def forget_overdue(self, now: float) -> bool:
        """Expect no longer what no status will ever show; whether a budget has more to give by that."""
        late = self.pending.overdue(now)
        self._take_again(BUDGETS, late)
        return bool(late)

    # What the watches show.

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """The watch has shown a change: forget what is expected of it no more, and take it in."""
        if kind is BUDGETS:
            self.pending.budget_changed(change, self.pods.items())
        elif kind is PODS:
            old, new = change.old, change.new
            if new is not None:
                _keep_start(old, new)
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self.creations.forget(old)
            if new is not None and (old is None or new.metadata.uid != old.metadata.uid):
                self.creations.note(new)
            self._take_again(BUDGETS, self.pending.pod_changed(change.key, new))
        self._take(kind, change.key, change.new)
        if kind is not PODS:
            self.confined.changed(change)
            self.waiting.changed(change)

    def _take_touched(self, touched: Touched) -> None:
        self._take_again(PODS, touched.pods)
        self._take_again(BUDGETS, touched.budgets)

    def _take_again(self, kind: SnapshotKind, keys: Iterable[str]) -> None:
        """Take these objects in again, because what is expected of them has changed."""
        known = self.caches[kind.resource]
        for key in keys:
            if (item := known.get(key)) is not None:
                self._take(kind, key, item)

    def _take(self, kind: SnapshotKind, key: str, actual: Any) -> None:
        """Hand an object to the snapshot, with what is expected of it.

        None takes it away; one that cannot be read is left out, and so is a pod that has ended.
        """
        new = actual
        if kind is PODS and actual is not None:
            new = self.pending.overlay(key, actual)
            if new is not None and is_terminal(new):
                new = None
        elif kind is BUDGETS and actual is not None:
            new = self.pending.overlay_budget(key, actual)
        elif kind is CLAIMS:
            if actual is None:
                self.claims.forget(key)
            else:
                new = self.claims.overlay(key, actual)
        known = self.snapshot.uid_of(*key.split("/", 1)) if kind is PODS else ""
        if new is not None:
            try:
                self.snapshot.put(kind, new)
            except ClusterError as error:
                log.warning("a %s is ignored: %s", kind.resource.kind, error)
                new = None
        if new is None:
            self.snapshot.remove(kind, key)
        if kind is PODS:
            if known and (new is None or new.metadata.uid != known):
                self.expect_deallocated(known)
            if new is not None:
                self._take_again(CLAIMS, self.claims.put(key, new))
                self.index.put(key, new)
                self.waiting.put(key, new)
                self.confined.put(key, new)
            else:
                self._take_again(CLAIMS, self.claims.drop(key))
                self.index.drop(key)
                self.waiting.drop(key)
                self.confined.drop(key)


class Indexes:
    """Keys (`namespace/name`) of pods by what they have in common, the pods taken with what is expected of them."""

    def __init__(self) -> None:
        self.leaving: dict[str, Pod] = {}
        """Pods on a node that are terminating."""
        self.nominated: dict[str, set[str]] = {}
        """Node to the pending pods nominated to it."""
        self.owned: dict[str, set[str]] = {}
        """Owner (`kube.pods.workload_of`) to its pods on nodes."""
        self.members: dict[GroupKey, set[str]] = {}
        """Group to its pods that wait for a node."""
        self._nomination: dict[str, str] = {}
        self._owner: dict[str, str] = {}
        self._group: dict[str, GroupKey] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod."""
        if not pod.spec.node_name:
            self.drop(key)
            _file(self.nominated, self._nomination, key, pod.status.nominated_node_name)
            if not pod.metadata.deletion_timestamp and (group := group_of(pod)) is not NO_GROUP:
                _file(self.members, self._group, key, group)
            return
        _file(self.nominated, self._nomination, key, "")
        _file(self.members, self._group, key, None)
        _file(self.owned, self._owner, key, workload_of(pod))
        if pod.metadata.deletion_timestamp:
            self.leaving[key] = pod
        else:
            self.leaving.pop(key, None)

    def drop(self, key: str) -> None:
        """Forget a pod."""
        _file(self.nominated, self._nomination, key, "")
        _file(self.owned, self._owner, key, "")
        _file(self.members, self._group, key, None)
        self.leaving.pop(key, None)


def _keep_start(old: Pod | None, new: Pod) -> None:
    """What the status of a pod on a node said first of its start counts: whoever may write it later changes nothing."""
    if old is not None and old.metadata.uid == new.metadata.uid and old.spec.node_name and old.status.start_time:
        new.status.start_time = old.status.start_time


def _file(groups: dict[_Group, set[str]], group_of_key: dict[str, _Group], key: str, group: _Group | None) -> None:
    """Move a key to a group, to none if the group is empty; groups without keys are forgotten."""
    before = group_of_key.get(key)
    if before == group:
        return
    if before:
        del group_of_key[key]
        groups[before].discard(key)
        if not groups[before]:
            del groups[before]
    if group:
        group_of_key[key] = group
        groups.setdefault(group, set()).add(key)
