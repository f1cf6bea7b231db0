"""The objects of a simulated cluster, and who watches them. Objects are replaced, never changed in place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from webhook.kube.informer import Change, Informer
from webhook.kube.objects import ObjectMeta, Pod, key_of
from webhook.kube.resources import Resource
from webhook.simulation.snapshot.objects import BY_KIND, KINDS, ClusterObjects

__all__ = ["Store"]

Handler = Callable[[Change[Any]], None]


class Store:
    """Objects by kind and key. `hooks` hear of a change at once, informers in the next turn of the loop, in order."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects: dict[str, dict[str, Any]] = {kind.name: dict(objects.of(kind.name)) for kind in KINDS}
        self._informers: dict[str, list[Informer[Any]]] = {}
        self._shared: dict[tuple[str, type], Informer[Any]] = {}
        self._hooks: dict[str, list[Handler]] = {}
        self._news: deque[tuple[str, str, Any]] = deque()
        self.version = 0
        """How many changes there were."""
        self.delivered = 0
        """How many changes were told."""

    def cache(self, resource: Resource, type_: type[Any]) -> Informer[Any]:
        """A copy of a resource that is told of every change, as `scheduling.cluster_state.Informers`."""
        found = self._shared.get((resource.kind, type_))
        if found is None:
            found = self._shared[resource.kind, type_] = Informer(_Unread(), resource.path(), type_)
            self.feed(resource.kind, found)
        return found

    def feed(self, kind: str, informer: Informer[Any]) -> None:
        """Tell an informer of every change from now on."""
        self._informers.setdefault(kind, []).append(informer)

    def fill(self, kinds: tuple[str, ...] = tuple(BY_KIND)) -> None:
        """Tell the informers of everything there is, pods last, and that they are in sync."""
        for kind in kinds:
            for informer in self._informers.get(kind, ()):
                for key, item in self._objects[kind].items():
                    informer.take(key, item)
                informer.synced.set()

    def hook(self, kind: str, handler: Handler) -> None:
        """Call somebody at once on every change."""
        self._hooks.setdefault(kind, []).append(handler)

    def get(self, kind: str, key: str) -> Any:
        """An object, or None."""
        return self._objects[kind].get(key)

    def pod(self, key: str) -> Pod | None:
        """A pod, or None."""
        found: Pod | None = self._objects["Pod"].get(key)
        return found

    def all(self, kind: str) -> dict[str, Any]:
        """All objects of a kind by key; not to be changed."""
        return self._objects[kind]

    def put(self, kind: str, item: Any) -> Any:
        """Create or replace an object; returns it with its new version."""
        self.version += 1
        meta: ObjectMeta = msgspec.structs.replace(item.metadata, resource_version=str(self.version))
        item = msgspec.structs.replace(item, metadata=meta)
        key = key_of(item)
        old = self._objects[kind].get(key)
        self._objects[kind][key] = item
        self._tell(kind, Change("added" if old is None else "modified", key, old, item))
        return item

    def remove(self, kind: str, key: str) -> Any:
        """Take an object away; returns it, None if there is none."""
        old = self._objects[kind].pop(key, None)
        if old is not None:
            self.version += 1
            self._tell(kind, Change("deleted", key, old, None))
        return old

    def _tell(self, kind: str, change: Change[Any]) -> None:
        for handler in self._hooks.get(kind, ()):
            handler(change)
        if kind in self._informers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._deliver)
            self._news.append((kind, change.key, change.new))

    def _deliver(self) -> None:
        """Tell what has happened, in order."""
        for _ in range(len(self._news)):
            kind, key, new = self._news.popleft()
            self.delivered += 1
            for informer in self._informers[kind]:
                informer.take(key, new)
        if self._news:
            asyncio.get_running_loop().call_soon(self._deliver)


class _Unread:
    """A source that nobody reads: the store tells by itself."""

    def pages(self, path: str, as_: type[Any], *, limit: int = 500, **query: Any) -> Any:
        """Nothing."""
        raise NotImplementedError

    def watch(self, path: str, *, resource_version: str, opened: Callable[[], None], **query: Any) -> Any:
        """Nothing."""
        raise NotImplementedError
