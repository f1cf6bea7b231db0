"""The sandbox of the end-to-end tests keeps its promises on an API server whose informers lag."""

from __future__ import annotations

from typing import Any

from webhook.kube.client import Client
from webhook.kube.errors import ApiError


class Lagging:
    """A client of an API server whose Priority plugin learns of a class only some requests after it was made."""

    def __init__(self, client: Client, eviction_backoff: int) -> None:
        self._client = client
        self.left = eviction_backoff

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, path: str, body: Any, **query: Any) -> Any:
        name = body.get("spec", {}).get("priorityClassName", "")
        if name and self.left:
            self.left -= 1
            said = f"pods is forbidden: no PriorityClass with name {name} was found"
            raise ApiError(403, "Forbidden", said)
        return await self._client.create(path, body, **query)


async def test_class_can_be_used_once_it_is_made(sandbox):
    """A pod that names the class right after `priority_class()` is not refused."""
    lagging = sandbox.client = Lagging(sandbox.client, 3)
    name = await sandbox.priority_class("new", 80)
    assert lagging.left == 0
    await sandbox.pod("user", priorityClassName=name)
