"""Faults on demand, as tests use them."""

import asyncio

import pytest

from webhook.clusters.embedded.apiserver.faults import FaultMatch
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.errors import ApiError

MAPS = "/api/v1/namespaces/default/configmaps"
CLUSTER = {"nodes": 0, "without": STAND_INS}


@pytest.fixture
async def client(cluster):
    async with cluster.client() as client:
        yield client


async def test_only_what_matches_fails(cluster, client):
    """A fault may be for a verb, a resource, a namespace and a name."""
    cluster.faults.fail(500, match=FaultMatch(verb="delete", resource="configmaps", name="b*"))
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await client.create(MAPS, {"metadata": {"name": "b1"}})
    await client.delete(f"{MAPS}/a")
    with pytest.raises(ApiError, match="fault on demand"):
        await client.delete(f"{MAPS}/b1")


async def follow(client, events):
    async for kind, _raw in client.watch(MAPS, resource_version="0"):
        events.append(kind)


async def opened(cluster, client):
    """A watch that is open, and the list of its events."""
    events = []
    task = asyncio.create_task(follow(client, events))
    for _ in range(500):
        if any(route.plural == "configmaps" for route, _watch in cluster.faults._watches):
            break
        await asyncio.sleep(0.01)
    return task, events


async def test_watches_are_dropped(cluster, client):
    """Open watches end as at a shutdown: cleanly, with nothing said."""
    task, events = await opened(cluster, client)
    cluster.faults.drop_watches()
    await asyncio.wait_for(task, 5)
    assert events.count("ERROR") == 0


async def test_watches_are_cut_in_mid_line(cluster, client):
    """An event that stops in mid-line is no event; the connection ends there."""
    task, events = await opened(cluster, client)
    await asyncio.sleep(0.05)
    known = len(events)
    cluster.faults.truncate_watches()
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await asyncio.wait([task], timeout=5)
    assert task.done()
    assert len(events) == known
