"""The queue of a controller: keys of objects that are to be looked at, each handled in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from webhook.kube.errors import ApiError

log = logging.getLogger(__name__)

FIRST_DELAY = 0.05
LONGEST_DELAY = 10.0
FORBIDDEN = 403


class WorkQueue:
    """Calls `handle(key)` for every key that was added, from `start` on; never for one key twice at a time.

    A key added while it waits is handled once, one added while it is handled is handled again. One that fails is tried
    again later if the queue `retries`.
    """

    def __init__(self, name: str, handle: Callable[[str], Awaitable[None]], *, retries: bool) -> None:
        self._name = name
        self._handle = handle
        self._retries = retries
        self._started = False
        self._waiting: dict[str, None] = {}
        self._active: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be handled, now or later."""
        return not self._waiting and not self._active and not self._timers

    def add(self, key: str) -> None:
        """Have the key handled soon."""
        if self._started and key not in self._active:
            self._begin(key)
        else:
            self._waiting[key] = None

    def add_after(self, key: str, delay: float) -> None:
        """Have the key handled after `delay` seconds, unless an earlier wish for it is under way."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._fire, key)

    def start(self) -> None:
        """Handle the keys that wait, and those to come."""
        self._started = True
        for key in list(self._waiting):
            self._begin(key)

    def forget(self) -> None:
        """Drop the keys that wait; those that were to be handled later stay."""
        self._waiting.clear()

    def stop(self) -> None:
        """Handle nothing any more."""
        self._started = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._active.values():
            task.cancel()

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _begin(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._active[key] = asyncio.create_task(self._one(key), name=f"{self._name} {key}")

    async def _one(self, key: str) -> None:
        """Handle one key."""
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
            del self._active[key]
            if self._started and key in self._waiting:
                self._begin(key)

    def _retry(self, key: str) -> None:
        if self._retries:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            self.add_after(key, min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures, 10)))
