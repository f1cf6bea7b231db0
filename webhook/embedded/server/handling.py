"""The verbs on resources: from a call to the store and back to a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.calls import ApiCall, Object, Reply, SubresourceCall, SubresourceHandler, WriteRequest
from webhook.embedded.protocol.routing import Route
from webhook.embedded.rendering import negotiation, records
from webhook.embedded.server import decoding, patching, scaling
from webhook.embedded.server.faults import Faults
from webhook.embedded.server.watching import Watch
from webhook.embedded.server.writing import ObjectWriter
from webhook.embedded.storage import listing, views
from webhook.embedded.storage.selection import Selection
from webhook.embedded.storage.store import StoredObject

__all__ = ["Handlers", "reply_of"]

_LONGEST_MANAGER = 128
_BUILT_IN = {"status", "scale", "finalize"}


def reply_of(obj: Any, status: int = 200) -> Reply:
    """Any document as a reply."""
    return Reply(status, msgspec.json.encode(obj))


class Handlers:
    """One method for each verb. All raise StatusError for a refusal."""

    def __init__(
        self, writer: ObjectWriter, subresources: Mapping[tuple[str, str], SubresourceHandler], faults: Faults
    ) -> None:
        self._writer = writer
        self._store = writer.store
        self._admission = writer.admission
        self._subresources = subresources
        self._faults = faults

    async def handle(self, route: Route, resource: ApiResource, call: ApiCall) -> Reply:
        """Answer a call that was allowed."""
        media = negotiation.accepted(call.headers.get("accept", ""), call.query.get("includeObject", ""))
        options = decoding.options(call)
        agent = call.headers.get("user-agent", "").partition("/")[0][:_LONGEST_MANAGER]
        change = WriteRequest(
            resource=resource,
            namespace=route.namespace if resource.namespaced else "",
            name=route.name,
            subresource=route.subresource,
            user=call.user,
            dry_run=bool(options.get("dryRun")),
            manager=call.query.get("fieldManager") or agent or "unknown",
            options=options,
        )
        if (hook := self._subresources.get((resource.plural, route.subresource))) is not None:
            reply = await self._hooked(hook, route, call, change)
        elif not resource.stored or (
            route.subresource and route.subresource not in _BUILT_IN.intersection(resource.sub)
        ):
            raise statuses.path_not_found()
        elif route.subresource == "scale":
            reply = await self._scale(route, call, change)
        else:
            reply = await self._verb(route, resource, call, change, media)
        for text in change.warnings:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            reply.headers.append(("Warning", f'299 - "{escaped}"'))
        return reply

    async def _verb(
        self, route: Route, resource: ApiResource, call: ApiCall, change: WriteRequest, media: negotiation.Media
    ) -> Reply:
        """Carry out a verb on stored objects."""
        if route.verb not in resource.verbs or (route.verb == "create" and route.name):
            raise statuses.method_not_allowed()
        match route.verb:
            case "get":
                return self._shown(resource, self._writer.read(resource, change.namespace, route.name), media)
            case "list":
                found = listing.page(self._store, Selection(resource, change.namespace, call.query), call.query)
                return Reply(200, records.many(resource, found, media))
            case "watch":
                return self._watch(route, change, call, media)
            case "deletecollection":
                return await self._delete_collection(call, change)
            case "delete":
                return await self._delete(resource, call, change)
            case "create":
                obj = decoding.decode_object(resource, call, change)
                return self._shown(resource, await self._writer.create(change, obj), media, 201)
            case "update":
                return await self._update(resource, call, change, media)
        record, created = await patching.patch(self._writer, call, change)
        return self._shown(resource, record, media, 201 if created else 200)

    def _shown(self, resource: ApiResource, record: StoredObject, media: negotiation.Media, status: int = 200) -> Reply:
        return Reply(status, records.one(resource, record, media))

    def _watch(self, route: Route, change: WriteRequest, call: ApiCall, media: negotiation.Media) -> Reply:
        query = dict(call.query)
        if route.name and "fieldSelector" not in query:
            query["fieldSelector"] = f"metadata.name={route.name}"
        selection = Selection(change.resource, change.namespace, query)
        watch = Watch(self._store, selection, query, records.watched(change.resource, media))
        return Reply(200, stream=self._watched(route, watch))

    async def _watched(self, route: Route, watch: Watch) -> AsyncGenerator[bytes, None]:
        self._faults.opened(route, watch)
        try:
            async with aclosing(watch.lines()) as lines:
                async for line in lines:
                    yield line
        finally:
            self._faults.closed(watch)

    async def _update(
        self, resource: ApiResource, call: ApiCall, change: WriteRequest, media: negotiation.Media
    ) -> Reply:
        obj = decoding.decode_object(resource, call, change)
        missing = self._store.get(resource, change.namespace, change.name) is None
        if missing and resource.create_on_put and not change.subresource:
            obj["metadata"].pop("resourceVersion", None)
            return self._shown(resource, await self._writer.create(change, obj), media, 201)
        body = msgspec.json.encode(obj)
        record = await self._writer.update(change, lambda _old: msgspec.json.decode(body))
        return self._shown(resource, record, media)

    async def _delete(self, resource: ApiResource, call: ApiCall, change: WriteRequest) -> Reply:
        change.options = decoding.delete_options(call)
        change.dry_run = bool(change.options.get("dryRun"))
        record, gone = await self._writer.delete(change)
        if not gone or resource.returns_deleted:
            return Reply(200, views.whole(resource, record))
        metadata = msgspec.json.decode(record.body)["metadata"]
        details: Object = {"name": record.name}
        if resource.group:
            details["group"] = resource.group
        return reply_of(statuses.success(**details, kind=resource.plural, uid=metadata["uid"]))

    async def _delete_collection(self, call: ApiCall, change: WriteRequest) -> Reply:
        """Delete what is selected, one by one."""
        selection = Selection(change.resource, change.namespace, call.query)
        found = listing.page(self._store, selection, {})
        options = decoding.delete_options(call)
        for record in found.records:
            single = WriteRequest(
                change.resource,
                record.namespace,
                record.name,
                user=change.user,
                dry_run=bool(options.get("dryRun")),
                options=options,
                warnings=change.warnings,
            )
            try:
                await self._writer.delete(single)
            except statuses.StatusError as error:
                if error.code != 404:
                    raise
        return Reply(200, records.many(change.resource, found, negotiation.Media()))

    async def _scale(self, route: Route, call: ApiCall, change: WriteRequest) -> Reply:
        if route.verb == "get":
            record = self._writer.read(change.resource, change.namespace, change.name)
            return reply_of(scaling.scale_of(record.object(change.resource)))
        if route.verb not in ("update", "patch"):
            raise statuses.method_not_allowed()
        return reply_of(await scaling.rescale(self._writer, call, change))

    async def _hooked(self, hook: Any, route: Route, call: ApiCall, change: WriteRequest) -> Reply:
        """Hand a POST to its hook; a sub-resource's own object goes through admission like any other."""
        if call.method != "POST":
            raise statuses.method_not_allowed()
        body = decoding.decode_any(call)
        if change.resource.stored or change.resource.plural == "bindings":
            metadata = body.setdefault("metadata", {})
            metadata.setdefault("name", change.name)
            metadata.setdefault("namespace", change.namespace)
            body = await self._admission.mutate(change.attributes("CREATE", body, None)) or body
            await self._admission.validate(change.attributes("CREATE", body, None))
        status, obj = await hook(SubresourceCall(route.verb, body, change))
        return reply_of(obj, status)
