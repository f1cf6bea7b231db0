"""Responses with a body of JSON, as bytes."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import SERVER_SOFTWARE, HttpVersion, HttpVersion11


class JsonResponse(web.StreamResponse):
    """What `web.Response` sends for such a body, without asking for cookies, compression, chunks and hooks.

    There are none of these, and asking for them takes a good part of the time of an ordinary review.
    """

    def __init__(self, body: bytes, status: int) -> None:
        super().__init__(status=status)
        self._json = body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send everything; waits while the client does not read what it was sent."""
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        writer = request.writer
        await writer.write(response(self._json, self.status, request.version, keep_alive=self._keep_alive))
        await writer.drain()
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""


def response(body: bytes, status: int, version: HttpVersion, *, keep_alive: bool) -> bytes:
    """A whole response with a body of JSON, as it is sent."""
    head = _head(version, status, keep_alive, int(time.time()))
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


@lru_cache(64)
def _head(version: HttpVersion, status: int, keep_alive: bool, second: int) -> bytes:
    """Status line and headers, all but Content-Length; `second` is the time since the epoch."""
    lines = [
        f"HTTP/{version.major}.{version.minor} {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Date: {formatdate(second, usegmt=True)}",
        f"Server: {SERVER_SOFTWARE}",
    ]
    if keep_alive != (version >= HttpVersion11):  # the other way round than this version does by itself
        lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
    return "\r\n".join([*lines, ""]).encode()
