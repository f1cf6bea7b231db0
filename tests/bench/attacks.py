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

from tests.admission.builders import UID, make_pod, make_review
from tests.bench.openssl import OpenSslClient

_PAUSE = 0.05
"""Seconds until a client that was turned away comes back."""
LONG = "n" * 250_000


def _body(**spec: object) -> bytes:
    return json.dumps(make_review(make_pod(**spec)), separators=(",", ":")).encode()  # type: ignore[arg-type]


def _request(body: bytes, path: str = "/validate", more: str = "") -> bytes:
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _chunked(body: bytes) -> bytes:
    """A review in chunks of one byte."""
    head, _, _ = _request(body).partition(b"Content-Length")
    chunks = b"".join(b"1\r\n%b\r\n" % body[place : place + 1] for place in range(len(body)))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _maps(uid: bytes = b"") -> bytes:
    """8 MiB of empty maps, perhaps with another uid."""
    body = _body(tolerations="MAPS").replace(b'"MAPS"', b"[" + b"{}," * 2_760_000 + b"{}]")
    return body.replace(json.dumps(UID).encode(), uid) if uid else body


def _dear() -> bytes:
    """A review of 32 KB that costs much: many small values, and lists that expressions go over."""
    return _body(
        priorityClassName="low-priority",
        containers=[{"name": f"c{number}", "image": "i", "env": [{}] * 20} for number in range(300)],
    )


class _Attacker:
    """The clients of one attack."""

    def __init__(self, port: int, address: str) -> None:
        self._port, self._address = port, address
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._number = itertools.count()

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

    async def uids(self) -> None:
        """8 MiB whose uid is no text."""
        await self._send(lambda: _request(_maps(b"[{},{}]")))

    async def maps(self) -> None:
        """8 MiB of empty maps."""
        await self._send(lambda: MAPS)

    async def dear(self) -> None:
        """Small reviews that cost much."""
        await self._send(lambda: DEAR)

    async def refreshed(self) -> None:
        """A connection that carries a trivial review now and then."""
        await self._send(lambda: TRIVIAL, 5.0)

    async def silent(self) -> None:
        """A connection that says nothing."""
        _, writer = await self._open(tls=False)
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async def handshakes(self) -> None:
        """A handshake, and no request."""
        _, writer = await self._open()
        writer.transport.abort()

    async def unknown(self) -> None:
        """Classes that do not exist, each another one."""
        await self._send(lambda: _request(_body(priorityClassName=f"ghost-{next(self._number)}")))

    async def missing(self) -> None:
        """One class that does not exist."""
        await self._send(lambda: MISSING)

    async def chunks(self) -> None:
        """A body in chunks of one byte."""
        await self._send(lambda: CHUNKS)

    async def upgrades(self) -> None:
        """A review that asks for another protocol, too."""
        await self._send(lambda: UPGRADE)

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

    async def pipelined(self) -> None:
        """Reviews one after the other, without waiting for answers."""
        await self._send(lambda: TRIVIAL * 100, answers=100)

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

    async def keys(self) -> None:
        """New keys for TLS, again and again, as quickly as they are made."""

        def change() -> None:
            client = OpenSslClient(self._port, self._address)
            try:
                while True:
                    client.update_keys(answered=False)
            finally:
                client.close()

        await asyncio.to_thread(change)

    async def fields(self) -> None:
        """A head of many fields."""
        await self._send(lambda: FIELDS)

    async def expecting(self) -> None:
        """A review that waits to be told to go on."""
        await self._send(lambda: EXPECTING)

    async def elsewhere(self) -> None:
        """What is no review."""
        await self._send(lambda: ELSEWHERE, answers=2)

    async def garbage(self) -> None:
        """What is no HTTP."""
        await self._send(lambda: b"\0" * 100 + b"\r\n\r\n")

    async def ordinary(self) -> None:
        """Reviews like the API server's, as quickly as they are answered."""
        await self._send(lambda: TRIVIAL)

    async def logged(self) -> None:
        """Requests that are refused and whose name has 0.7 MB."""
        pod = make_pod(meta={"name": "", "generateName": "g" * 700_000}, priorityClassName="ghost")
        body = json.dumps(make_review(pod)).encode()
        await self._send(lambda: _request(body))


MAPS, DEAR = _request(_maps()), _request(_dear())
TRIVIAL, MISSING = _request(_body()), _request(_body(priorityClassName="ghost"))
CHUNKS = _chunked(_body(priorityClassName="low-priority", hostname="h" * 64_000))
UPGRADE = _request(_body(), more="Connection: Upgrade\r\nUpgrade: websocket\r\n")
EXPECTING = _request(_body(), more="Expect: 100-continue\r\n")
ELSEWHERE = b"OPTIONS /mutate HTTP/1.1\r\nHost: a\r\n\r\nGET /.env HTTP/1.1\r\nHost: a\r\n\r\n"
FIELDS = _request(_body(), more="".join(f"X-{number}: {'x' * 1900}\r\n" for number in range(26)))

KINDS: dict[str, dict[str, int]] = {
    "names of 250 KB": {"names": 4},
    "uids that are no text": {"uids": 4},
    "8 MiB of empty maps": {"maps": 8},
    "300 dear reviews at a time": {"dear": 300},
    "1030 refreshed connections, silent ones": {"refreshed": 1030, "silent": 100},
    "handshakes": {"handshakes": 50},
    "classes that do not exist": {"unknown": 100, "missing": 100},
    "names of 0.7 MB to log": {"logged": 4},
    "200 clients with ordinary reviews": {"ordinary": 200},
    "bodies in chunks of one byte": {"chunks": 20},
    "TLS records of one byte": {"records": 20},
    "requests for another protocol": {"upgrades": 100},
    "requests without waiting for answers": {"pipelined": 50},
    "answers that are not read": {"unread": 50},
    "changes of TLS keys": {"keys": 2},
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

    tasks = [
        asyncio.create_task(go_on(getattr(attacker, work)))
        for work, clients in KINDS[kind].items()
        for _ in range(clients)
    ]
    await asyncio.sleep(2.0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


def main() -> None:
    """Read the arguments."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(5)  # it would not take the server's processor from it, were it elsewhere
    asyncio.run(attack(int(sys.argv[1]), sys.argv[2], sys.argv[3]))


if __name__ == "__main__":
    socket.setdefaulttimeout(10)
    main()
