"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot in place.

Over what the watch shows lies what was done but is not seen yet: between an act and the watch event that tells of it,
the next decision must already count the victims as leaving and the preemptor as nominated. Else a pod is chosen twice,
and two preemptors are promised one hole. The snapshot and the indexes here hold the pods *with* that overlay, the
caches hold them as the server sent them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from webhook.kube.client import Client
from webhook.kube.informer import Change, Informer
from webhook.kube.instants import rfc3339
from webhook.kube.objects import Node, Pod, PodDisruptionBudget, key_of
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import is_pinned, is_terminal, workload_of
from webhook.kube.resources import Resource
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import BUDGETS, NODES, PODS, SNAPSHOT_KINDS, SnapshotKind
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import PLAN, PlanVictim, carries
from webhook.reconciler.state.disruptions import Disruptions
from webhook.reconciler.state.eviction_reviews import EvictionReviews
from webhook.reconciler.state.waiting_pods import WaitingPods

__all__ = ["Expectations", "Indexes", "State"]

log = logging.getLogger(__name__)


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are the ones the rules read.

    A handler that is added to one of the caches hears of each change after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations)
        self.expectations = Expectations()
        self.disruptions = Disruptions()
        self.index = Indexes()
        self.waiting = WaitingPods()
        self.eviction_reviews = EvictionReviews(client)
        self.caches: dict[Resource, Informer[Any]] = {}
        for kind in SNAPSHOT_KINDS:
            transform = SharedPods() if kind is PODS else None
            cache: Informer[Any] = Informer(
                client,
                kind.resource.path(),
                kind.type_,
                transform=transform,
                optional=kind.optional,
                other_paths=kind.other_paths(),
            )
            cache.handlers.append(partial(self._changed, kind))
            self.caches[kind.resource] = cache
        self.pods: Informer[Pod] = self.caches[PODS.resource]
        self.nodes: Informer[Node] = self.caches[NODES.resource]
        self.budgets: Informer[PodDisruptionBudget] = self.caches[BUDGETS.resource]

    def keep(self, annotations: Collection[str]) -> None:
        """Have the snapshot keep these pod annotations; if it does not, it is made again."""
        if set(annotations) <= self.snapshot.pods.annotations:
            return
        before, self.snapshot = self.snapshot, Snapshot(annotations)
        self.snapshot.version = before.version
        for kind in SNAPSHOT_KINDS:
            self._take_again(kind, list(self.caches[kind.resource].items()))

    async def run(self) -> None:
        """Keep everything current until it is cancelled; pods come last, when what they are judged by is there."""
        async with asyncio.TaskGroup() as tasks:
            others = [cache for cache in self.caches.values() if cache is not self.pods]
            for cache in others:
                tasks.create_task(cache.run())
            await asyncio.gather(*(cache.synced.wait() for cache in others))
            tasks.create_task(self.eviction_reviews.run())
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
        """Whether no cache is taking in a list: only then is what is here a state that the cluster was in."""
        return all(cache.whole.is_set() for cache in self.caches.values())

    async def wait_until_whole(self) -> None:
        """Wait until no cache is taking in a list; returns without giving others a turn if none is."""
        while not self.whole:
            await asyncio.gather(*(cache.whole.wait() for cache in self.caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before the first time."""
        return {resource.plural: cache.age() for resource, cache in self.caches.items()}

    def pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod of that key and uid; None if it is gone, whoever has its name now."""
        pod = self.pods.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None

    def pods_on(self, node: str) -> list[PlanVictim]:
        """The pods on a node, as a plan names its victims."""
        return [PlanVictim(pod.namespace, pod.name, pod.uid) for pod in self.snapshot.pods_on(node)]

    def lower_nominated(self, node: str, priority: int, but: str) -> list[Pod]:
        """Pending pods of lower priority nominated to the node, as the watch last showed them."""
        pods = [self.pods.get(key) for key in self.index.nominated.get(node, ()) if key != but]
        return [pod for pod in pods if pod is not None and (pod.spec.priority or 0) < priority]

    # What was done but is not seen yet.

    def expect(
        self, plan: str, preemptor: tuple[str, str], node: str, victims: Iterable[Pod], ends: Mapping[str, float]
    ) -> None:
        """Count the preemptor (key, uid) as nominated and the victims as leaving.

        `ends` says for every victim, by uid, when it will be gone, in seconds since the epoch.
        """
        leaving = {key_of(pod): pod for pod in victims}
        for key, pod in leaving.items():
            self.expectations.expect_leaving(key, pod.metadata.uid, plan, ends[pod.metadata.uid])
        self.hold(plan, preemptor, node)
        self._take_again(PODS, leaving)
        for pod in leaving.values():
            budgets = self.disruptions.covering(pod)
            for budget in budgets:
                self.disruptions.expect(budget, pod, plan)
            self._take_again(BUDGETS, budgets)

    def hold(self, plan: str, preemptor: tuple[str, str], node: str) -> None:
        """Count the preemptor (key, uid) as nominated, also if the scheduler has cleared its nomination."""
        key, uid = preemptor
        self.expectations.expect_nominated(key, uid, plan, node)
        self._take_again(PODS, (key,))

    def count_as_gone(self, plan: str) -> None:
        """Take the victims of a rehearsed plan out of account, as if they had left and been replaced elsewhere."""
        self._take_again(PODS, self.expectations.expect_gone(plan))
        self._take_again(BUDGETS, self.disruptions.give_up(plan))

    def expect_cleared(self, key: str, plan: str) -> None:
        """This plan was taken off the pod: it counts as gone until the watch shows the pod without a plan."""
        pod = self.pods.get(key)
        if pod is not None and PLAN in (pod.metadata.annotations or {}):
            self.expectations.cleared[key] = plan

    def give_up(self, plan: str, asked: Iterable[PlanVictim], *, nominated: bool = False) -> None:
        """Expect nothing of a plan any more but that the pods it has asked leave, and that it is `nominated` if so."""
        done = list(asked)
        uids = {victim.uid for victim in done}
        self._take_again(PODS, self.expectations.give_up(plan, but=uids, nominated=nominated))
        self._take_again(BUDGETS, self.disruptions.give_up(plan, but={victim.name for victim in done}))

    def forget_overdue(self, now: float) -> bool:
        """Expect no longer what no status will ever show; whether a budget has more to give by that."""
        late = self.disruptions.overdue(now)
        self._take_again(BUDGETS, late)
        return bool(late)

    # What the watches show.

    def _changed(self, kind: SnapshotKind, change: Change[Any]) -> None:
        """The watch has shown a change: forget what is expected of it no more, and take it in."""
        if kind is BUDGETS:
            self.disruptions.changed(change, self.pods.items())
        elif kind is PODS and change.new is None:
            # Nothing is expected of a pod that is gone, and by now its budgets have counted it.
            self.expectations.forget(change.key)
            namespace, _, name = change.key.partition("/")
            self._take_again(BUDGETS, self.disruptions.gone(namespace, name))
        elif kind is PODS and change.new is not None:
            self._take_again(BUDGETS, self.disruptions.pod_changed(change.key, change.new))
        self._take(kind, change.key, change.new)

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
            new = self.expectations.overlay(key, actual)
            if new is not None and is_terminal(new):
                new = None
        elif kind is BUDGETS and actual is not None:
            new = self.disruptions.overlay(key, actual)
        if new is not None:
            try:
                kind.put(self.snapshot, new)
            except ClusterError as error:
                log.warning("a %s is ignored: %s", kind.resource.kind, error)
                new = None
        if new is None:
            kind.remove(self.snapshot, key)
        if kind is PODS:
            if new is not None:
                self.index.put(key, new)
                self.waiting.put(key, new)
            else:
                self.index.drop(key)
                self.waiting.drop(key)


@dataclass(frozen=True, slots=True)
class _Leaving:
    uid: str
    plans: frozenset[str]
    """The plans that expect it; a pod whose room several count on may be asked for any of them."""
    end: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class _Nominated:
    uid: str
    plan: str
    node: str


class Expectations:
    """Victims expected to be terminating and preemptors expected to be nominated, by `namespace/name`.

    An expectation ends when the watch shows what is expected, when the pod is gone, or when its plan is given up.
    """

    def __init__(self) -> None:
        self.cleared: dict[str, str] = {}
        """Pod to the plan that was taken off it, until the watch shows the pod without a plan."""
        self._leaving: dict[str, _Leaving] = {}
        self._nominated: dict[str, _Nominated] = {}

    def __len__(self) -> int:
        return len(self._leaving) + len(self._nominated)

    def expect_leaving(self, key: str, uid: str, plan: str, end: float) -> None:
        """The pod was, or is about to be, asked to leave until `end`, in seconds since the epoch."""
        known = self._leaving.get(key)
        others = known.plans if known is not None and known.uid == uid else frozenset()
        self._leaving[key] = _Leaving(uid, others | {plan}, rfc3339(end))

    def expect_gone(self, plan: str) -> list[str]:
        """The pods that this plan has asked to leave count as gone now; their keys."""
        keys = [key for key, it in self._leaving.items() if plan in it.plans]
        self._leaving |= {key: replace(self._leaving[key], gone=True) for key in keys}
        return keys

    def expect_nominated(self, key: str, uid: str, plan: str, node: str) -> None:
        """The pod was, or is about to be, nominated to the node."""
        self._nominated[key] = _Nominated(uid, plan, node)

    def give_up(self, plan: str, *, but: Container[str] = (), nominated: bool = False) -> list[str]:
        """Expect nothing of this plan any more except of the pods of these uids; the keys that are to be looked at.

        With `nominated` its preemptor is still expected to be.
        """
        leaving = [key for key, it in self._leaving.items() if plan in it.plans and it.uid not in but]
        held = [] if nominated else [key for key, it in self._nominated.items() if it.plan == plan]
        for key in leaving:
            others = self._leaving[key].plans - {plan}
            if others:
                self._leaving[key] = replace(self._leaving[key], plans=others)
            else:
                del self._leaving[key]
        for key in held:
            del self._nominated[key]
        return leaving + held

    def overlay(self, key: str, pod: Pod) -> Pod | None:
        """The pod with what is expected of it; None if it counts as gone.

        An expectation ends here once the watch shows it.
        """
        nominated, leaving = self._nominated.get(key), self._leaving.get(key)
        if key in self.cleared and PLAN not in (pod.metadata.annotations or {}):
            del self.cleared[key]
        if nominated is not None:
            # An earlier plan's nomination to the same node, on its way to be cleared, is not the one that is expected.
            seen = pod.status.nominated_node_name == nominated.node and carries(pod, nominated.plan)
            if seen or nominated.uid != pod.metadata.uid or pod.spec.node_name:
                del self._nominated[key]
            else:
                status = msgspec.structs.replace(pod.status, nominated_node_name=nominated.node)
                pod = msgspec.structs.replace(pod, status=status)
        if leaving is None:
            return pod
        if leaving.uid != pod.metadata.uid or pod.metadata.deletion_timestamp:
            del self._leaving[key]
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=leaving.end)
        return None if leaving.gone else msgspec.structs.replace(pod, metadata=meta)

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self.cleared.pop(key, None)
        self._leaving.pop(key, None)
        self._nominated.pop(key, None)


class Indexes:
    """Keys (`namespace/name`) of pods by what they have in common, the pods taken with what is expected of them."""

    def __init__(self) -> None:
        self.leaving: dict[str, Pod] = {}
        """Pods on a node that are terminating."""
        self.nominated: dict[str, set[str]] = {}
        """Node to the pending pods nominated to it."""
        self.owned: dict[str, set[str]] = {}
        """Owner (`kube.pods.workload_of`) to its pods on nodes."""
        self.pinned: set[str] = set()
        """The pods on nodes that name the one node they can run on."""
        self._nomination: dict[str, str] = {}
        self._owner: dict[str, str] = {}

    def put(self, key: str, pod: Pod) -> None:
        """Add or update a pod."""
        if not pod.spec.node_name:
            self.drop(key)
            _file(self.nominated, self._nomination, key, pod.status.nominated_node_name)
            return
        _file(self.nominated, self._nomination, key, "")
        _file(self.owned, self._owner, key, workload_of(pod))
        if pod.metadata.deletion_timestamp:
            self.leaving[key] = pod
        else:
            self.leaving.pop(key, None)
        if is_pinned(pod):
            self.pinned.add(key)
        else:
            self.pinned.discard(key)

    def drop(self, key: str) -> None:
        """Forget a pod."""
        _file(self.nominated, self._nomination, key, "")
        _file(self.owned, self._owner, key, "")
        self.leaving.pop(key, None)
        self.pinned.discard(key)


def _file(groups: dict[str, set[str]], group_of: dict[str, str], key: str, group: str) -> None:
    """Move a key to a group, to none if the name is empty; groups without keys are forgotten."""
    before = group_of.get(key, "")
    if before == group:
        return
    if before:
        del group_of[key]
        groups[before].discard(key)
        if not groups[before]:
            del groups[before]
    if group:
        group_of[key] = group
        groups.setdefault(group, set()).add(key)
