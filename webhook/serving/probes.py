"""Probes and metrics, on their own plain port: `/healthz`, `/readyz` (`?verbose`), `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from webhook.serving.metrics import CONTENT_TYPE, Metrics

__all__ = ["Check", "probes"]


class Check(msgspec.Struct, frozen=True):
    """One condition of readiness; `note` says how it stands."""

    name: str
    ok: bool
    note: str = ""


def probes(
    checks: Callable[[], list[Check]],
    metrics: Metrics,
    ages: Callable[[], dict[str, float]],
    problem: Callable[[], str],
) -> web.Application:
    """The application of the health port. `problem` says what only a new process can repair, or is empty."""

    async def healthz(request: web.Request) -> web.Response:
        del request
        found = problem()
        return web.Response(status=500 if found else 200, text=f"{found or 'ok'}\n")

    async def readyz(request: web.Request) -> web.Response:
        found = checks()
        ready = all(check.ok for check in found)
        verbose = not ready or "verbose" in request.query
        return web.Response(status=200 if ready else 503, text=_report(found, ready=ready) if verbose else "ok\n")

    async def expose(request: web.Request) -> web.Response:
        del request
        return web.Response(body=metrics.expose(ages()), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", expose)])
    return app


def _report(checks: list[Check], *, ready: bool) -> str:
    lines = [
        f"[{'+' if check.ok else '-'}]{check.name} {'ok' if check.ok else 'failed'}{check.note and ': '}{check.note}"
        for check in checks
    ]
    return "\n".join([*lines, f"readyz check {'passed' if ready else 'failed'}", ""])
