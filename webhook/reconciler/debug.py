"""The page, `/debug/queue` and `/debug/plans`: what is known of the whole cluster, for the loopback only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from webhook.page.app import add_page
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.service import Service

__all__ = ["DEBUG_PORT", "pages"]


DEBUG_PORT = 6060
"""The port of the debug pages if no other is asked for."""


def pages(
    service: Service, port: int = DEBUG_PORT, surroundings: Callable[[], Surroundings] = Surroundings
) -> web.Application:
    """The page of one reconciler and its debug tables, on this port.

    A replica that does not lead knows no queue: the tables say who does (503), the page shows what the pods tell.
    """
    app = web.Application()
    add_page(app, lambda: overview(service, port, surroundings()))
    app.add_routes(
        [
            web.get("/debug/queue", _shows(service, port, service.queue)),
            web.get("/debug/plans", _shows(service, port, service.plans)),
        ]
    )
    return app


def _shows(service: Service, port: int, table: Callable[[], list[dict[str, Any]]]) -> Callable[[web.Request], Any]:
    async def show(request: web.Request) -> web.Response:
        del request
        leader = service.led_elsewhere()
        shown: Any = table() if leader is None else _elsewhere(service, port, leader)
        body = msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"
        return web.Response(body=body, content_type="application/json", status=200 if leader is None else 503)

    return show


def _elsewhere(service: Service, port: int, leader: str) -> dict[str, str]:
    """Whom to ask."""
    said, command = service.way_to(leader, port)
    return {"leader": leader, "message": f"{said}: {command}" if command else said}
