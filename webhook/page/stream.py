"""Server-sent events: who watches the page is sent each section that has changed, and nothing else.

One task looks while somebody watches: it makes the sections again, at most every `pause` seconds, and what is the same
as before is not sent. A slow reader gets the newest state of what it missed, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

log = logging.getLogger(__name__)

MOST_STREAMS = 16
"""Pages that may be live at a time."""
_PAUSE = 1.0
_HEARTBEAT = 15.0
"""Seconds of silence after which a comment shows that both ends are there."""
_PATIENCE = 10.0
"""Seconds until a reader that takes nothing is given up."""


class Part(msgspec.Struct, frozen=True):
    """One section: its markup, and what tells it from other states of it."""

    version: str
    html: str


class _Stream:
    """One reader: its connection, the sections it has, and a sign that there is something new."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self.sent: dict[str, str] = {}
        self.news = asyncio.Event()
        self._transport, self._writing = transport, False

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        """Send data. Raises TimeoutError if the reader has not taken it after a while."""
        self._writing = True
        async with asyncio.timeout(_PATIENCE):
            await response.write(data)
        self._writing = False

    def end_write(self) -> None:
        """End the connection if the reader has not taken what it was sent: nothing else can be said to it."""
        if self._writing and self._transport is not None:
            self._transport.abort()


class Streams:
    """The open streams of one server. `look` gives a sentence for screen readers and the sections by their ids."""

    def __init__(
        self,
        look: Callable[[], tuple[str, Mapping[str, Part]]],
        *,
        most: int = MOST_STREAMS,
        pause: float = _PAUSE,
        heartbeat: float = _HEARTBEAT,
    ) -> None:
        self._look, self._most, self._pause, self._heartbeat = look, most, pause, heartbeat
        self._streams: set[_Stream] = set()
        self._looking: asyncio.Task[None] | None = None
        self._headline, self._parts = "", dict[str, Part]()
        self._closed = False

    def __len__(self) -> int:
        return len(self._streams)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one reader until it goes or the server stops. Beyond the most there may be, answers 503."""
        if self._closed or len(self._streams) >= self._most:
            said = f"{len(self._streams)} pages are live already, and no more may be: close one, or reload by hand\n"
            return web.Response(status=503, text=said, headers={"Retry-After": "30"})
        stream = _Stream(request.transport)
        self._streams.add(stream)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._watch())
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            await self._feed(stream, response)
        except (ConnectionError, TimeoutError):
            log.debug("a reader of the page is gone, or takes nothing")
        finally:
            stream.end_write()
            self._streams.discard(stream)
        return response

    async def close(self) -> None:
        """End every stream: the server stops."""
        self._closed = True
        for stream in self._streams:
            stream.news.set()
            stream.end_write()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _watch(self) -> None:
        """Look for changes for as long as somebody reads."""
        while self._streams and not self._closed:
            try:
                headline, parts = self._look()
            except Exception:
                log.exception("the page could not be made")
            else:
                if parts != self._parts:
                    self._headline, self._parts = headline, dict(parts)
                for stream in self._streams:
                    if self._news_for(stream):
                        stream.news.set()
            await asyncio.sleep(self._pause)

    def _news_for(self, stream: _Stream) -> dict[str, Part]:
        return {name: part for name, part in self._parts.items() if stream.sent.get(name) != part.version}

    async def _feed(self, stream: _Stream, response: web.StreamResponse) -> None:
        await stream.write(response, b"retry: 3000\n\n")
        while not self._closed:
            try:
                async with asyncio.timeout(self._heartbeat):
                    await stream.news.wait()
            except TimeoutError:
                await stream.write(response, b": still here\n\n")
                continue
            stream.news.clear()
            news = self._news_for(stream)
            if news and not self._closed:
                stream.sent |= {name: part.version for name, part in news.items()}
                message = {"headline": self._headline, "sections": news}
                await stream.write(response, b"event: sections\ndata: %b\n\n" % msgspec.json.encode(message))
