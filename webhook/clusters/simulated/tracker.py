"""The objects of a simulated cluster, and who watches them. Objects are replaced, never changed in place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.clusters.simulated.objects import KINDS, ClusterObjects
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import Resource


class LiveCache(ObjectCache[Any]):
    """The objects of one kind as they are: `handlers` hear of a change at once, `followers` in the next turn."""

    def __init__(self, name: str, items: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._items = dict(items)
        self.followers: list[ObjectCache[Any]] = []

    def fill(self) -> None:
        """Tell of every object as new, and followers that they are in sync."""
        for key, item in list(self._items.items()):
            self._notify(Change("added", key, None, item))
            for cache in self.followers:
                cache.take(key, item)
        for cache in self.followers:
            cache.synced.set()

    def change(self, key: str, new: Any) -> Any:
        """Put an object in the place of the one of that key, None to take it away; returns the one that was there."""
        old = self._items.get(key)
        if new is None:
            del self._items[key]
        else:
            self._items[key] = new
        self._notify(Change("added" if old is None else "deleted" if new is None else "modified", key, old, new))
        return old


class ObjectTracker:
    """Objects by kind and key. It is the `Informers` of all that acts in the cluster (`scheduling.cluster_state`)."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._caches = {kind.name: LiveCache(kind.resource.path(), objects.of(kind.name)) for kind in KINDS}
        self._news: deque[tuple[LiveCache, str, Any]] = deque()
        self.version = 0
        """How many changes there were."""
        self.delivered = 0
        """How many changes followers were told of."""

    def cache(self, resource: Resource, type_: type[Any] = object, *, optional: bool = False) -> LiveCache:
        """The objects of a resource. Raises KeyError for one that no cluster file has."""
        del type_, optional
        return self._caches[resource.title]

    def fill(self) -> None:
        """Tell everybody of everything there is, in the order of the kinds: pods last."""
        for cache in self._caches.values():
            cache.fill()

    def get(self, kind: str, key: str) -> Any:
        """An object, or None; there is none of a kind that decides nothing, such as an operator's own."""
        return self._caches[kind].get(key) if kind in self._caches else None

    def pod(self, key: str) -> Pod | None:
        """A pod, or None."""
        pod: Pod | None = self._caches["Pod"].get(key)
        return pod

    def all(self, kind: str) -> Mapping[str, Any]:
        """All objects of a kind by key."""
        return self._caches[kind].items()

    def put(self, kind: str, item: Any) -> Any:
        """Create or replace an object; returns it with its new version."""
        version = str(self.version + 1)
        meta: ObjectMeta = msgspec.structs.replace(item.metadata, resource_version=version)
        item = msgspec.structs.replace(item, metadata=meta)
        self._change(kind, key_of(item), item)
        return item

    def remove(self, kind: str, key: str) -> Any:
        """Take an object away; returns it, None if there is none."""
        return self._change(kind, key, None) if self.get(kind, key) is not None else None

    def _change(self, kind: str, key: str, new: Any) -> Any:
        self.version += 1
        cache = self._caches[kind]
        old = cache.change(key, new)
        if cache.followers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._deliver)
            self._news.append((cache, key, new))
        return old

    def _deliver(self) -> None:
        """Tell followers what has happened, in order."""
        for _ in range(len(self._news)):
            changed, key, new = self._news.popleft()
            self.delivered += 1
            for cache in changed.followers:
                cache.take(key, new)
        if self._news:
            asyncio.get_running_loop().call_soon(self._deliver)
