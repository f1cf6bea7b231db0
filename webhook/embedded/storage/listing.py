"""Lists in pages: every page of a list shows the same revision, or the list has expired (410)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.routing import whole_number
from webhook.embedded.storage.selection import Selection
from webhook.embedded.storage.store import Store, StoredCollection, StoredObject

__all__ = ["ListPage", "check_not_future", "page", "revision_of"]

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
_TOO_OLD = "The resourceVersion for the provided list is too old."
_INCONSISTENT = -1


class _Token(msgspec.Struct):
    """The continue token: where the next page starts, and the revision it shows."""

    v: str
    rv: int
    start: str


@dataclass(slots=True)
class ListPage:
    """One page: its records, the revision it shows and how to go on."""

    records: list[StoredObject]
    revision: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, object]:
        """ListMeta."""
        metadata: dict[str, object] = {"resourceVersion": str(self.revision)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def page(store: Store, selection: Selection, query: Mapping[str, str]) -> ListPage:
    """Read one page. Raises StatusError: 400 for parameters that are wrong, 410 for what has expired."""
    collection = store[selection.resource]
    limit = whole_number(query, "limit")
    revision, start = store.revision, ""
    if query.get("continue"):
        revision, start = _continued(collection, store.revision, query["continue"])
    else:
        wanted = revision_of(query.get("resourceVersion", ""))
        check_not_future(store, wanted)
        if query.get("resourceVersionMatch") == "Exact":
            if wanted < collection.floor:
                raise statuses.expired(_TOO_OLD)
            revision = wanted
    found: list[StoredObject] = []
    rest = (record for record in _candidates(collection, selection, revision, start) if selection.matches(record))
    for record in rest:
        if limit and len(found) == limit:
            remaining = None if selection.selective else 1 + sum(1 for _ in rest)
            token = _encode(_Token("meta.k8s.io/v1", revision, f"{found[-1].key}\0"))
            return ListPage(found, revision, token, remaining)
        found.append(record)
    return ListPage(found, revision)


def revision_of(text: str) -> int:
    """A resourceVersion parameter as a number; "" is 0. Raises StatusError (400)."""
    if not text:
        return 0
    if not text.isdecimal():
        raise statuses.bad_request(f"Invalid value: {text!r}: resourceVersion must be a whole number")
    return int(text)


def check_not_future(store: Store, revision: int) -> None:
    """Refuse (504) a revision that this server has not reached, as after the loss of its state."""
    if revision > store.revision:
        message = f"Too large resource version: {revision}, current: {store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        error = statuses.failure(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})
        error.retry_after = 1
        raise error


def _continued(collection: StoredCollection, current: int, text: str) -> tuple[int, str]:
    """The revision that the next page shows, and the key it starts at."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error
    if token.rv == _INCONSISTENT:
        return current, token.start
    if token.rv < collection.floor or token.rv > current:
        raise statuses.expired(_EXPIRED, **{"continue": _encode(_Token(token.v, _INCONSISTENT, token.start))})
    return token.rv, token.start


def _candidates(
    collection: StoredCollection, selection: Selection, revision: int, start: str
) -> Iterable[StoredObject]:
    newest = collection.events[-1].revision if collection.events else 0
    if revision >= newest:
        return collection.in_namespace(selection.namespace, start)
    then = collection.at(revision)
    return [then[key] for key in sorted(then) if key >= start]


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
