"""`/debug/queue` and `/debug/plans` for the private port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from webhook.reconciler.service import Service

__all__ = ["routes"]


def routes(service: Service) -> list[web.RouteDef]:
    """What a reconciler adds to the private port."""
    return [web.get("/debug/queue", _shows(service.queue)), web.get("/debug/plans", _shows(service.plans))]


def _shows(table: Callable[[], list[dict[str, Any]]]) -> Callable[[web.Request], Any]:
    async def show(request: web.Request) -> web.Response:
        del request
        body = msgspec.json.format(msgspec.json.encode(table()), indent=2)
        return web.Response(body=body, content_type="application/json")

    return show
