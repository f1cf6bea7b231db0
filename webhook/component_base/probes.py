"""A process's plain port: `/healthz`, `/readyz` (`?verbose`) and `/metrics`, with what is counted of any process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from webhook.component_base.component import ReadinessCheck
from webhook.component_base.listener import bind

_LAST_SECONDS = 1.0
"""For answers under way when the process ends, twice: aiohttp then waits as long for whoever does not take them."""
_MOST_CONNECTIONS = 64
"""Connections of probes, Prometheus and people; the oldest goes first."""
_AGE = "Seconds since the API server was last heard from, by resource."
_DROPPED = "Log lines dropped because nobody read them."
_FAILURES = "Background tasks that ended and were started again, by task."
LOOPBACK = "127.0.0.1"
"""Reached from inside the pod only, and by `kubectl port-forward`."""


class ProcessMetrics:
    """The metrics of the process itself, and the registry to which its parts add theirs."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.cache_age = Gauge("giveway_cache_age_seconds", _AGE, ["resource"], registry=registry)
        counter = partial(Counter, registry=registry)
        self.lines_dropped = counter("giveway_log_lines_dropped", _DROPPED)
        self.task_failures = counter("giveway_task_failures", _FAILURES, ["task"])


def probes(
    checks: Callable[[], list[ReadinessCheck]], exposition: Callable[[], bytes], problem: Callable[[], str]
) -> web.Application:
    """The application of the health port; `problem` says what only a new process can repair."""

    async def healthz(_request: web.Request) -> web.Response:
        why = problem()
        return web.Response(status=500 if why else 200, text=f"{why or 'ok'}\n")

    async def readyz(request: web.Request) -> web.Response:
        failing = checks()
        ready = all(check.ok for check in failing)
        if ready and "verbose" not in request.query:
            return web.Response(text="ok\n")
        lines = []
        for row in failing:
            how = f"[+]{row.name} ok" if row.ok else f"[-]{row.name} failed"
            lines.append(f"{how}: {row.note}" if row.note else how)
        end = "passed" if ready else "failed"
        text = "\n".join([*lines, f"readyz check {end}", ""])
        return web.Response(status=200 if ready else 503, text=text)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    for path, handler in {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}.items():
        app.router.add_get(path, handler)
    return app


@asynccontextmanager
async def plain_port(app: web.Application, address: str, port: int, *, option: str = "") -> AsyncIterator[int]:
    """Serve an application; yields the port, a free one for 0. Raises OSError, whose text names the `option`."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LAST_SECONDS)
    await runner.setup()
    try:
        with bind(address, port, option) as sock:
            loop, connect = asyncio.get_running_loop(), partial(_connection, runner)
            listening = await loop.create_server(connect, sock=sock)
            try:
                yield sock.getsockname()[1]
            finally:
                listening.close()
    finally:
        await runner.cleanup()


def _connection(runner: web.AppRunner) -> asyncio.Protocol:
    """A further connection; the oldest one goes when there are too many."""
    server = runner.server
    assert server is not None
    present = server.connections
    too_many = max(0, len(present) + 1 - _MOST_CONNECTIONS)
    for protocol in present[:too_many]:
        if protocol.transport is not None:
            protocol.transport.abort()
    return server()
