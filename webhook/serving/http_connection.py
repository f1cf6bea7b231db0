"""HTTP of one connection: what it takes is counted for its client, and what comes is parsed bit by bit.

A byte can cost much or little: 64 KB hold the body of one review, or 11 000 chunks of one byte, which take 80 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from webhook.serving.connections import Connection
from webhook.serving.turns import Turns

__all__ = ["HttpConnection", "HttpProtocols"]

_LINES = 64
"""Lines that are parsed in one turn: fields of heads, and chunks. A request of an API server has about ten."""
_PIECE_SECONDS = 0.0005
"""What so many lines take, about."""
_REQUEST_SECONDS = 0.00015
"""What aiohttp takes for a request and its answer, about. To measure each step of a task costs 2 % of a review."""


class HttpProtocols(web.Server):
    """Makes the protocols of connections."""

    def serve(self, connection: Connection, turns: Turns, hold: Callable[[bool], object]) -> HttpConnection:
        """A protocol for a connection; `hold(True)` has nothing more read of it until `hold(False)`."""
        return HttpConnection(self, connection, turns, hold, loop=self._loop, **self._kwargs)


class HttpConnection(web.RequestHandler):
    """aiohttp's protocol, in turns."""

    __slots__ = ("_connection", "_has_turn", "_hold", "_turns", "_unparsed")

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
        self._unparsed, self._has_turn = b"", False

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and what takes long in turns."""
        self._has_turn |= bool(data)
        if self._unparsed:
            self._unparsed += data
        elif data.count(b"\r\n") <= _LINES:
            self._turns.do(self._connection.flow, super().data_received, data)
        else:
            self._unparsed = data
            self._turns.do(self._connection.flow, self._parse)

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

    def _handle_request(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        self._turns.spend(self._connection.flow, _REQUEST_SECONDS)
        handling = super()._handle_request(*arguments)
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


def _nothing() -> None:
    """What a turn is for shows when it has come."""
