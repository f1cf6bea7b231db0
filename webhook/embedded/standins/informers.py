"""Caches that the stand-ins share: one copy of each resource, however many of them look at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.objects import ObjectMeta
from webhook.kube.resources import Resource

__all__ = ["Metadata", "StandInInformers", "Workload"]


class Workload(msgspec.Struct, rename="camel", kw_only=True):
    """An object whose spec and status are read as they are."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Metadata(msgspec.Struct, rename="camel", kw_only=True):
    """As much of an object as the garbage collector reads."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


T = TypeVar("T")


class StandInInformers:
    """Makes the caches that are asked for and runs them; ask before `run()`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[tuple[str, type], Informer[Any]] = {}

    def cache(self, resource: Resource, type_: type[T]) -> Informer[Any]:
        """The cache of a resource, decoded to the type."""
        key = (resource.path(), type_)
        if key not in self._caches:
            self._caches[key] = Informer(self._client, resource.path(), type_)
        return self._caches[key]

    def watch_keys(self, resource: Resource, type_: type[T], add: Callable[[str], None]) -> Informer[Any]:
        """The cache of a resource, with every changed key handed to `add`."""
        cache = self.cache(resource, type_)
        cache.handlers.append(lambda change: add(change.key))
        return cache

    async def run(self) -> None:
        """Keep every cache current until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches.values():
                group.create_task(cache.run())

    async def synced(self) -> None:
        """Wait until every cache holds its first list."""
        await asyncio.gather(*(cache.synced.wait() for cache in self._caches.values()))
