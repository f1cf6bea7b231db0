"""Reviews in numbers: each connection sends one after the other, over TLS, and it is measured how long each took."""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
import time
from dataclasses import dataclass, field

from tests.bench.measuring import Served
from webhook.clusters.demo.recorded_reviews import recorded

CONNECTIONS = 16
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TIMEOUT = 10.0
"""Seconds that an answer may take."""


@dataclass
class Load:
    """What came of it: seconds in all and of each request, and why some had no answer."""

    times: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.times) / self.seconds

    def percentile(self, share: float) -> float:
        """The milliseconds that this share of the requests took at most."""
        return sorted(self.times)[int(len(self.times) * share)] * 1e3


class Connection:
    """A TLS connection for one request after the other, which is made again whenever the server has ended it."""

    def __init__(self, port: int, trust: ssl.SSLContext | None, address: str = "127.0.0.1") -> None:
        self._port, self._trust, self._address = port, trust, address
        self.reader: asyncio.StreamReader | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, if that is not so already."""
        if self.reader is None or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._trust, local_addr=(self._address, 0)
            )
        return self.reader, self.writer

    async def send(self, *parts: bytes) -> tuple[int, bytes]:
        """Send a request in these parts: the status and the body of the answer."""
        _, writer = await self.open()
        for number, part in enumerate(parts):
            if number:
                await asyncio.sleep(0)
            writer.write(part)
            await writer.drain()
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        """Wait for the next answer: its status and its body. Raises OSError after the last one."""
        if self.reader is None:
            raise ConnectionError("the server has ended the connection")
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self.reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in head.lower():
            self.close()
        return int(head.split(maxsplit=2)[1]), body

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        if self.reader is not None:
            self.writer.transport.abort()
            self.reader = None


async def drive(
    server: Served,
    *,
    seconds: float = math.inf,
    count: float = math.inf,
    pause: float = 0.0,
    requests: float = math.inf,
) -> Load:
    """Send a recorded review over and over on CONNECTIONS, for so many seconds or so many times.

    Each connection rests for `pause` seconds after an answer, and is made again after so many `requests`.
    """
    load, request, began = Load(), review(), time.perf_counter()

    async def work() -> None:
        connection, sent = Connection(server.port, server.trust), 0
        while sent < count / CONNECTIONS and (at := time.perf_counter()) < began + seconds:
            sent += 1
            try:
                async with asyncio.timeout(_TIMEOUT):
                    status, answer = await connection.send(request)
                if status != 200:
                    raise ConnectionError(answer[:60].decode())
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                load.lost.append(repr(error))
                connection.close()
            load.times.append(time.perf_counter() - at)
            if sent % requests == 0:
                connection.close()
            if pause:
                await asyncio.sleep(pause)
        connection.close()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    load.seconds = time.perf_counter() - began
    return load


def review() -> bytes:
    """The request of a recorded review, compact as the API server sends it."""
    row = next(row for row in recorded() if (row.name, row.plugin) == ("mutate-CREATE-Pod-low", "off"))
    body = json.dumps(row.review, separators=(",", ":")).encode()
    head = [
        "POST /mutate?timeout=10s HTTP/1.1",
        "Host: bench",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Accept: application/json, */*",
        "User-Agent: kube-apiserver-admission",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
