"""From a request's body to an object of the wanted kind or to a patched one, and from its query to options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from webhook.clusters.embedded.merging.patches import json_patch, merge_patch, strategic_merge
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import ApiCall, WriteRequest, truthy
from webhook.clusters.embedded.rendering import protobuf

_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
APPLY = "application/apply-patch+yaml"
_PATCHES = f"application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, {APPLY}"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_TYPES = ("", "application/json", APPLY)
"""What is read as JSON, also server-side apply, whose clients send JSON."""
_ONLY_IN_BODY = ("gracePeriodSeconds", "propagationPolicy", "preconditions", "orphanDependents")
_DELETE_KEYS = ("gracePeriodSeconds", "propagationPolicy", "preconditions", "dryRun")


def decode_any(call: ApiCall, model: str = "") -> Object:
    """The body as an object of any kind, or of a model such as V1Eviction. Raises StatusError (400)."""
    obj = _object(_decoded(call))
    if model:
        schemas.settle(schemas.of_model(model), obj)
    return obj


def check_object(resource: ApiResource, obj: Object, change: WriteRequest, *, is_applied: bool = False) -> Object:
    """The object if it is of the resource's kind, without the fields that the kind does not have.

    Those are refused (Strict), warned of (Warn, the default) or passed over (Ignore); a configuration that is applied
    may have none. Raises StatusError (400, 500).
    """
    kind, version = obj.setdefault("kind", resource.kind), obj.setdefault("apiVersion", resource.api_version)
    if kind != resource.kind or version != resource.api_version:
        expected, given = f"{resource.api_version}, Kind={resource.kind}", f"{version}, Kind={kind}"
        text = f"the object provided is unrecognized (must be of type {resource.kind}): {given} is not {expected}"
        raise statuses.bad_request(text)
    metadata = _object(obj.setdefault("metadata", {}))
    if is_applied and "managedFields" in metadata:
        raise statuses.bad_request("metadata.managedFields must be nil")
    unknown = schemas.settle(schemas.of_resource(resource), obj)
    if unknown and is_applied:
        typed = f"failed to create typed patch object (/{change.name}; {version}, Kind={kind})"
        raise statuses.failure(500, "", f"{typed}: .{unknown[0]}: field not declared in schema")
    texts = [f'unknown field "{path}"' for path in unknown]
    validation = change.options.get("fieldValidation") or "Warn"
    if texts and validation == "Strict":
        shown = f'{kind} in version "{resource.version}" cannot be handled as a {kind}'
        raise statuses.bad_request(f"{shown}: strict decoding error: {', '.join(texts)}")
    if validation == "Warn":
        change.warnings += texts
    return obj


def options(call: ApiCall) -> Object:
    """The options object of a write, as admission sees it. Raises StatusError (400)."""
    kind = _OPTIONS.get(call.method)
    if kind is None:
        return {}
    query = call.query
    obj: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if query.get("dryRun"):
        obj["dryRun"] = [query["dryRun"]]
    obj |= {name: query[name] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    if "force" in query:
        obj["force"] = truthy(query["force"])
    if call.method == "DELETE":
        obj |= _delete_options(call)
    if obj.get("dryRun") not in (None, [], ["All"]):
        raise statuses.bad_request(f'Invalid value: {obj["dryRun"]}: supported values: "All"')
    return obj


def _delete_options(call: ApiCall) -> Object:
    """What DeleteOptions in the body say. Raises StatusError (400)."""
    if asked := [name for name in _ONLY_IN_BODY if name in call.query]:
        raise statuses.bad_request(f"{', '.join(asked)}: send DeleteOptions in the body")
    body = decode_any(call, "V1DeleteOptions") if call.body else {}
    policy = body.get("propagationPolicy")
    if policy not in (None, "Background") or body.get("orphanDependents"):
        raise statuses.bad_request(f"propagationPolicy {policy!r}: dependents are deleted in the background here")
    return {key: body[key] for key in _DELETE_KEYS if body.get(key) is not None}


def patched(call: ApiCall, schema: Schema) -> Callable[[Object], Object]:
    """From a document to the patched one. Raises StatusError: 415 for an unknown kind of patch."""
    body = _decoded(call)
    match content_type(call):
        case "application/json-patch+json":
            return lambda current: _object(json_patch(current, body))
        case "application/merge-patch+json":
            return lambda current: _object(merge_patch(current, _object(body)))
        case "application/strategic-merge-patch+json":
            return lambda current: strategic_merge(schema, current, _object(body))
    raise statuses.unsupported_media_type(_PATCHES)


def content_type(call: ApiCall) -> str:
    """The media type of the body, without parameters."""
    return call.headers.get("content-type", "").partition(";")[0].strip()


def _decoded(call: ApiCall) -> Any:
    """The body as plain data; None for no body. Raises StatusError: 415 for another type, 400 for no JSON."""
    kind = content_type(call)
    if not call.body:
        return None
    if kind == _PROTOBUF:
        return protobuf.decode(call.body)
    if kind not in _JSON_TYPES and not kind.endswith("+json"):
        raise statuses.unsupported_media_type(f"application/json, {_PROTOBUF}")
    try:
        return msgspec.json.decode(call.body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"the object provided is not valid JSON: {error}") from error


def _object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise statuses.bad_request("what is sent, or what a patch leads to, is not an object")
    return value
