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
from webhook.clusters.embedded.storage.object_store import (
    Event,
    ObjectStore,
    Selection,
    StoredCollection,
    StoredObject,
    check_not_future,
    record_of,
)

_BATCH = 500
"""Events sent in one go; between two the other tasks have their turn."""
_BOOKMARK_SECONDS = 60.0
_TIMEOUT_SECONDS = 1800
"""A watch's life where the client names none."""
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

Render = Callable[[StoredObject], bytes]
"""How a record is sent: whole, or as a row of a table."""


async def watch(
    store: ObjectStore, selection: Selection, query: Mapping[str, str], render: Render
) -> AsyncGenerator[bytes, None]:
    """Chunks of whole lines until the time is up or the watch's history is lost."""
    loop, collection = asyncio.get_running_loop(), store.collections[selection.resource.plural]
    bookmarks = truthy(query.get("allowWatchBookmarks"))
    try:
        ends_at = loop.time() + (whole_number(query, "timeoutSeconds") or _TIMEOUT_SECONDS)
        bookmark_due = loop.time() + _BOOKMARK_SECONDS
        wanted, asked = whole_number(query, "resourceVersion"), query.get("sendInitialEvents")
        check_not_future(store, wanted)
        from_start = truthy(asked) if asked is not None else wanted == 0
        revision = store.revision if from_start else wanted or store.revision
        if revision < collection.floor and not from_start:
            raise _too_old(revision, collection)
        position = collection.after(revision)
        if from_start:
            matching = [row for row in collection.in_namespace(selection.namespace) if selection.matches(row)]
            for start in range(0, len(matching), _BATCH):
                yield b"".join([_line(b"ADDED", render(record)) for record in matching[start : start + _BATCH]])
            if asked is not None and bookmarks:
                yield _bookmark(selection, revision, _INITIAL_EVENTS_END)
        while loop.time() < ends_at:
            changed = collection.changed
            if position < collection.dropped:
                raise _too_old(revision, collection)
            start = position - collection.dropped
            events = collection.events[start : start + _BATCH]
            position += len(events)
            revision = events[-1].revision if events else store.revision
            if lines := b"".join([_shown(event, selection, render) for event in events]):
                yield lines
            elif not events:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(ends_at, bookmark_due)):
                        await changed.wait()
                if bookmarks and loop.time() >= bookmark_due:
                    bookmark_due = loop.time() + _BOOKMARK_SECONDS
                    yield _bookmark(selection, revision)
    except statuses.StatusError as error:
        yield _line(b"ERROR", msgspec.json.encode(error.status))


def _shown(event: Event, selection: Selection, render: Render) -> bytes:
    """The line of an event: an object that comes to match is added, one that ceases to match is deleted as it was."""
    now = event.kind != "DELETED" and selection.matches(event.record)
    before = event.previous is not None and selection.matches(event.previous)
    if not now and not before:
        return b""
    if now or event.previous is None or event.kind == "DELETED":
        kind = b"DELETED" if not now else b"MODIFIED" if before else b"ADDED"
        return _line(kind, render(event.record))
    last = record_of(selection.resource, event.previous.object(selection.resource), event.revision)
    return _line(b"DELETED", render(last))


def _bookmark(selection: Selection, revision: int, annotations: Object | None = None) -> bytes:
    resource = selection.resource
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, **blank(resource), "metadata": metadata}
    return _line(b"BOOKMARK", msgspec.json.encode(bookmark))


def _too_old(revision: int, collection: StoredCollection) -> statuses.StatusError:
    text = f"too old resource version: {revision} ({max(collection.floor, 1)})"
    return statuses.failure(410, "Expired", text)


def _line(kind: bytes, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, obj)
