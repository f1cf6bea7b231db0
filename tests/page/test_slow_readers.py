"""Readers of the live page that take nothing: bounded in number, memory and time, beside probes that are answered."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import tracemalloc
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from tests.page.pages import busy
from tests.workloads import eventually
from webhook.component_base.probes import LOOPBACK, ReadinessCheck, plain_port, probes
from webhook.page import stream
from webhook.page.app import add_page
from webhook.page.model import PoliciesShown, PolicyShown

pytestmark = pytest.mark.skipped_waits

SLOW = 20
"""Readers that take nothing; more than there may be streams."""


def changing():
    """A page of some 400 kB that is another one whenever it is looked at."""
    page, number = busy(), 0

    def look():
        nonlocal number
        number += 1
        rows = tuple(PolicyShown("PriorityPolicy", f"policy-{number}-{row}", "x" * 390) for row in range(1000))
        return msgspec.structs.replace(page, policies=PoliciesShown(rows=rows))

    return look


@asynccontextmanager
async def served():
    """The ports of the page and of the probes, as a process has them."""
    app = web.Application()
    streams = add_page(app, changing(), pause=0.05)
    probing = probes(lambda: [ReadinessCheck("all", True)], lambda: b"", str)
    async with (
        plain_port(app, LOOPBACK, 0) as page,
        plain_port(probing, LOOPBACK, 0) as health,
    ):
        yield page, health, streams


def taking_nothing(port: int, path: str = "/stream", times: int = 1) -> socket.socket:
    """A client that asks for something, with next to no room for what comes, and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((LOOPBACK, port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * times)
    client.setblocking(False)
    return client


async def status(port: int, path: str) -> tuple[bytes, float]:
    """The status line of an answer, and the seconds until it came."""
    began = time.monotonic()
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
        writer.transport.abort()
    return line, time.monotonic() - began


def ended(client: socket.socket) -> bool:
    """Whether the server has ended this connection, after what of it was still to be read."""
    try:
        while client.recv(1 << 20):
            """The next piece."""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.fixture
def traced():
    """Memory is counted, and nobody collects cycles."""
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_readers_that_take_nothing_are_bounded_and_dropped(monkeypatch, traced):
    """Beyond the bound a reader is refused at once; one that takes nothing is dropped, and its place is free.

    So is its memory, and probes are answered all the while.
    """
    monkeypatch.setattr(stream, "_PATIENCE", 2.0)
    async with served() as (page, health, streams):
        clients = [taking_nothing(page) for _ in range(SLOW)]
        await eventually(lambda: len(streams) == stream.MOST_STREAMS)
        for _ in range(5):
            line, took = await status(page, "/stream")
            assert (line, took < 2) == (b"HTTP/1.1 503 Service Unavailable\r\n", True)
            line, took = await status(health, "/readyz")
            assert (line, took < 2) == (b"HTTP/1.1 200 OK\r\n", True)
            held, _ = tracemalloc.get_traced_memory()
            assert held < stream.MOST_STREAMS * 3_000_000
            await asyncio.sleep(0.2)
        await eventually(lambda: len(streams) == 0, 10)
        await asyncio.sleep(0.2)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        assert held < 4_000_000
        await eventually(lambda: sum(map(ended, clients)) >= stream.MOST_STREAMS)
        line, took = await status(page, "/stream")
        assert (line, took < 2) == (b"HTTP/1.1 200 OK\r\n", True)
        for client in clients:
            client.close()


@pytest.mark.parametrize(("path", "times"), [("/stream", 1), ("/", 12)])
async def test_readers_that_take_nothing_do_not_hold_up_the_end(path, times):
    """A process that stops does not wait for them, whatever they asked for."""
    async with served() as (page, _, streams):
        clients = [taking_nothing(page, path, times) for _ in range(3)]
        if path == "/stream":
            await eventually(lambda: len(streams) == 3)
        await asyncio.sleep(0.5)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    for client in clients:
        client.close()
