"""A client without a connection: the same methods, the same chain, no HTTP and no TLS."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from webhook.embedded.protocol.calls import ApiCall, Reply, UserInfo
from webhook.kube.client import Client
from webhook.kube.endpoint import Endpoint
from webhook.kube.errors import status_error
from webhook.kube.transport import USER_AGENT, Transport, split_lines, warning_texts

__all__ = ["LocalClient"]

Handle = Callable[[ApiCall], Awaitable[Reply]]
"""What answers a call: `ApiServer.handle`."""

_FAILED = 300


class LocalTransport(Transport):
    """Carries calls straight to what answers them, as one user."""

    def __init__(self, handle: Handle, user: UserInfo, agent: str) -> None:
        super().__init__(Endpoint("local://"), timeout=0.0)
        self._answer = handle
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
            async for line in split_lines(stream):
                yield line

    async def _handle(
        self, method: str, path: str, query: Mapping[str, Any], data: bytes | None, content_type: str
    ) -> Reply:
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in query.items()
            if value not in (None, "")
        }
        headers = {"content-type": content_type, "user-agent": self._agent, "accept": "application/json"}
        reply = await self._answer(ApiCall(method, path, texts, headers, data or b"", self._user))
        if reply.status >= _FAILED:
            retry_after = dict(reply.headers).get("Retry-After")
            raise status_error(reply.body, http_status=reply.status, retry_after=retry_after)
        return reply


class LocalClient(Client):
    """`webhook.kube.client.Client` whose requests never leave the process."""

    def __init__(self, handle: Handle, user: UserInfo, agent: str = USER_AGENT) -> None:
        self._transport = LocalTransport(handle, user, agent)
