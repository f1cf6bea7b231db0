"""What controllers are made of: where they act, which pods are whose, and a loop over keys of objects."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from webhook.clusters.model.pods import is_active, is_ready
from webhook.clusters.model.workloads import Workload
from webhook.clusters.scheduling.cluster_state import Informers
from webhook.kube.backoff import exponential
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import Clock
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import KubeObject, OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.kube.resources import POD, Resource
from webhook.preemption.snapshot.columns import take_out

log = logging.getLogger(__name__)

FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
FIRST_DELAY = 0.05
LONGEST_DELAY = 10.0
Json = dict[str, Any]


T = TypeVar("T", bound=KubeObject)


class Controlled(Generic[T]):
    """The objects of a cache that have a controller, by its uid, and who hears of changes that are `news` to it."""

    def __init__(self, cache: ObjectCache[T], news: Callable[[T, T], bool] = lambda _old, _new: True) -> None:
        self.cache, self._news = cache, news
        self.cache.handlers.append(self._notice)
        self._of: dict[str, dict[str, T]] = {}
        self._handlers: dict[str, list[Callable[[OwnerReference, Change[T]], None]]] = {}

    def of(self, uid: str) -> Collection[T]:
        """The objects of the controller of that uid, as far as the cache knows."""
        return self._of.get(uid, {}).values()

    def follow(self, kind: str, handler: Callable[[OwnerReference, Change[T]], None]) -> None:
        """Call somebody when an object of a controller of this kind is new, gone, or changed in a way that is news."""
        self._handlers.setdefault(kind, []).append(handler)

    def _notice(self, change: Change[T]) -> None:
        old, new = change.old, change.new
        before = controller_of(old.metadata) if old is not None else None
        after = controller_of(new.metadata) if new is not None else None
        if before is not None and (after is None or after.uid != before.uid):
            take_out(self._of, before.uid, change.key)
        if after is not None and new is not None:
            self._of.setdefault(after.uid, {})[change.key] = new
        owner = after or before
        if owner is not None and owner.kind in self._handlers and (old is None or new is None or self._news(old, new)):
            for handler in self._handlers[owner.kind]:
                handler(owner, change)


def controlled_pods(informers: Informers) -> Controlled[Pod]:
    """The pods that have a controller; to it is news what it counts otherwise than before."""
    return Controlled(informers.cache(POD, Pod), _counts_otherwise)


def _counts_otherwise(old: Pod, new: Pod) -> bool:
    if old.status is new.status and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp:
        return False
    return (is_active(old), is_ready(old), old.status.phase) != (is_active(new), is_ready(new), new.status.phase)


@dataclass(frozen=True)
class ControllerContext:
    """Where controllers act."""

    informers: Informers
    clock: Clock
    workload_type: type[Any]
    """As what the informers decode workloads; a `Workload`."""
    pods: Controlled[Pod]
    template_of: Callable[[str, Any], Json | None] = lambda _kind, workload: workload.pod_template()
    """What the pods of a workload of that kind are made of; None if that is not known."""
    is_simulated: bool = False
    """Whether it is a simulation: nobody reads a status that decides nothing, and a refusal stays one."""

    def workloads(self, resource: Resource) -> ObjectCache[Any]:
        """The workloads of a resource."""
        return self.informers.cache(resource, self.workload_type)


class Controller(ABC):
    """A control loop: `sync` handles every key that was added, from `start` on; never one key twice at a time.

    A key added while it waits is handled once, one added while it is handled is handled again. One that fails is tried
    again later, but in a simulation.
    """

    def __init__(self, context: ControllerContext) -> None:
        self.context = context
        self._started = False
        self._waiting: dict[str, None] = {}
        self._active: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @abstractmethod
    async def sync(self, key: str) -> None:
        """Look at one object as it is now, and bring it where it should be."""

    def __str__(self) -> str:
        return type(self).__name__

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be handled, now or later."""
        return not self._waiting and not self._active and not self._timers

    def watch_keys(self, resource: Resource) -> ObjectCache[Any]:
        """The workloads of a resource, of which every one that changes is looked at."""
        cache = self.context.workloads(resource)
        cache.handlers.append(lambda change: self.add(change.key))
        return cache

    def add(self, key: str) -> None:
        """Have the key handled soon."""
        if self._started and key not in self._active:
            self._begin(key)
        else:
            self._waiting[key] = None

    def add_owner(self, owner: OwnerReference, change: Change[Any]) -> None:
        """Have the controller of an object handled soon, because that changed."""
        self.add(f"{change.key.partition('/')[0]}/{owner.name}")

    def add_after(self, key: str, delay: float) -> None:
        """Have the key handled after `delay` seconds, unless an earlier wish for it is under way."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._fire, key)

    def forget(self) -> None:
        """Drop the keys that wait; those that are to be handled later stay."""
        self._waiting.clear()

    def start(self) -> None:
        """Handle the keys that wait, and those to come."""
        self._started = True
        for key in list(self._waiting):
            self._begin(key)

    async def run(self) -> None:
        """Work until it is cancelled."""
        self.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._started = False
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            for task in self._active.values():
                task.cancel()

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _begin(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._active[key] = asyncio.create_task(self._handle(key), name=f"{self} {key}")

    async def _handle(self, key: str) -> None:
        try:
            await self.sync(key)
            self._failures.pop(key, None)
        except Exception as error:
            if isinstance(error, ApiError):
                level = logging.WARNING if error.status == FORBIDDEN else logging.DEBUG
                log.log(level, "%s: %s: %s", self, key, error)
            else:
                log.exception("%s: %s", self, key)
            if not self.context.is_simulated:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                self.add_after(key, exponential(failures, FIRST_DELAY, LONGEST_DELAY))
        finally:
            del self._active[key]
            if self._started and key in self._waiting:
                self._begin(key)


def owner_reference(resource: Resource, owner: Workload) -> Json:
    """The reference by which a controller marks what it made."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def put_status(client: Client, resource: Resource, workload: Workload, status: Json) -> None:
    """Write a workload's status if it changed; a workload that is gone or changed meanwhile is left alone."""
    if status == workload.told:
        return
    metadata = workload.metadata
    cleared = {key: None for key in workload.told if key not in status}
    body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": {**cleared, **status}}
    path = resource.path(metadata.namespace, metadata.name, "status")
    await unless_absent(client.patch(path, body, kind="merge"), NOT_FOUND, CONFLICT)
