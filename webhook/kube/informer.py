"""A local copy of one resource, kept current by list and watch.

A state machine. *List* reads everything, tells the differences and leads to *watch*. *Watch* follows the changes from
there. When it ends or fails, after a wait if it failed, watching goes on from the last resourceVersion. Only if that
version is of no use does the way lead back to list: it has expired (410, as an answer or as an event), or the server is
not there yet. A watch from a version in the future is answered by silence (docs/kubernetes-behaviour.md K24), so before
each watch a list of one object tells which version the server has.

Lists are the truth of their time, also one that is older than what is known. They are consistent reads in pages, never
from a replica's watch cache (`resourceVersion=0`): that may be older, and it is answered without pages, a gigabyte at
once for 150 000 pods. What a list finds unchanged is dropped page by page, so no second copy of everything comes to be.

Silence is no fault. A quiet watch may get no bookmark for minutes; its end is bounded by `timeoutSeconds` and on this
side, and a peer that is gone is found by TCP keep-alive (`webhook.kube.transport`).

An *optional* resource may be served under one of several API versions, or not at all: its feature gate is off, its CRD
is missing, the server is older. Then it counts as empty and in sync, and is looked for again every minute.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from copy import deepcopy

import msgspec

from webhook.kube.backoff import Backoff
from webhook.kube.client import LONGEST_WAIT, Client
from webhook.kube.deep_json import decode_deep
from webhook.kube.errors import NO_ANSWER, ApiError, status_error
from webhook.kube.object_cache import ObjectCache, T
from webhook.kube.objects.meta import KubeObject, key_of

log = logging.getLogger(__name__)

_EXPIRED = 410
_NOT_SERVED = frozenset({403, 404})
"""Answers for a resource that the server does not have, or that this process may not read."""
_LOOK_AGAIN = 60.0
"""Seconds until an optional resource that is not served is looked for again."""
_MOMENT = 10.0
"""Seconds for which a server that starts may refuse what it has: until then the objects stay."""
_PAGE = 500
"""Objects a page of a list."""
_WATCH_SECONDS = (300, 600)
"""Bounds of a watch's `timeoutSeconds`, as in client-go: many clients must not come back at once."""
_OVERDUE = 30.0
"""Seconds that a watch may go on after its `timeoutSeconds`, before it is ended on this side."""
_BRIEF = 1.0
"""A watch that ends within this many seconds without a word is a failure; resuming at once would be a hot loop."""
_LONGEST_PAUSE = 300.0
"""Seconds before a list; each waits longer than the one before, until a watch has lasted."""
_LASTING = 30.0
"""Seconds after which a watch has lasted, however it ends: a proxy may break every one that is quiet."""
_TURN = 0.02
"""Seconds for which handlers are told of differences before others get their turn."""


_NAMED = msgspec.json.Decoder(KubeObject)
"""Decodes as much of an object as tells which one it is."""
_Step = Callable[[], Awaitable[None]]


class Informer(ObjectCache[T]):
    """All objects of one resource, as the server last told.

    `run()` keeps it current; `synced` is set after the first list. Add `handlers` before `run()`. `transform` makes of
    a decoded object what is kept of it, as client-go's TransformFunc does. An `optional` resource may be missing;
    `paths` are those of its API versions, tried in their order.
    """

    def __init__(
        self,
        client: Client,
        paths: Sequence[str],
        type_: type[T],
        *,
        transform: Callable[[T], T] | None = None,
        optional: bool = False,
    ) -> None:
        super().__init__(paths[0])
        self._client, self._paths, self._path = client, paths, paths[0]
        self._optional = optional
        self.served = True
        """Whether the server has the resource, as far as is known; one that is not optional always counts as served."""
        self._refused = False
        """Whether it was not served when it was looked for last."""
        self._kept = transform or (lambda obj: obj)
        self.whole = asyncio.Event()
        self.whole.set()
        self._decoder = msgspec.json.Decoder(type_)
        self.version = ""
        """The resourceVersion to which the copy has come."""
        self._backoff = Backoff()
        self._lists = Backoff(longest=_LONGEST_PAUSE)
        self._step: _Step = self._list
        self._heard_at = -math.inf
        self.watching = False
        """Whether a watch is open, by which changes come as they happen."""

    def age(self) -> float:
        """Seconds since the server last sent anything, such as a bookmark each minute; infinite before that."""
        return time.monotonic() - self._heard_at

    async def run(self) -> None:
        """Keep the copy current; end it by cancelling its task."""
        while True:
            try:
                await self._step()
            except ApiError as error:
                if self._optional and error.status in _NOT_SERVED:
                    await asyncio.sleep(self._not_served(error))
                    continue
                delay = max(self._backoff.next(), min(error.retry_after or 0.0, LONGEST_WAIT))
                # Watching from the same version again cannot succeed
                if self._step == self._watch and error.status == _EXPIRED:
                    delay = max(delay, self._to_list())
                # What comes with every API server now and then is nothing to be warned of
                level = logging.WARNING
                if error.status == _EXPIRED:
                    level = logging.INFO
                elif error.reason == "WatchEnded":
                    level = logging.DEBUG
                log.log(level, "cache %s: %s; next try in %.1f s", self._path, error, delay)
                await asyncio.sleep(delay)
            except Exception:
                log.exception("cache %s: unexpected error; listing again", self._path)
                await asyncio.sleep(max(self._backoff.next(), self._to_list()))

    def _not_served(self, error: ApiError) -> float:
        """Go to the next API version; after the last, the second time, count as empty. Seconds until the next try."""
        self._heard_at = time.monotonic()
        self._step = self._list
        place = (self._paths.index(self._path) + 1) % len(self._paths)
        self._path = self._paths[place]
        if place:
            return 0.0
        if self._items and not self._refused:
            self._refused = True
            return _MOMENT
        if self.served:
            level = logging.WARNING if error.status != 404 else logging.INFO
            log.log(level, "cache %s: counts as empty, the API server answers %s", self._path, error)
        self.served = False
        for key in list(self._items):
            self.take(key, None)
        self.synced.set()
        return _LOOK_AGAIN

    def _to_list(self) -> float:
        """Let a list be the next step; the seconds to wait before, so that lists are no flood."""
        self._step = self._list
        return self._lists.next()

    async def _list(self) -> None:
        """Read everything and tell the differences, once all of it has been read.

        An object counts if its version is another one than the known: an older one,
        too, as after a backup was restored and the cluster has gone on from there.
        In an older list each counts: of equal versions, too, they may differ.
        """
        missing, news, version = dict.fromkeys(self._items), dict[str, T](), ""
        async with aclosing(self._client.pages(self._path, limit=_PAGE)) as pages:
            async for page in pages:
                self._heard_at = begun = time.monotonic()
                version = version or page.metadata.resource_version
                older, items = _older(version, self.version), page.items or []
                items.reverse()  # so that each object can go as soon as it was looked at
                while items:
                    begun = await _take_turns(begun)
                    raw = items.pop()
                    obj = self._decode(raw)
                    key = _named(raw)[0] if obj is None else key_of(obj)
                    missing.pop(key, None)
                    known = self._items.get(key)
                    before = known.metadata.resource_version if known is not None else None
                    if obj is not None and (older or obj.metadata.resource_version != before):
                        news[key] = self._kept(obj)
        # First who is gone, so that no room seems taken twice, then what is new
        begun = time.monotonic()
        self.whole.clear()
        for key in missing:
            self.take(key, None)
            begun = await _take_turns(begun)
        for key, new in news.items():
            self.take(key, new)
            begun = await _take_turns(begun)
        self.whole.set()
        self.version = version
        self.served, self._refused = True, False
        self._backoff.reset()
        self.synced.set()
        self._step = self._watch

    async def _watch(self) -> None:
        """Follow one watch to its end; raises ApiError if it fails, or brought nothing for too long."""
        # A server that went back, as after a restore, would answer by silence
        async with aclosing(self._client.pages(self._path, limit=1)) as pages:
            version = (await anext(pages)).metadata.resource_version
        self._heard_at = time.monotonic()
        if _older(version, self.version):
            log.warning("cache %s: listing again, the server is at %s after %s", self._path, version, self.version)
            self._step = self._list
            return
        loop = asyncio.get_running_loop()
        begun, version = loop.time(), self.version
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 - spreads clients apart, guards nothing
        watch = self._client.watch(
            self._path, resource_version=self.version, allowWatchBookmarks=True, timeoutSeconds=seconds
        )
        try:
            async with asyncio.timeout(seconds + _OVERDUE), aclosing(watch) as events:
                async for kind, raw in events:
                    self._heard_at, self.watching = time.monotonic(), True
                    if kind:
                        self._receive(kind, raw)
                        self._backoff.reset()
        except TimeoutError as error:
            message = f"the watch went on for {_OVERDUE:g} s after its end was due"
            raise ApiError(NO_ANSWER, "Overdue", message) from error
        finally:
            self.watching = False
            if loop.time() - begun >= _LASTING:
                self._lists.reset()
        if self.version == version and loop.time() - begun < _BRIEF:
            raise ApiError(NO_ANSWER, "WatchEnded", "the watch ended as soon as it began")
        self._heard_at = time.monotonic()
        self._backoff.reset()

    def _receive(self, kind: str, raw: bytes) -> None:
        """Take an event of a watch that is neither late nor repeated. Raises ApiError for an error."""
        if kind == "ERROR":
            raise status_error(raw)
        obj = None if kind == "BOOKMARK" else self._decode(raw)
        key, version = _named(raw) if obj is None else (key_of(obj), obj.metadata.resource_version)
        if obj is not None:
            known = self._items.get(key)
            before = known.metadata.resource_version if known else self.version
            if kind == "DELETED":
                if known is not None and not _older(version, before):
                    self._remove(key, self._kept(obj))
            elif (known is None or version != before) and not _older(version, before):
                self.take(key, self._kept(obj))
        elif kind == "DELETED" and not _older(version, self.version):
            self.take(key, None)
        if version and not _older(version, self.version):
            self.version = version

    def written(self, obj: T) -> None:
        """Take the answer to a write, unless a watch has shown as much, or that the object is gone."""
        key, meta = key_of(obj), obj.metadata
        known = self._items.get(key)
        if known is None or known.metadata.uid != meta.uid:
            return
        if _older(known.metadata.resource_version, meta.resource_version):
            # The answer is the caller's
            self.take(key, self._kept(deepcopy(obj)))

    def _decode(self, raw: msgspec.Raw | bytes) -> T | None:
        try:
            return decode_deep(self._decoder.decode, raw)
        except msgspec.DecodeError as error:
            log.error("cache %s: skipped %s, which cannot be decoded: %s", self._path, _named(raw)[0] or "?", error)  # noqa: TRY400
            return None


async def _take_turns(begun: float) -> float:
    """Let others have their turn when this one has lasted long enough; when the current one began."""
    if time.monotonic() - begun < _TURN:
        return begun
    await asyncio.sleep(0)
    return time.monotonic()


def _named(raw: msgspec.Raw | bytes) -> tuple[str, str]:
    """Key and resourceVersion of an object, empty if even they cannot be read."""
    try:
        named = decode_deep(_NAMED.decode, raw)
    except msgspec.DecodeError:
        return "", ""
    return key_of(named), named.metadata.resource_version


def _older(version: str, than: str) -> bool:
    """Whether one resourceVersion is before another; versions that are no numbers have no order."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
