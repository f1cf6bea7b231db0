"""The page as it is served: who may ask, what every answer says, and what an open page is told."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.page.pages import EMPTY, busy
from webhook.page.app import add_page


class Shown:
    """A page that can be changed while it is served."""

    page, looks = EMPTY, 0

    def look(self):
        self.looks += 1
        return self.page


@asynccontextmanager
async def served(pause=0.0):
    """A server of a page, and a client."""
    shown, app = Shown(), web.Application()
    add_page(app, shown.look, pause=pause)
    async with TestClient(TestServer(app)) as client:
        yield client, shown


async def changes(client, **known):
    """What a page that has these versions of its sections is told."""
    return await (await client.get("/changes", params=known)).json()


async def test_every_answer_has_a_strict_content_security_policy():
    """Nothing but the server's own style sheet and script is let in, and nobody may frame or keep the page."""
    async with served() as (client, _):
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
    async with served() as (client, _):
        for path in ("/", "/changes"):
            response = await client.get(path, headers={"Host": host})
            assert response.status == status
            response.close()


async def test_an_open_page_gets_what_has_changed():
    """First the whole state, then only sections that have changed, and nothing while nothing changes."""
    async with served() as (client, shown):
        first = (await changes(client))["sections"]
        assert " ".join(first) == "summary ladder queue plans decisions evictions policies certificates"
        versions = {name: part["version"] for name, part in first.items()}
        assert (await changes(client, **versions))["sections"] == {}
        shown.page = msgspec.structs.replace(EMPTY, plans=busy().plans, plans_total=1)
        second = await changes(client, **versions)
        assert second["sections"].keys() == {"summary", "plans"}
        assert second["headline"].startswith("0 pods waiting, 1 plan under way")


async def test_however_many_ask_it_is_made_once_in_a_while():
    """Making the page costs something, so it is made for readers only, and for all of them at once."""
    async with served(pause=60.0) as (client, shown):
        assert shown.looks == 0
        for _ in range(5):
            await changes(client)
        assert shown.looks == 1


async def test_a_look_that_fails_ends_nothing():
    """The next one may succeed."""
    async with served() as (client, shown):
        shown.page = None
        assert (await client.get("/changes")).status == 500
        shown.page = busy()
        headline = (await changes(client))["headline"]
        assert headline == "9 pods waiting, 2 plans under way, 3 evictions in the last hour"
