"""Where PriorityClasses, Namespaces and PodGroups come from: a cluster's list+watch caches, or given objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from webhook.admission.context import CLASSES, NAMESPACES, POD_GROUPS, Lookup
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.informer import Informer
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import NAMESPACE, POD_GROUP, PRIORITY_CLASS, Resource
from webhook.serving.lookups import Asker, Lookups

_KINDS: dict[str, tuple[Resource, type[Any]]] = {
    CLASSES: (PRIORITY_CLASS, PriorityClass),
    NAMESPACES: (NAMESPACE, Namespace),
    POD_GROUPS: (POD_GROUP, PodGroup),
}


class ObjectSource:
    """What the server knows of the cluster, and how it asks for more.

    By itself these are given objects, of files or of a test: complete from the start, and never asked about again.
    """

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        """The objects as last heard of."""
        self.looked_up: Callable[[str], object] = lambda _: None
        """Called with the resource for each object that is looked up live."""

    def missing(self) -> list[str]:
        """The resources not heard of yet; the server is not ready while there are any."""
        return []

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        return {}

    async def ask(self, unsure: Iterable[tuple[str, str]], asker: Asker) -> Lookup | None:
        """Look the named objects up live. None if there is nobody to ask; raises ApiError without an answer."""
        del unsure, asker
        return None

    async def run(self) -> None:
        """Keep the objects current until it is cancelled."""
        await asyncio.Event().wait()


class CachedObjects(ObjectSource):
    """The caches of one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._classes = Informer(client, PRIORITY_CLASS.path(), PriorityClass)
        self._namespaces = Informer(client, NAMESPACE.path(), Namespace)
        paths = POD_GROUP.paths()
        self._groups = Informer(client, paths[0], PodGroup, optional=True, other_paths=paths[1:])
        self._group_version = 0
        """Which version of PodGroups answered last."""
        self._caches: dict[str, Informer[Any]] = {
            CLASSES: self._classes,
            NAMESPACES: self._namespaces,
            POD_GROUPS: self._groups,
        }
        self._lookups = Lookups(self._get, self._caches, optional=[POD_GROUPS])
        super().__init__(Lookup(self._classes.items(), self._namespaces.items(), self._groups.items()))

    def on_namespace(self, name: str, call: Callable[[], None]) -> None:
        """Call this whenever the namespace of that name changes."""
        self._namespaces.handlers.append(lambda change: call() if change.key == name else None)

    def missing(self) -> list[str]:
        """The resources not heard of yet."""
        caches = ((CLASSES, self._classes.synced), (NAMESPACES, self._namespaces.synced))
        return [resource for resource, synced in caches if not synced.is_set()]

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        return {CLASSES: self._classes.age(), NAMESPACES: self._namespaces.age()}

    async def ask(self, unsure: Iterable[tuple[str, str]], asker: Asker) -> Lookup | None:
        """Look the named objects up live; raises ApiError if the API server gives no answer."""
        live: dict[str, dict[str, Any]] = {CLASSES: {}, NAMESPACES: {}, POD_GROUPS: {}}
        for resource, name in unsure:
            live[resource][name] = await self._lookups.find(resource, name, asker)
        return self.lookup.corrected(live)

    async def run(self) -> None:
        """Keep the caches current."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches.values():
                tasks.create_task(cache.run())

    async def _get(self, resource: str, key: str) -> Any:
        """An object, or None; a PodGroup in whichever version is served, and the one that answered last comes first."""
        kind, type_ = _KINDS[resource]
        namespace, _, name = key.rpartition("/")
        if namespace and not kind.namespaced:
            return None
        paths = kind.paths(namespace or None, name)
        for place in sorted(range(len(paths)), key=lambda place: place != self._group_version):
            self.looked_up(resource)
            live: Any = await unless_absent(self._client.get(paths[place], type_))
            if live is not None:
                if resource == POD_GROUPS:
                    self._group_version = place
                return live
        return None
