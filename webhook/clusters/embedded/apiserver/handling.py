"""The verbs on resources: from a call, whose body and options are read, to the store and back to a reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from webhook.clusters.embedded.apiserver.subresources import scale_of, scaled
from webhook.clusters.embedded.apiserver.watching import watch
from webhook.clusters.embedded.apiserver.writing import Mutation, ObjectWriter
from webhook.clusters.embedded.merging.managed_fields import Application
from webhook.clusters.embedded.merging.patches import json_patch, merge_patch, strategic_merge
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import VERBS, ApiResource, Object
from webhook.clusters.embedded.protocol.calls import ApiCall, Reply, Right, SubresourceHandler, WriteRequest, truthy
from webhook.clusters.embedded.rendering import protobuf, tables
from webhook.clusters.embedded.storage.object_store import Selection, StoredObject, page

_PLAIN = {"status", "scale", "finalize"}
"""Sub-resources that are read and written like the object itself."""
_READ_AND_WRITE = ("get", "patch", "update")
_MODELS = {"binding": "V1Binding", "eviction": "V1Eviction", "token": "AuthenticationV1TokenRequest"}
"""What the sub-resources that take a POST take."""
_NAMED = {"binding": "v1", "eviction": "policy/v1"}
"""Those of them that must name the object, with the version of what they take."""
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
APPLY = "application/apply-patch+yaml"
_PATCHES = f"application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, {APPLY}"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_TYPES = ("", "application/json", APPLY)
"""What is read as JSON, also server-side apply, whose clients send JSON."""
_ONLY_IN_BODY = ("gracePeriodSeconds", "propagationPolicy", "preconditions", "orphanDependents")
_DELETE_KEYS = ("gracePeriodSeconds", "propagationPolicy", "preconditions", "dryRun")


def reply_of(obj: Any, status: int = 200) -> Reply:
    """Any document as a reply."""
    return Reply(status, msgspec.json.encode(obj))


def refusal(error: statuses.StatusError) -> Reply:
    """A refusal as a reply, with the time to wait where there is one."""
    reply = reply_of(error.status, error.code)
    if seconds := (error.status.get("details") or {}).get("retryAfterSeconds"):
        reply.headers.append(("Retry-After", str(seconds)))
    return reply


async def handle(
    writer: ObjectWriter,
    subresources: Mapping[tuple[str, str], SubresourceHandler],
    right: Right,
    resource: ApiResource,
    call: ApiCall,
) -> Reply:
    """From a call that was allowed to its reply. Raises StatusError for a refusal."""
    options = _options(call)
    agent = call.headers.get("user-agent", "").partition("/")[0]
    change = WriteRequest(
        resource=resource,
        namespace=right.namespace if resource.namespaced else "",
        name=right.name,
        subresource=right.subresource,
        user=call.user,
        dry_run=bool(options.get("dryRun")),
        manager=call.query.get("fieldManager") or agent or "unknown",
        options=options,
    )
    if (handler := subresources.get((resource.plural, right.subresource))) is not None:
        reply = await _post(writer, handler, call, change)
    elif not resource.stored or (right.subresource and right.subresource not in _PLAIN.intersection(resource.sub)):
        raise statuses.path_not_found()
    elif not _takes(resource, right):
        raise statuses.method_not_allowed()
    else:
        reply = await _carry_out(writer, right.verb, call, change)
    for text in dict.fromkeys(change.warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        reply.headers.append(("Warning", f'299 - "{escaped}"'))
    return reply


def _takes(resource: ApiResource, right: Right) -> bool:
    """Whether the path takes the verb: a new object is sent to its collection, a changed one to its own path."""
    if right.verb not in (_READ_AND_WRITE if right.subresource else VERBS):
        return False
    if right.verb == "create":
        return not right.name and bool(right.namespace or not resource.namespaced)
    return bool(right.name) or right.verb not in ("patch", "update")


async def _post(writer: ObjectWriter, handler: SubresourceHandler, call: ApiCall, change: WriteRequest) -> Reply:
    """Hand a POST to its handler; a sub-resource's own object goes through admission like any other."""
    if call.method != "POST":
        raise statuses.method_not_allowed()
    resource, admission = change.resource, writer.admission
    change.operation = "CREATE"
    change.object = body = decode_any(call, _MODELS.get(change.subresource) or schemas.model_of(resource))
    if resource.stored or resource.plural == "bindings":
        metadata = body.setdefault("metadata", {})
        if (version := _NAMED.get(change.subresource)) is not None:
            kind = change.subresource.capitalize()
            if metadata.get("name") != change.name:
                raise statuses.bad_request(f"name in URL does not match name in {kind} object")
            change.object = body = {"kind": kind, "apiVersion": version, **body}
        metadata.setdefault("name", change.name)
        metadata.setdefault("namespace", change.namespace)
        await admission.mutate(change)
        await admission.validate(change)
    status, obj = await handler(change)
    return reply_of(obj, status)


async def _carry_out(writer: ObjectWriter, verb: str, call: ApiCall, change: WriteRequest) -> Reply:
    """Carry out a verb on stored objects."""
    resource, store, status = change.resource, writer.store, 200
    as_table = tables.is_table(call.headers.get("accept", ""))
    match verb:
        case "list":
            selection = Selection(resource, change.namespace, call.query)
            return Reply(200, tables.many(resource, as_table, *page(store, selection, call.query)))
        case "watch":
            selection = Selection(resource, change.namespace, call.query)
            render = partial(tables.one, resource, as_table)
            return Reply(200, stream=watch(store, selection, call.query, render))
        case "delete":
            return _deleted(resource, *await writer.delete(change))
        case "get":
            record = writer.read(resource, change.namespace, change.name)
        case "create":
            obj = check_object(resource, decode_any(call), change)
            record, status = await writer.create(change, obj), 201
        case "patch" if content_type(call) == APPLY and change.subresource != "scale":
            record, status = await _apply(writer, call, change)
        case _:
            record = await writer.update(change, _mutation(verb, call, change))
    if change.subresource == "scale":
        return reply_of(scale_of(record.object(resource)))
    return Reply(status, tables.one(resource, as_table, record))


async def _apply(writer: ObjectWriter, call: ApiCall, change: WriteRequest) -> tuple[StoredObject, int]:
    """Server-side apply: the object, and 201 if it is new."""
    if not change.options.get("fieldManager"):
        cause = statuses.Cause.required("fieldManager", "is required for apply patch")
        raise statuses.invalid("meta.k8s.io", "PatchOptions", "", cause)
    configuration = check_object(change.resource, decode_any(call), change, is_applied=True)
    name = configuration["metadata"].setdefault("name", change.name)
    if name != change.name:
        raise statuses.another_name(name, change.name)
    application = Application(change, configuration, force=bool(change.options.get("force")))
    if writer.store.get(change.resource, change.namespace, change.name) is not None:
        return await writer.update(change, application.merge, application.track), 200
    if change.subresource:
        raise statuses.not_found(change.resource, change.name)
    return await writer.create(change, configuration, application.track), 201


def _mutation(verb: str, call: ApiCall, change: WriteRequest) -> Mutation:
    """From the current object to the one that a PUT or a PATCH wants, by its scale if that is what is written."""
    is_scale = change.subresource == "scale"
    schema = schemas.of_model("V1Scale") if is_scale else schemas.of_resource(change.resource)
    wanted = (lambda _current: decode_any(call)) if verb == "update" else patched(call, schema)
    if is_scale:
        return lambda current: scaled(current, wanted(scale_of(current)))
    return lambda current: check_object(change.resource, wanted(current), change)


def _deleted(resource: ApiResource, record: StoredObject, gone: bool) -> Reply:
    """What is left of a deleted object, or a Status once it is gone."""
    if not gone or "returns-deleted" in resource.traits:
        return Reply(200, record.json(resource))
    metadata = record.object(resource)["metadata"]
    details: Object = {"name": metadata["name"], **({"group": resource.group} if resource.group else {})}
    return reply_of(statuses.success(**details, kind=resource.plural, uid=metadata["uid"]))


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


def _options(call: ApiCall) -> Object:
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
