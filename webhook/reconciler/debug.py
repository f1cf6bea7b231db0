"""`/debug/queue` and `/debug/plans`: what the leader knows of the pods of the whole cluster, for the loopback only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from webhook.reconciler.service import Service

__all__ = ["DEBUG_PORT", "pages"]


DEBUG_PORT = 6060
"""The port of the debug pages if no other is asked for."""


def pages(service: Service, port: int = DEBUG_PORT) -> web.Application:
    """The debug pages of one reconciler on this port. One that does not lead knows nothing, and says who does (503)."""
    app = web.Application()
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
    """Whom to ask; an identity begins with the pod's name."""
    namespace, name = service.options.lease_namespace, service.options.lease_name
    if not leader:
        return {"leader": "", "message": f"nobody leads just now: the lease {namespace}/{name} is not held"}
    ask = f"kubectl -n {namespace} port-forward pod/{leader.partition('_')[0]} {port}"
    return {"leader": leader, "message": f"this replica does not lead; ask the one that does: {ask}"}
