"""HTTP of one connection: what it takes is counted for its client, and what comes is parsed bit by bit.

A byte can cost much or little: 64 KB hold the body of one review, or 11 000 chunks of one byte, which take 80 ms.

Most requests come whole, one after the other, and can be answered at once: in the turn in which they were read,
without aiohttp's task, which costs a fifth of an ordinary review.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from webhook.serving.connections import Connection
from webhook.serving.turns import Turns

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""What answers a request, and may wait."""
Answered = tuple[bytes, bool]
"""The bytes of a response, and whether the connection stays."""

_LINES = 64
"""Lines that are parsed in one turn: fields of heads, and chunks. A request of an API server has about ten."""
_PIECE_SECONDS = 0.0005
"""What so many lines take, about."""
_REQUEST_SECONDS = 0.00015
"""What aiohttp takes for a request and its answer, about. To measure each step of a task costs 2 % of a review."""


class RequestHandler(Protocol):
    """What answers the requests of a server."""

    def at_once(self, connection: Connection, message: RawRequestMessage, content: StreamReader) -> Answered | Handler:
        """Answer a request that has come whole; or what goes on with it, if it has to wait."""
        ...

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any other request."""
        ...


class HttpProtocols(web.Server):
    """Makes the protocols of connections."""

    def __init__(self, handler: RequestHandler, **options: Any) -> None:
        super().__init__(handler, **options)
        self.at_once = handler.at_once

    def serve(self, connection: Connection, turns: Turns, hold: Callable[[bool], object]) -> HttpConnection:
        """A protocol for a connection; `hold(True)` has nothing more read of it until `hold(False)`."""
        return HttpConnection(self, connection, turns, hold, loop=self._loop, **self._kwargs)


class HttpConnection(web.RequestHandler):
    """aiohttp's protocol, in turns."""

    __slots__ = ("_at_once", "_connection", "_going_on", "_has_turn", "_hold", "_turns", "_unparsed")

    def __init__(
        self,
        server: HttpProtocols,
        connection: Connection,
        turns: Turns,
        hold: Callable[[bool], object],
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._connection, self._turns, self._hold = connection, turns, hold
        self._at_once = server.at_once
        self._unparsed, self._has_turn = b"", False
        self._going_on: Handler | None = None

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and what takes long in turns."""
        self._has_turn |= bool(data)
        if self._unparsed:
            self._unparsed += data
        elif data.count(b"\n") <= _LINES or data.count(b"\r\n") <= _LINES:  # the first takes a third of the second
            self._turns.do(self._connection.flow, self._receive, data)
        else:
            self._unparsed = data
            self._turns.do(self._connection.flow, self._parse)

    def _receive(self, data: bytes) -> None:
        """Parse what has come, and answer a request of which all is there while aiohttp's task waits for one."""
        idle, self._waiter = self._waiter, None  # the task is not woken before it is known whether it is needed
        super().data_received(data)
        if idle is not None and not idle.done() and self._messages and not self._answered():
            idle.set_result(None)
        self._waiter = idle
        if idle is not None and self._force_close:  # aiohttp would have found it only now
            idle.cancel()

    def _answered(self) -> bool:
        """Answer the only request at once, if it need not wait."""
        message, content = self._messages[0]
        if not isinstance(message, RawRequestMessage) or self._upgraded:
            return False
        whole = content.is_eof() and content.exception() is None and not self._reading_paused
        if not whole or len(self._messages) > 1 or self._paused or self.transport is None or self._parser is None:
            return False
        try:
            answered = self._at_once(self._connection, message, content)
        except Exception as error:  # noqa: BLE001 - aiohttp answers and logs it
            answered = partial(_raise, error)
        if not isinstance(answered, tuple):
            self._going_on = answered
            return False
        self._messages.popleft()
        self._parser.message_consumed()
        self._has_turn = False
        response, stays = answered
        self.transport.write(response)
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if not stays:
            self.force_close()
        return True

    def _parse(self) -> None:
        """Parse some lines, and leave the rest to the connection's next turn."""
        end = -1
        for _ in range(_LINES):
            end = self._unparsed.find(b"\r\n", end + 1)
            if end < 0:
                break
        end = end + 2 if end >= 0 else len(self._unparsed)
        self._has_turn = True
        super().data_received(self._unparsed[:end])
        self._unparsed = self._unparsed[end:] if self.transport is not None else b""
        self._hold(bool(self._unparsed))
        if self._unparsed:
            self._turns.later(self._connection.flow, self._parse, _PIECE_SECONDS)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on if something was held back; aiohttp parses and resumes after each body, which takes 3 % of a review."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def eof_received(self) -> None:
        """Answer no more requests: what is written now would be dropped. Nor does the rest of a body come."""
        if self._current_request is not None:
            gone = ConnectionResetError("the client has ended the connection")
            self._current_request._cancel(gone)  # noqa: SLF001 - as aiohttp does it when a connection is lost
        self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let what is under way come to its end; aiohttp's own loop fails without these if a request has just come."""
        kept = self._manager, self._request_factory, self._request_handler
        super().connection_lost(exc)
        self._manager, self._request_factory, self._request_handler = kept

    def _handle_request(
        self, request: web.BaseRequest, start_time: float | None, request_handler: Handler
    ) -> Coroutine[Any, Any, Any]:
        self._turns.spend(self._connection.flow, _REQUEST_SECONDS)
        if self._going_on is not None:
            request_handler, self._going_on = self._going_on, None
        handling = super()._handle_request(request, start_time, request_handler)
        if self._has_turn:
            self._has_turn = False
            return handling
        return self._in_turn(handling)

    async def _in_turn(self, handling: Coroutine[Any, Any, Any]) -> Any:
        """Of the requests that came in one go the first has the turn in which they were read; others need their own."""
        try:
            await self._turns.run(self._connection.flow, _nothing, _REQUEST_SECONDS, begun=False)
        except BaseException:
            handling.close()
            raise
        return await handling


async def _raise(error: Exception, request: web.BaseRequest) -> web.StreamResponse:
    del request
    raise error


def _nothing() -> None:
    """What a turn is for shows when it has come."""
