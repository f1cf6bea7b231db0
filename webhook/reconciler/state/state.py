"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot in place.

Over what the watch shows lies what was done but is not seen yet (`expectations`); the snapshot and the indexes here
hold the pods *with* that overlay, the caches hold them as the server sent them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from webhook.kube.client import Client
from webhook.kube.informer import Change, Informer
from webhook.kube.objects import Node, Pod, PodDisruptionBudget, key_of
from webhook.kube.pods import is_terminal
from webhook.kube.resources import Resource
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.expectations import Disruptions, Expectations
from webhook.reconciler.state.indexes import Indexes
from webhook.reconciler.state.watched import BUDGETS, NODES, PODS, WATCHED, WatchedKind

__all__ = ["State"]

log = logging.getLogger(__name__)

Listener = Callable[[WatchedKind, Change[Any]], None]


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are the ones the rules read.

    `listeners` hear every change, after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations)
        self.expectations = Expectations()
        self.disruptions = Disruptions()
        self.listeners: list[Listener] = []
        self.index = Indexes()
        self.caches: dict[Resource, Informer[Any]] = {}
        for kind in WATCHED:
            transform = kind.transform() if kind.transform else None
            cache: Informer[Any] = Informer(client, kind.resource.path(), kind.type_, transform=transform)
            cache.handlers.append(partial(self._changed, kind))
            self.caches[kind.resource] = cache
        self.pods: Informer[Pod] = self.caches[PODS.resource]
        self.nodes: Informer[Node] = self.caches[NODES.resource]
        self.budgets: Informer[PodDisruptionBudget] = self.caches[BUDGETS.resource]
        self._covers: dict[str, dict[str, Matcher]] = {}
        """Namespace to its budgets, by key, and what each covers."""

    def keep(self, annotations: Collection[str]) -> None:
        """Have the snapshot keep these pod annotations; if it does not, it is made again."""
        if set(annotations) <= self.snapshot.pods.annotations:
            return
        before, self.snapshot = self.snapshot, Snapshot(annotations)
        self.snapshot.version = before.version
        for kind in WATCHED:
            for key, item in list(self.caches[kind.resource].items().items()):
                self._take(kind, key, item)

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
        """Wait until every cache has been filled once."""
        await asyncio.gather(*(cache.synced.wait() for cache in self.caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before the first time."""
        return {resource.plural: cache.age() for resource, cache in self.caches.items()}

    def pod(self, key: str) -> Pod | None:
        """The pod as the watch last showed it."""
        return self.pods.get(key)

    def pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod of that key and uid; None if it is gone, whoever has its name now."""
        pod = self.pods.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None

    def refresh(self, keys: Iterable[str]) -> None:
        """Take these pods in again, because what is expected of them has changed."""
        for key in keys:
            self._take(PODS, key, self.pods.get(key))

    def expect(
        self, plan: str, preemptor: tuple[str, str], node: str, victims: Iterable[Pod], ends: Mapping[str, float]
    ) -> None:
        """Count the preemptor (key, uid) as nominated and the victims as leaving.

        `ends` says for every victim, by uid, when it will be gone, in seconds since the epoch.
        """
        key, uid = preemptor
        self.expectations.expect_nominated(key, uid, plan, node)
        touched = [key]
        for pod in victims:
            touched.append(key_of(pod))
            self.expectations.expect_leaving(touched[-1], pod.metadata.uid, plan, ends[pod.metadata.uid])
            budgets = self._budgets_of(pod)
            for budget in budgets:
                self.disruptions.expect(budget, pod.metadata.name, plan)
            self._refresh_budgets(budgets)
        self.refresh(touched)

    def count_as_gone(self, plan: str) -> None:
        """Take the victims of a rehearsed plan out of account, as if they had left and been replaced elsewhere."""
        self.refresh(self.expectations.expect_gone(plan))
        self._refresh_budgets(self.disruptions.give_up(plan))

    def hold(self, plan: str, preemptor: tuple[str, str], node: str) -> None:
        """Count the preemptor (key, uid) as nominated though the scheduler has cleared its nomination."""
        key, uid = preemptor
        self.expectations.expect_nominated(key, uid, plan, node)
        self.refresh((key,))

    def give_up(self, plan: str, asked: Iterable[PlanVictim], *, nominated: bool = False) -> None:
        """Expect nothing of a plan any more but that the pods it has asked leave, and that it is `nominated` if so."""
        done = list(asked)
        self.refresh(self.expectations.give_up(plan, but={victim.uid for victim in done}, nominated=nominated))
        self._refresh_budgets(self.disruptions.give_up(plan, but={victim.name for victim in done}))

    def has_budget(self, pod: Pod) -> bool:
        """Whether a disruption budget covers the pod."""
        return bool(self._budgets_of(pod))

    def lower_nominated(self, node: str, priority: int, but: str) -> list[Pod]:
        """Pending pods of lower priority nominated to the node, as the watch last showed them."""
        pods = [self.pods.get(key) for key in self.index.nominated.get(node, ()) if key != but]
        return [pod for pod in pods if pod is not None and (pod.spec.priority or 0) < priority]

    def _changed(self, kind: WatchedKind, change: Change[Any]) -> None:
        """The watch has shown a change: forget what is expected of it no more, take it in, tell who listens."""
        if kind is PODS:
            self._note_pod(change)
        elif kind is BUDGETS:
            self._note_budget(change)
        self._take(kind, change.key, change.new)
        for listener in self.listeners:
            listener(kind, change)

    def _take(self, kind: WatchedKind, key: str, actual: Any) -> None:
        """Hand an object to the snapshot, with what is expected of it.

        None takes it away; one that cannot be read is left out, and so is a pod that has ended.
        """
        new = actual
        if kind is PODS and actual is not None:
            new = self.expectations.overlay(key, actual)
            if is_terminal(new) or self.expectations.is_gone(key, new.metadata.uid):
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
            self.index.put(key, new) if new is not None else self.index.drop(key)

    def _note_pod(self, change: Change[Pod]) -> None:
        """A pod that is gone is expected to do nothing; by now its budgets have counted it."""
        if change.new is None:
            self.expectations.forget(change.key)
            namespace, _, name = change.key.partition("/")
            self._refresh_budgets(self.disruptions.gone(namespace, name))

    def _note_budget(self, change: Change[PodDisruptionBudget]) -> None:
        """Learn what a budget covers, and which of the disruptions that are expected its status counts by now."""
        namespace = change.key.partition("/")[0]
        budgets = self._covers.setdefault(namespace, {})
        if change.new is None:
            budgets.pop(change.key, None)
        else:
            budgets[change.key] = _selector(change.new)

            def is_terminating(name: str) -> bool:
                pod = self.pods.get(f"{namespace}/{name}")
                return pod is not None and bool(pod.metadata.deletion_timestamp)

            if change.old is not None:
                fell = change.old.status.current_healthy - change.new.status.current_healthy
                self.disruptions.fell(change.key, fell, is_terminating)
        if not budgets:
            del self._covers[namespace]

    def _refresh_budgets(self, keys: Iterable[str]) -> None:
        """Take these budgets in again, because what is expected of them has changed."""
        for key in keys:
            if (budget := self.budgets.get(key)) is not None:
                self._take(BUDGETS, key, budget)

    def _budgets_of(self, pod: Pod) -> list[str]:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        return [key for key, covers in self._covers.get(namespace, {}).items() if covers(labels)]


def _selector(budget: PodDisruptionBudget) -> Matcher:
    """What a budget covers; an unreadable selector covers nothing."""
    try:
        return label_matcher(budget.spec.selector)
    except SelectorError:
        return nothing
