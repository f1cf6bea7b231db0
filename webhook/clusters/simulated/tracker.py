"""The objects of a simulated cluster, and who watches them. Objects are replaced, never changed in place."""

from __future__ import annotations

from collections.abc import Callable
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
    """Objects by kind and key, and who hears of a change, which is at once."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects: dict[str, dict[str, Any]] = {kind.name: dict(objects.of(kind.name)) for kind in KINDS}
        self._hooks: dict[str, list[Handler]] = {}
        self.version = 0
        """How many changes there were."""

    def feed(self, kind: str, cache: ObjectCache[Any]) -> None:
        """Let a cache take what there is of a kind, and every change from now on."""
        for key, item in self._objects.get(kind, {}).items():
            cache.take(key, item)
        cache.synced.set()  # also of a kind of which a file holds nothing
        self.hook(kind, lambda change: cache.take(change.key, change.new))

    def hook(self, kind: str, handler: Handler) -> None:
        """Call somebody on every change."""
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
