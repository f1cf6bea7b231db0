"""The page, `/debug/queue` and `/debug/plans`, for the loopback only: they show the whole cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from webhook.page.app import add_page
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.service import ReconcilerService

DEBUG_PORT = 6060
"""The port of the debug pages if none is given."""


def pages(
    service: ReconcilerService, port: int = DEBUG_PORT, surroundings: Callable[[], Surroundings] = Surroundings
) -> web.Application:
    """The page of one reconciler and its debug tables, on this port.

    If another replica leads, the tables say which (503); the page shows what pods tell.
    """

    async def show(request: web.Request) -> web.Response:
        leader = service.led_elsewhere()
        rows = {"queue": queue_rows, "plans": plan_rows}[request.match_info["table"]]
        if leader is None:
            shown: Any = rows(service.reconciler)
        else:
            said, command = service.way_to(leader, port)
            shown = {"leader": leader, "message": f"{said}: {command}" if command else said}
        body = msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"
        status = 200 if leader is None else 503
        return web.Response(body=body, content_type="application/json", status=status)

    app = web.Application()
    add_page(app, lambda: overview(service, port, surroundings()))
    app.add_routes([web.get("/debug/{table:queue|plans}", show)])
    return app


def queue_rows(reconciler: Reconciler) -> list[dict[str, Any]]:
    """`/debug/queue`: what is tried next comes first."""
    now, entries = reconciler.clock.monotonic(), reconciler.queue.entries.values()
    return [
        {
            "pod": entry.key,
            "priority": entry.priority,
            "state": entry.state.value,
            "reason": entry.reason,
            "attempts": entry.attempts,
            "failures": entry.failures,
            "dueInSeconds": round(entry.due - now, 3) if entry.due > now else None,
        }
        for entry in sorted(entries, key=lambda row: (-row.priority, row.created))
    ]


def plan_rows(reconciler: Reconciler) -> list[dict[str, Any]]:
    """`/debug/plans`, the oldest plan first: a row a preemptor."""
    now, plans = reconciler.clock.monotonic(), reconciler.plan_manager.index.by_id.values()
    return [
        {
            "preemptor": member.key,
            "ageSeconds": round(now - plan.started, 3),
            "reserved": member.reserved,
            "secondsLeft": None if math.isinf(plan.deadline) else round(plan.deadline - now, 3),
            "asked": sorted(row.key for row in plan.record.victims if row.uid in plan.gone),
            **msgspec.to_builtins(plan.written_on(member)),
            "step": plan.step,
        }
        for plan in sorted(plans, key=lambda plan: plan.started)
        for member in plan.unplaced
    ]
