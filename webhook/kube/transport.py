"""HTTP to one API server: connections, credentials, timeouts, errors; bytes in and bytes out."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
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

So a peer that is gone without a goodbye is found within about a minute, however quiet a watch may be. Options that a
platform does not have are left out.
"""


class Transport:
    """A connection pool to one API server; `timeout` is in seconds per request.

    The pool has no upper bound: a lease is renewed and a watch is opened at once, however many writes wait for an
    answer. Who starts many requests bounds them.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float) -> None:
        self.endpoint = endpoint
        self._limits = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT)
        self._pool: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

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
        """One request and the body of its answer. Raises ApiError for any status from 300 on.

        The texts of `Warning` headers are added to `warnings`.
        """
        headers, check = {} if data is None else {"Content-Type": content_type}, BEFORE_SENDING.get()
        body: bytes | _Checked | None = data
        if data is not None and check is not None:
            headers["Content-Length"], body = str(len(data)), _Checked(data, check)
        for left in reversed(range(_TRIES)):
            options = await self._options(headers, self._limits)
            cause: Exception | None = None
            try:
                async with self._session().request(method, self._url(path, query), data=body, **options) as answer:
                    if answer.status < 300:
                        if warnings is not None:
                            warnings += warning_texts(answer.headers.getall("Warning", ()))
                        return await answer.read()
                    error = await _error(answer)
            except (aiohttp.ClientError, OSError) as broken:
                error, cause = _no_answer(method, path, broken), broken
            if not left or not await self._worth_another(error, method):
                raise error from cause
        raise AssertionError("unreachable")

    async def lines(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """The lines of an answer that has no end of its own, after an empty one once it has begun.

        Raises ApiError if it breaks, or does not begin within the timeout of a request.
        """
        options = await self._options({}, _ENDLESS)
        try:
            async with (
                asyncio.timeout(self._limits.total) as beginning,
                self._session().request("GET", self._url(path, query), **options) as answer,
            ):
                if answer.status >= 300:
                    error = await _error(answer)
                    await self._worth_another(error, "GET")
                    raise error
                beginning.reschedule(None)
                yield b""
                async for line in split_lines(answer.content.iter_any()):
                    yield line
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer("watch", path, error) from error

    async def _worth_another(self, error: ApiError, method: str) -> bool:
        if error.status == 401 and self.endpoint.renewal is not None:
            await self.endpoint.renew(force=True)
            return True
        return error.reason == "Unreachable" and method == "GET"

    async def _options(self, headers: dict[str, str], limits: aiohttp.ClientTimeout) -> dict[str, Any]:
        return {
            "headers": {**headers, **await self.endpoint.headers()},
            "timeout": limits,
            "proxy": self.endpoint.proxy,
            "server_hostname": self.endpoint.server_name,
            "allow_redirects": False,
        }

    def _session(self) -> aiohttp.ClientSession:
        if self._pool is None:
            tls = True if self.endpoint.tls is None else self.endpoint.tls
            self._pool = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=_socket),
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            )
        return self._pool

    def _url(self, path: str, query: Mapping[str, Any]) -> URL:
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in query.items()
            if value not in (None, "")
        }
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


class _Checked:
    """The body of a request; it is asked for when there is a connection, and the check may still raise then."""

    def __init__(self, data: bytes, check: Callable[[], None]) -> None:
        self._data, self._check = data, check

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._check()
        yield self._data


_ENDLESS = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Lines of any length from chunks of any size, without their ends; an unfinished last line is dropped.

    aiohttp's own line reader refuses lines above 64 KiB, and a watch event may hold a megabyte.
    """
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        for part in rest:
            line = b"".join(begun)
            if line.strip():
                yield line
            begun = [part]


def warning_texts(headers: Iterable[str]) -> list[str]:
    """The texts of `Warning` headers."""
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]


async def _error(answer: aiohttp.ClientResponse) -> ApiError:
    return status_error(await answer.read(), http_status=answer.status, retry_after=answer.headers.get("Retry-After"))


def _no_answer(method: str, path: str, error: Exception) -> ApiError:
    reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
    return ApiError(NO_ANSWER, reason, f"{method} {path}: {error or type(error).__name__}")
