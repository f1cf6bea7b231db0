"""Listeners of our own: TLS with a certificate that can be replaced, and plain; both bounded in connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from webhook.kube.supervision import Supervisor
from webhook.serving.connections import Connections

__all__ = ["Listener", "PlainListener", "bind"]

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 5
_CLOSING_SECONDS = 2
"""Wait for the peer's half of a TLS connection's end."""
_BREATH_SECONDS = 0.1
"""Wait after a failed accept: most often there is no file descriptor left, and one must come free first."""
_RECENT_SECONDS = 5.0
_NO_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_MOST_PLAIN = 64
"""Connections of probes, Prometheus and people; the oldest goes first."""


def bind(address: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError.

    `::` is every address, IPv4 and IPv6, also if the kernel has no IPv6.
    """
    if address == "::" and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"  # noqa: S104 - every address that there is
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, dualstack_ipv6=address == "::", backlog=1024)


class _Accepting:
    """Accepts connections from a socket, without end."""

    def __init__(self, server: web.Server, sock: socket.socket) -> None:
        self._server, self._socket = server, sock
        self._failed_at, self._error = float("-inf"), ""
        sock.setblocking(False)

    @property
    def port(self) -> int:
        """The port it listens on."""
        number: int = self._socket.getsockname()[1]
        return number

    def problem(self) -> str:
        """Why connections could not be accepted a moment ago, or nothing."""
        return self._error if time.monotonic() - self._failed_at < _RECENT_SECONDS else ""

    async def accept(self) -> None:
        """Accept until cancelled. No failure of one connection is one of the listener."""
        loop = asyncio.get_running_loop()
        while True:
            connection = None
            try:
                connection, _ = await loop.sock_accept(self._socket)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._serve(connection)
            except OSError as error:
                if connection is not None:
                    connection.close()
                    if error.errno not in _NO_RESOURCES:  # its client has gone already
                        continue
                self._failed_at, self._error = time.monotonic(), str(error)
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_BREATH_SECONDS)

    async def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError


class PlainListener(_Accepting):
    """Serves plain HTTP to a few connections at a time; the oldest one goes when there are too many."""

    async def _serve(self, connection: socket.socket) -> None:
        present = self._server.connections
        for protocol in present[: max(0, len(present) + 1 - _MOST_PLAIN)]:
            if protocol.transport is not None:
                protocol.transport.abort()
        await asyncio.get_running_loop().connect_accepted_socket(self._server, connection)


class _Tls(SSLProtocol):
    """asyncio's TLS, without a read buffer of its own for each connection, idle or not.

    One buffer does for all: the event loop asks for it, fills it and has it read, in one go, connection by connection.
    """

    max_size = 64 * 1024
    _shared = bytearray(max_size)

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, lost: Callable[[object], None]) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            protocol,
            context,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_CLOSING_SECONDS,
        )
        self._ssl_buffer = self._shared
        self._ssl_buffer_view = memoryview(self._shared)
        self._served, self._lost = protocol, lost

    def connection_lost(self, exc: BaseException | None) -> None:
        """Note the end, whether the handshake had been done or not."""
        super().connection_lost(exc)
        self._lost(self._served)


class Listener(_Accepting):
    """Hands connections to `server`, each under the TLS context that is in use when it comes.

    It accepts by itself, because an asyncio server keeps the context it was made with, and swapping two of them
    loses the connections that are in between. A context of its own for each certificate, and not a new certificate
    in the old context, because a context cannot forget a client CA.
    """

    def __init__(
        self,
        server: web.Server,
        sock: socket.socket,
        context: ssl.SSLContext,
        supervisor: Supervisor,
        connections: Connections,
    ) -> None:
        super().__init__(server, sock)
        self.context, self._connections = context, connections
        self._accepting = asyncio.create_task(supervisor.keep("listener", self.accept))

    async def close(self, grace: float) -> None:
        """Accept no more, end idle connections, and give requests in hand `grace` seconds."""
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting
        self._socket.close()
        self._connections.end_new()
        self._server.pre_shutdown()
        await self._server.shutdown(grace)

    async def _serve(self, connection: socket.socket) -> None:
        self._connections.make_room()
        protocol = self._server()
        tls = _Tls(protocol, self.context, self._connections.lost)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: tls, connection)
        if not transport.is_closing():
            self._connections.add(protocol, transport)
