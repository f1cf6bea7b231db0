"""A local copy of one resource, kept current by list and watch.

A state machine of two steps. *List* reads everything and leads to *watch*. *Watch* follows the changes from there;
when the server ends it, it goes on from the last resourceVersion; when that has expired (410), or when watching has
failed time and again, the way leads back to list, which emits the differences only. Any other failure means: wait,
longer each time, and try the same step again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from webhook.kube.backoff import Backoff
from webhook.kube.errors import NO_ANSWER, UNDECODABLE, ApiError, status_error
from webhook.kube.objects import ObjectMeta, key_of

__all__ = ["Cache", "Change", "Source"]

log = logging.getLogger(__name__)

_EXPIRED = 410
_GIVE_UP_WATCHING = 3
"""Watches that fail in a row before everything is listed again: the resourceVersion itself may be the trouble."""
_BELIEVE_OLDER = 3
"""Lists older than what is known already, in a row, before they are taken for a restored server's truth."""
_WATCH_SECONDS = (300, 600)
"""Bounds of a watch's `timeoutSeconds`, as in client-go: many clients must not come back at once."""
_LONGEST_WAIT = 30.0
"""Seconds; a larger Retry-After is not waited for."""
_BRIEF = 1.0
"""A watch that ends within this many seconds without a word is a failure; resuming at once would be a hot loop."""


class HasMetadata(Protocol):
    """Any of the objects in `webhook.kube.objects`."""

    metadata: ObjectMeta


T = TypeVar("T", bound=HasMetadata)


class Change(msgspec.Struct, Generic[T], frozen=True):
    """What happened to one object: `old` is None where it was added, `new` where it was deleted."""

    kind: Literal["added", "modified", "deleted"]
    key: str
    old: T | None
    new: T | None


class Source(Protocol):
    """What a cache needs of a client."""

    async def list(self, path: str, as_: type[Any], **query: Any) -> tuple[list[Any], str]:
        """All objects of a collection, decoded to a type, and its resourceVersion."""

    def watch(self, path: str, *, resource_version: str, **query: Any) -> AsyncIterator[tuple[str, bytes]]:
        """Events from that resourceVersion on."""


class _Named(msgspec.Struct):
    """As much of an object as tells which one it is."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


_NAMED = msgspec.json.Decoder(_Named)
_Step = Callable[[], Awaitable[None]]


class Cache(Generic[T]):
    """All objects of one resource by key (`namespace/name` or `name`), as the server last told.

    `run()` keeps it current; `synced` is set after the first list. `handlers` are called for every change, in order,
    after the copy has changed; add them before `run()`. `silence` is the number of seconds without a word (servers
    send a bookmark about once a minute) after which a watch is taken for dead.
    """

    def __init__(
        self,
        client: Source,
        path: str,
        type_: type[T],
        *,
        field_selector: str = "",
        label_selector: str = "",
        silence: float = 90.0,
    ) -> None:
        self.handlers: list[Callable[[Change[T]], None]] = []
        self.synced = asyncio.Event()
        self._client = client
        self._path = path
        self._type = type_
        self._decoder = msgspec.json.Decoder(type_)
        self._selectors = {"fieldSelector": field_selector or None, "labelSelector": label_selector or None}
        self._silence = silence
        self._items: dict[str, T] = {}
        self._version = ""
        self._older_lists = 0
        self._backoff = Backoff()
        self._step: _Step = self._list
        self._heard_at = -math.inf

    def get(self, key: str) -> T | None:
        """The object of that key, or None."""
        return self._items.get(key)

    def items(self) -> Mapping[str, T]:
        """A live view of all objects by key."""
        return MappingProxyType(self._items)

    def age(self) -> float:
        """Seconds since the server was last heard from; infinite before the first time."""
        return time.monotonic() - self._heard_at

    @property
    def resource_version(self) -> str:
        """How far the copy has come."""
        return self._version

    async def wait_for_sync(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the callers' natural wish
        """Wait for the first list. Raises TimeoutError after `timeout` seconds."""
        await asyncio.wait_for(self.synced.wait(), timeout)

    async def run(self) -> None:
        """Keep the copy current for ever; end it by cancelling its task."""
        while True:
            try:
                await self._step()
            except ApiError as error:
                await self._recover(error)
            except Exception:
                log.exception("cache %s: unexpected error; listing again", self._path)
                self._step = self._list
                await asyncio.sleep(self._backoff.next())

    async def _recover(self, error: ApiError) -> None:
        delay = max(self._backoff.next(), min(error.retry_after or 0.0, _LONGEST_WAIT))
        expired = error.status == _EXPIRED
        if expired or self._backoff.failures >= _GIVE_UP_WATCHING:
            self._step = self._list
        log.log(
            logging.INFO if expired else logging.WARNING,
            "cache %s: %s; next try in %.1f s",
            self._path,
            error,
            delay,
        )
        await asyncio.sleep(delay)

    async def _list(self) -> None:
        objects, unreadable, version = await self._read_all()
        self._heard_at = time.monotonic()
        restored = self._is_restored(version)
        self._adopt(objects, unreadable, restored=restored)
        self._version = version
        self.synced.set()
        self._step = self._watch

    async def _read_all(self) -> tuple[dict[str, T], set[str], str]:
        """All objects by key, the keys of those that cannot be decoded, and the list's resourceVersion."""
        try:
            readable, version = await self._client.list(self._path, self._type, **self._selectors)
            return {key_of(obj): obj for obj in readable}, set(), version
        except ApiError as error:
            if error.reason != UNDECODABLE:
                raise
        # Some object cannot be decoded: list once more and look at each by itself.
        raws, version = await self._client.list(self._path, msgspec.Raw, **self._selectors)
        decoded = [(raw, self._decode(raw)) for raw in raws]
        objects = {key_of(obj): obj for _, obj in decoded if obj is not None}
        return objects, {_named(raw)[0] for raw, obj in decoded if obj is None}, version

    def _is_restored(self, version: str) -> bool:
        """Whether a list older than what is known is to be believed; raises ApiError while it is not."""
        if not _older(version, self._version):
            self._older_lists = 0
            return False
        self._older_lists += 1
        if self._older_lists < _BELIEVE_OLDER:
            raise ApiError(NO_ANSWER, "Stale", f"the list is of {version}, but {self._version} is known already")
        log.warning("cache %s: the server went back from %s to %s", self._path, self._version, version)
        self._older_lists = 0
        return True

    def _adopt(self, objects: dict[str, T], unreadable: set[str], *, restored: bool) -> None:
        for key in [key for key in self._items if key not in objects and key not in unreadable]:
            self._remove(key, self._items[key])
        for key, new in objects.items():
            known = self._items.get(key)
            if known is not None and not restored:
                version = new.metadata.resource_version
                if version == known.metadata.resource_version or _older(version, known.metadata.resource_version):
                    continue
            self._put(key, new)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        begun, told = loop.time(), False
        try:
            async with asyncio.timeout(self._silence) as deadline, aclosing(self._open_watch()) as events:
                async for kind, raw in events:
                    deadline.reschedule(loop.time() + self._silence)
                    self._heard_at = time.monotonic()
                    self._receive(kind, raw)
                    self._backoff.reset()
                    told = True
        except TimeoutError as error:
            raise ApiError(NO_ANSWER, "Silent", f"nothing heard for {self._silence:g} s") from error
        if not told and loop.time() - begun < _BRIEF:
            raise ApiError(NO_ANSWER, "WatchEnded", "the watch ended as soon as it began")
        self._backoff.reset()

    def _open_watch(self) -> Any:
        return self._client.watch(
            self._path,
            resource_version=self._version,
            allowWatchBookmarks=True,
            timeoutSeconds=random.randint(*_WATCH_SECONDS),  # noqa: S311 - spreads clients apart, guards nothing
            **self._selectors,
        )

    def _receive(self, kind: str, raw: bytes) -> None:
        if kind == "ERROR":
            raise status_error(raw)
        if kind == "BOOKMARK":
            self._version = _named(raw)[1] or self._version
            return
        obj = self._decode(raw)
        if obj is None:
            self._version = _named(raw)[1] or self._version
        else:
            self._apply(kind, obj)

    def _apply(self, kind: str, new: T) -> None:
        """Take over one event, unless it tells what is known already: late and repeated events are ordinary."""
        key, version = key_of(new), new.metadata.resource_version
        known = self._items.get(key)
        if kind == "DELETED":
            if known is not None and not _older(version, known.metadata.resource_version):
                self._remove(key, new)
        elif known is None:
            if not _older(version, self._version):
                self._put(key, new)
        elif version != known.metadata.resource_version and not _older(version, known.metadata.resource_version):
            self._put(key, new)
        if not _older(version, self._version):
            self._version = version

    def _put(self, key: str, new: T) -> None:
        known = self._items.get(key)
        if known is not None and known.metadata.uid != new.metadata.uid:
            self._remove(key, known)
            known = None
        self._items[key] = new
        self._tell(Change("added" if known is None else "modified", key, known, new))

    def _remove(self, key: str, last: T) -> None:
        """Forget an object; `last` is its state when it was deleted, as far as that was told."""
        del self._items[key]
        self._tell(Change("deleted", key, last, None))

    def _tell(self, change: Change[T]) -> None:
        for handler in self.handlers:
            try:
                handler(change)
            except Exception:
                log.exception("cache %s: a handler failed on %s %s", self._path, change.kind, change.key)

    def _decode(self, raw: msgspec.Raw | bytes) -> T | None:
        try:
            return self._decoder.decode(raw)
        except msgspec.DecodeError as error:
            log.error("cache %s: skipped %s, which cannot be decoded: %s", self._path, _named(raw)[0] or "?", error)  # noqa: TRY400
            return None


def _named(raw: msgspec.Raw | bytes) -> tuple[str, str]:
    """Key and resourceVersion of an object, empty where even they cannot be read."""
    try:
        named = _NAMED.decode(raw)
    except msgspec.DecodeError:
        return "", ""
    return key_of(named), named.metadata.resource_version


def _older(version: str, than: str) -> bool:
    """Whether one resourceVersion is before another; versions that are no numbers have no order."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
