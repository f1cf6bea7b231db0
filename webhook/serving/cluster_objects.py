"""Where PriorityClasses, Namespaces and PodGroups come from: a cluster's list+watch caches, and live look-ups.

Something is looked up when an answer hinges on an object that the cache may not know in its newest form. A name that no
object can have is not looked up. One look-up serves all of one address and namespace who ask for the same name
meanwhile: it waits among theirs, so nobody waits behind what another address or namespace asks for besides. Its answer
holds for a second more if the watch is open and tells nothing of that name: news come within a second. Without a watch
only that there is none holds, and only of what may be missing: then nobody is refused for that. All look-ups together
are bounded in number and rate, and whoever asks for many waits for his own.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from webhook.admission.context import CLASSES, LONGEST_NAME, NAMESPACES, POD_GROUPS, Lookup
from webhook.kube.bounded import Newest
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.informer import Informer
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import NAMESPACE, POD_GROUP, PRIORITY_CLASS, Resource
from webhook.serving.fair_turns import FairTurns

_KINDS: dict[str, tuple[Resource, type[Any]]] = {
    CLASSES: (PRIORITY_CLASS, PriorityClass),
    NAMESPACES: (NAMESPACE, Namespace),
    POD_GROUPS: (POD_GROUP, PodGroup),
}
"""In the order in which a `Lookup` takes them."""
_NEEDED = (CLASSES, NAMESPACES)
"""What every API server has."""

Asker = tuple[str, str]
"""The address from which a review came, and the namespace it is about."""

_AT_A_TIME, _RATE, _BURST = 16, 200.0, 200.0
"""Look-ups at a time, a second, and at once after a quiet second."""
_REMEMBERED = 1.0
"""Seconds for which an answer counts."""
_MOST_REMEMBERED = 1024
_NAME = rf"(?=.{{1,{LONGEST_NAME}}}(?:/|$))[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_NAMES = re.compile(rf"(?:{_NAME}/)?{_NAME}")


class CachedObjects:
    """What the server knows of one cluster, by its caches, and how it asks for more."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[str, Informer[Any]] = {}
        for name, (kind, type_) in _KINDS.items():
            self._caches[name] = Informer(client, kind.paths(), type_, optional=name == POD_GROUPS)
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

    def unheard(self) -> str:
        """Which resources were not heard of, in words; the server is not ready before."""
        names = ", ".join(name for name in _NEEDED if not self._caches[name].synced.is_set())
        return f"nothing heard yet of {names}" if names else ""

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
        """An object, or None; a PodGroup by the version that answered last, else by the others."""
        kind, type_ = _KINDS[resource]
        namespace, _, name = key.rpartition("/")
        if namespace and not kind.namespaced:
            return None
        places = list(enumerate(kind.paths(namespace or None, name)))
        for place, path in places[self._group_version :] + places[: self._group_version]:
            self.looked_up(resource)
            live: Any = await unless_absent(self._client.get(path, type_))
            if live is not None:
                if namespace:
                    self._group_version = place
                return live
        return None


class _Running:
    """One look-up under way: how many wait for it, and whether the watch has told of that name since it began."""

    task: asyncio.Task[Any]
    waiting, overtaken = 0, False


class Lookups:
    """All live look-ups, by resource and `name` or `namespace/name`: `get` asks the API server, None if there is none.

    The watches of the `caches`, by resource, tell of changes. What is `optional` refuses nobody by being missing.
    """

    def __init__(
        self, get: Callable[[str, str], Awaitable[Any]], caches: Mapping[str, Informer[Any]], optional: Collection[str]
    ) -> None:
        self._get, self._caches, self._optional = get, caches, optional
        self._turns, self._next = FairTurns(_AT_A_TIME), 0.0
        self._running: dict[tuple[tuple[str, str], Asker], _Running] = {}
        self._remembered: Newest[tuple[str, str], tuple[float, Any]] = Newest(_MOST_REMEMBERED)
        for resource, cache in caches.items():
            cache.handlers.append(partial(self._hear, resource))

    async def find(self, resource: str, name: str, asker: Asker) -> Any:
        """The object of that name, as it was a second ago at most. Raises ApiError without an answer."""
        if len(name) > 2 * LONGEST_NAME or not _NAMES.fullmatch(name):
            return None
        key = resource, name
        if known := self._known(key):
            return known[1]
        running = self._running.get((key, asker))
        if running is None or running.task.cancelling():
            running = self._running[key, asker] = _Running()
            running.task = asyncio.create_task(self._look_up(key, asker, running))
        running.waiting += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                running.task.cancel()

    async def _look_up(self, key: tuple[str, str], asker: Asker, running: _Running) -> Any:
        loop = asyncio.get_running_loop()
        try:
            await self._turns.enter(*asker)
            try:
                self._next = max(self._next, loop.time() - _BURST / _RATE) + 1 / _RATE
                await asyncio.sleep(max(0.0, self._next - loop.time()))
                running.overtaken = False
                # Another address may have asked meanwhile
                began, answer = self._known(key) or (loop.time(), await self._get(*key))
            finally:
                self._turns.leave()
        finally:
            if self._running.get((key, asker)) is running:
                del self._running[key, asker]
        if not running.overtaken:
            self._remembered[key] = (began, answer)
        return answer

    def _hear(self, resource: str, change: Change[Any]) -> None:
        """Forget what the watch tells again."""
        told = resource, change.key
        self._remembered.pop(told, None)
        for (key, _), running in self._running.items():
            running.overtaken |= key == told

    def _known(self, key: tuple[str, str]) -> tuple[float, Any] | None:
        """When and what was answered, if that still counts."""
        known = self._remembered.get(key)
        if known is None:
            return None
        counts = self._caches[key[0]].watching or (known[1] is None and key[0] in self._optional)
        return known if counts and asyncio.get_running_loop().time() - known[0] < _REMEMBERED else None
