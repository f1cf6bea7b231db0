"""The connections of the server: TLS, HTTP, how many there are, and which one goes if there is no room."""

import asyncio
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.serving.fair_turns import TurnsOfRound

MOST_CONNECTIONS = 768
"""An API server speaks HTTP/1.1 to a webhook, so it has a connection for each review under way: 200 changes and 400
reads at a time by default (`--max-mutating-requests-inflight`), of which changes of pods are a part; each has 80 KB."""
_NEW_SHARE = 0.25
"""Part of the places for connections that have not carried a review. If they have more, they push out each other."""
_HANDSHAKE_SECONDS, _CLOSING_SECONDS = 5, 2
_GREETINGS = 4
"""Handshakes that begin in one round of the event loop; each takes about 1 ms. More wait, address by address."""
_HEAD_SECONDS = 10.0
"""From a connection's beginning until its first review must have begun."""
_IDLE_SECONDS = 120.0
"""Longer than an API server keeps an idle connection (90 s), so that it is not closed under a request on its way."""
_READ_AHEAD = 16 * 1024
"""Bytes of a body, twice, that are read of a connection before its request asks for them."""
_MOST_LINES = 256
"""Lines in one read, which take 1 ms: each field of a head is one, and each chunk of a body is two. A request of an API
server has ten, and 16 KiB in chunks of one byte have 5 000."""
_MOST_FIELDS, _LONGEST_FIELD = 32, 2048
"""Header fields of a request, and bytes of one: a head that never ends takes twice its bytes, on each connection.
An API server sends about eight; the longest is a token of a service account, if it is told to show one."""

SSLProtocol.max_size = 16 * 1024
"""Bytes that asyncio reads of a TLS connection in one go, and sets aside for each, idle or not: a record of TLS has no
more. OpenSSL keeps room for them, too. By default these are 256 KiB: 192 MiB for all connections, and so many changes
of TLS keys that others wait 150 ms for one read."""

_log = logging.getLogger("webhook.http")
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
# A client that speaks no HTTP must not fill the log

_Group = dict["Connection", None]
"""Connections in the order in which they came into this group."""


class Connection(web.RequestHandler):
    """One connection: whose it is, and in which group."""

    __slots__ = ("accepted", "address", "group", "handshake", "late", "owner", "paused")

    def __init__(self, owner: "Connections", accepted: socket.socket, address: str) -> None:
        super().__init__(
            owner,
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes for none
            loop=asyncio.get_running_loop(),
            logger=_log,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=1.0,
            read_bufsize=_READ_AHEAD,
            max_line_size=_LONGEST_FIELD,
            max_field_size=_LONGEST_FIELD,
            max_headers=_MOST_FIELDS,
        )
        self.owner, self.accepted, self.address, self.paused = owner, accepted, address, False
        self.group: _Group | None = None
        self.handshake = asyncio.create_task(self._shake_hands(owner.context))
        self.late = asyncio.get_running_loop().call_later(_HEAD_SECONDS, owner.end, self, "head")

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless it has more lines than a request; this ends the connection."""
        if data.count(b"\n") > _MOST_LINES and data.count(b"\r\n") > _MOST_LINES:  # the first takes half of the second
            self.owner.end(self, "lines")
        else:
            super().data_received(data)

    def pause_reading(self) -> None:
        """Read no more until what has come is taken."""
        self.paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on if it was paused; aiohttp asks whenever a part of a body is taken."""
        if self.paused:
            self.paused = False
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """End a client that does not take what it is sent: 512 KiB, also of TLS itself, wait for it."""
        self.owner.end(self, "unread")

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP; aiohttp keeps the error, and its traceback would keep the buffers."""
        if isinstance(exc, HttpProcessingError):
            exc.__traceback__ = None
        return super().handle_error(request, status, exc, message)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note that the connection is gone."""
        super().connection_lost(exc)
        self.owner.forget(self)

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        await self.owner.greetings.enter(self.address)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self,
                self.accepted,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_CLOSING_SECONDS,
            )
        except OSError as error:  # no TLS, too late, or gone
            error.__traceback__ = None  # asyncio keeps the error, and its traceback would keep the buffers
            self.connection_lost(None)  # which asyncio does not tell before it has told of a beginning


class Connections(web.Server):
    """The connections of one server: MOST_CONNECTIONS, or half of the files that this process may open if that is less.

    A connection is new until its first review got a verdict, then idle between reviews, and busy during one. If there
    is no room, one of these groups gives way: new ones if they have more than their share, else idle ones, else new,
    else busy ones. Of the group it is the address that has most of it, so someone who opens many pushes out his own;
    and of the address the one that has been in the group longest: it has had its time, and a review takes milliseconds.
    `ended(reason)` is called for each that is ended.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        context: ssl.SSLContext,
        ended: Callable[[str], object],
    ) -> None:
        super().__init__(handler)
        self.context = context
        """What connections begin under."""
        self._most, (soft, _) = MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            self._most = min(MOST_CONNECTIONS, max(1, soft // 2))
        self._ended = ended
        self.greetings = TurnsOfRound(_GREETINGS)
        self.new: _Group = {}
        self.idle: _Group = {}
        self.busy: _Group = {}

    def __len__(self) -> int:
        return len(self.new) + len(self.idle) + len(self.busy)

    async def serve(self, accepted: socket.socket) -> None:
        """Serve a connection, after room was made for it. Raises OSError if its client has gone."""
        address = accepted.getpeername()[0]
        while len(self) >= self._most:
            group = self.new or self.idle or self.busy
            if self.idle and len(self.new) <= self._most * _NEW_SHARE:
                group = self.idle
            counts = Counter(connection.address for connection in group)
            # The first of those whose address has most
            first = max(group, key=lambda connection: counts[connection.address])
            self.end(first, "room")
        self._move(Connection(self, accepted, address), self.new)

    def put(self, connection: Connection, group: _Group) -> None:
        """Note that a review has begun that has to wait, or has ended."""
        if connection.group is not None:
            connection.late.cancel()
            self._move(connection, group)

    def end(self, connection: Connection, reason: str) -> None:
        """End a connection at once, and count why."""
        self._abort(connection)
        self._ended(reason)

    def forget(self, connection: Connection) -> None:
        """Note that a connection is gone."""
        connection.late.cancel()
        self._move(connection, None)

    async def close(self, grace: float) -> None:
        """End connections without a review, and give reviews in hand `grace` seconds."""
        for connection in list(self.new):
            self._abort(connection)
        self.pre_shutdown()
        await self.shutdown(grace / 2)  # aiohttp waits twice: for reviews to be finished, and for them to be given up

    def _abort(self, connection: Connection) -> None:
        self.forget(connection)
        if connection.transport is not None:
            connection.transport.abort()
        else:
            with suppress(OSError):  # the client has gone before its handshake was done
                connection.accepted.shutdown(socket.SHUT_RDWR)

    def _move(self, connection: Connection, group: _Group | None) -> None:
        if connection.group is not None:
            del connection.group[connection]
        connection.group = group
        if group is not None:
            group[connection] = None
