"""What follows a deletion: the garbage collector and the namespace controller.

The garbage collector (`pkg/controller/garbagecollector`) deletes objects of whose owners none is left, in the
background. The namespace controller empties a namespace that is being deleted, then lets it go.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, Controller, ControllerContext
from webhook.clusters.embedded.protocol.api_resources import BY_KIND, STORED
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import KubeObject, ObjectMeta, OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import NAMESPACE, POD, Resource

NOT_COLLECTED = ("events", "leases")
"""What is never owned, and changes too often to be looked at."""
AGAIN_SECONDS = 0.2
GRACE_SECONDS = 0.5
"""From a namespace's event to its handling; Kubernetes waits 5 s, so that everyone hears of the deletion first."""


class GarbageCollector(Controller):
    """Watches the metadata of every object that may own or be owned."""

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._known: dict[str, tuple[Resource, ObjectMeta]] = {}
        """By uid, everything that exists."""
        for resource in STORED:
            if resource.plural not in NOT_COLLECTED:
                cache = context.informers.cache(resource, Pod if resource.plural == POD.plural else KubeObject)
                cache.handlers.append(partial(self._notice, resource))

    def _notice(self, resource: Resource, change: Change[Any]) -> None:
        """Queue what may have to go: the dependents of what is gone, and an object none of whose owners is known."""
        if change.new is None:
            gone: str = change.old.metadata.uid if change.old is not None else ""
            self._known.pop(gone, None)
            for uid, (_, dependent) in self._known.items():
                if any(owner.uid == gone for owner in dependent.owner_references or ()):
                    self.add(uid)
            return
        metadata: ObjectMeta = change.new.metadata
        self._known[metadata.uid] = resource, metadata
        owners = metadata.owner_references or ()
        if owners and not metadata.deletion_timestamp and not any(owner.uid in self._known for owner in owners):
            self.add(metadata.uid)

    async def sync(self, uid: str) -> None:
        """Delete the object of this uid if none of its owners is left."""
        if uid not in self._known:
            return
        resource, metadata = self._known[uid]
        for owner in metadata.owner_references or ():
            if not await self._is_gone(metadata.namespace, owner):
                return
        path, body = resource.path(metadata.namespace, metadata.name), {"propagationPolicy": "Background"}
        await unless_absent(self._client.delete(path, {**body, "preconditions": {"uid": uid}}), NOT_FOUND, CONFLICT)

    async def _is_gone(self, namespace: str, owner: OwnerReference) -> bool:
        """Whether an owner of something in that namespace does not exist, which is looked up."""
        resource = BY_KIND.get((owner.api_version, owner.kind))
        if resource is None or owner.uid in self._known:
            return False
        if resource.namespaced and not namespace:
            return True
        path = resource.path(namespace if resource.namespaced else None, owner.name)
        current = await unless_absent(self._client.get(path, KubeObject))
        return current is None or current.metadata.uid != owner.uid


class NamespaceController(Controller):
    """Empties namespaces. Those whose objects take time to go are looked at again."""

    def __init__(self, context: ControllerContext, client: Client) -> None:
        super().__init__(context)
        self._client = client
        self._namespaces = context.informers.cache(NAMESPACE, KubeObject)
        self._namespaces.handlers.append(lambda change: self.add_after(change.key, GRACE_SECONDS))

    async def sync(self, key: str) -> None:
        """Empty a namespace that is being deleted, and let it go once nothing is left in it."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.deletion_timestamp:
            return
        left = 0
        for path in [resource.path(key) for resource in STORED if resource.namespaced]:
            items, _ = await self._client.list(path, KubeObject)
            for item in items:
                if not item.metadata.deletion_timestamp:
                    going = self._client.delete(f"{path}/{item.metadata.name}", {"propagationPolicy": "Background"})
                    await unless_absent(going, NOT_FOUND, CONFLICT)
            left += len(items)
        if left:
            self.add_after(key, AGAIN_SECONDS)
            return
        current = await unless_absent(self._client.get(NAMESPACE.path(None, key)))
        if current is not None:
            current["spec"] = {**(current.get("spec") or {}), "finalizers": []}
            await unless_absent(self._client.replace(NAMESPACE.path(None, key, "finalize"), current))
