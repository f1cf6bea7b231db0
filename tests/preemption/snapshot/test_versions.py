"""A kind that servers have in different API versions: whoever lists it finds the version that is served."""

import asyncio
import io

import pytest

from tests.inspection.builders import policies
from tests.kube.server import Server, answer, until
from webhook.clusters.embedded.standins.controller_manager import StandInInformers
from webhook.inspection.observed import observe
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import POD_GROUP
from webhook.reconciler.state.state import State
from webhook.simulation.cluster_file.format import collect

VERSIONS = ["v1alpha2", "v1beta1", "v1"]
GROUP = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}


@pytest.fixture
async def client():
    async with Server() as server, Client.for_server(server.url, timeout=2) as client:
        server.objects["/version"] = {"major": "1", "minor": "36"}
        for path in ("/api/v1/nodes/n1", "/api/v1/namespaces/a", "/apis/scheduling.k8s.io/v1/priorityclasses/low"):
            server.put(path)
        client.server = server
        yield client


async def listed(client):
    return {item.metadata.name async for page in client.pages_of(POD_GROUP, PodGroup) for item in page.items}


async def of_doctor(client):
    return {key[2] for key in (await observe(client, policies(), "giveway-system", 0.0)).pod_groups}


async def of_snapshot(client):
    """What the file has is told by the progress."""
    told = {}
    _, absent = await collect(client, io.BytesIO(), (), None, lambda what, read, _: told.update({what: read}))
    return {"ring"} if told.get("podgroups") and "PodGroup" not in absent else set()


async def of_cache(client, run, cache):
    task = asyncio.create_task(run())
    try:
        await until(lambda: "a/ring" in cache.items())
        return {"ring"}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def of_reconciler(client):
    state = State(client, frozenset())
    return await of_cache(client, state.run, state.caches[POD_GROUP])


async def of_scheduler(client):
    informers = StandInInformers(client)
    cache = informers.cache(POD_GROUP, PodGroup, optional=True)
    return await of_cache(client, informers.run, cache)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read", [listed, of_doctor, of_snapshot, of_reconciler, of_scheduler])
async def test_groups_are_read_in_the_version_that_is_served(client, version, read):
    """The other versions answer 404, and the PodGroups are there."""
    client.server.put(f"/apis/scheduling.k8s.io/{version}/namespaces/a/podgroups/ring", **GROUP)
    assert await read(client) == {"ring"}


async def test_a_kind_that_is_not_served(client):
    """It is asked for once in each version, and then said not to be there."""
    with pytest.raises(ApiError) as raised:
        await listed(client)
    assert raised.value.status == 404
    assert [path.split("/")[3] for path in client.server.asked("GET", "podgroups")] == VERSIONS


async def test_a_refusal_is_no_missing_version(client):
    """Whoever may not list it learns that, and not that the last version is missing."""
    client.server.fault(answer(403, "Forbidden"), contains="podgroups", times=9)
    with pytest.raises(ApiError) as raised:
        await listed(client)
    assert raised.value.status == 403
