"""The objects of a simulated cluster, and who watches them. Objects are replaced, never changed in place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec

from webhook.clusters.simulated.objects import BY_KIND, KINDS, ClusterObjects
from webhook.kube.object_cache import Change, ObjectCache
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import Resource

Handler = Callable[[Change[Any]], None]


class LiveCache(ObjectCache[Any]):
    """Shows the objects of a kind as they are, and tells of each change at once."""

    def fill(self, items: dict[str, Any]) -> None:
        """Show these objects from now on, and tell of each as new."""
        self._items = items
        for key, item in list(items.items()):
            self._notify(Change("added", key, None, item))

    def tell(self, change: Change[Any]) -> None:
        """Tell of a change that was made."""
        self._notify(change)


class LiveInformers:
    """The caches of kube-scheduler, or of what else acts in the cluster, of which `fill` tells once."""

    def __init__(self, tracker: ObjectTracker) -> None:
        self._tracker = tracker
        self._caches: dict[str, LiveCache] = {}

    def cache(self, resource: Resource, type_: type[Any], *, optional: bool = False) -> LiveCache:
        """The live cache of a resource, as `scheduling.cluster_state.Informers`."""
        del type_, optional
        kind = resource.title
        if kind not in self._caches:
            self._caches[kind] = LiveCache(resource.path())
            self._tracker.hook(kind, self._caches[kind].tell)
        return self._caches[kind]

    def fill(self) -> None:
        """Tell of all objects, in the order of their kinds: pods last."""
        for kind in BY_KIND:
            if kind in self._caches:
                self._caches[kind].fill(self._tracker.all(kind))


class ObjectTracker:
    """Objects by kind and key. `hooks` hear of a change at once, caches in the next turn of the loop, in order."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects: dict[str, dict[str, Any]] = {kind.name: dict(objects.of(kind.name)) for kind in KINDS}
        self._caches: dict[str, list[ObjectCache[Any]]] = {}
        self._hooks: dict[str, list[Handler]] = {}
        self._news: deque[tuple[str, str, Any]] = deque()
        self.version = 0
        """How many changes there were."""
        self.delivered = 0
        """How many changes were told."""

    def feed(self, kind: str, cache: ObjectCache[Any]) -> None:
        """Tell a cache of every change from now on."""
        self._caches.setdefault(kind, []).append(cache)

    def fill(self) -> None:
        """Tell the caches of everything there is, pods last, and that they are in sync."""
        for kind, items in self._objects.items():
            for cache in self._caches.get(kind, ()):
                for key, item in items.items():
                    cache.take(key, item)
        for cache in chain.from_iterable(self._caches.values()):  # also those of kinds of which a file holds nothing
            cache.synced.set()

    def hook(self, kind: str, handler: Handler) -> None:
        """Call somebody at once on every change."""
        self._hooks.setdefault(kind, []).append(handler)

    def get(self, kind: str, key: str) -> Any:
        """An object, or None; there is none of a kind that decides nothing, such as an operator's own."""
        return self._objects.get(kind, {}).get(key)

    def pod(self, key: str) -> Pod | None:
        """A pod, or None."""
        pod: Pod | None = self._objects["Pod"].get(key)
        return pod

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
        if kind in self._caches:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._deliver)
            self._news.append((kind, change.key, change.new))

    def _deliver(self) -> None:
        """Tell what has happened, in order."""
        for _ in range(len(self._news)):
            kind, key, new = self._news.popleft()
            self.delivered += 1
            for cache in self._caches[kind]:
                cache.take(key, new)
        if self._news:
            asyncio.get_running_loop().call_soon(self._deliver)
