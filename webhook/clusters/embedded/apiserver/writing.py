"""Create, update, delete: the way of an object into the store, in the order a real API server takes the steps.

Names, uids, timestamps, generations and what an update may not change (`registry/rest/create.go`, `update.go`);
preconditions, grace periods and finalizers of a DELETE (`registry/rest/delete.go`).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable

from webhook.clusters.embedded.admission_chain.chain import AdmissionChain
from webhook.clusters.embedded.merging import managed_fields
from webhook.clusters.embedded.object_types import defaulting, validation
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.storage.object_store import ObjectStore, StoredObject
from webhook.kube.instants import epoch, rfc3339

_ATTEMPTS = 5
"""How often a change is tried again when the object changed while admission was asked."""

Mutation = Callable[[Object], Object]
"""From the current object (the callee's own copy) to the wanted one."""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_BASE = 58
_SET_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_STATUS_MAY_LABEL = ("Pod", "Node", "Namespace", "PersistentVolumeClaim")
"""Kinds whose status sub-resource also writes labels and annotations."""


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
        place(resource, obj, change.namespace)
        change.name = obj["metadata"].get("name", "")
        clean_new(obj)
        defaulting.complete(resource, obj)
        track(None, obj, change)
        obj = await self._admitted(change, "CREATE", obj, None)
        begin(resource, obj)
        defaulting.begin(resource, obj)
        change.name = obj["metadata"]["name"]
        validation.check_new(resource, obj)
        await self.admission.validate(change.judging("CREATE", obj, None))
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
            check_update(resource, old, new)
            defaulting.complete(resource, new)
            keep(resource, change.subresource, old, new)
            if track is not None:
                track(old, new, change)
            new = await self._admitted(change, "UPDATE", new, old)
            keep(resource, change.subresource, old, new)
            validation.check_changed(resource, change.subresource, old, new)
            await self.admission.validate(change.judging("UPDATE", new, old))
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            if old == new:
                return current  # nothing changed, so there is no new version and no event
            gone = bool(new["metadata"].get("deletionTimestamp")) and not must_wait(resource, new)
            return self.store.put(resource, new, gone=gone, dry_run=change.dry_run)
        raise statuses.modified(resource, change.name)

    async def delete(self, change: WriteRequest) -> tuple[StoredObject, bool]:
        """Delete or begin to delete an object: its last state, and whether it is gone already."""
        resource = change.resource
        for _ in range(_ATTEMPTS):
            current = self.read(resource, change.namespace, change.name)
            before, obj = current.object(resource), current.object(resource)
            check_preconditions(resource, obj, change.options)
            judged = change.judging("DELETE", None, before)
            await self.admission.mutate(judged)
            await self.admission.validate(judged)
            if self.store.get(resource, change.namespace, change.name) is not current:
                continue
            mark_deletion(resource, obj, change.options, time.time())
            waits = must_wait(resource, obj)
            if obj != before and (waits or "graceful" in resource.traits):
                current = self.store.put(resource, obj, dry_run=change.dry_run)
            return current if waits else self.store.put(resource, obj, gone=True, dry_run=change.dry_run), not waits
        raise statuses.modified(resource, change.name)

    async def _admitted(self, change: WriteRequest, operation: str, obj: Object, old: Object | None) -> Object:
        admitted = await self.admission.mutate(change.judging(operation, obj, old)) or obj
        defaulting.complete(change.resource, admitted)
        return admitted


def place(resource: ApiResource, obj: Object, namespace: str) -> None:
    """Make the object's namespace that of the request. Raises StatusError (400) where they disagree."""
    metadata = obj.setdefault("metadata", {})
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if (metadata.get("namespace") or namespace) != namespace:
        text = "the namespace of the provided object does not match the namespace sent on the request"
        raise statuses.bad_request(text)
    metadata["namespace"] = namespace


def clean_new(obj: Object) -> None:
    """Drop from a new object what only the server sets. Raises StatusError (500) for a resourceVersion."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise statuses.failure(500, "", "resourceVersion should not be set on objects to be created")
    for key in ("resourceVersion", "selfLink", *_SET_BY_SERVER):
        metadata.pop(key, None)


def begin(resource: ApiResource, obj: Object) -> None:
    """Name a new object and set what it is born with."""
    metadata = obj["metadata"]
    if metadata.get("generateName") and not metadata.get("name"):
        letters = random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH)  # noqa: S311 - a name, not a secret
        metadata["name"] = metadata["generateName"][:_LONGEST_BASE] + "".join(letters)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = rfc3339(time.time())
    if resource.traits & {"generation", "first-generation"}:
        metadata["generation"] = 1


def check_update(resource: ApiResource, old: Object, new: Object) -> None:
    """Refuse an update of another object, of another version or without the version it needs."""
    metadata, current = new.setdefault("metadata", {}), old["metadata"]
    name = current["name"]
    if metadata.setdefault("name", name) != name:
        raise statuses.another_name(metadata["name"], name)
    place(resource, new, current.get("namespace", ""))
    if (metadata.get("uid") or current["uid"]) != current["uid"]:
        raise statuses.another_uid(resource, current, metadata["uid"])
    version = metadata.get("resourceVersion")
    if not version and "versioned" in resource.traits:
        cause = statuses.Cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise statuses.invalid(resource.group, resource.plural, name, cause)
    if version and version != current["resourceVersion"]:
        raise statuses.modified(resource, name)


def keep(resource: ApiResource, subresource: str, old: Object, new: Object) -> None:
    """Carry over what this update may not change, and count the generation."""
    metadata, current = new["metadata"], old["metadata"]
    for key in ("name", "namespace", "resourceVersion", *_SET_BY_SERVER):
        _carry(metadata, current, key)
    metadata.pop("selfLink", None)
    if subresource == "status":
        for key in dict.fromkeys([*new, *old]):
            if key not in ("metadata", "status"):
                _carry(new, old, key)
        _carry(metadata, current, "ownerReferences")
        if resource.kind not in _STATUS_MAY_LABEL:
            _carry(metadata, current, "labels")
    elif "status" in resource.sub and subresource in ("", "finalize"):
        _carry(new, old, "status")
    if resource.kind == "Namespace" and subresource != "finalize":
        _carry(new.setdefault("spec", {}), old.get("spec") or {}, "finalizers")
    counts = "generation" in resource.traits and subresource not in ("status", "binding")
    if counts and _content(old) != _content(new):
        metadata["generation"] = current.get("generation", 0) + 1


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status", "kind", "apiVersion")}


def _carry(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def check_preconditions(resource: ApiResource, obj: Object, options: Object) -> None:
    """Refuse (409) where uid or resourceVersion are not those the caller knows."""
    wanted, metadata = options.get("preconditions") or {}, obj["metadata"]
    for field, text, hint in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        value = wanted.get(field)
        if value is not None and value != metadata.get(field):
            why = (
                f"the {text} in the precondition ({value}) does not match the {text} in record "
                f"({metadata.get(field)}). {hint}"
            )
            message = f'Operation cannot be fulfilled on {resource.kind} "{metadata["name"]}": {why}'
            raise statuses.failure(409, "Conflict", message, {"name": metadata["name"], "kind": resource.kind})


def must_wait(resource: ApiResource, obj: Object) -> bool:
    """Whether an object that is deleted stays until somebody has finished: for its finalizers, or its grace period."""
    metadata = obj["metadata"]
    spec_finalizers = (obj.get("spec") or {}).get("finalizers") if resource.kind == "Namespace" else None
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or spec_finalizers)


def mark_deletion(resource: ApiResource, obj: Object, options: Object, now: float) -> None:
    """Write into the object that it is deleted as the options ask. `now` is seconds since the epoch."""
    metadata, graceful = obj["metadata"], "graceful" in resource.traits
    wanted = options.get("gracePeriodSeconds") if graceful else None
    if metadata.get("deletionTimestamp"):
        given = metadata.get("deletionGracePeriodSeconds") or 0
        if wanted is not None and wanted < given:
            metadata["deletionTimestamp"] = rfc3339(epoch(metadata["deletionTimestamp"]) - given + wanted)
            metadata["deletionGracePeriodSeconds"] = wanted
        return
    if not graceful and not must_wait(resource, obj):
        return
    grace = _grace(obj, wanted) if graceful else 0
    metadata["deletionTimestamp"] = rfc3339(now + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1
    if resource.kind == "Namespace":
        obj.setdefault("status", {})["phase"] = "Terminating"
        del metadata["deletionGracePeriodSeconds"]


def _grace(pod: Object, wanted: int | None) -> int:
    """The seconds that a pod has to end; none if no kubelet has anything to stop."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = int(spec["terminationGracePeriodSeconds"] if wanted is None else wanted)
    return 1 if grace < 0 else grace
