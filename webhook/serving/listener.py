"""The TLS listener, whose certificate can be replaced; bounded in connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from webhook.component_base.listener import Acceptor
from webhook.component_base.supervision import Supervisor
from webhook.serving.connections import Connections

__all__ = ["TlsListener"]

_HANDSHAKE_SECONDS = 5
_CLOSING_SECONDS = 2
"""Wait for the peer's half of a TLS connection's end."""


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


class TlsListener(Acceptor):
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
        self.socket.close()
        self._connections.end_new()
        self.server.pre_shutdown()
        await self.server.shutdown(grace)

    async def serve(self, connection: socket.socket) -> None:
        """Begin TLS on the connection, after room was made for it."""
        self._connections.make_room()
        protocol = self.server()
        tls = _Tls(protocol, self.context, self._connections.lost)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: tls, connection)
        if not transport.is_closing():
            self._connections.add(protocol, transport)
