"""A TLS listener whose certificate can be replaced while connections go on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from contextlib import suppress

from aiohttp import web

from webhook.kube.supervision import Supervisor

__all__ = ["Listener", "bind"]

log = logging.getLogger(__name__)

SSLProtocol.max_size = 64 * 1024
"""Bytes that a TLS connection reads at a time. asyncio keeps a buffer of this size for each, idle or not, and its own
256 KiB are too much: without HTTP/2 an API server has as many connections as it has reviews under way, hundreds."""
_HANDSHAKE_SECONDS = 10.0
_BREATH_SECONDS = 0.1
"""Wait after a failed accept: most often there is no file descriptor left, and one must come free first."""


def bind(address: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError.

    `::` is every address, IPv4 and IPv6, also where the kernel has no IPv6.
    """
    if address == "::" and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"  # noqa: S104 - every address that there is
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, dualstack_ipv6=address == "::", backlog=1024)


class Listener:
    """Hands connections to `server`, each under the TLS context that is in use when it comes.

    It accepts by itself, because an asyncio server keeps the context it was made with, and swapping two of them
    loses the connections that are in between. A context of its own for each certificate, and not a new certificate
    in the old context, because a context cannot forget a client CA.
    """

    def __init__(
        self, server: web.Server, sock: socket.socket, context: ssl.SSLContext, supervisor: Supervisor
    ) -> None:
        self.context = context
        self._server, self._socket = server, sock
        self._handshakes: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        self._accepting = asyncio.create_task(supervisor.keep("listener", self._accept))

    @property
    def port(self) -> int:
        """The port it listens on."""
        number: int = self._socket.getsockname()[1]
        return number

    async def close(self, grace: float) -> None:
        """Accept no more, end idle connections, and give requests in hand `grace` seconds."""
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting
        self._socket.close()
        for handshake in self._handshakes:
            handshake.cancel()
        self._server.pre_shutdown()
        await self._server.shutdown(grace)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_BREATH_SECONDS)
                continue
            handshake = asyncio.create_task(self._shake_hands(connection))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.connect_accepted_socket(
                self._server, connection, ssl=self.context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        except OSError as error:
            connection.close()
            log.debug("no TLS connection: %s", error)
