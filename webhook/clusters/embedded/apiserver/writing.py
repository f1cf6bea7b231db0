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
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject, record_of, stored_version

_MOST_EVENTS = 10_000
"""Kubernetes keeps an event for an hour; this server, for as long as there is room."""
_ATTEMPTS = 5
"""How often an update is tried again when the object changed while admission was asked."""

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
        if change.admit:
            await self.admission.validate(change.judging("CREATE", obj, None))
        if self.store.get(resource, change.namespace, change.name) is not None:
            raise statuses.already_exists(resource, change.name)
        return self._store(change, obj)

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
            if change.admit:
                await self.admission.validate(change.judging("UPDATE", new, old))
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            if old == new:
                return current  # nothing changed, so there is no new version and no event
            if new["metadata"].get("deletionTimestamp") and not strategy.must_wait(resource, new):
                return self._remove(change, new)
            return self._store(change, new)
        raise statuses.modified(resource, change.name)

    async def delete(self, change: WriteRequest) -> tuple[StoredObject, bool]:
        """Delete or begin to delete an object: its last state, and whether it is gone already."""
        for _ in range(_ATTEMPTS):
            resource = change.resource
            current = self.read(resource, change.namespace, change.name)
            before, obj = current.object(resource), current.object(resource)
            strategy.check_preconditions(resource, obj, change.options)
            if change.admit:
                judged = change.judging("DELETE", None, before)
                await self.admission.mutate(judged)
                await self.admission.validate(judged)
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            strategy.mark_deletion(resource, obj, change.options, time.time())
            waits, is_marked = strategy.must_wait(resource, obj), obj != before
            if is_marked and (waits or resource.graceful):
                current = self._store(change, obj)
            return (current, False) if waits else (self._remove(change, obj), True)
        raise statuses.modified(change.resource, change.name)

    async def _admitted(self, change: WriteRequest, operation: str, obj: Object, old: Object | None) -> Object:
        if not change.admit:
            return obj
        admitted = await self.admission.mutate(change.judging(operation, obj, old)) or obj
        defaulting.complete(change.resource, admitted)
        return admitted

    def _store(self, change: WriteRequest, obj: Object) -> StoredObject:
        stored = stored_version(change.resource, obj)
        if change.dry_run:
            return _unstored(self.store[change.resource].resource, stored)
        record = self.store.put(change.resource, stored)
        if change.resource.kind == "Event":
            collection = self.store.collections["events"]
            while len(collection.records) > _MOST_EVENTS:
                oldest = next(iter(collection.records.values()))
                self.store.remove(collection.resource, oldest.object(collection.resource))
        return record

    def _remove(self, change: WriteRequest, obj: Object) -> StoredObject:
        stored = stored_version(change.resource, obj)
        if change.dry_run:
            return _unstored(self.store[change.resource].resource, stored)
        return self.store.remove(change.resource, stored)


def _unstored(resource: ApiResource, obj: Object) -> StoredObject:
    """What would have been stored: an object under the version it had, a new one under none."""
    return record_of(resource, obj, int(obj["metadata"].get("resourceVersion") or 0))
