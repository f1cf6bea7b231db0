"""PATCH: which kind of patch, and how it meets the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.embedded.merging.applying import Application
from webhook.embedded.merging.patches import json_patch, merge_patch
from webhook.embedded.merging.strategic import strategic_merge
from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.calls import ApiCall, Object, WriteRequest
from webhook.embedded.protocol.routing import truthy
from webhook.embedded.rendering import negotiation
from webhook.embedded.schema import schemas
from webhook.embedded.schema.schemas import Schema
from webhook.embedded.server import decoding
from webhook.embedded.server.writing import ObjectWriter
from webhook.embedded.storage.store import StoredObject

__all__ = ["patch", "patched"]

_APPLY = "application/apply-patch+yaml"
_TYPES = f"application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, {_APPLY}"


async def patch(writer: ObjectWriter, call: ApiCall, change: WriteRequest) -> tuple[StoredObject, bool]:
    """Carry out a PATCH: the record, and whether it is new. Raises StatusError."""
    if _kind(call) == _APPLY:
        return await _apply(writer, call, change)
    mutation = patched(call, schemas.of_resource(change.resource))
    record = await writer.update(
        change, lambda current: decoding.check_object(change.resource, mutation(current), change)
    )
    return record, False


def patched(call: ApiCall, schema: Schema) -> Callable[[Object], Object]:
    """From a document to the patched one. Raises StatusError: 415 for an unknown kind of patch."""
    body = negotiation.decode(call.body, _kind(call))
    match _kind(call):
        case "application/json-patch+json":
            return lambda current: _object(json_patch(current, body))
        case "application/merge-patch+json":
            return lambda current: _object(merge_patch(current, _object(body)))
        case "application/strategic-merge-patch+json":
            return lambda current: strategic_merge(schema, current, _object(body))
    raise statuses.unsupported_media_type(_TYPES)


async def _apply(writer: ObjectWriter, call: ApiCall, change: WriteRequest) -> tuple[StoredObject, bool]:
    """Server-side apply: the object, and whether it is new."""
    if not call.query.get("fieldManager"):
        cause = statuses.Cause("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
        raise statuses.invalid_options("PatchOptions", cause)
    configuration = decoding.decode_object(change.resource, call, change)
    name = configuration["metadata"].setdefault("name", change.name)
    if name != change.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({change.name})"
        )
    application = Application(change, configuration, force=truthy(call.query.get("force")))
    if writer.store.get(change.resource, change.namespace, change.name) is not None:
        return await writer.update(change, application.merge, application.track), False
    if change.subresource:
        raise statuses.not_found(change.resource, change.name)
    return await writer.create(change, configuration, application.track), True


def _kind(call: ApiCall) -> str:
    return call.headers.get("content-type", "").partition(";")[0].strip()


def _object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise statuses.bad_request("the patch, or the document it leads to, is not an object")
    return value
