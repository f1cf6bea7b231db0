"""The verbs on resources: from a call to the store and back to a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from webhook.clusters.embedded.apiserver import decoding
from webhook.clusters.embedded.apiserver.subresources import scale_of, scaled
from webhook.clusters.embedded.apiserver.watching import watch
from webhook.clusters.embedded.apiserver.writing import Mutation, ObjectWriter
from webhook.clusters.embedded.merging.managed_fields import Application
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import ApiCall, Reply, Right, SubresourceHandler, WriteRequest
from webhook.clusters.embedded.rendering import tables
from webhook.clusters.embedded.storage.listing import Selection, page
from webhook.clusters.embedded.storage.object_store import StoredObject

_PLAIN = {"status", "scale", "finalize"}
"""Sub-resources that are read and written like the object itself."""
_READ_AND_WRITE = ("get", "patch", "update")
_MODELS = {"binding": "V1Binding", "eviction": "V1Eviction", "token": "AuthenticationV1TokenRequest"}
"""What the sub-resources that take a POST take."""
_NAMED = ("binding", "eviction")
"""Those of them that must name the object."""


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
    options = decoding.options(call)
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
    if right.verb not in (_READ_AND_WRITE if right.subresource else resource.verbs):
        return False
    if right.verb == "create":
        return not right.name and bool(right.namespace or not resource.namespaced)
    return bool(right.name) or right.verb not in ("patch", "update")


async def _post(writer: ObjectWriter, handler: SubresourceHandler, call: ApiCall, change: WriteRequest) -> Reply:
    """Hand a POST to its handler; a sub-resource's own object goes through admission like any other."""
    if call.method != "POST":
        raise statuses.method_not_allowed()
    resource, admission = change.resource, writer.admission
    body = decoding.decode_any(call, _MODELS.get(change.subresource) or schemas.model_of(resource))
    if resource.stored or resource.plural == "bindings":
        metadata = body.setdefault("metadata", {})
        if change.subresource in _NAMED and metadata.get("name") != change.name:
            kind = change.subresource.capitalize()
            raise statuses.bad_request(f"name in URL does not match name in {kind} object")
        metadata.setdefault("name", change.name)
        metadata.setdefault("namespace", change.namespace)
        body = await admission.mutate(change.judging("CREATE", body, None)) or body
        await admission.validate(change.judging("CREATE", body, None))
    status, obj = await handler(replace(change, object=body))
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
            obj = decoding.check_object(resource, decoding.decode_any(call), change)
            record, status = await writer.create(change, obj), 201
        case "patch" if decoding.content_type(call) == decoding.APPLY and change.subresource != "scale":
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
    body = decoding.decode_any(call)
    configuration = decoding.check_object(change.resource, body, change, is_applied=True)
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
    wanted = (lambda _current: decoding.decode_any(call)) if verb == "update" else decoding.patched(call, schema)
    if is_scale:
        return lambda current: scaled(current, wanted(scale_of(current)))
    return lambda current: decoding.check_object(change.resource, wanted(current), change)


def _deleted(resource: ApiResource, record: StoredObject, gone: bool) -> Reply:
    """What is left of a deleted object, or a Status once it is gone."""
    if not gone or "returns-deleted" in resource.traits:
        return Reply(200, record.json(resource))
    metadata = record.object(resource)["metadata"]
    details: Object = {"name": metadata["name"], **({"group": resource.group} if resource.group else {})}
    return reply_of(statuses.success(**details, kind=resource.plural, uid=metadata["uid"]))
