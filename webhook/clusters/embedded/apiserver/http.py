"""The API server over TLS."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, suppress
from functools import partial

from aiohttp import web

from webhook.clusters.embedded.access.authorization import IMPERSONATION
from webhook.clusters.embedded.apiserver.api_server import ApiServer
from webhook.clusters.embedded.apiserver.handling import refusal
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.calls import ApiCall, Reply

_HOST = "127.0.0.1"
_LARGEST_BODY = 3 * 1024 * 1024
"""Bytes, as in Kubernetes."""
_HEADERS = ("accept", "authorization", "content-type", "user-agent", *IMPERSONATION)
_ALWAYS = {"Cache-Control": "no-cache, private"}


class HttpServer:
    """One listener for one ApiServer; it may be stopped and started, and the state stays with the ApiServer."""

    def __init__(self, api: ApiServer, tls: ssl.SSLContext, port: int = 0) -> None:
        self.api = api
        self.port = port
        self._tls = tls
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """The server's address, once started."""
        return f"https://{_HOST}:{self.port}"

    async def start(self) -> None:
        """Listen. A port of 0 is replaced by the one the system gave, and kept over stop and start."""
        requests = partial(web.BaseRequest, loop=asyncio.get_running_loop(), client_max_size=_LARGEST_BODY)
        server = web.Server(self._answer, request_factory=requests, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _HOST, self.port, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name: ",".join(request.headers.getall(name)) for name in _HEADERS if name in request.headers}
        try:
            body = await request.read() if request.can_read_body else b""
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {_LARGEST_BODY}"
            return _answered(refusal(statuses.failure(413, "RequestEntityTooLarge", text, {})))
        call = ApiCall(request.method, request.path, request.query, headers, body)
        reply = await self.api.serve(call)
        if reply.stream is None:
            return _answered(reply)
        # A watch, for whose client nothing is buffered beyond one batch
        answer = web.StreamResponse(status=reply.status, headers=_ALWAYS)
        answer.content_type = "application/json"
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        with suppress(ConnectionError):
            async with aclosing(reply.stream) as stream:
                async for chunk in stream:
                    await answer.write(chunk)
        return answer


def _answered(reply: Reply) -> web.Response:
    answer = web.Response(status=reply.status, body=reply.body, headers=_ALWAYS)
    answer.headers["Content-Type"] = reply.content_type
    for name, value in reply.headers:
        answer.headers.add(name, value)
    return answer
