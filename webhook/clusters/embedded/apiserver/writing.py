"""Create, update, delete: the way of an object into the store, in the order a real API server takes the steps."""

from __future__ import annotations

import time
from collections.abc import Callable

from webhook.clusters.embedded.admission_chain.chain import AdmissionChain
from webhook.clusters.embedded.apiserver import strategy
from webhook.clusters.embedded.merging import managed_fields
from webhook.clusters.embedded.object_types import defaulting, validation
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject

_ATTEMPTS = 5
"""How often a change is tried again when the object changed while admission was asked."""

Mutation = Callable[[Object], Object]
"""From the current object (the callee's own copy) to the wanted one."""


class ObjectWriter:
    """All writes to one store, through one admission chain. Every method raises StatusError for a refusal."""

    def __init__(self, store: ObjectStore, admission: AdmissionChain) -> None:
        self.store = store
        self.admission = admission

    def read(self, resource: ApiResource, namespace: str, name: str) -> StoredObject:
        """The record of an object; 404 where there is none."""
        record = self.store.get(resource, namespace, name)
        if record is None:
            raise statuses.not_found(resource, name)
        return record

    async def create(
        self, change: WriteRequest, obj: Object, track: managed_fields.Track = managed_fields.updated
    ) -> StoredObject:
        """Store a new object of the resource's version."""
        resource = change.resource
        strategy.place(resource, obj, change.namespace)
        change.name = obj["metadata"].get("name", "")
        strategy.clean_new(obj)
        defaulting.complete(resource, obj)
        track(resource, None, obj, change)
        obj = await self._admitted(change, "CREATE", obj, None)
        strategy.begin(resource, obj)
        defaulting.begin(resource, obj)
        change.name = obj["metadata"]["name"]
        validation.check_new(resource, obj)
        await self._validated(change.judging("CREATE", obj, None))
        if self.store.get(resource, change.namespace, change.name) is not None:
            raise statuses.already_exists(resource, change.name)
        return self.store.put(resource, obj, dry_run=change.dry_run)

    async def update(
        self, change: WriteRequest, mutation: Mutation, track: managed_fields.Track | None = managed_fields.updated
    ) -> StoredObject:
        """Change an existing object; tried again where somebody else was faster and no resourceVersion was named.

        Without `track` nobody manages what changes: the server itself does it, as a binding.
        """
        resource = change.resource
        for _ in range(_ATTEMPTS):
            current = self.read(resource, change.namespace, change.name)
            old, new = current.object(resource), mutation(current.object(resource))
            strategy.check_update(resource, old, new)
            defaulting.complete(resource, new)
            strategy.keep(resource, change.subresource, old, new)
            if track is not None:
                track(resource, old, new, change)
            new = await self._admitted(change, "UPDATE", new, old)
            strategy.keep(resource, change.subresource, old, new)
            validation.check_changed(resource, change.subresource, old, new)
            await self._validated(change.judging("UPDATE", new, old))
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            if old == new:
                return current  # nothing changed, so there is no new version and no event
            gone = bool(new["metadata"].get("deletionTimestamp")) and not strategy.must_wait(resource, new)
            return self.store.put(resource, new, gone=gone, dry_run=change.dry_run)
        raise statuses.modified(resource, change.name)

    async def delete(self, change: WriteRequest) -> tuple[StoredObject, bool]:
        """Delete or begin to delete an object: its last state, and whether it is gone already."""
        resource = change.resource
        for _ in range(_ATTEMPTS):
            current = self.read(resource, change.namespace, change.name)
            before, obj = current.object(resource), current.object(resource)
            strategy.check_preconditions(resource, obj, change.options)
            judged = change.judging("DELETE", None, before)
            if change.admit:
                await self.admission.mutate(judged)
            await self._validated(judged)
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            strategy.mark_deletion(resource, obj, change.options, time.time())
            waits = strategy.must_wait(resource, obj)
            if obj != before and (waits or "graceful" in resource.traits):
                current = self.store.put(resource, obj, dry_run=change.dry_run)
            return current if waits else self.store.put(resource, obj, gone=True, dry_run=change.dry_run), not waits
        raise statuses.modified(resource, change.name)

    async def _admitted(self, change: WriteRequest, operation: str, obj: Object, old: Object | None) -> Object:
        if not change.admit:
            return obj
        admitted = await self.admission.mutate(change.judging(operation, obj, old)) or obj
        defaulting.complete(change.resource, admitted)
        return admitted

    async def _validated(self, judged: WriteRequest) -> None:
        if judged.admit:
            await self.admission.validate(judged)
