"""What anybody who reaches the port can do to it: `python -m tests.bench.attacks PORT KIND ADDRESS`.

It says `ready` once the attack is under way, and goes on until it is ended. ADDRESS is where its connections come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from tests.admission.builders import UID, make_pod, make_review

_PAUSE = 0.05
"""Seconds until a client that was turned away comes back."""
LONG = "n" * 250_000


def _body(**spec: object) -> bytes:
    return json.dumps(make_review(make_pod(**spec)), separators=(",", ":")).encode()  # type: ignore[arg-type]


def _head(length: object, more: str = "") -> bytes:
    head = f"POST /validate?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _request(body: bytes, more: str = "") -> bytes:
    return _head(len(body), more) + body


def _chunked(body: bytes) -> bytes:
    """A review in chunks of one byte."""
    head, _, _ = _head(0).partition(b"Content-Length")
    chunks = b"".join(b"1\r\n%b\r\n" % body[place : place + 1] for place in range(len(body)))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _maps(uid: bytes = b"") -> bytes:
    """8 MiB of empty maps, perhaps with another uid."""
    body = _body(tolerations="MAPS").replace(b'"MAPS"', b"[" + b"{}," * 2_760_000 + b"{}]")
    return _request(body.replace(json.dumps(UID).encode(), uid) if uid else body)


def _dear() -> bytes:
    """A review of 32 KB that costs much: many small values, and lists that expressions go over."""
    containers = [{"name": f"c{number}", "image": "i", "env": [{}] * 20} for number in range(300)]
    return _request(_body(priorityClassName="low-priority", containers=containers))


def _logged() -> bytes:
    pod = make_pod(meta={"name": "", "generateName": "g" * 700_000}, priorityClassName="ghost")
    return _request(json.dumps(make_review(pod)).encode())


TRIVIAL = _request(_body())
ELSEWHERE = b"OPTIONS /mutate HTTP/1.1\r\nHost: a\r\n\r\nGET /.env HTTP/1.1\r\nHost: a\r\n\r\n"
MADE: dict[str, tuple[Callable[[], bytes], float, int]] = {
    "uids": (partial(_maps, b"[{},{}]"), 0.0, 1),
    "maps": (_maps, 0.0, 1),
    "dear": (_dear, 0.0, 1),
    "ordinary": (lambda: TRIVIAL, 0.0, 1),
    "refreshed": (lambda: TRIVIAL, 5.0, 1),
    "pipelined": (lambda: TRIVIAL * 100, 0.0, 100),
    "missing": (lambda: _request(_body(priorityClassName="ghost")), 0.0, 1),
    "chunks": (lambda: _chunked(_body(priorityClassName="low-priority", hostname="h" * 64_000)), 0.0, 1),
    "upgrades": (lambda: _request(_body(), "Connection: Upgrade\r\nUpgrade: websocket\r\n"), 0.0, 1),
    "expecting": (lambda: _request(_body(), "Expect: 100-continue\r\n"), 0.0, 1),
    "fields": (lambda: _request(_body(), "".join(f"X-{n}: {'x' * 1900}\r\n" for n in range(26))), 0.0, 1),
    "elsewhere": (lambda: ELSEWHERE, 0.0, 2),
    "garbage": (lambda: b"\0" * 100 + b"\r\n\r\n", 0.0, 1),
    "logged": (_logged, 0.0, 1),
}
"""Requests that are sent again and again: how one is made, the pause after it in seconds, and how many answers come."""


class _Attacker:
    """The clients of one attack."""

    def __init__(self, port: int, address: str) -> None:
        self._port, self._address = port, address
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._number = itertools.count()

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        """What a client does over and over."""
        if name not in MADE:
            return getattr(self, name)  # type: ignore[no-any-return]
        make, pause, answers = MADE[name]
        request = make()
        return partial(self._send, lambda: request, pause, answers)

    async def _open(self, *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls if tls else None, local_addr=(self._address, 0)
        )

    async def _send(self, request: Callable[[], bytes], pause: float = 0.0, answers: int = 1) -> None:
        """Send one request after the other on one connection."""
        reader, writer = await self._open()
        try:
            while True:
                writer.write(request())
                for _ in range(answers):
                    await self._answer(reader)
                await asyncio.sleep(pause)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")]
        await reader.readexactly(lengths[0] if lengths else 0)

    async def names(self) -> None:
        """Names of 250 KB, each another one."""
        await self._send(lambda: _request(_body(priorityClassName=f"{next(self._number)}{LONG}")))

    async def unknown(self) -> None:
        """Classes that do not exist, each another one."""
        await self._send(lambda: _request(_body(priorityClassName=f"ghost-{next(self._number)}")))

    async def silent(self) -> None:
        """A connection that says nothing."""
        _, writer = await self._open(tls=False)
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async def handshakes(self) -> None:
        """A handshake, and no request."""
        _, writer = await self._open()
        writer.transport.abort()

    async def idle(self) -> None:
        """A TLS connection that is held."""
        reader, writer = await self._open()
        await reader.read()
        writer.transport.abort()

    async def slow(self) -> None:
        """A head, and of the body a byte a second."""
        reader, writer = await self._open()
        writer.write(_head(99_999))
        while not reader.at_eof():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(1.0)
        writer.transport.abort()

    async def records(self) -> None:
        """Each byte in a TLS record of its own."""
        reader, writer = await self._open()
        try:
            while True:
                for start in range(0, len(TRIVIAL), 400):
                    for place in range(start, min(start + 400, len(TRIVIAL))):
                        writer.write(TRIVIAL[place : place + 1])
                    await asyncio.sleep(0)
                await self._answer(reader)
        finally:
            writer.transport.abort()

    async def unread(self) -> None:
        """Reviews without end, whose answers are not read."""
        reader, writer = await self._open()
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # the attack
        try:
            while True:
                writer.write(TRIVIAL * 100)
                await writer.drain()
                await asyncio.sleep(0)  # whoever does not read does not notice an end, and would try on without end
        finally:
            writer.transport.abort()


KINDS: dict[str, dict[str, int]] = {
    "names of 250 KB": {"names": 4},
    "uids that are no text": {"uids": 4},
    "8 MiB of empty maps": {"maps": 8},
    "300 dear reviews at a time": {"dear": 300},
    "1030 refreshed connections, silent ones": {"refreshed": 1030, "silent": 100},
    "500 slow, idle and garbage clients": {"slow": 170, "idle": 170, "garbage": 160},
    "700 idle connections": {"idle": 700},
    "handshakes": {"handshakes": 50},
    "classes that do not exist": {"unknown": 100, "missing": 100},
    "names of 0.7 MB to log": {"logged": 4},
    "200 clients with ordinary reviews": {"ordinary": 200},
    "bodies in chunks of one byte": {"chunks": 20},
    "TLS records of one byte": {"records": 20},
    "requests for another protocol": {"upgrades": 100},
    "requests without waiting for answers": {"pipelined": 50},
    "answers that are not read": {"unread": 50},
    "heads of 50 KB": {"fields": 50},
    "requests that wait to go on": {"expecting": 50},
    "what is no review, and no HTTP": {"elsewhere": 50, "garbage": 50},
}
"""The attacks, and how many clients do what."""


async def attack(port: int, kind: str, address: str) -> None:
    """Run the clients of one attack; says `ready` when they have begun."""
    attacker = _Attacker(port, address)

    async def go_on(work: Callable[[], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, StopIteration, RuntimeError):
                await work()
            await asyncio.sleep(_PAUSE)

    works = [(attacker.work(name), clients) for name, clients in KINDS[kind].items()]
    tasks = [asyncio.create_task(go_on(work)) for work, clients in works for _ in range(clients)]
    await asyncio.sleep(2.0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(5)  # it would not take the server's processor from it, were it elsewhere
    socket.setdefaulttimeout(10)
    asyncio.run(attack(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
