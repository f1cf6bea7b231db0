"""The namespace controller: a namespace that is being deleted is emptied, then let go."""

from __future__ import annotations

from webhook.embedded.standins.informers import Metadata, StandInInformers
from webhook.embedded.standins.workqueue import Controller
from webhook.kube.client import ApiError, Client
from webhook.kube.resources import NAMESPACE, Resource

__all__ = ["NamespaceController"]

AGAIN_SECONDS = 0.2
GRACE_SECONDS = 0.5
"""From a namespace's event to its handling; Kubernetes waits 5 s, so that everyone hears of the deletion first."""
NOT_FOUND = 404
CONFLICT = 409


class NamespaceController(Controller):
    """Empties namespaces of the given resources. Those whose objects take time to go are looked at again."""

    name = "namespace"

    def __init__(self, informers: StandInInformers, client: Client, resources: list[Resource]) -> None:
        self._client = client
        self._resources = [resource for resource in resources if resource.namespaced]
        super().__init__()
        self._namespaces = informers.watch_keys(
            NAMESPACE, Metadata, lambda key: self._queue.add_after(key, GRACE_SECONDS)
        )

    async def sync(self, key: str) -> None:
        """Empty a namespace that is being deleted, and let it go once nothing is left in it."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.deletion_timestamp:
            return
        left = 0
        for resource in self._resources:
            left += await self._empty(resource, key)
        if left:
            self._queue.add_after(key, AGAIN_SECONDS)
        else:
            await self._finalize(key)

    async def _empty(self, resource: Resource, namespace: str) -> int:
        """Delete what there is; how many objects remain."""
        path = resource.path(namespace)
        items, _ = await self._client.list(path, Metadata)
        if not items:
            return 0
        for item in items:
            if item.metadata.deletion_timestamp:
                continue
            try:
                await self._client.delete(f"{path}/{item.metadata.name}", {"propagationPolicy": "Background"})
            except ApiError as error:
                if error.status not in (NOT_FOUND, CONFLICT):
                    raise
        remaining, _ = await self._client.list(path, Metadata)
        return len(remaining)

    async def _finalize(self, name: str) -> None:
        path = NAMESPACE.path(None, name)
        try:
            current = await self._client.get(path)
            current["spec"] = {**(current.get("spec") or {}), "finalizers": []}
            await self._client.replace(f"{path}/finalize", current)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
