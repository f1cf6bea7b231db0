"""A TLS listener whose certificate can be replaced while connections go on."""

from __future__ import annotations

import asyncio
import socket
import ssl

from aiohttp import web

__all__ = ["Listener", "bind"]

_HANDSHAKE_SECONDS = 10.0


def bind(address: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError."""
    if ":" in address:
        dual = address == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=dual, backlog=1024)
    return socket.create_server((address, port), backlog=1024)


class Listener:
    """Hands connections to `server`. The socket outlives every change of the TLS context."""

    def __init__(self, server: web.Server, sock: socket.socket) -> None:
        self._server, self._socket = server, sock
        self._accepting: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        number: int = self._socket.getsockname()[1]
        return number

    async def use(self, context: ssl.SSLContext) -> None:
        """Accept connections under this context from now on; those that are open stay as they are.

        A context of its own for each certificate, and not a new certificate in the old context, because a context
        cannot forget a client CA, and a failed load would leave a half-changed one in use.
        """
        before = self._accepting
        self._accepting = await asyncio.get_running_loop().create_server(
            self._server, sock=self._socket.dup(), ssl=context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
        )
        if before is not None:
            before.close()

    async def close(self, grace: float) -> None:
        """Accept no more, end idle connections, and give requests in hand `grace` seconds."""
        if self._accepting is not None:
            self._accepting.close()
        self._socket.close()
        self._server.pre_shutdown()
        await self._server.shutdown(grace)
