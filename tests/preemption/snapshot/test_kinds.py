"""The table of kinds that a snapshot is made of, who goes by it, and in which version each is found."""

from collections import Counter

import pytest

from tests.kube.server import Server, answer
from webhook.clusters.embedded.protocol.api_resources import RESOURCES
from webhook.clusters.simulated.objects import KINDS
from webhook.inspection.reading import items_of
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import POD_GROUP
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS


def test_the_simulation_goes_by_the_table():
    """A file of a cluster holds every kind that a decision reads, by the same types."""
    files = {kind.resource: kind.type for kind in KINDS}
    assert {kind.resource: files.get(kind.resource) for kind in SNAPSHOT_KINDS} == {
        kind.resource: kind.type_ for kind in SNAPSHOT_KINDS
    }


def test_every_kind_has_a_name_of_its_own():
    """The lines of a file of a cluster say the name, and of two kinds of one name the later would be all."""
    names = Counter(kind.name for kind in KINDS)
    assert names == Counter(set(names))


def test_the_embedded_server_serves_every_kind_that_is_not_optional():
    """Without such a kind a reconciler would never lead there."""
    served = {row.kind for row in RESOURCES}
    assert {kind.resource.kind for kind in SNAPSHOT_KINDS if not kind.optional} - served == set()


GROUP = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}


@pytest.fixture
async def client():
    async with Server() as server, Client.for_server(server.url, timeout=2) as client:
        client.server = server
        yield client


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1"])
async def test_groups_are_read_in_the_version_that_is_served(client, version):
    """The other versions answer 404, and the PodGroups are there."""
    client.server.put(f"/apis/scheduling.k8s.io/{version}/namespaces/a/podgroups/ring", **GROUP)
    assert [group.metadata.name async for group in items_of(client, POD_GROUP, PodGroup)] == ["ring"]


@pytest.mark.parametrize(("refused", "asked"), [((), 3), ((403, "Forbidden"), 1)])
async def test_a_kind_that_is_not_served(client, refused, asked):
    """It is asked for once in each version, and then said not to be there; a refusal is no missing version."""
    if refused:
        client.server.fault(answer(*refused), contains="podgroups", times=9)
    with pytest.raises(ApiError) as raised:
        _ = [group async for group in items_of(client, POD_GROUP, PodGroup)]
    assert raised.value.status == (refused or (404,))[0]
    assert len({path.split("/")[3] for path in client.server.asked("GET", "podgroups")}) == asked
