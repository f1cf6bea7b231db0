"""Where PriorityClasses and Namespaces come from: a cluster's list+watch caches, or given objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from webhook.admission.context import CLASSES, NAMESPACES, Lookup, Objects, Overlay
from webhook.kube.client import ApiError, Client
from webhook.kube.informer import Change, Informer
from webhook.kube.objects import Namespace, PriorityClass
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS

__all__ = ["CachedObjects", "GivenObjects", "ObjectSource"]

T = TypeVar("T")


class ObjectSource(Protocol):
    """What the server knows of the cluster, and how it asks for more."""

    @property
    def lookup(self) -> Lookup:
        """The objects as last heard of."""
        ...

    def missing(self) -> list[str]:
        """The resources not heard of yet; the server is not ready while there are any."""
        ...

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        ...

    async def ask(self, unsure: Iterable[tuple[str, str]]) -> Lookup | None:
        """Look the named objects up live. None if there is nobody to ask; raises ApiError without an answer."""
        ...

    async def run(self) -> None:
        """Keep the objects current until it is cancelled."""
        ...


class GivenObjects:
    """Objects from files or from a test: complete from the start, and never asked about again."""

    def __init__(self, objects: Objects) -> None:
        self.lookup: Lookup = objects

    def missing(self) -> list[str]:
        """Nothing is missing."""
        return []

    def ages(self) -> dict[str, float]:
        """Given objects do not age."""
        return {}

    async def ask(self, unsure: Iterable[tuple[str, str]]) -> Lookup | None:
        """There is nobody to ask."""
        del unsure
        return None

    async def run(self) -> None:
        """Nothing ever changes."""
        await asyncio.Event().wait()


class CachedObjects:
    """The caches of one cluster. `classes` and `namespaces` may be shared with others who need them."""

    def __init__(
        self,
        client: Client,
        classes: Informer[PriorityClass] | None = None,
        namespaces: Informer[Namespace] | None = None,
    ) -> None:
        self._client = client
        self._classes = classes or Informer(client, PRIORITY_CLASS.path(), PriorityClass)
        self._namespaces = namespaces or Informer(client, NAMESPACE.path(), Namespace)
        self._own = [cache for cache, given in ((self._classes, classes), (self._namespaces, namespaces)) if not given]
        self._defaults = {name: item for name, item in self._classes.items().items() if item.global_default}
        self._classes.handlers.append(self._note_default)

    @property
    def lookup(self) -> Lookup:
        """The objects as last heard of."""
        return self

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        return self._classes.get(name)

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        return list(self._defaults.values())

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        return self._namespaces.get(name)

    def on_namespace(self, name: str, call: Callable[[], object]) -> None:
        """Call this whenever the namespace of that name changes."""

        def note(change: Change[Namespace]) -> None:
            if change.key == name:
                call()

        self._namespaces.handlers.append(note)

    def missing(self) -> list[str]:
        """The resources not heard of yet."""
        caches = ((CLASSES, self._classes.synced), (NAMESPACES, self._namespaces.synced))
        return [resource for resource, synced in caches if not synced.is_set()]

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard from, by resource."""
        return {CLASSES: self._classes.age(), NAMESPACES: self._namespaces.age()}

    async def ask(self, unsure: Iterable[tuple[str, str]]) -> Lookup | None:
        """Look the named objects up live; raises ApiError if the API server gives no answer."""
        classes: dict[str, PriorityClass | None] = {}
        namespaces: dict[str, Namespace | None] = {}
        for resource, name in unsure:
            if resource == CLASSES:
                classes[name] = await self._get(PRIORITY_CLASS.path(name=name), PriorityClass)
            else:
                namespaces[name] = await self._get(NAMESPACE.path(name=name), Namespace)
        return Overlay(self, classes, namespaces)

    async def run(self) -> None:
        """Keep those caches current that are not run by somebody else."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._own:
                tasks.create_task(cache.run())

    async def _get(self, path: str, type_: type[T]) -> T | None:
        try:
            return await self._client.get(path, type_)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _note_default(self, change: Change[PriorityClass]) -> None:
        if change.new is not None and change.new.global_default:
            self._defaults[change.key] = change.new
        else:
            self._defaults.pop(change.key, None)
