"""Looking objects up live, when an answer hinges on one that the cache may not know in its newest form.

A name that no object can have is not looked up. One look-up serves all of one address and namespace who ask for the
same name meanwhile: it waits among theirs, so nobody waits behind what another address or namespace asks for besides.
Its answer holds for a second more if the watch is open and tells nothing of that name: news come within a second.
Without a watch only that there is none holds, and only of what may be missing: then nobody is refused for that.
All look-ups together are bounded in number and rate, and whoever asks for many waits for his own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from webhook.admission.context import LONGEST_NAME
from webhook.kube.bounded import Newest
from webhook.kube.informer import Informer
from webhook.kube.object_cache import Change
from webhook.serving.fair_queue import Flow, Peer
from webhook.serving.turns import FairSemaphore

_Share = tuple[Peer, str]
R = TypeVar("R")
T = TypeVar("T")

_AT_A_TIME, _RATE, _BURST = 16, 200.0, 200.0
"""Look-ups at a time, a second, and at once after a quiet second."""
_SECONDS = 0.005
"""How long one takes, about."""
_REMEMBERED = 1.0
"""Seconds for which an answer counts."""
_MOST_REMEMBERED = 1024
_NAME = rf"(?=.{{1,{LONGEST_NAME}}}(?:/|$))[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_KEY = re.compile(rf"(?:{_NAME}/)?{_NAME}")


class LookupLimit:
    """What all look-ups share: how many there are at a time and how quickly they follow each other."""

    def __init__(self) -> None:
        self._places = FairSemaphore(_AT_A_TIME)
        self._next = 0.0

    async def within(self, flow: Flow, work: Callable[[], Awaitable[R]]) -> R:
        """Do this when it is the connection's turn. Raises what it raises."""
        loop = asyncio.get_running_loop()
        async with self._places.held(flow, _SECONDS):
            self._next = max(self._next, loop.time() - _BURST / _RATE) + 1 / _RATE
            if self._next > loop.time():
                await asyncio.sleep(self._next - loop.time())
            return await work()


class _Running:
    """One look-up under way: how many wait for it, and whether the watch has told of that name since it began."""

    __slots__ = ("overtaken", "task", "waiting")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task, self.waiting, self.overtaken = task, 0, False


class Lookups(Generic[T]):
    """The look-ups of one resource, by `name` or `namespace/name`.

    `get` asks the API server for an object, None if there is none. The watch of the `cache` tells of changes. What is
    `optional` refuses nobody by being missing.
    """

    def __init__(
        self,
        get: Callable[[str], Awaitable[T | None]],
        limit: LookupLimit,
        cache: Informer[Any],
        *,
        optional: bool = False,
    ) -> None:
        self._cache, self._get, self._limit, self._optional = cache, get, limit, optional
        self._running: dict[str, dict[_Share, _Running]] = {}
        self._remembered: Newest[str, tuple[float, T | None]] = Newest(_MOST_REMEMBERED)
        cache.handlers.append(self._hear)

    async def find(self, name: str, flow: Flow) -> T | None:
        """The object of that name as it is, or as it was less than a second ago. Raises ApiError without an answer."""
        if len(name) > 2 * LONGEST_NAME or not _KEY.fullmatch(name):
            return None
        known = self._known(name)
        if known is not None:
            return known[1]
        share = flow.peer, flow.share
        running = self._running.get(name, {}).get(share)
        if running is None:
            running = _Running(asyncio.create_task(self._look_up(name, flow)))
            self._running.setdefault(name, {})[share] = running
        running.waiting += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                running.task.cancel()
                self._end(name, share, running)

    async def _look_up(self, name: str, flow: Flow) -> T | None:
        share = flow.peer, flow.share
        running = self._running[name][share]
        try:
            began, answer = await self._limit.within(flow, lambda: self._ask(name, running))
        finally:
            self._end(name, share, running)
        if not running.overtaken:
            self._remembered[name] = (began, answer)
        return answer

    async def _ask(self, name: str, running: _Running) -> tuple[float, T | None]:
        running.overtaken = False
        known = self._known(name)  # another address may have asked meanwhile
        if known is not None:
            return known
        began = asyncio.get_running_loop().time()
        return began, await self._get(name)

    def _hear(self, change: Change[Any]) -> None:
        """Forget what the watch tells again."""
        self._remembered.pop(change.key, None)
        for running in self._running.get(change.key, {}).values():
            running.overtaken = True

    def _known(self, name: str) -> tuple[float, T | None] | None:
        """When and what was answered, if that still counts."""
        known = self._remembered.get(name)
        if known is None or not (self._cache.watching or (self._optional and known[1] is None)):
            return None
        return known if asyncio.get_running_loop().time() - known[0] < _REMEMBERED else None

    def _end(self, name: str, share: _Share, running: _Running) -> None:
        """Nobody else joins this look-up; another one of that name may have begun."""
        shares = self._running.get(name, {})
        if shares.get(share) is running:
            del shares[share]
            if not shares:
                del self._running[name]
