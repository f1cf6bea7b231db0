"""What anybody who reaches the port can do to it: `python -m tests.bench.attacks PORT KIND ADDRESS [CLIENTS]`.

It says `ready` once the attack is under way, and goes on until it is ended. ADDRESS is where its connections come from,
and CLIENTS how many these are, if not as many as the kind has.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache, partial

from tests.admission.builders import UID, make_pod, make_review
from tests.bench.load import Connection

_PAUSE = 0.05
"""Seconds until a client that was turned away comes back."""
_LONG = "n" * 250_000


def _head(length: object, more: str = "") -> bytes:
    head = f"POST /validate?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _request(body: bytes, more: str = "") -> bytes:
    return _head(len(body), more) + body


def _body(**spec: object) -> bytes:
    return json.dumps(make_review(make_pod(**spec)), separators=(",", ":")).encode()  # type: ignore[arg-type]


def _of_class(name: str) -> bytes:
    return _request(_body(priorityClassName=name))


@cache
def _chunked() -> bytes:
    """A review in chunks of one byte."""
    body = _body(priorityClassName="low-priority", hostname="h" * 64_000)
    head, _, _ = _head(0).partition(b"Content-Length")
    chunks = b"".join(b"1\r\n%b\r\n" % body[place : place + 1] for place in range(len(body)))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@cache
def _maps(uid: bytes = b"") -> bytes:
    """8 MiB of empty maps, perhaps with another uid."""
    body = _body(tolerations="MAPS").replace(b'"MAPS"', b"[" + b"{}," * 2_760_000 + b"{}]")
    return _request(body.replace(json.dumps(UID).encode(), uid) if uid else body)


@cache
def _dear() -> bytes:
    """A review of 32 KB that costs much: many small values, and lists that expressions go over."""
    containers = [{"name": f"c{number}", "image": "i", "env": [{}] * 20} for number in range(300)]
    return _request(_body(priorityClassName="low-priority", containers=containers))


@cache
def _logged() -> bytes:
    pod = make_pod(meta={"name": "", "generateName": "g" * 700_000}, priorityClassName="ghost")
    return _request(json.dumps(make_review(pod)).encode())


_TRIVIAL, _GHOST = _request(_body()), _of_class("ghost")
_UPGRADE = _request(_body(), "Connection: Upgrade\r\nUpgrade: websocket\r\n")
_EXPECTING = _request(_body(), "Expect: 100-continue\r\n")
_FIELDS = _request(_body(), "".join(f"X-{n}: {'x' * 1900}\r\n" for n in range(26)))
_ELSEWHERE = b"OPTIONS /mutate HTTP/1.1\r\nHost: a\r\n\r\nGET /.env HTTP/1.1\r\nHost: a\r\n\r\n"
_MADE: dict[str, tuple[Callable[[int], bytes], float, int]] = {
    "names": (lambda number: _of_class(f"{number}{_LONG}"), 0.0, 1),
    "unknown": (lambda number: _of_class(f"ghost-{number}"), 0.0, 1),
    "missing": (lambda _: _GHOST, 0.0, 1),
    "uids": (lambda _: _maps(b"[{},{}]"), 0.0, 1),
    "maps": (lambda _: _maps(), 0.0, 1),
    "dear": (lambda _: _dear(), 0.0, 1),
    "ordinary": (lambda _: _TRIVIAL, 0.0, 1),
    "refreshed": (lambda _: _TRIVIAL, 5.0, 1),
    "pipelined": (lambda _: _TRIVIAL * 100, 0.0, 100),
    "chunks": (lambda _: _chunked(), 0.0, 1),
    "upgrades": (lambda _: _UPGRADE, 0.0, 1),
    "expecting": (lambda _: _EXPECTING, 0.0, 1),
    "fields": (lambda _: _FIELDS, 0.0, 1),
    "elsewhere": (lambda _: _ELSEWHERE, 0.0, 2),
    "garbage": (lambda _: b"\0" * 100 + b"\r\n\r\n", 0.0, 1),
    "logged": (lambda _: _logged(), 0.0, 1),
}
"""Requests that are sent again and again: the one of a number, the pause after it in seconds, how many answers come."""


class _Attacker:
    """The clients of one attack."""

    def __init__(self, port: int, address: str) -> None:
        self._port, self._address = port, address
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._number = itertools.count()

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        """What a client does over and over."""
        return partial(self._send, *_MADE[name]) if name in _MADE else getattr(self, name)

    @asynccontextmanager
    async def _connection(self, *, tls: bool = True) -> AsyncIterator[Connection]:
        connection = Connection(self._port, self._tls if tls else None, self._address)
        await connection.open()
        try:
            yield connection
        finally:
            connection.close()

    async def _send(self, request: Callable[[int], bytes], pause: float, answers: int) -> None:
        """Send one request after the other on one connection."""
        async with self._connection() as connection:
            while True:
                connection.writer.write(request(next(self._number)))
                for _ in range(answers):
                    await connection.answer()
                await asyncio.sleep(pause)

    async def silent(self) -> None:
        """A connection that says nothing."""
        async with self._connection(tls=False):
            await asyncio.sleep(0.2)

    async def handshakes(self) -> None:
        """A handshake, and no request."""
        async with self._connection():
            pass

    async def idle(self) -> None:
        """A TLS connection that is held."""
        async with self._connection() as connection:
            await connection.reader.read()

    async def slow(self) -> None:
        """A head, and of the body a byte a second."""
        async with self._connection() as connection:
            connection.writer.write(_head(99_999))
            while not connection.reader.at_eof():
                connection.writer.write(b" ")
                await connection.writer.drain()
                await asyncio.sleep(1.0)

    async def records(self) -> None:
        """Each byte in a TLS record of its own."""
        async with self._connection() as connection:
            while True:
                for start in range(0, len(_TRIVIAL), 400):
                    for place in range(start, min(start + 400, len(_TRIVIAL))):
                        connection.writer.write(_TRIVIAL[place : place + 1])
                    await asyncio.sleep(0)
                await connection.answer()

    async def unread(self) -> None:
        """Reviews without end, whose answers are not read."""
        async with self._connection() as connection:
            connection.writer.transport.pause_reading()
            while True:
                connection.writer.write(_TRIVIAL * 100)
                await connection.writer.drain()
                await asyncio.sleep(0)  # whoever does not read does not notice an end, and would try on without end


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


async def attack(port: int, kind: str, address: str, clients: str = "") -> None:
    """Run the clients of one attack, or so many in the same shares; says `ready` when they have begun."""
    attacker, shares = _Attacker(port, address), KINDS[kind]
    more = int(clients or 0) / sum(shares.values()) or 1.0

    async def go_on(work: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, StopIteration, RuntimeError):
                await work()
            await asyncio.sleep(_PAUSE)

    works = [(attacker.work(name), round(share * more)) for name, share in shares.items()]
    tasks = [asyncio.create_task(go_on(work)) for work, count in works for _ in range(count)]
    await asyncio.sleep(2.0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(5)  # it would not take the server's processor from it, were it elsewhere
    asyncio.run(attack(int(sys.argv[1]), *sys.argv[2:5]))
