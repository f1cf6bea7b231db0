"""HTTP to one API server: connections, credentials, timeouts, errors; bytes in and bytes out."""

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import aiohttp
from yarl import URL

from webhook.kube.endpoint import Endpoint
from webhook.kube.errors import NO_ANSWER, ApiError, status_error

USER_AGENT = f"giveway/{version('giveway')}"

BEFORE_SENDING: ContextVar[Callable[[], None] | None] = ContextVar("before_sending", default=None)
"""Called when the body of a request is about to be sent, over a connection that is open. If it raises, the server gets
no request, and the caller an ApiError."""
_CONNECT = 10.0
"""Seconds a connection may take to be made."""
_TRIES = 2
"""A GET whose connection broke, and a request whose token was refused, are sent once more."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A connection is probed after 30 s without a word, and given up when nothing was acknowledged for 30 s (in ms).

So a peer that is gone without a goodbye is found within about a minute, if the platform has these options.
"""
_KEPT = 75.0
"""Seconds for which an unused connection is kept; kube-apiserver closes it after 90 (`IdleTimeout` in 1.36)."""


class Transport:
    """A connection pool to one API server; `timeout` is in seconds per request.

    The pool has no upper bound: a lease is renewed and a watch is opened at once, however many writes wait for an
    answer. Who starts many requests bounds them.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float) -> None:
        self.endpoint = endpoint
        self._timeout = timeout

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        """The pool, which belongs to the event loop of the first request."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self.endpoint.tls or True,
                limit=0,
                keepalive_timeout=_KEPT,
                socket_factory=_socket,
            ),
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
            proxy=self.endpoint.proxy,
        )

    async def close(self) -> None:
        """Close the connections."""
        if "_session" in self.__dict__:
            await self._session.close()

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
        """One request and the body of its answer, and its warnings. Raises ApiError for any status from 300 on."""
        headers: dict[str, str] = {}
        body: bytes | _Checked | None = data
        check = BEFORE_SENDING.get()
        if data is not None:
            headers["Content-Type"] = content_type
        if data is not None and check is not None:
            headers["Content-Length"] = str(len(data))
            body = _Checked(data, check)
        for left in reversed(range(_TRIES)):
            try:
                async with self._answer(method, path, query, headers, body) as (answer, _):
                    if warnings is not None:
                        warnings += warning_texts(answer.headers.getall("Warning", ()))
                    return await answer.read()
            except ApiError as error:
                renewed = error.status == 401 and self.endpoint.renewal is not None
                if not left or not (renewed or (error.reason == "Unreachable" and method == "GET")):
                    raise
        raise AssertionError("unreachable")

    async def lines(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """The lines of an endless answer, after an empty one. Raises ApiError if it breaks, or begins too late."""
        async with self._answer("GET", path, query) as (answer, limit):
            limit.reschedule(None)
            yield b""
            # A line has no bound: a watch event may hold a megabyte.
            # One that is cut off at the end is dropped.
            while line := await answer.content.readline(max_line_length=sys.maxsize):
                if line.endswith(b"\n") and line.strip():
                    yield line

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str] = {}, body: Any = None
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, asyncio.Timeout]]:
        """An answer that is no refusal, and the limit for all work on it. Raises ApiError."""
        name, sent = self.endpoint.server_name, {**headers, **await self.endpoint.headers()}
        options: Any = {"data": body, "headers": sent, "server_hostname": name, "allow_redirects": False}
        try:
            async with (
                asyncio.timeout(self._timeout) as limit,
                self._session.request(method, self._url(path, query), **options) as answer,
            ):
                if answer.status < 300:
                    yield answer, limit
                    return
                later, said = answer.headers.get("Retry-After"), await answer.read()
                refusal = status_error(said, http_status=answer.status, retry_after=later)
        except (aiohttp.ClientError, OSError) as error:
            reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
            text = f"{method} {path}: {error or type(error).__name__}"
            raise ApiError(NO_ANSWER, reason, text) from error
        if refusal.status == 401:
            await self.endpoint.renew(force=True)
        raise refusal

    def _url(self, path: str, query: Mapping[str, Any]) -> URL:
        texts = {key: str(value) for key, value in query.items() if value not in (None, "")}
        for key, value in query.items():
            if isinstance(value, bool):
                texts[key] = str(value).lower()
        return URL(self.endpoint.url + path, encoded=True).with_query(texts)


_WARNING = re.compile(r'\b\d{3} \S+ "((?:[^"\\]|\\.)*)"')
"""A warning of RFC 7234: code, agent, quoted text."""


def _socket(address: Any) -> socket.socket:
    """A socket that notices when its peer is gone; `address` is one of getaddrinfo's."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


@dataclass
class _Checked:
    """The body of a request; it is asked for when there is a connection, and the check may still raise then.

    So it is for each sending: aiohttp 3.14.1 sends a PUT or DELETE again by itself.
    """

    data: bytes
    check: Callable[[], None]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.check()
        yield self.data


def warning_texts(headers: Iterable[str]) -> list[str]:
    """The texts of `Warning` headers."""
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]
