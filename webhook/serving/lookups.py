"""Looking objects up live, when an answer hinges on one that the cache may not know in its newest form.

A name that no object can have is not looked up. One look-up serves all of one address and namespace who ask for the
same name meanwhile: it waits among theirs, so nobody waits behind what another address or namespace asks for besides.
Its answer holds for a second more if the watch is open and tells nothing of that name: news come within a second.
Without a watch only that there is none holds, and only of what may be missing: then nobody is refused for that.
All look-ups together are bounded in number and rate, and whoever asks for many waits for his own.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from webhook.admission.context import LONGEST_NAME
from webhook.kube.bounded import Newest
from webhook.kube.informer import Informer
from webhook.kube.object_cache import Change
from webhook.serving.fair_turns import FairTurns

Asker = tuple[str, str]
"""The address from which a review came, and the namespace it is about."""

_AT_A_TIME, _RATE, _BURST = 16, 200.0, 200.0
"""Look-ups at a time, a second, and at once after a quiet second."""
_REMEMBERED = 1.0
"""Seconds for which an answer counts."""
_MOST_REMEMBERED = 1024
_NAME = rf"(?=.{{1,{LONGEST_NAME}}}(?:/|$))[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_NAMES = re.compile(rf"(?:{_NAME}/)?{_NAME}")


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
        """The object of that name as it is, or as it was less than a second ago. Raises ApiError without an answer."""
        if len(name) > 2 * LONGEST_NAME or not _NAMES.fullmatch(name):
            return None
        key = resource, name
        known = self._known(key)
        if known is not None:
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
        try:
            await self._turns.enter(*asker)
            try:
                began, answer = await self._ask(key, running)
            finally:
                self._turns.leave()
        finally:
            if self._running.get((key, asker)) is running:
                del self._running[key, asker]
        if not running.overtaken:
            self._remembered[key] = (began, answer)
        return answer

    async def _ask(self, key: tuple[str, str], running: _Running) -> tuple[float, Any]:
        """When it was asked, and the answer: another address may have asked meanwhile."""
        loop = asyncio.get_running_loop()
        self._next = max(self._next, loop.time() - _BURST / _RATE) + 1 / _RATE
        await asyncio.sleep(max(0.0, self._next - loop.time()))
        running.overtaken = False
        return self._known(key) or (loop.time(), await self._get(*key))

    def _hear(self, resource: str, change: Change[Any]) -> None:
        """Forget what the watch tells again."""
        told = resource, change.key
        self._remembered.pop(told, None)
        for (key, _), running in self._running.items():
            running.overtaken |= key == told

    def _known(self, key: tuple[str, str]) -> tuple[float, Any] | None:
        """When and what was answered, if that still counts."""
        known = self._remembered.get(key)
        if known is None or not (self._caches[key[0]].watching or (key[0] in self._optional and known[1] is None)):
            return None
        return known if asyncio.get_running_loop().time() - known[0] < _REMEMBERED else None
