"""Where PriorityClasses, Namespaces and PodGroups come from: a cluster's list+watch caches, and live look-ups."""

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
"""In the order in which a `Lookup` takes them."""
_NEEDED = (CLASSES, NAMESPACES)
"""What every API server has."""


class CachedObjects:
    """What the server knows of one cluster, by its caches, and how it asks for more."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[str, Informer[Any]] = {
            name: Informer(client, kind.paths(), type_, optional=name == POD_GROUPS)
            for name, (kind, type_) in _KINDS.items()
        }
        self._group_version = 0
        """Which version of PodGroups answered last."""
        self._lookups = Lookups(self._get, self._caches, optional=[POD_GROUPS])
        self.lookup = Lookup(*(cache.items() for cache in self._caches.values()))
        """The objects as last heard of."""
        self.looked_up: Callable[[str], object] = lambda _: None
        """Called with the resource for each object that is looked up live."""

    def on_namespace(self, name: str, call: Callable[[], None]) -> None:
        """Call this whenever the namespace of that name changes."""
        self._caches[NAMESPACES].handlers.append(lambda change: call() if change.key == name else None)

    def terminating(self, namespace: str) -> bool:
        """Whether this namespace is being deleted."""
        known = self.lookup.namespace(namespace)
        return known is not None and known.metadata.deletion_timestamp is not None

    def missing(self) -> list[str]:
        """The resources not heard of yet; the server is not ready while there are any."""
        return [resource for resource in _NEEDED if not self._caches[resource].synced.is_set()]

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        return {resource: self._caches[resource].age() for resource in _NEEDED}

    async def ask(self, unsure: Iterable[tuple[str, str]], asker: Asker) -> Lookup:
        """Look the named objects up live; raises ApiError if the API server gives no answer."""
        live: dict[str, dict[str, Any]] = {resource: {} for resource in _KINDS}
        for resource, name in unsure:
            live[resource][name] = await self._lookups.find(resource, name, asker)
        return self.lookup.corrected(live)

    async def run(self) -> None:
        """Keep the caches current until it is cancelled."""
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
