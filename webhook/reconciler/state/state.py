"""The cluster as this process knows it: list+watch caches that feed the decision's snapshot in place.

Over what the watch shows lies what was done but is not seen yet (`expectations`); the snapshot and the indexes here
hold the pods *with* that overlay, the caches hold them as the server sent them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from webhook.kube.client import Client
from webhook.kube.informer import Change, Informer
from webhook.kube.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
    key_of,
)
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.resources import (
    CSI_NODE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    STORAGE_CLASS,
    Resource,
)
from webhook.kube.selectors import Matcher, SelectorError, label_matcher, nothing
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.expectations import Disruptions, Expectations
from webhook.reconciler.state.indexes import Indexes
from webhook.reconciler.state.preemptors import is_over

__all__ = ["State"]

log = logging.getLogger(__name__)

Listener = Callable[[str, Change[Any]], None]


class State:
    """Caches, snapshot and indexes of one cluster; `annotations` are the ones the rules read.

    `listeners` hear every change, by kind, after it was taken in.
    """

    def __init__(self, client: Client, annotations: Collection[str]) -> None:
        self.snapshot = Snapshot(annotations)
        self.expectations = Expectations()
        self.disruptions = Disruptions()
        self.listeners: list[Listener] = []
        self.index = Indexes()
        self._minor: dict[str, Informer[Any]] = {}
        self.pods = Informer(client, POD.path(), Pod, transform=SharedPods())
        self.nodes = Informer(client, NODE.path(), Node)
        self.budgets = Informer(client, POD_DISRUPTION_BUDGET.path(), PodDisruptionBudget)
        self._caches: dict[str, Informer[Any]] = {
            "nodes": self.nodes,
            "poddisruptionbudgets": self.budgets,
            "priorityclasses": self._fed("class", client, PRIORITY_CLASS, PriorityClass, "priority_class"),
            "namespaces": self._fed("namespace", client, NAMESPACE, Namespace, "namespace"),
            "persistentvolumes": self._fed("volume", client, PERSISTENT_VOLUME, PersistentVolume, "persistent_volume"),
            "persistentvolumeclaims": self._fed(
                "volume", client, PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim, "persistent_volume_claim"
            ),
            "csinodes": self._fed("volume", client, CSI_NODE, CSINode, "csi_node"),
            "storageclasses": self._fed("volume", client, STORAGE_CLASS, StorageClass, "storage_class"),
            "pods": self.pods,
        }
        self._covers: dict[str, dict[str, Matcher]] = {}
        """Namespace to its budgets, by key, and what each covers."""
        self.pods.handlers.append(self._pod_changed)
        self.nodes.handlers.append(self._node_changed)
        self.budgets.handlers.append(self._budget_changed)

    def keep(self, annotations: Collection[str]) -> None:
        """Have the snapshot keep these pod annotations; if it does not, it is made again."""
        if set(annotations) <= self.snapshot.pods.annotations:
            return
        before, self.snapshot = self.snapshot, Snapshot(annotations)
        self.snapshot.version = before.version
        for name, cache in self._minor.items():
            for key, item in cache.items().items():
                self._take(name, key, item)
        for node in self.nodes.items().values():
            self._take_node(node)
        for key in self.budgets.items():
            self._take_budget(key)
        self.refresh(list(self.pods.items()))

    async def run(self) -> None:
        """Keep everything current until it is cancelled; pods come last, when what they are judged by is there."""
        async with asyncio.TaskGroup() as tasks:
            others = [cache for cache in self._caches.values() if cache is not self.pods]
            for cache in others:
                tasks.create_task(cache.run())
            await asyncio.gather(*(cache.synced.wait() for cache in others))
            tasks.create_task(self.pods.run())

    @property
    def synced(self) -> bool:
        """Whether every cache has been filled once."""
        return all(cache.synced.is_set() for cache in self._caches.values())

    async def wait_for_sync(self) -> None:
        """Wait until every cache has been filled once."""
        await asyncio.gather(*(cache.synced.wait() for cache in self._caches.values()))

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was heard from, by resource; infinite before the first time."""
        return {resource: cache.age() for resource, cache in self._caches.items()}

    def pod(self, key: str) -> Pod | None:
        """The pod as the watch last showed it."""
        return self.pods.get(key)

    def refresh(self, keys: Iterable[str]) -> None:
        """Take these pods in again, because what is expected of them has changed."""
        for key in keys:
            pod = self.pods.get(key)
            if pod is None:
                self._drop_pod(key)
            else:
                self._take_pod(key, pod)

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
            for budget in self._budgets_of(pod):
                self.disruptions.expect(budget, pod.metadata.name, plan)
                self._take_budget(budget)
        self.refresh(touched)

    def count_as_gone(self, plan: str) -> None:
        """Take the victims of a rehearsed plan out of account, as if they had left and been replaced elsewhere."""
        self.refresh(self.expectations.expect_gone(plan))
        for budget in self.disruptions.give_up(plan):
            self._take_budget(budget)

    def hold(self, plan: str, preemptor: tuple[str, str], node: str) -> None:
        """Count the preemptor (key, uid) as nominated though the scheduler has cleared its nomination."""
        key, uid = preemptor
        self.expectations.expect_nominated(key, uid, plan, node)
        self.refresh((key,))

    def give_up(self, plan: str, asked: Iterable[PlanVictim], *, nominated: bool = False) -> None:
        """Expect nothing of a plan any more but that the pods it has asked leave, and that it is `nominated` if so."""
        done = list(asked)
        self.refresh(self.expectations.give_up(plan, but={victim.uid for victim in done}, nominated=nominated))
        for budget in self.disruptions.give_up(plan, but={victim.name for victim in done}):
            self._take_budget(budget)

    def has_budget(self, pod: Pod) -> bool:
        """Whether a disruption budget covers the pod."""
        return bool(self._budgets_of(pod))

    def lower_nominated(self, node: str, priority: int, but: str) -> list[Pod]:
        """Pending pods of lower priority nominated to the node, as the watch last showed them."""
        pods = [self.pods.get(key) for key in self.index.nominated.get(node, ()) if key != but]
        return [pod for pod in pods if pod is not None and (pod.spec.priority or 0) < priority]

    def _fed(self, kind: str, client: Client, resource: Resource, type_: type[Any], name: str) -> Informer[Any]:
        """A cache whose objects go to the snapshot as they are."""
        cache: Informer[Any] = Informer(client, resource.path(), type_)
        self._minor[name] = cache

        def changed(change: Change[Any]) -> None:
            self._take(name, change.key, change.new)
            self._tell(kind, change)

        cache.handlers.append(changed)
        return cache

    def _take(self, name: str, key: str, item: Any) -> None:
        """Hand an object to the snapshot; None takes it away, and one that cannot be read is left out."""
        if item is not None:
            try:
                getattr(self.snapshot, f"set_{name}")(item)
            except ClusterError as error:
                log.warning("an object is ignored: %s", error)
            else:
                return
        getattr(self.snapshot, f"remove_{name}")(key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is None:
            self.expectations.forget(change.key)
            self._drop_pod(change.key)
            namespace, _, name = change.key.partition("/")
            for budget in self.disruptions.gone(namespace, name):
                self._take_budget(budget)
        else:
            self._take_pod(change.key, change.new)
        self._tell("pod", change)

    def _take_pod(self, key: str, actual: Pod) -> None:
        pod = self.expectations.overlay(key, actual)
        if is_over(pod) or self.expectations.is_gone(key, pod.metadata.uid):
            self._drop_pod(key)
            return
        try:
            self.snapshot.set_pod(pod)
        except ClusterError as error:
            log.warning("a pod is ignored: %s", error)
            self._drop_pod(key)
            return
        self.index.put(key, pod)

    def _drop_pod(self, key: str) -> None:
        self.snapshot.remove_pod(key)
        self.index.drop(key)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self.snapshot.remove_node(change.key)
        else:
            self._take_node(change.new)
        self._tell("node", change)

    def _take_node(self, node: Node) -> None:
        try:
            self.snapshot.set_node(node)
        except ClusterError as error:
            log.warning("a node is ignored: %s", error)
            self.snapshot.remove_node(node.metadata.name)

    def _budgets_of(self, pod: Pod) -> list[str]:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        return [key for key, covers in self._covers.get(namespace, {}).items() if covers(labels)]

    def _is_terminating(self, key: str) -> bool:
        pod = self.pods.get(key)
        return pod is not None and bool(pod.metadata.deletion_timestamp)

    def _take_budget(self, key: str) -> None:
        budget = self.budgets.get(key)
        if budget is not None:
            self._take("budget", key, self.disruptions.overlay(key, budget))

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        namespace = change.key.partition("/")[0]
        budgets = self._covers.setdefault(namespace, {})
        if change.new is None:
            self.snapshot.remove_budget(change.key)
            budgets.pop(change.key, None)
        else:
            budgets[change.key] = _selector(change.new)
            if change.old is not None:
                fell = change.old.status.current_healthy - change.new.status.current_healthy
                self.disruptions.fell(change.key, fell, lambda name: self._is_terminating(f"{namespace}/{name}"))
            self._take_budget(change.key)
        if not budgets:
            del self._covers[namespace]
        self._tell("budget", change)

    def _tell(self, kind: str, change: Change[Any]) -> None:
        for listener in self.listeners:
            listener(kind, change)


def _selector(budget: PodDisruptionBudget) -> Matcher:
    """What a budget covers; an unreadable selector covers nothing."""
    try:
        return label_matcher(budget.spec.selector)
    except SelectorError:
        return nothing
