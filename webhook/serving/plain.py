"""A plain HTTP port: probes and metrics on every address, debug pages on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from webhook.kube.supervision import Supervisor
from webhook.serving.listener import PlainListener, bind

__all__ = ["LOOPBACK", "plain_port"]

LOOPBACK = "127.0.0.1"
"""Where nobody comes in but who is in the pod, or is let in by `kubectl port-forward`."""


@asynccontextmanager
async def plain_port(
    app: web.Application, address: str, port: int, supervisor: Supervisor, name: str
) -> AsyncIterator[int]:
    """Serve an application; yields the port, which is a free one for 0. `name` is the task's. Raises OSError."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        assert runner.server is not None
        with bind(address, port) as sock:
            listener = PlainListener(runner.server, sock)
            accepting = asyncio.create_task(supervisor.keep(name, listener.accept), name=name)
            try:
                yield listener.port
            finally:
                accepting.cancel()
                with suppress(asyncio.CancelledError):
                    await accepting
    finally:
        await runner.cleanup()
