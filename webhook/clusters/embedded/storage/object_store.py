"""Where objects are kept: encoded once, under one growing revision, with a bounded history of changes.

It is storage and watch cache in one. An object is kept as the bytes of its JSON, without `kind` and `apiVersion`: a
list or a watch sends them as they are, and whoever wants to change an object decodes a copy of its own.

Every page of a list names the revision of the first, from which a watch goes on, and shows what is there now; once
the changes since then are no longer kept, the list has expired (410).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL, STORED, ApiResource, Object, value_at
from webhook.clusters.embedded.protocol.calls import whole_number
from webhook.kube.selectors import SelectorError, parse_selector

T = TypeVar("T")

_HISTORY = 20_000
"""Changes kept for each resource; a watch that lags behind more than these is cut."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


_EVENTS_V1 = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""The one resource of two versions: fields of a core/v1 Event, as it is stored, and their names in events.k8s.io/v1."""
_CORE_V1 = {new: old for old, new in _EVENTS_V1.items()}
_ALWAYS_SENT: Object = {"firstTimestamp": None, "lastTimestamp": None, "source": {}, "eventTime": None}
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
_INCONSISTENT = -1


def _is_stored(resource: ApiResource) -> bool:
    return BY_PLURAL[resource.plural] is resource


class StoredObject(msgspec.Struct, frozen=True):
    """One version of one object."""

    revision: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    """Values of the resource's field selectors, name and namespace among them."""
    body: bytes
    """The JSON object without `kind` and `apiVersion`, in the stored version."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of what has no namespace."""
        namespace, name = self.fields["metadata.namespace"], self.fields["metadata.name"]
        return f"{namespace}/{name}" if namespace else name

    def object(self, resource: ApiResource) -> Object:
        """Return a fresh copy, the caller's own, in the resource's version."""
        obj = _decode(self.body)
        if not _is_stored(resource):
            obj = {_EVENTS_V1.get(key, key): value for key, value in obj.items()}
        return {"kind": resource.kind, "apiVersion": resource.api_version, **obj}

    def item(self, resource: ApiResource) -> bytes:
        """The JSON without kind and apiVersion, as a list sends it in the resource's version."""
        if _is_stored(resource):
            return self.body
        return _encode(_bare(self.object(resource)))

    def json(self, resource: ApiResource) -> bytes:
        """The JSON of the object by itself, in the resource's version."""
        named = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
        return named.encode() + self.item(resource)[1:]


def _in_stored_version(resource: ApiResource, obj: Object) -> Object:
    """An object of the resource's version in the version that is stored."""
    if _is_stored(resource):
        return obj
    renamed = {_CORE_V1.get(key, key): value for key, value in obj.items()}
    return {**_ALWAYS_SENT, **renamed, "apiVersion": BY_PLURAL[resource.plural].api_version}


class Event(msgspec.Struct, frozen=True):
    """One change: ADDED has no `previous`; `record` of DELETED is the last state under the revision of its deletion."""

    kind: str
    revision: int
    record: StoredObject
    previous: StoredObject | None


def record_of(resource: ApiResource, obj: Object, revision: int) -> StoredObject:
    """Encode an object of the stored version under a revision, which is written into its metadata unless it is 0."""
    metadata = obj["metadata"]
    if revision:
        metadata["resourceVersion"] = str(revision)
    fields = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
    fields |= {path: value_at(obj, path) or "" for path in resource.fields}
    return StoredObject(revision, metadata.get("labels") or {}, fields, _encode(_bare(obj)))


def _bare(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


class StoredCollection:
    """All objects of one resource and the changes that led to them."""

    def __init__(self, resource: ApiResource, limit: int = _HISTORY) -> None:
        self.resource = resource
        self.records: dict[str, StoredObject] = {}
        self.keys: list[str] = []
        """Keys in order, as etcd lists them."""
        self.limit = limit
        self.events: list[Event] = []
        self.dropped = 0
        """Events no longer kept; the sequence number of `events[0]`."""
        self.floor = 0
        """The oldest revision from which changes are known completely."""
        self.changed = asyncio.Event()

    def apply(self, event: Event) -> None:
        """Enter a change and wake the watches."""
        key = event.record.key
        if event.kind == "DELETED":
            del self.records[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if key not in self.records:
                insort(self.keys, key)
            self.records[key] = event.record
        self.events.append(event)
        if (count := len(self.events) - self.limit) > self.limit:
            self.floor = self.events[count - 1].revision
            del self.events[:count]
            self.dropped += count
        self.changed.set()
        self.changed = asyncio.Event()

    def after(self, revision: int) -> int:
        """Sequence number of the first change after a revision."""
        return self.dropped + bisect_right(self.events, revision, key=lambda event: event.revision)

    def in_namespace(self, namespace: str, start: str = "") -> Iterator[StoredObject]:
        """Yield the records of a namespace, or all for "", in order of their keys, from `start` on."""
        prefix = f"{namespace}/" if namespace else ""
        for index in range(bisect_left(self.keys, max(prefix, start)), len(self.keys)):
            key = self.keys[index]
            if not key.startswith(prefix):
                return
            yield self.records[key]


class ObjectStore:
    """Every collection, by the plural name of its resource, under one revision counter."""

    def __init__(self, history: int = _HISTORY) -> None:
        self.revision = 1
        self.collections = {row.plural: StoredCollection(row, history) for row in STORED}

    def get(self, resource: ApiResource, namespace: str, name: str) -> StoredObject | None:
        """The record of an object, or None."""
        return self.collections[resource.plural].records.get(f"{namespace}/{name}" if namespace else name)

    def put(self, resource: ApiResource, obj: Object, *, gone: bool = False, dry_run: bool = False) -> StoredObject:
        """Create, replace or (`gone`) remove an object of the resource's version, under the next revision.

        Returns its last state; with `dry_run` only what that would be.
        """
        collection = self.collections[resource.plural]
        stored = _in_stored_version(resource, obj)
        if dry_run:
            return record_of(collection.resource, stored, 0)
        self.revision += 1
        record = record_of(collection.resource, stored, self.revision)
        previous = collection.records.get(record.key)
        kind = "DELETED" if gone else "MODIFIED" if previous else "ADDED"
        collection.apply(Event(kind, self.revision, record, previous))
        return record

    def all(self, plural: str, namespace: str = "") -> list[Object]:
        """Every object of a resource, of one namespace or of all; each is the caller's own copy."""
        collection = self.collections[plural]
        return [record.object(collection.resource) for record in collection.in_namespace(namespace)]

    def one(self, plural: str, namespace: str, name: str) -> Object | None:
        """One object, the caller's own copy, or None."""
        record = self.get(BY_PLURAL[plural], namespace, name)
        return record.object(BY_PLURAL[plural]) if record else None


class Memo(Generic[T]):
    """Something computed from stored objects, once and again after one of the named resources changed."""

    def __init__(self, store: ObjectStore, plurals: tuple[str, ...], compute: Callable[[], T]) -> None:
        self._collections = [store.collections[plural] for plural in plurals]
        self._compute = compute
        self._known: tuple[list[int], T] | None = None

    def get(self) -> T:
        """The current value."""
        changes = [collection.dropped + len(collection.events) for collection in self._collections]
        if self._known is None or self._known[0] != changes:
            self._known = (changes, self._compute())
        return self._known[1]


class Selection:
    """A compiled selection by namespace, labels and fields; raises StatusError (400) for what does not parse."""

    def __init__(self, resource: ApiResource, namespace: str, query: Mapping[str, str]) -> None:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        self.resource = resource
        self.namespace = namespace
        known = ("metadata.name", *(("metadata.namespace",) if resource.namespaced else ()), *resource.fields)
        for term in filter(None, fields.split(",")):
            name, compared, _ = (part.strip() for part in term.replace("!=", "=").partition("="))
            if name not in known or not compared:
                raise statuses.bad_request(f"{term!r} is not a known field selector: only {', '.join(known)}")
        try:
            self._labels, self._fields = parse_selector(labels), parse_selector(fields)
        except SelectorError as error:
            raise statuses.bad_request(str(error)) from error

    def matches(self, record: StoredObject) -> bool:
        """Whether the record is wanted."""
        if self.namespace and record.fields["metadata.namespace"] != self.namespace:
            return False
        return self._labels(record.labels) and self._fields(record.fields)


class _Token(msgspec.Struct):
    """The continue token: where the next page starts, and the revision it shows."""

    rv: int
    start: str


def page(store: ObjectStore, selection: Selection, query: Mapping[str, str]) -> tuple[list[StoredObject], Object]:
    """The records of one page, and its ListMeta: the revision it shows and how to go on.

    Raises StatusError: 400 for parameters that are wrong, 410 for what has expired.
    """
    collection = store.collections[selection.resource.plural]
    limit = whole_number(query, "limit")
    token = _Token(store.revision, "")
    if query.get("continue"):
        token = _token(query["continue"])
        if token.rv == _INCONSISTENT:
            token.rv = store.revision
        elif not collection.floor <= token.rv <= store.revision:
            token.rv = _INCONSISTENT
            raise statuses.failure(410, "Expired", _EXPIRED, None, **{"continue": _text(token)})
    else:
        check_not_future(store, whole_number(query, "resourceVersion"))
        if query.get("resourceVersionMatch") == "Exact":
            raise statuses.bad_request("resourceVersionMatch: only the newest state is kept here")
    metadata: Object = {"resourceVersion": str(token.rv)}
    rest = filter(selection.matches, collection.in_namespace(selection.namespace, token.start))
    records = list(islice(rest, limit or None))
    left = sum(1 for _ in rest)
    if left:
        token.start = f"{records[-1].key}\0"
        metadata |= {"continue": _text(token), "remainingItemCount": left}
    return records, metadata


def check_not_future(store: ObjectStore, revision: int) -> None:
    """Refuse (504) a revision that this server has not reached, as after the loss of its state."""
    if revision > store.revision:
        text = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise statuses.failure(504, "Timeout", text, {"causes": [cause], "retryAfterSeconds": 1})


def _token(text: str) -> _Token:
    """The continue token that a text is. Raises StatusError (400)."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error


def _text(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
