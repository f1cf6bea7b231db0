"""The page as it is served: who may ask, what every answer says, and what goes over the stream."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.page.pages import EMPTY, busy
from tests.workloads import eventually
from webhook.page.app import add_page


class Shown:
    """A page that can be changed while it is served."""

    def __init__(self):
        self.page, self.looks = EMPTY, 0

    def look(self):
        self.looks += 1
        return self.page


@asynccontextmanager
async def served(**options):
    """A server of a page, and a client."""
    shown, app = Shown(), web.Application()
    streams = add_page(app, shown.look, pause=0.02, **options)
    async with TestClient(TestServer(app)) as client:
        yield client, shown, streams


async def message(response):
    """The next message of a stream, comments and other fields left out."""
    async with asyncio.timeout(5):
        while True:
            line = await response.content.readline()
            if line.startswith(b"data: "):
                return msgspec.json.decode(line.removeprefix(b"data: "))


async def test_every_answer_has_a_strict_content_security_policy():
    """Nothing but the server's own style sheet and script is let in, and nobody may frame or keep the page."""
    async with served() as (client, _, _):
        for path in ("/", "/page.css", "/page.js", "/nowhere"):
            headers = (await client.get(path)).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "*" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost:6060", 200, id="localhost"),
        pytest.param("127.0.0.1:8080", 200, id="loopback on a forwarded port"),
        pytest.param("[::1]:6060", 200, id="IPv6"),
        pytest.param("LOCALHOST", 200, id="without a port"),
        pytest.param("evil.example:6060", 403, id="a name that points here"),
        pytest.param("localhost.evil.example", 403, id="a name that begins alike"),
        pytest.param("10.0.0.7:6060", 403, id="the pod's address"),
        pytest.param("", 403, id="none"),
    ],
)
async def test_other_hosts_are_refused(host, status):
    """A web site whose name is made to point at the loopback gets nothing (DNS rebinding)."""
    async with served() as (client, _, _):
        for path in ("/", "/stream"):
            response = await client.get(path, headers={"Host": host})
            assert response.status == status
            response.close()


async def test_the_stream_sends_what_has_changed():
    """First comes the whole state, then only sections that have changed, and nothing while nothing changes."""
    async with served() as (client, shown, _):
        stream = await client.get("/stream")
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        first = await message(stream)
        assert first["sections"].keys() == {
            "summary",
            "ladder",
            "queue",
            "plans",
            "decisions",
            "evictions",
            "policies",
            "certificates",
        }
        looks = shown.looks
        await eventually(lambda: shown.looks >= looks + 3)
        shown.page = msgspec.structs.replace(EMPTY, plans=busy().plans, plans_total=1)
        second = await message(stream)
        assert second["sections"].keys() == {"summary", "plans"}
        assert second["headline"].startswith("0 pods waiting, 1 plan under way")
        stream.close()


async def test_a_change_while_nobody_watched_is_sent_at_once():
    """Who comes later gets the newest state."""
    async with served() as (client, shown, streams):
        stream = await client.get("/stream")
        await message(stream)
        stream.close()
        await eventually(lambda: not len(streams))
        shown.page = busy()
        stream = await client.get("/stream")
        assert "9 pods waiting" in (await message(stream))["headline"]
        stream.close()


async def test_nobody_looks_while_nobody_watches():
    """Making the page costs something, so it is made for readers only."""
    async with served(heartbeat=0.05) as (client, shown, streams):
        assert shown.looks == 0
        stream = await client.get("/stream")
        await message(stream)
        stream.close()
        await eventually(lambda: not len(streams))
        await asyncio.sleep(0.1)
        looks = shown.looks
        await asyncio.sleep(0.2)
        assert shown.looks == looks


async def test_streams_are_bounded():
    """Beyond the most there may be, the answer says so; a place that is free again can be had."""
    async with served(most=2, heartbeat=0.05) as (client, _, streams):
        first, second = await client.get("/stream"), await client.get("/stream")
        refused = await client.get("/stream")
        assert refused.status == 503
        assert "2 pages are live already" in await refused.text()
        first.close()
        await eventually(lambda: len(streams) < 2)
        third = await client.get("/stream")
        assert third.status == 200
        for stream in (second, third):
            stream.close()


async def test_streams_end_when_the_server_stops():
    """A page that is open does not keep the process from ending."""
    async with served() as (client, _, streams):
        stream = await client.get("/stream")
        await message(stream)
        async with asyncio.timeout(2):
            await client.server.close()
        assert await stream.content.read() is not None
        assert len(streams) == 0


async def test_a_look_that_fails_ends_nothing():
    """The next one may succeed, and the stream is still there for it."""
    async with served() as (client, shown, _):
        shown.page = None
        stream = await client.get("/stream")
        await eventually(lambda: shown.looks >= 2)
        shown.page = busy()
        assert "9 pods waiting" in (await message(stream))["headline"]
        stream.close()
