"""The caches of the stand-ins, which they share, and as what they read objects."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.objects.meta import KubeStruct, ObjectMeta
from webhook.kube.resources import Resource

T = TypeVar("T")


class Metadata(KubeStruct):
    """As much of an object as the garbage collector reads."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class StandInInformers:
    """Makes the caches that are asked for and runs them; ask before `run()`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[tuple[str, type], Informer[Any]] = {}

    def cache(self, resource: Resource, type_: type[T], *, optional: bool = False) -> Informer[Any]:
        """The cache of a resource, decoded to the type; an `optional` one may be missing on the server."""
        path, *other_paths = resource.paths()
        key = (path, type_)
        if key not in self._caches:
            self._caches[key] = Informer(self._client, path, type_, optional=optional, other_paths=other_paths)
        return self._caches[key]

    async def run(self) -> None:
        """Keep every cache current until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches.values():
                group.create_task(cache.run())

    async def synced(self) -> None:
        """Wait until every cache holds its first list."""
        await asyncio.gather(*(cache.synced.wait() for cache in self._caches.values()))
