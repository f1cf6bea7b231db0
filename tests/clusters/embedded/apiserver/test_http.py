"""The API server on its socket: large bodies, clients that go away, and who acts as another."""

import asyncio
import ssl

import aiohttp
import pytest

from tests.workloads import eventually
from webhook.clusters.embedded.standins.controller_manager import STAND_INS

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTER = {"nodes": 0, "without": STAND_INS}


@pytest.fixture
async def session(cluster):
    tls = ssl.create_default_context(cafile=str(cluster.ca))
    headers = {"Authorization": f"Bearer {cluster.token}"}
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(cluster.url, connector=connector, headers=headers) as session:
        yield session


@pytest.mark.parametrize(("size", "status"), [(2_000_000, 201), (4_000_000, 413)])
async def test_size_of_a_body(session, size, status):
    """Bodies of up to 3 MiB are taken, larger ones refused with a Status."""
    body = {"metadata": {"name": "a"}, "data": {"k": "x" * size}}
    async with session.post(MAPS, json=body) as answer:
        assert answer.status == status
        assert (await answer.json())["kind"] == ("ConfigMap" if status == 201 else "Status")


async def test_a_gone_client_is_forgotten(session):
    """A watch whose client went away is closed."""
    before = len(asyncio.all_tasks())
    answer = await session.get(f"{MAPS}?watch=1&resourceVersion=0")
    assert len(asyncio.all_tasks()) > before
    answer.close()
    await eventually(lambda: len(asyncio.all_tasks()) <= before, what="nothing serves the watch any more")


async def test_impersonation_takes_a_right(cluster, session):
    """Who may not act as another is refused, whatever the other may do."""
    headers = {"Impersonate-User": "alice", "Authorization": f"Bearer {cluster.add_user('bob')}"}
    async with session.get(MAPS, headers=headers) as answer:
        assert answer.status == 403
        assert 'User "bob" cannot impersonate resource "users"' in (await answer.json())["message"]
