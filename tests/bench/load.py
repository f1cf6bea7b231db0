"""A load generator that costs little itself: raw HTTP/1.1 on keep-alive TLS connections, one request at a time each."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from dataclasses import dataclass

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    """What came of it; times in seconds."""

    count: int
    seconds: float
    p50: float
    p99: float
    longest: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.count / self.seconds


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the answer is whole."""

    def __init__(self, request: bytes, times: list[float], until: float, most: list[int]) -> None:
        self._request, self._times, self._until, self._most = request, times, until, most
        self._buffer, self._began, self._expected = bytearray(), 0.0, 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._expected:
            head = self._buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            if not self._buffer.startswith(b"HTTP/1.1 200"):
                self.done.set_exception(RuntimeError(bytes(self._buffer[:200]).decode()))
                return
            self._expected = head + 4 + int(_LENGTH.search(self._buffer, 0, head + 2)[1])
        if len(self._buffer) >= self._expected:
            now = time.perf_counter()
            self._times.append(now - self._began)
            self._buffer.clear()
            self._expected = 0
            self._most[0] -= 1
            if now < self._until and self._most[0] > 0:
                self._send()
            elif not self.done.done():
                self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._request)


async def drive(
    port: int,
    trust: ssl.SSLContext,
    body: bytes,
    connections: int,
    seconds: float,
    *,
    most: int = 10**9,
    path: str = "/mutate",
) -> Load:
    """Send the review over and over for so many seconds, or so many times. Raises for any answer but 200."""
    request = reviewing(body, path)
    loop = asyncio.get_running_loop()
    times: list[float] = []
    began = time.perf_counter()
    left = [most]
    made = [
        await loop.create_connection(
            lambda: _Connection(request, times, began + seconds, left), "127.0.0.1", port, ssl=trust
        )
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    took = time.perf_counter() - began
    for transport, _ in made:
        transport.abort()
    times.sort()
    return Load(len(times), took, times[len(times) // 2], times[len(times) * 99 // 100], times[-1])


class Exchanges:
    """Requests one after the other on one TLS connection, which is made again whenever the server has ended it."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._port, self._trust = port, trust
        self._reader: asyncio.StreamReader | None = None

    async def send(self, *parts: bytes) -> tuple[int, bytes]:
        """Send a request in these parts: the status and the body of the answer."""
        if self._reader is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._trust)
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()
            await asyncio.sleep(0)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await self._reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.close()
        return int(head.split()[1]), body

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        if self._reader is not None:
            self._writer.transport.abort()
            self._reader = None


def reviewing(body: bytes, path: str = "/mutate") -> bytes:
    """The request of a review, as an API server sends it."""
    head = [
        f"POST {path}?timeout=10s HTTP/1.1",
        "Host: bench",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Accept: application/json, */*",
        "User-Agent: kube-apiserver-admission",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
