"""What follows a deletion: the garbage collector and the namespace controller.

The garbage collector (`pkg/controller/garbagecollector`) deletes objects of whose owners none is left, in the
background. The namespace controller empties a namespace that is being deleted, then lets it go.
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
AGAIN_SECONDS = 0.2
GRACE_SECONDS = 0.5
"""From a namespace's event to its handling; Kubernetes waits 5 s, so that everyone hears of the deletion first."""


class GarbageCollector(Controller):
    """Watches the metadata of every object that may own or be owned."""

    name = "garbage"

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
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
        old: ObjectMeta | None = change.old.metadata if change.old is not None else None
        if old is not None:
            for owner in old.owner_references or ():
                rows = self._dependents.get(owner.uid, set())
                rows.discard(old.uid)
                if not rows:
                    self._dependents.pop(owner.uid, None)
        if change.new is None:
            if old is not None:
                self._known.pop(old.uid, None)
                for uid in self._dependents.get(old.uid, ()):
                    self.add(uid)
            return
        metadata: ObjectMeta = change.new.metadata
        self._known[metadata.uid] = resource, metadata
        owners = [owner.uid for owner in metadata.owner_references or ()]
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(metadata.uid)
        if owners and not metadata.deletion_timestamp and not any(uid in self._known for uid in owners):
            self.add(metadata.uid)

    async def sync(self, uid: str) -> None:
        """Delete the object of this uid if none of its owners is left."""
        if uid not in self._known:
            return
        resource, metadata = self._known[uid]
        for owner in metadata.owner_references or ():
            if not await self._is_gone(metadata.namespace, owner):
                return
        with tolerating(NOT_FOUND, CONFLICT):
            body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
            await self._client.delete(resource.path(metadata.namespace, metadata.name), body)

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


class NamespaceController(Controller):
    """Empties namespaces. Those whose objects take time to go are looked at again."""

    name = "namespace"

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._namespaces = context.informers.cache(NAMESPACE, Metadata)
        self._namespaces.handlers.append(lambda change: self.add_after(change.key, GRACE_SECONDS))

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
            left += len(items)
        if left:
            self.add_after(key, AGAIN_SECONDS)
            return
        with tolerating(NOT_FOUND):
            current = await self._client.get(NAMESPACE.path(None, key))
            current["spec"] = {**(current.get("spec") or {}), "finalizers": []}
            await self._client.replace(NAMESPACE.path(None, key, "finalize"), current)
