"""Which objects a list or a watch wants, and lists in pages.

Every page of a list names the revision of the first, from which a watch goes on, and shows what is there now; once
the changes since then are no longer kept, the list has expired (410).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource
from webhook.clusters.embedded.protocol.calls import is_whole_number, whole_number
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject
from webhook.kube.selectors import SelectorError, parse_selector

_TERM = re.compile(r"([A-Za-z0-9_.\-/]+)(!=|==|=)(.*)", re.DOTALL)
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
        try:
            self._labels = parse_selector(labels) if labels.strip() else None
        except SelectorError as error:
            raise statuses.bad_request(str(error)) from error
        self._fields = [_field_check(resource, fields, part) for part in fields.split(",") if part.strip()]

    def matches(self, record: StoredObject) -> bool:
        """Whether the record is wanted."""
        if self.namespace and record.namespace != self.namespace:
            return False
        if self._labels is not None and not self._labels(record.labels):
            return False
        return all(check(record) for check in self._fields)


def _field_check(resource: ApiResource, selector: str, term: str) -> Callable[[StoredObject], bool]:
    """Compile one term of a field selector. Raises StatusError (400)."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise statuses.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    name, negated, wanted = match[1], match[2] == "!=", match[3]
    if name == "metadata.name":
        return lambda record: (record.name == wanted) != negated
    if name == "metadata.namespace" and resource.namespaced:
        return lambda record: (record.namespace == wanted) != negated
    if name not in resource.fields:
        group, _, version = resource.api_version.rpartition("/")
        raise statuses.bad_request(
            f'Unable to find "{group}/{version}, Resource={resource.plural}" that match label selector "", '
            f'field selector "{selector}": field label not supported: {name}'
        )
    return lambda record: (record.fields[name] == wanted) != negated


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


def page(store: ObjectStore, selection: Selection, query: Mapping[str, str]) -> ListPage:
    """Read one page. Raises StatusError: 400 for parameters that are wrong, 410 for what has expired."""
    collection = store[selection.resource]
    limit = whole_number(query, "limit")
    revision, start = store.revision, ""
    if query.get("continue"):
        encoded = query["continue"]
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)), type=_Token)
        except (binascii.Error, msgspec.DecodeError, ValueError) as error:
            raise statuses.bad_request(f"continue key is not valid: {error}") from error
        start = token.start
        if token.rv != _INCONSISTENT:
            if not collection.floor <= token.rv <= store.revision:
                go_on = _encode(_Token(token.v, _INCONSISTENT, token.start))
                raise statuses.failure(410, "Expired", _EXPIRED, None, **{"continue": go_on})
            revision = token.rv
    else:
        wanted = revision_of(query.get("resourceVersion", ""))
        check_not_future(store, wanted)
        if query.get("resourceVersionMatch") == "Exact":
            raise statuses.bad_request("resourceVersionMatch: only the newest state is kept here")
    records: list[StoredObject] = []
    rest = filter(selection.matches, collection.in_namespace(selection.namespace, start))
    for record in rest:
        if limit and len(records) == limit:
            token = _Token("meta.k8s.io/v1", revision, f"{records[-1].key}\0")
            return ListPage(records, revision, _encode(token), 1 + sum(1 for _ in rest))
        records.append(record)
    return ListPage(records, revision)


def revision_of(text: str) -> int:
    """A resourceVersion parameter as a number; "" is 0. Raises StatusError (400)."""
    if not text:
        return 0
    if not is_whole_number(text):
        raise statuses.bad_request(f"Invalid value: {text[:20]!r}: resourceVersion must be a whole number")
    return int(text)


def check_not_future(store: ObjectStore, revision: int) -> None:
    """Refuse (504) a revision that this server has not reached, as after the loss of its state."""
    if revision > store.revision:
        message = f"Too large resource version: {revision}, current: {store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        error = statuses.failure(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})
        error.retry_after = 1
        raise error


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
