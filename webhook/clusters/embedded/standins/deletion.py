"""What follows a deletion: the garbage collector and the namespace controller.

The garbage collector deletes objects whose owners are gone, in the background, foreground, or orphaned. It mirrors
`pkg/controller/garbagecollector`, but every dependent counts as one that blocks its owner's deletion. The namespace
controller empties a namespace that is being deleted, then lets it go.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, Controller, ControllerContext, tolerating
from webhook.clusters.embedded.protocol.api_resources import BY_STORAGE
from webhook.clusters.embedded.protocol.api_resources import RESOURCES as ROWS
from webhook.clusters.embedded.standins.informers import Metadata
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import ObjectMeta, OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import NAMESPACE, POD, Resource

RESOURCES = tuple(
    Resource(row.group, row.version, row.plural, row.kind, row.namespaced)
    for row in ROWS
    if row.stored and BY_STORAGE[row.key] is row
)
NOT_COLLECTED = ("events", "leases")
"""What is never owned, and changes too often to be looked at."""
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
AGAIN_SECONDS = 0.2
GRACE_SECONDS = 0.5
"""From a namespace's event to its handling; Kubernetes waits 5 s, so that everyone hears of the deletion first."""


class GarbageCollector(Controller):
    """Watches the metadata of every object that may own or be owned."""

    name = "garbage"

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context, workers=4)
        self._client = client
        self._resources: dict[tuple[str, str], Resource] = {}
        self._known: dict[str, tuple[Resource, ObjectMeta]] = {}
        """By uid, everything that exists."""
        self._dependents: dict[str, set[str]] = {}
        """Uid of an owner to the uids of what it owns."""
        for resource in RESOURCES:
            if resource.plural in NOT_COLLECTED:
                continue
            cache = context.informers.cache(resource, Pod if resource.plural == POD.plural else Metadata)
            cache.handlers.append(partial(self._notice, resource))
            self._resources[resource.api_version, resource.kind] = resource

    def _notice(self, resource: Resource, change: Change[Any]) -> None:
        """Keep the graph of owners and dependents current, and queue what may have to go."""
        if change.old is not None:
            old: ObjectMeta = change.old.metadata
            for owner in old.owner_references or ():
                rows = self._dependents.get(owner.uid, set())
                rows.discard(old.uid)
                if change.new is None and self._waits_for_dependents(owner.uid):
                    self.queue.add(owner.uid)
                if not rows:
                    self._dependents.pop(owner.uid, None)
            if change.new is None:
                self._known.pop(old.uid, None)
                for uid in self._dependents.get(old.uid, ()):
                    self.queue.add(uid)
        if change.new is None:
            return
        metadata: ObjectMeta = change.new.metadata
        self._known[metadata.uid] = resource, metadata
        for owner in metadata.owner_references or ():
            self._dependents.setdefault(owner.uid, set()).add(metadata.uid)
        if metadata.deletion_timestamp and {FOREGROUND, ORPHAN} & set(metadata.finalizers or ()):
            self.queue.add(metadata.uid)
        if metadata.owner_references and not metadata.deletion_timestamp:
            uids = [owner.uid for owner in metadata.owner_references]
            if any(uid not in self._known or self._waits_for_dependents(uid) for uid in uids):
                self.queue.add(metadata.uid)

    def _waits_for_dependents(self, uid: str) -> bool:
        _, metadata = self._known.get(uid, (None, ObjectMeta()))
        return bool(metadata.deletion_timestamp) and FOREGROUND in (metadata.finalizers or ())

    async def sync(self, uid: str) -> None:
        """Look at the object of this uid: is it to be deleted, or does one of its finalizers ask for something."""
        if uid not in self._known:
            return
        resource, metadata = self._known[uid]
        path = resource.path(metadata.namespace, metadata.name)
        finalizers, dependents = metadata.finalizers or [], list(self._dependents.get(uid, ()))
        try:
            if not metadata.deletion_timestamp:
                await self._attempt_to_delete(path, metadata, metadata.owner_references or [])
            elif ORPHAN in finalizers:
                for dependent in dependents:
                    await self._disown(dependent, {uid})
                await self._drop_finalizer(path, metadata, ORPHAN)
            elif FOREGROUND in finalizers and dependents:
                for dependent in dependents:
                    self.queue.add(dependent)
            elif FOREGROUND in finalizers:
                await self._drop_finalizer(path, metadata, FOREGROUND)
        except ApiError as error:
            if error.status == CONFLICT:
                self.queue.add_after(uid, 0.05)
            elif error.status != NOT_FOUND:
                raise

    async def _attempt_to_delete(self, path: str, metadata: ObjectMeta, owners: list[OwnerReference]) -> None:
        """Delete an object without an owner left; strike out owners that are gone where others remain."""
        waiting = {owner.uid for owner in owners if self._waits_for_dependents(owner.uid)}
        gone = {
            owner.uid for owner in owners if owner.uid not in waiting and await self._is_gone(metadata.namespace, owner)
        }
        lost = waiting | gone
        if not lost:
            return
        if len(lost) < len({owner.uid for owner in owners}):
            await self._disown(metadata.uid, lost)
            return
        finalizers = set(metadata.finalizers or ())
        policy = "Orphan" if ORPHAN in finalizers else "Background"
        if FOREGROUND in finalizers or (waiting and self._dependents.get(metadata.uid)):
            policy = "Foreground"
        body = {"propagationPolicy": policy, "preconditions": {"uid": metadata.uid}}
        await self._client.delete(path, body)

    async def _is_gone(self, namespace: str, owner: OwnerReference) -> bool:
        """Whether an owner of something in that namespace does not exist; what the caches do not show is looked up."""
        if owner.uid in self._known:
            return False
        resource = self._resources.get((owner.api_version, owner.kind))
        if resource is None:
            return False
        if resource.namespaced and not namespace:
            return True
        try:
            current = await self._client.get(
                resource.path(namespace if resource.namespaced else None, owner.name), Metadata
            )
        except ApiError as error:
            if error.status == NOT_FOUND:
                return True
            raise
        return bool(current.metadata.uid != owner.uid)

    async def _disown(self, uid: str, owners: set[str]) -> None:
        if uid not in self._known:
            return
        resource, metadata = self._known[uid]
        path = resource.path(metadata.namespace, metadata.name)
        current = await self._client.get(path)
        if current["metadata"]["uid"] != uid:
            return
        references = current["metadata"].get("ownerReferences") or ()
        left = [reference for reference in references if reference["uid"] not in owners]
        version = current["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version, "ownerReferences": left or None}}
        await self._client.patch(path, body, kind="merge")

    async def _drop_finalizer(self, path: str, metadata: ObjectMeta, finalizer: str) -> None:
        left = [name for name in metadata.finalizers or () if name != finalizer]
        body = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": left or None}}
        await self._client.patch(path, body, kind="merge")


class NamespaceController(Controller):
    """Empties namespaces. Those whose objects take time to go are looked at again."""

    name = "namespace"

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._namespaces = context.informers.cache(NAMESPACE, Metadata)
        self._namespaces.handlers.append(lambda change: self.queue.add_after(change.key, GRACE_SECONDS))

    async def sync(self, key: str) -> None:
        """Empty a namespace that is being deleted, and let it go once nothing is left in it."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.deletion_timestamp:
            return
        left = 0
        for path in [resource.path(key) for resource in RESOURCES if resource.namespaced]:
            items, _ = await self._client.list(path, Metadata)
            for item in items:
                if not item.metadata.deletion_timestamp:
                    with tolerating(NOT_FOUND, CONFLICT):
                        await self._client.delete(f"{path}/{item.metadata.name}", {"propagationPolicy": "Background"})
            if items:
                left += len((await self._client.list(path, Metadata))[0])
        if left:
            self.queue.add_after(key, AGAIN_SECONDS)
            return
        with tolerating(NOT_FOUND):
            current = await self._client.get(NAMESPACE.path(None, key))
            current["spec"] = {**(current.get("spec") or {}), "finalizers": []}
            await self._client.replace(NAMESPACE.path(None, key, "finalize"), current)
