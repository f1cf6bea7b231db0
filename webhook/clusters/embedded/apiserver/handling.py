"""The verbs on resources: from a call to the store and back to a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from webhook.clusters.embedded.apiserver import decoding, subresources
from webhook.clusters.embedded.apiserver.watching import Watch
from webhook.clusters.embedded.apiserver.writing import ObjectWriter
from webhook.clusters.embedded.merging.server_side_apply import Application
from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import (
    ApiCall,
    Reply,
    Right,
    SubresourceHandler,
    WriteRequest,
    truthy,
)
from webhook.clusters.embedded.rendering import serialization
from webhook.clusters.embedded.storage import listing
from webhook.clusters.embedded.storage.listing import Selection
from webhook.clusters.embedded.storage.object_store import StoredObject

_BUILT_IN = {"status", "scale", "finalize"}
_MODELS = {"binding": "V1Binding", "eviction": "V1Eviction", "token": "AuthenticationV1TokenRequest"}
"""What the sub-resources that take a POST take."""


def reply_of(obj: Any, status: int = 200) -> Reply:
    """Any document as a reply."""
    return Reply(status, msgspec.json.encode(obj))


def refusal(error: statuses.StatusError) -> Reply:
    """A refusal as a reply, with the time to wait where there is one."""
    reply = reply_of(error.status, error.code)
    if error.retry_after is not None:
        reply.headers.append(("Retry-After", str(error.retry_after)))
    return reply


class Handlers:
    """From a call that was allowed to its reply. All methods raise StatusError for a refusal."""

    def __init__(self, writer: ObjectWriter, subresources: Mapping[tuple[str, str], SubresourceHandler]) -> None:
        self._writer = writer
        self._store = writer.store
        self._admission = writer.admission
        self._subresources = subresources
        self.watches: set[Watch] = set()
        """Those that are open."""

    async def handle(self, right: Right, resource: ApiResource, call: ApiCall) -> Reply:
        """Answer a call."""
        as_table = serialization.is_table(call.headers.get("accept", ""))
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
        if (handler := self._subresources.get((resource.plural, right.subresource))) is not None:
            reply = await self._post(handler, call, change)
        elif not resource.stored or (
            right.subresource and right.subresource not in _BUILT_IN.intersection(resource.sub)
        ):
            raise statuses.path_not_found()
        elif right.subresource == "scale":
            reply = reply_of(await subresources.scale(self._writer, call, right.verb, change))
        else:
            reply = await self._carry_out(right.verb, call, change, as_table=as_table)
        for text in change.warnings:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            reply.headers.append(("Warning", f'299 - "{escaped}"'))
        return reply

    async def _post(self, handler: SubresourceHandler, call: ApiCall, change: WriteRequest) -> Reply:
        """Hand a POST to its handler; a sub-resource's own object goes through admission like any other."""
        if call.method != "POST":
            raise statuses.method_not_allowed()
        resource = change.resource
        body = decoding.decode_any(call, _MODELS.get(change.subresource) or schemas.model_of(resource))
        if resource.stored or resource.plural == "bindings":
            metadata = body.setdefault("metadata", {})
            metadata.setdefault("name", change.name)
            metadata.setdefault("namespace", change.namespace)
            body = await self._admission.mutate(change.judging("CREATE", body, None)) or body
            await self._admission.validate(change.judging("CREATE", body, None))
        status, obj = await handler(replace(change, object=body))
        return reply_of(obj, status)

    async def _carry_out(self, verb: str, call: ApiCall, change: WriteRequest, *, as_table: bool) -> Reply:
        """Carry out a verb on stored objects."""
        resource, name = change.resource, change.name
        if verb not in resource.verbs or (verb == "create" and name):
            raise statuses.method_not_allowed()
        writer, status = self._writer, 200
        match verb:
            case "list":
                page = listing.page(self._store, Selection(resource, change.namespace, call.query), call.query)
                return Reply(200, serialization.many(resource, page, as_table=as_table))
            case "watch":
                query = dict(call.query)
                if name:
                    query.setdefault("fieldSelector", f"metadata.name={name}")
                selection = Selection(resource, change.namespace, query)
                watch = Watch(self._store, selection, query, partial(serialization.one, resource, as_table))
                return Reply(200, stream=self._follow(watch))
            case "delete":
                return await self._delete(call, change)
            case "get":
                record = writer.read(resource, change.namespace, name)
            case "create":
                record, status = await writer.create(change, decoding.decode_object(resource, call, change)), 201
            case "update":
                body = msgspec.json.encode(decoding.decode_object(resource, call, change))
                record = await writer.update(change, lambda _old: msgspec.json.decode(body))
            case _ if decoding.content_type(call) == decoding.APPLY:
                record, status = await self._apply(call, change)
            case _:
                patched = decoding.patched(call, schemas.of_resource(resource))
                record = await writer.update(
                    change, lambda current: decoding.check_object(resource, patched(current), change)
                )
        return Reply(status, serialization.one(resource, as_table, record))

    async def _follow(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        self.watches.add(watch)
        try:
            async with aclosing(watch.lines()) as lines:
                async for line in lines:
                    yield line
        finally:
            self.watches.discard(watch)

    async def _apply(self, call: ApiCall, change: WriteRequest) -> tuple[StoredObject, int]:
        """Server-side apply: the object, and 201 if it is new."""
        if not call.query.get("fieldManager"):
            text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise statuses.failure(422, "Invalid", text, {"group": "meta.k8s.io", "kind": "PatchOptions"})
        configuration = decoding.decode_object(change.resource, call, change)
        name = configuration["metadata"].setdefault("name", change.name)
        if name != change.name:
            raise statuses.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({change.name})"
            )
        application = Application(change, configuration, force=truthy(call.query.get("force")))
        if self._store.get(change.resource, change.namespace, change.name) is not None:
            return await self._writer.update(change, application.merge, application.track), 200
        if change.subresource:
            raise statuses.not_found(change.resource, change.name)
        return await self._writer.create(change, configuration, application.track), 201

    async def _delete(self, call: ApiCall, change: WriteRequest) -> Reply:
        """Delete an object: what is left of it, or a Status once it is gone."""
        resource = change.resource
        change.options = decoding.delete_options(call)
        change.dry_run = bool(change.options.get("dryRun"))
        record, gone = await self._writer.delete(change)
        if not gone or resource.returns_deleted:
            return Reply(200, record.json(resource))
        details: Object = {"name": record.name}
        if resource.group:
            details["group"] = resource.group
        uid = msgspec.json.decode(record.body)["metadata"]["uid"]
        return reply_of(statuses.success(**details, kind=resource.plural, uid=uid))
