"""Which objects a list or a watch wants, and lists in pages.

Every page of a list names the revision of the first, from which a watch goes on, and shows what is there now; once
the changes since then are no longer kept, the list has expired (410).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from itertools import islice

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import whole_number
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject
from webhook.kube.selectors import SelectorError, parse_selector

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
_INCONSISTENT = -1


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
        token = _decode(query["continue"])
        if token.rv == _INCONSISTENT:
            token.rv = store.revision
        elif not collection.floor <= token.rv <= store.revision:
            token.rv = _INCONSISTENT
            raise statuses.failure(410, "Expired", _EXPIRED, None, **{"continue": _encode(token)})
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
        metadata |= {"continue": _encode(token), "remainingItemCount": left}
    return records, metadata


def check_not_future(store: ObjectStore, revision: int) -> None:
    """Refuse (504) a revision that this server has not reached, as after the loss of its state."""
    if revision > store.revision:
        text = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise statuses.failure(504, "Timeout", text, {"causes": [cause], "retryAfterSeconds": 1})


def _decode(text: str) -> _Token:
    """The continue token that a text is. Raises StatusError (400)."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
