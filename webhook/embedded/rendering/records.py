"""Records as the bytes a client asked for: whole objects, metadata only, or a table."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.rendering.negotiation import Media
from webhook.embedded.rendering.tables import table
from webhook.embedded.storage import views
from webhook.embedded.storage.listing import ListPage
from webhook.embedded.storage.store import StoredObject

__all__ = ["many", "one", "watched"]

_META = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",'


class _Partial(msgspec.Struct):
    """What is left of an object whose metadata alone is wanted."""

    metadata: msgspec.Raw


_PARTIAL = msgspec.json.Decoder(_Partial)


def one(resource: ApiResource, record: StoredObject, media: Media) -> bytes:
    """One object."""
    if media.form == "Table":
        return table(resource, [record], {"resourceVersion": str(record.revision)}, media.include)
    if media.form.startswith("PartialObjectMetadata"):
        return _META + _metadata_only(resource, record)[1:]
    return views.whole(resource, record)


def many(resource: ApiResource, page: ListPage, media: Media) -> bytes:
    """A page of a list."""
    if media.form == "Table":
        return table(resource, page.records, page.metadata(), media.include)
    kind, version = f"{resource.kind}List", resource.api_version
    items = [views.body(resource, record) for record in page.records]
    if media.form.startswith("PartialObjectMetadata"):
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [_metadata_only(resource, record) for record in page.records]
    head = msgspec.json.encode({"kind": kind, "apiVersion": version, "metadata": page.metadata()})
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(items))


def watched(resource: ApiResource, media: Media) -> Callable[[StoredObject], bytes]:
    """How a watch sends its objects. Of tables only the first has its columns defined."""
    if media.form != "Table":
        return lambda record: one(resource, record, media)
    headed = True

    def row(record: StoredObject) -> bytes:
        nonlocal headed
        first, headed = headed, False
        return table(resource, [record], {"resourceVersion": str(record.revision)}, media.include, headed=first)

    return row


def _metadata_only(resource: ApiResource, record: StoredObject) -> bytes:
    return b'{"metadata":%b}' % bytes(_PARTIAL.decode(views.body(resource, record)).metadata)
