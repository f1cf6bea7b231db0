"""The API server, free of transport (who calls, may they, and which part answers), and the two ways to it.

One is TLS, the other a client without a connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from aiohttp import web

from webhook.clusters.embedded.access.users import (
    IMPERSONATION,
    Authentication,
    RbacAuthorizer,
    acting_user,
    own_user,
)
from webhook.clusters.embedded.admission_chain.chain import AdmissionChain
from webhook.clusters.embedded.apiserver.handling import handle, refusal, reply_of
from webhook.clusters.embedded.apiserver.subresources import bind, evict
from webhook.clusters.embedded.apiserver.writing import ObjectWriter
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.calls import ADMIN, ApiCall, Reply, Right, SubresourceHandler, asked_for
from webhook.clusters.embedded.rendering import discovery
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.client import Client
from webhook.kube.endpoint import Credentials, Endpoint
from webhook.kube.errors import status_error
from webhook.kube.transport import USER_AGENT, Transport, warning_texts
from webhook.policy.evaluation.request import UserInfo

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_LARGEST_BODY = 3 * 1024 * 1024
"""Bytes, as in Kubernetes."""
_HEADERS = ("accept", "authorization", "content-type", "user-agent", *IMPERSONATION)
_ALWAYS = {"Cache-Control": "no-cache, private"}


class ApiServer:
    """A Kubernetes API server in memory."""

    def __init__(
        self, authentication: Authentication, authorizer: RbacAuthorizer, admission: AdmissionChain, store: ObjectStore
    ) -> None:
        self.authentication = authentication
        self.authorizer = authorizer
        self.store = store
        self.checks: list[Callable[[Right], None]] = []
        """Called with every request that is allowed; a test lets one raise StatusError, and the request fails."""
        self._writer = writer = ObjectWriter(store, admission)
        self._subresources: dict[tuple[str, str], SubresourceHandler] = {
            ("pods", "binding"): partial(bind, writer),
            ("bindings", ""): partial(bind, writer),
            ("pods", "eviction"): partial(evict, writer),
            ("serviceaccounts", "token"): authentication.request_token,
            ("selfsubjectreviews", ""): own_user,
        }

    async def handle(self, call: ApiCall) -> Reply:
        """Answer a call; never raises for what a caller can do wrong."""
        try:
            right, resource = asked_for(call.method, call.path, call.query)
            if call.path != "/version" and not self.authorizer.authorize(call.user, right):
                return refusal(right.refused_to(call.user))
            for check in self.checks:
                check(right)
            if resource is not None:
                return await handle(self._writer, self._subresources, right, resource, call)
            return self._document(call)
        except statuses.StatusError as error:
            return refusal(error)
        except Exception as error:
            log.exception("%s %s", call.method, call.path)
            return refusal(statuses.internal_error(f"{type(error).__name__}: {error}"))

    async def serve(self, call: ApiCall) -> Reply:
        """Authenticate by the headers, then handle."""
        try:
            user = self.authentication.authenticate(call.headers)
            if user is None:
                raise statuses.failure(401, "Unauthorized", "Unauthorized")
            call.user = acting_user(user, call.headers, self.authorizer)
        except statuses.StatusError as error:
            return refusal(error)
        return await self.handle(call)

    def local(self, user: UserInfo = ADMIN, agent: str = USER_AGENT) -> LocalClient:
        """A client that goes through the same chain without a connection; `agent` names its field manager."""
        return LocalClient(self, user, agent)

    def _document(self, call: ApiCall) -> Reply:
        """What is not a resource: discovery, OpenAPI and version."""
        document = discovery.document(call.path) if call.method in ("GET", "HEAD") else None
        if document is not None:
            return reply_of(document)
        if any(call.path.startswith(f"/{root}/") for root in discovery.ROOTS):
            raise statuses.path_not_found()
        return Reply(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")


class LocalTransport(Transport):
    """Carries calls straight to the server, as one user."""

    def __init__(self, api: ApiServer, user: UserInfo, agent: str) -> None:
        super().__init__(Endpoint("local://", Credentials()), timeout=0.0)
        self._api = api
        self._user = user
        self._agent = agent

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        data: bytes | None,
        content_type: str,
        *,
        warnings: list[str] | None = None,
    ) -> bytes:
        """One call and the body of its reply. Raises ApiError for any status from 300 on."""
        reply = await self._handle(method, path, query, data, content_type)
        if warnings is not None:
            warnings += warning_texts(text for name, text in reply.headers if name == "Warning")
        return reply.body

    async def lines(self, path: str, query: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, after an empty one once it was accepted."""
        reply = await self._handle("GET", path, query, None, "")
        assert reply.stream is not None
        yield b""
        async with aclosing(reply.stream) as stream:
            async for lines in stream:
                for line in lines.splitlines():
                    yield line

    async def _handle(
        self, method: str, path: str, query: Mapping[str, Any], data: bytes | None, content_type: str
    ) -> Reply:
        headers = {"content-type": content_type, "user-agent": self._agent, "accept": "application/json"}
        sent = self._url(path, query).query
        reply = await self._api.handle(ApiCall(method, path, sent, headers, data or b"", self._user))
        if reply.status >= 300:
            retry_after = dict(reply.headers).get("Retry-After")
            raise status_error(reply.body, http_status=reply.status, retry_after=retry_after)
        return reply


class LocalClient(Client):
    """`webhook.kube.client.Client` whose requests never leave the process."""

    def __init__(self, api: ApiServer, user: UserInfo, agent: str) -> None:
        self._transport = LocalTransport(api, user, agent)


class HttpServer:
    """One listener for one ApiServer; it may be stopped and started, and the state stays with the ApiServer."""

    def __init__(self, api: ApiServer, tls: ssl.SSLContext, port: int = 0) -> None:
        self.api = api
        self.port = port
        self._tls = tls

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
        await self._runner.cleanup()

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
