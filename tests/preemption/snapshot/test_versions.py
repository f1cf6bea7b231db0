"""A kind that servers have in different API versions: whoever lists it finds the version that is served."""

import pytest

from tests.kube.server import Server, answer
from webhook.inspection.reading import items_of
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import POD_GROUP

VERSIONS = ["v1alpha2", "v1beta1", "v1"]
GROUP = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}


@pytest.fixture
async def client():
    async with Server() as server, Client.for_server(server.url, timeout=2) as client:
        client.server = server
        yield client


async def listed(client):
    return {group.metadata.name async for group in items_of(client, POD_GROUP, PodGroup)}


@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_are_read_in_the_version_that_is_served(client, version):
    """The other versions answer 404, and the PodGroups are there."""
    client.server.put(f"/apis/scheduling.k8s.io/{version}/namespaces/a/podgroups/ring", **GROUP)
    assert await listed(client) == {"ring"}


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
