"""Clients without credentials, in a process of their own: 500 slow, idle and garbage ones, or many idle connections.

`python -m tests.bench.hostile PORT 500` says `ready` once each has connected, and goes on until it is ended;
`python -m tests.bench.hostile PORT 10000 idle` offers so many idle TLS connections and says how many are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import sys

HEAD = (
    b"POST /mutate?timeout=30s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n"
)
GARBAGE = (b"\x00\xff" * 200, b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"POST /mutate HTTP/1.1\r\nX: " + b"x" * 9000)
_PAUSE = 1.0
"""Seconds until a client that was turned away comes back."""


class _Client:
    """One hostile client: it does its worst, and comes back whenever it is turned away."""

    def __init__(self, number: int, port: int) -> None:
        self._number, self._port = number, port
        self.connected = asyncio.Event()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def run(self) -> None:
        """Attack without end."""
        kind = (self._slow, self._idle, self._garbage)[self._number % 3]
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await kind()
            await asyncio.sleep(_PAUSE)

    async def _open(self, *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        opened = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls if tls else None)
        self.connected.set()
        return opened

    async def _slow(self) -> None:
        """Send a head, and of the body a byte a second."""
        reader, writer = await self._open()
        writer.write(HEAD)
        while not reader.at_eof():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(1.0)
        writer.close()

    async def _idle(self) -> None:
        """Hold a TLS connection, or one without a handshake."""
        reader, writer = await self._open(tls=self._number % 2 == 0)
        await reader.read()
        writer.close()

    async def _garbage(self) -> None:
        """Send what is no TLS, no HTTP or no end of a head."""
        reader, writer = await self._open(tls=self._number % 4 != 0)
        writer.write(GARBAGE[self._number % len(GARBAGE)])
        await reader.read()
        writer.close()


async def attack(port: int, count: int) -> None:
    """Run so many clients; says `ready` once each has connected."""
    clients = [_Client(number, port) for number in range(count)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await asyncio.gather(*(client.connected.wait() for client in clients))
    print("ready", flush=True)
    await asyncio.gather(*tasks)


def offer(port: int, count: int) -> None:
    """Open so many TLS connections one after the other, and keep what the server keeps. No asyncio: it costs more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opened: list[ssl.SSLSocket] = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        opened.append(context.wrap_socket(plain))
    alive = sum(_alive(connection) for connection in opened)
    print(f"ready {alive}", flush=True)
    sys.stdin.read()


def _alive(connection: ssl.SSLSocket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False


def main() -> None:
    """Read the arguments."""
    port, count = int(sys.argv[1]), int(sys.argv[2])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[3:] == ["idle"]:
        offer(port, count)
    else:
        asyncio.run(attack(port, count))


if __name__ == "__main__":
    main()
