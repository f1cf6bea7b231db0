"""What controllers are made of: where they act, which pods are whose, and the loop around a work queue."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from webhook.clusters.acting.work_queue import WorkQueue
from webhook.clusters.model.pods import is_active, is_ready
from webhook.clusters.scheduling.cluster_state import Informers
from webhook.kube.errors import ApiError
from webhook.kube.instants import Clock
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.kube.resources import POD, Resource

NOT_FOUND = 404
CONFLICT = 409
Json = dict[str, Any]


@contextmanager
def tolerating(*statuses: int) -> Iterator[None]:
    """Let a request be refused with one of these HTTP statuses; what follows it in the block is then left out."""
    try:
        yield
    except ApiError as error:
        if error.status not in statuses:
            raise


class ControlledPods:
    """The pods that have a controller, by its uid, and who hears of them."""

    def __init__(self, informers: Informers) -> None:
        self.cache: ObjectCache[Pod] = informers.cache(POD, Pod)
        self.cache.handlers.append(self._notice)
        self.quiet = False
        """Whether nobody hears of pods for now, as while they are read from a file."""
        self._of: dict[str, dict[str, Pod]] = {}
        self._handlers: dict[str, list[Callable[[OwnerReference, Change[Pod]], None]]] = {}

    def of(self, uid: str) -> Collection[Pod]:
        """The pods of the controller of that uid, as far as the cache knows."""
        return self._of.get(uid, {}).values()

    def follow(self, kind: str, handler: Callable[[OwnerReference, Change[Pod]], None]) -> None:
        """Call somebody when a pod of a controller of this kind is new, gone, or counts otherwise than before."""
        self._handlers.setdefault(kind, []).append(handler)

    def _notice(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        after = controller_of(new.metadata) if new is not None else None
        before = after
        if new is None or (old is not None and old.metadata.owner_references is not new.metadata.owner_references):
            before = controller_of(old.metadata) if old is not None else None
        if before is not None and (after is None or after.uid != before.uid):
            rows = self._of.get(before.uid, {})
            rows.pop(change.key, None)
            if not rows:
                self._of.pop(before.uid, None)
        if after is not None and new is not None:
            self._of.setdefault(after.uid, {})[change.key] = new
        owner = after or before
        if owner is not None and owner.kind in self._handlers and not self.quiet and _counts_otherwise(old, new):
            for handler in self._handlers[owner.kind]:
                handler(owner, change)


def _counts_otherwise(old: Pod | None, new: Pod | None) -> bool:
    if old is None or new is None:
        return True
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
    pods: ControlledPods
    template_of: Callable[[str, Any], Json | None] = lambda _kind, workload: workload.pod_template()
    """What the pods of a workload of that kind are made of; None if that is not known."""
    retries: bool = True
    """Whether what was refused is tried again."""
    reports: bool = True
    """Whether a status is written that only people read."""

    def workloads(self, resource: Resource) -> ObjectCache[Any]:
        """The workloads of a resource."""
        return self.informers.cache(resource, self.workload_type)


class Controller(ABC):
    """A control loop: what changes is added to the queue by its key, and `sync` brings it where it should be."""

    name: str

    def __init__(self, context: ControllerContext) -> None:
        self.context = context
        self.queue = WorkQueue(self.name, self.sync, retries=context.retries)

    async def run(self) -> None:
        """Work until it is cancelled."""
        self.queue.start()
        try:
            await asyncio.Event().wait()
        finally:
            self.queue.stop()

    def watch_keys(self, resource: Resource) -> ObjectCache[Any]:
        """The workloads of a resource, of which every one that changes is looked at."""
        cache = self.context.workloads(resource)
        cache.handlers.append(lambda change: self.queue.add(change.key))
        return cache

    @abstractmethod
    async def sync(self, key: str) -> None:
        """Look at one object as it is now. Whatever it raises, the key is tried again later."""
