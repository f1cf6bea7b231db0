"""Watches: each follows the history of its collection by position, so nothing is ever buffered for one of them.

A watch that falls behind the kept history is cut (410); so is one that asks for a revision no longer kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress

import msgspec

from webhook.clusters.embedded.merging.managed_fields import blank
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import truthy, whole_number
from webhook.clusters.embedded.storage.listing import Selection, check_not_future, revision_of
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject

_BATCH = 500
"""Events sent in one go; between two the other tasks have their turn."""
_BOOKMARK_SECONDS = 60.0
_TIMEOUT_SECONDS = 1800
"""A watch's life where the client names none."""
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

Render = Callable[[StoredObject], bytes]
"""How a record is sent: whole, as a row of a table, metadata only."""


class Watch:
    """One open watch; `lines()` is what it sends."""

    def __init__(self, store: ObjectStore, selection: Selection, query: Mapping[str, str], render: Render) -> None:
        self.store = store
        self.selection = selection
        self.collection = store[selection.resource]
        self._query = query
        self._render = render
        self._ended = False
        self._position = 0
        self._revision = 0
        self._bookmark_due = 0.0

    def end(self) -> None:
        """End the watch now, as a server does that shuts down."""
        self._ended = True
        self.collection.wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Chunks of whole lines until the time is up, the watch is ended or its history is lost."""
        loop = asyncio.get_running_loop()
        seconds = whole_number(self._query, "timeoutSeconds")
        ends_at = loop.time() + (seconds or _TIMEOUT_SECONDS)
        self._bookmark_due = loop.time() + _BOOKMARK_SECONDS
        try:
            async for chunk in self._initial():
                yield chunk
            while not self._ended and loop.time() < ends_at:
                changed = self.collection.changed
                chunk, more = self._next_batch()
                if chunk:
                    yield chunk
                elif not more:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(min(ends_at, self._bookmark_due)):
                            await changed.wait()
                    if loop.time() >= self._bookmark_due:
                        self._bookmark_due = loop.time() + _BOOKMARK_SECONDS
                        yield self._bookmark()
        except statuses.StatusError as error:
            yield b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status)

    async def _initial(self) -> AsyncGenerator[bytes, None]:
        """The objects that are there already, if they were asked for, and where the watch goes on."""
        wanted = revision_of(self._query.get("resourceVersion", ""))
        check_not_future(self.store, wanted)
        asked = self._query.get("sendInitialEvents")
        if not (truthy(asked) if asked is not None else wanted == 0):
            start = wanted or self.store.revision
            if start < self.collection.floor:
                raise self._too_old(start)
            self._position, self._revision = self.collection.after(start), start
            return
        self._revision = self.store.revision
        self._position = self.collection.after(self._revision)
        matching = [
            record
            for record in self.collection.in_namespace(self.selection.namespace)
            if self.selection.matches(record)
        ]
        for start in range(0, len(matching), _BATCH):
            yield b"".join([_line(b"ADDED", self._render(record)) for record in matching[start : start + _BATCH]])
        if asked is not None:
            yield self._bookmark(_INITIAL_EVENTS_END)

    def _next_batch(self) -> tuple[bytes, bool]:
        """The lines of the next events, and whether there were any events. Raises StatusError if they are gone."""
        if self._position < self.collection.dropped:
            raise self._too_old(self._revision)
        start = self._position - self.collection.dropped
        events = self.collection.events[start : start + _BATCH]
        if not events:
            self._revision = self.store.revision
            return b"", False
        self._position += len(events)
        self._revision = events[-1].revision
        lines = []
        for event in events:
            # An object that comes to match is added, one that ceases to match is deleted.
            now = event.kind != "DELETED" and self.selection.matches(event.record)
            before = event.previous is not None and self.selection.matches(event.previous)
            if now or before:
                kind = b"DELETED" if not now else b"MODIFIED" if before else b"ADDED"
                lines.append(_line(kind, self._render(event.record)))
        return b"".join(lines), True

    def _bookmark(self, annotations: Object | None = None) -> bytes:
        if not truthy(self._query.get("allowWatchBookmarks")):
            return b""
        resource = self.selection.resource
        metadata: Object = {"resourceVersion": str(self._revision)}
        if annotations:
            metadata["annotations"] = annotations
        bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, **blank(resource), "metadata": metadata}
        return _line(b"BOOKMARK", msgspec.json.encode(bookmark))

    def _too_old(self, revision: int) -> statuses.StatusError:
        text = f"too old resource version: {revision} ({max(self.collection.floor, 1)})"
        return statuses.failure(410, "Expired", text)


def _line(kind: bytes, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, obj)
