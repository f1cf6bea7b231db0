"""Listening sockets, and accepting from them."""

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial

log = logging.getLogger(__name__)

_BREATH_SECONDS = 0.1
"""Wait after a failed accept: most often there is no file descriptor left, and one must come free first."""
_RECENT_SECONDS = 5.0
_NO_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_AT_A_TIME = 64
"""Connections that are accepted before others have their turn."""


def bind(address: str, port: int, option: str = "") -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError, whose text names the `option` that says the port.

    `::` is every address, IPv4 and IPv6, also if the kernel has no IPv6.
    """
    if address == "::" and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"  # noqa: S104 - every address that there is
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    create = partial(socket.create_server, family=family, backlog=1024)
    try:
        return create((address, port), dualstack_ipv6=address == "::")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        if option:
            why += f"; {option} names another"
        raise OSError(f"cannot listen on port {port} of {address}: {why}") from error


class Acceptor:
    """Accepts connections from a socket, without end; `serve` takes each, and does not wait for its end."""

    def __init__(self, sock: socket.socket, serve: Callable[[socket.socket], Awaitable[object]]) -> None:
        self.socket, self.serve = sock, serve
        self._failed_at, self._error = float("-inf"), ""
        sock.setblocking(False)

    def problem(self) -> str:
        """Why connections could not be accepted a moment ago, or nothing."""
        return self._error if time.monotonic() - self._failed_at < _RECENT_SECONDS else ""

    async def accept(self) -> None:
        """Accept until cancelled. No failure of one connection is one of the listener."""
        loop, number = asyncio.get_running_loop(), 0
        while True:
            connection = None
            number += 1
            # Accepting does not wait while connections come, so it would never let go
            if number % _AT_A_TIME == 0:
                await asyncio.sleep(0)
            try:
                connection, _ = await loop.sock_accept(self.socket)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self.serve(connection)
            except OSError as error:
                if connection is not None:
                    connection.close()
                    if error.errno not in _NO_RESOURCES:  # its client has gone already
                        continue
                self._failed_at, self._error = time.monotonic(), str(error)
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_BREATH_SECONDS)
