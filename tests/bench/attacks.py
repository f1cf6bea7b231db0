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

_PAUSE = 0.05
"""Seconds until a client that was turned away comes back."""
LONG = "n" * 250_000


def _body(**spec: object) -> bytes:
    return json.dumps(make_review(make_pod(**spec)), separators=(",", ":")).encode()  # type: ignore[arg-type]


def _request(body: bytes, path: str = "/validate") -> bytes:
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


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

    async def _send(self, request: Callable[[], bytes], pause: float = 0.0) -> None:
        """Send one request after the other on one connection."""
        reader, writer = await self._open()
        try:
            while True:
                writer.write(request())
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len"))
                await reader.readexactly(length)
                await asyncio.sleep(pause)
        finally:
            writer.transport.abort()

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

    async def logged(self) -> None:
        """Requests that are refused and whose name has 0.7 MB."""
        pod = make_pod(meta={"name": "", "generateName": "g" * 700_000}, priorityClassName="ghost")
        body = json.dumps(make_review(pod)).encode()
        await self._send(lambda: _request(body))


MAPS, DEAR = _request(_maps()), _request(_dear())
TRIVIAL, MISSING = _request(_body()), _request(_body(priorityClassName="ghost"))

KINDS: dict[str, dict[str, int]] = {
    "names of 250 KB": {"names": 4},
    "uids that are no text": {"uids": 4},
    "8 MiB of empty maps": {"maps": 8},
    "300 dear reviews at a time": {"dear": 300},
    "1030 refreshed connections, silent ones": {"refreshed": 1030, "silent": 100},
    "handshakes": {"handshakes": 50},
    "classes that do not exist": {"unknown": 100, "missing": 100},
    "names of 0.7 MB to log": {"logged": 4},
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
