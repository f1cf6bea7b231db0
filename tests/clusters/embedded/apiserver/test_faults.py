"""Faults on demand, as tests use them."""

import asyncio
import time

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


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (409, "Conflict"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
async def test_the_next_requests_fail(cluster, client, code, reason):
    """The next n requests are refused with the status asked for; the one after them succeeds."""
    cluster.faults.fail(code, count=2)
    for _ in range(2):
        with pytest.raises(ApiError) as refusal:
            await client.create(MAPS, {"metadata": {"name": "a"}})
        assert (refusal.value.status, refusal.value.reason) == (code, reason)
    await client.create(MAPS, {"metadata": {"name": "a"}})


async def test_only_what_matches_fails(cluster, client):
    """A fault may be for a verb, a resource, a namespace and a name."""
    cluster.faults.fail(500, match=FaultMatch(verb="delete", resource="configmaps", name="b*"))
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await client.create(MAPS, {"metadata": {"name": "b1"}})
    await client.delete(f"{MAPS}/a")
    with pytest.raises(ApiError, match="fault on demand"):
        await client.delete(f"{MAPS}/b1")


async def test_too_many_requests_say_when_to_come_back(cluster, client):
    """A 429 carries Retry-After."""
    cluster.faults.fail(429, retry_after=7)
    with pytest.raises(ApiError) as refusal:
        await client.list(MAPS)
    assert refusal.value.retry_after == 7


async def test_delay(cluster, client):
    """A request can be made to wait."""
    cluster.faults.delay(0.2, count=1)
    begun = time.monotonic()
    await client.list(MAPS)
    assert time.monotonic() - begun >= 0.2
    begun = time.monotonic()
    await client.list(MAPS)
    assert time.monotonic() - begun < 0.2


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
    assert cluster.faults.drop_watches(FaultMatch(resource="secrets")) == 0
    assert cluster.faults.drop_watches(FaultMatch(resource="configmaps")) == 1
    await asyncio.wait_for(task, 5)
    assert events.count("ERROR") == 0


async def test_watches_are_cut_in_mid_line(cluster, client):
    """An event that stops in mid-line is no event; the connection ends there."""
    task, events = await opened(cluster, client)
    await asyncio.sleep(0.05)
    known = len(events)
    assert cluster.faults.truncate_watches(FaultMatch(resource="configmaps")) == 1
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await asyncio.wait([task], timeout=5)
    assert task.done()
    assert len(events) == known


async def test_watches_lag(cluster, client):
    """Events can be held back while requests are answered at once."""
    task, events = await opened(cluster, client)
    await asyncio.sleep(0.05)
    known = len(events)
    cluster.faults.delay_watches(0.3)
    await client.create(MAPS, {"metadata": {"name": "a"}})
    await asyncio.sleep(0.1)
    assert len(events) == known
    await asyncio.sleep(0.4)
    assert len(events) == known + 1
    task.cancel()


async def test_clear(cluster, client):
    """All faults can be lifted."""
    cluster.faults.fail(500, count=100)
    cluster.faults.clear()
    await client.list(MAPS)


async def test_restart_keeps_the_state(cluster, client):
    """Stopped and started on the same port, the server has its objects, and a watch resumes where it was."""
    created = await client.create(MAPS, {"metadata": {"name": "a"}})
    await cluster.restart()
    assert (await client.get(f"{MAPS}/a"))["metadata"] == created["metadata"]
    await client.create(MAPS, {"metadata": {"name": "b"}})
    version = created["metadata"]["resourceVersion"]
    kind, _raw = await anext(client.watch(MAPS, resource_version=version))
    assert kind == "ADDED"
