"""PATCH: which kind of patch, and how it meets the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.embedded import decoding, negotiation, statuses
from webhook.embedded.calls import Call, Change, Object
from webhook.embedded.patches import json_patch, merge_patch
from webhook.embedded.store import Record
from webhook.embedded.writing import Writer

__all__ = ["kind_of_patch", "mutation", "patch"]

_TYPES = (
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
    "application/apply-patch+yaml"
)


async def patch(writer: Writer, call: Call, change: Change) -> tuple[Record, bool]:
    """Carry out a PATCH: the record, and whether it is new. Raises StatusError."""
    return await writer.update(change, mutation(call, change)), False


def mutation(call: Call, change: Change) -> Callable[[Object], Object]:
    """From the current object to the patched one, of the same kind. Raises StatusError."""
    patching = kind_of_patch(call)
    return lambda current: decoding.check_object(change.resource, patching(current), change)


def kind_of_patch(call: Call) -> Callable[[Object], Object]:
    """From a document to the patched one. Raises StatusError: 415 for an unknown kind of patch."""
    content_type = call.headers.get("content-type", "").partition(";")[0].strip()
    patching = _KINDS.get(content_type)
    if patching is None:
        raise statuses.unsupported_media_type(_TYPES)
    body = negotiation.decode(call.body, content_type)
    return lambda current: patching(current, body)


def _merged(current: Object, body: Any) -> Object:
    if not isinstance(body, dict):
        raise statuses.bad_request("a merge patch must be an object")
    merged: Object = merge_patch(current, body)
    return merged


def _json_patched(current: Object, body: Any) -> Object:
    patched = json_patch(current, body)
    if not isinstance(patched, dict):
        raise statuses.bad_request("the patched document is not an object")
    return patched


_KINDS: dict[str, Callable[[Object, Any], Object]] = {
    "application/json-patch+json": _json_patched,
    "application/merge-patch+json": _merged,
    "application/strategic-merge-patch+json": _merged,
}
