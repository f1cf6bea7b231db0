"""What controllers are made of: informers that they share, a work queue each, and the loop between them."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.informer import Informer
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import Resource

log = logging.getLogger(__name__)

FIRST_DELAY = 0.05
LONGEST_DELAY = 10.0
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409

T = TypeVar("T")


@contextmanager
def tolerating(*statuses: int) -> Iterator[None]:
    """Let a request be refused with one of these HTTP statuses; what follows it in the block is then left out."""
    try:
        yield
    except ApiError as error:
        if error.status not in statuses:
            raise


class Unstructured(msgspec.Struct, rename="camel", kw_only=True):
    """An object whose spec and status are read as they are."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """How many pods a workload is to have."""
        return int(self.spec.get("replicas", 1))


class Metadata(msgspec.Struct, rename="camel", kw_only=True):
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


class WorkQueue:
    """Calls `handle(key)` for every key that was added; never for one key twice at a time.

    A key added while it waits is handled once, one added while it is handled is handled again.
    """

    def __init__(self, name: str, handle: Callable[[str], Awaitable[None]], workers: int = 1) -> None:
        self._name = name
        self._handle = handle
        self._workers = workers
        self._waiting: dict[str, None] = {}
        self._active: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        """Have the key handled soon."""
        self._waiting[key] = None
        self._wake.set()

    def add_after(self, key: str, delay: float) -> None:
        """Have the key handled after `delay` seconds, unless an earlier wish for it is under way."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._fire, key)

    async def run(self) -> None:
        """Handle keys; end it by cancelling its task."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        """Handle keys one by one; a failed one is tried again later."""
        while True:
            key = next((key for key in self._waiting if key not in self._active), None)
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            del self._waiting[key]
            self._active.add(key)
            try:
                await self._handle(key)
                self._failures.pop(key, None)
            except ApiError as error:
                level = logging.WARNING if error.status == FORBIDDEN else logging.DEBUG
                log.log(level, "%s: %s: %s", self._name, key, error)
                self._retry(key)
            except Exception:
                log.exception("%s: %s", self._name, key)
                self._retry(key)
            finally:
                self._active.discard(key)
                if key in self._waiting:
                    self._wake.set()
            await asyncio.sleep(0)

    def _retry(self, key: str) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures, 10)))


class Controller(ABC):
    """A control loop: what changes is added to the queue by its key, and `sync` brings it where it should be."""

    name: str

    def __init__(self, workers: int = 1) -> None:
        self._queue = WorkQueue(self.name, self.sync, workers)

    async def run(self) -> None:
        """Work until it is cancelled."""
        await self._queue.run()

    @abstractmethod
    async def sync(self, key: str) -> None:
        """Look at one object as it is now. Whatever it raises, the key is tried again later."""
