"""An API server by itself: everyone is the administrator, everything is allowed, and no admission plugin runs."""

from __future__ import annotations

from typing import Any

from webhook.clusters.embedded.access.users import Authentication
from webhook.clusters.embedded.apiserver.api_server import ApiServer
from webhook.clusters.embedded.storage.object_store import ObjectStore


class NoAdmission:
    async def mutate(self, attributes: Any) -> Any:
        return attributes.object

    async def validate(self, attributes: Any) -> None:
        pass


class AllowAll:
    def authorize(self, *_asked: Any) -> bool:
        return True


def bare_server(store: ObjectStore | None = None, admission: Any = None) -> ApiServer:
    store = store or ObjectStore()
    return ApiServer(Authentication(store), AllowAll(), admission or NoAdmission(), store)
