"""Bodies, as the `Accept` and `Content-Type` headers say: what a client sends, and objects in the form it wants.

An object is sent whole, or as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.rendering import protobuf
from webhook.clusters.embedded.rendering.tables import table
from webhook.clusters.embedded.storage.object_store import StoredObject

_PROTOBUF = "application/vnd.kubernetes.protobuf"
_SENDABLE = "application/json"
_WANTED = ("application/json", "application/*", "*/*")
_JSON_TYPES = ("", "application/json", "application/apply-patch+yaml")
"""What is read as JSON, also server-side apply, whose clients send JSON."""


def is_table(header: str) -> bool:
    """Whether the first media range of an Accept header that can be served is a table. Raises StatusError (406)."""
    for media_range in (header or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media_range.split(";"))
        if kind in _WANTED:
            return "as=Table" in parameters
    raise statuses.failure(406, "NotAcceptable", f"only the following media types are accepted: {_SENDABLE}")


def decode(body: bytes, content_type: str) -> Any:
    """A body as plain data; None for no body. Raises StatusError: 415 for another type, 400 for what does not parse."""
    kind = content_type.partition(";")[0].strip()
    if not body:
        return None
    if kind == _PROTOBUF:
        return protobuf.decode(body)
    if kind not in _JSON_TYPES and not kind.endswith("+json"):
        raise statuses.unsupported_media_type(f"application/json, {_PROTOBUF}")
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"the object provided is not valid JSON: {error}") from error


def one(resource: ApiResource, as_table: bool, record: StoredObject) -> bytes:
    """One object."""
    if as_table:
        return table(resource, [record], {"resourceVersion": str(record.revision)})
    return record.json(resource)


def many(resource: ApiResource, as_table: bool, records: Sequence[StoredObject], metadata: Object) -> bytes:
    """A page of a list, with its ListMeta."""
    if as_table:
        return table(resource, records, metadata)
    head = msgspec.json.encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    )
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(record.item(resource) for record in records))
