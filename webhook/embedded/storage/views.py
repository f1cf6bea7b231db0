"""Stored objects in the version a caller asked for. Only Events have two: core/v1, as stored, and events.k8s.io/v1."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.embedded.protocol.api_resources import BY_STORAGE, ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.embedded.storage.store import StoredObject

__all__ = ["body", "from_stored", "to_stored", "whole"]

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
_ALWAYS_SENT: dict[str, Any] = {
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
    "deprecatedSource": {},
    "eventTime": None,
}


def _is_stored(resource: ApiResource) -> bool:
    return BY_STORAGE[resource.key] is resource


def to_stored(resource: ApiResource, obj: Object) -> Object:
    """An object of a version as the version that is stored."""
    if _is_stored(resource):
        return obj
    stored = BY_STORAGE[resource.key]
    renamed = {_OLD_NAMES.get(key, key): value for key, value in obj.items()}
    return {**renamed, "kind": stored.kind, "apiVersion": stored.api_version}


def from_stored(resource: ApiResource, obj: Object) -> Object:
    """A stored object as a version's."""
    if _is_stored(resource):
        return obj
    renamed = {_NEW_NAMES.get(key, key): value for key, value in obj.items()}
    return {**_ALWAYS_SENT, **renamed, "kind": resource.kind, "apiVersion": resource.api_version}


def body(resource: ApiResource, record: StoredObject) -> bytes:
    """The JSON of an object without kind and apiVersion, as an item of a list is sent."""
    if _is_stored(resource):
        return record.body
    obj = from_stored(resource, record.object(BY_STORAGE[resource.key]))
    return msgspec.json.encode({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})


def whole(resource: ApiResource, record: StoredObject) -> bytes:
    """The JSON of an object by itself."""
    return resource.prefix + body(resource, record)[1:]
