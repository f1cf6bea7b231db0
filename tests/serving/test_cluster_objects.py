"""PriorityClasses and Namespaces from an API server, as they change."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.admission.builders import make_pod, make_review, patch_of
from tests.kube.server import Server, answer
from tests.serving.conftest import GivenObjects
from tests.workloads import eventually
from webhook.admission.context import Objects
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS
from webhook.serving.cluster_objects import CachedObjects

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  match: {namespaceSelector: {matchLabels: {env: prod}}}
  rules:
  - {name: allowed, priorityClasses: {deny: [high]}}
"""
RESOLVED = {"priorityClassName": "high", "priority": 100, "preemptionPolicy": "PreemptLowerPriority"}


def make_body(name: str, value: int, **more):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=0, without=STAND_INS) as running:
        client = running.client()
        yield running, client
        await client.close()


@pytest.fixture
def policies(tmp_path) -> Path:
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "teams.yaml").write_text(POLICY)
    return directory


async def test_classes_and_namespaces_of_a_cluster_decide(start, cluster, policies):
    """The server is ready once it knows the cluster, and follows it: classes, defaults, namespaces' labels."""
    _, client = cluster
    await client.create(NAMESPACE.path(), {"metadata": {"name": "team-a", "labels": {"env": "prod"}}})
    await client.create(PRIORITY_CLASS.path(), make_body("high", 100))
    async with start(source=CachedObjects(client), policies=policies) as running:
        await eventually(running.ready)
        _, answer = await running.post("/validate", make_review(make_pod(**RESOLVED)))
        assert "teams/allowed" in answer["status"]["message"]
        await client.patch(NAMESPACE.path(name="team-a"), {"metadata": {"labels": {"env": "dev"}}})
        await client.create(PRIORITY_CLASS.path(), make_body("std", 7, globalDefault=True))

        async def followed() -> bool:
            _, validated = await running.post("/validate", make_review(make_pod(**RESOLVED)))
            _, mutated = await running.post("/mutate", make_review(make_pod()))
            return validated["allowed"] and {"op": "add", "path": "/spec/priority", "value": 7} in patch_of(mutated)

        await eventually(followed)
        _, metrics = await running.get("/metrics")
    assert 'giveway_cache_age_seconds{resource="priorityclasses"}' in metrics


async def test_what_was_made_a_moment_ago_is_known(start, cluster):
    """A class and a namespace that the cache has not heard of yet are looked up live, every time."""
    _, client = cluster
    async with start(source=CachedObjects(client)) as running:
        await eventually(running.ready)
        for number in range(10):
            name = f"new-{number}"
            await client.create(PRIORITY_CLASS.path(), make_body(name, number))
            await client.create(NAMESPACE.path(), {"metadata": {"name": name}})
            pod = make_pod(meta={"namespace": name}, priorityClassName=name)
            _, answer = await running.post("/mutate", make_review(pod))
            assert patch_of(answer)[0] == {"op": "add", "path": "/spec/priority", "value": number}
        for ghost in ("ghost", "a/b"):  # a name that no class can have, but a group
            _, answer = await running.post("/validate", make_review(make_pod(priorityClassName=ghost)))
            assert f"no PriorityClass with name {ghost} was found" in answer["status"]["message"]


async def test_a_class_deleted_a_moment_ago_is_no_default(start, cluster):
    """A pod that the Priority plugin resolved without a default is not refused for one that is gone."""
    _, client = cluster
    await client.create(NAMESPACE.path(), {"metadata": {"name": "team-a"}})
    await client.create(PRIORITY_CLASS.path(), make_body("std", 7, globalDefault=True))
    async with start(source=CachedObjects(client)) as running:
        await eventually(running.ready)
        await client.delete(PRIORITY_CLASS.path(name="std"))
        pod = make_pod(priority=0, preemptionPolicy="PreemptLowerPriority")
        _, answer = await running.post("/validate", make_review(pod))
    assert answer["allowed"] is True


async def test_reviews_go_on_while_the_api_server_restarts(start, cluster):
    """What is known stays in use while nobody can be asked, and what changed meanwhile is learned."""
    running_cluster, client = cluster
    await client.create(NAMESPACE.path(), {"metadata": {"name": "team-a"}})
    await client.create(PRIORITY_CLASS.path(), make_body("high", 100))
    async with start(source=CachedObjects(client)) as running:
        await eventually(running.ready)
        restart = asyncio.create_task(running_cluster.restart())
        status, _ = await running.post("/validate", make_review(make_pod(**RESOLVED)))
        assert status == 200
        await restart
        assert await running.ready()
        await client.create(PRIORITY_CLASS.path(), make_body("later", 5))

        async def known() -> bool:
            return running.server.source.lookup.priority_class("later") is not None

        await eventually(known, 15)


ASKER = ("127.0.0.1", "team-a")


class GroupsOnly:
    """A client of an API server that has PodGroups in one version."""

    def __init__(self, version: str) -> None:
        self.version, self.asked = version, list[str]()

    async def get(self, path: str, type_: type):
        self.asked.append(path.split("/")[3])
        if self.asked[-1] != self.version or not path.endswith("/team-a/podgroups/gang"):
            raise ApiError(404, "NotFound", "not found")
        return msgspec.convert({"spec": {"priority": 7, "priorityClassName": "low"}}, type_)


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1"])
async def test_a_group_is_found_in_the_version_that_is_served(version):
    """The version that answered is asked first from then on; a group that is not there is no error."""
    client = GroupsOnly(version)
    source = CachedObjects(client)
    live = await source.ask([("podgroups", "team-a/gang")], ASKER)
    assert live.pod_group("team-a/gang").spec.priority == 7
    client.asked.clear()
    await source.ask([("podgroups", "team-a/gang")], ASKER)
    assert client.asked == [version]
    assert (await source.ask([("podgroups", "team-a/other")], ASKER)).pod_group("team-a/other") is None
    assert source.lookup.pod_group("team-a/gang") is None


GANG = "/apis/scheduling.k8s.io/{}/namespaces/team-a/podgroups/{}"


@pytest.fixture
async def groups():
    """An API server with PodGroups in one version, and the source that follows it."""
    async with Server() as server, Client.for_server(server.url, timeout=2) as client:
        server.fault(answer(404, "NotFound"), contains="/v1alpha2/", times=1000)
        server.fault(answer(404, "NotFound"), contains="scheduling.k8s.io/v1/podgroups", times=1000)
        server.put(GANG.format("v1beta1", "gang"), spec={"priority": 7, "priorityClassName": "low"})
        source = CachedObjects(client)
        task = asyncio.create_task(source.run())
        await eventually(lambda: source.lookup.pod_group("team-a/gang") is not None)
        yield server, source
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_groups_are_watched_where_they_are_served(groups):
    """A group that is known costs no look-up, and the cache follows its changes."""
    server, source = groups
    assert source.lookup.pod_group("team-a/gang").spec.priority == 7
    server.put(GANG.format("v1beta1", "new"), spec={"priority": 8})
    await eventually(lambda: source.lookup.pod_group("team-a/new") is not None)
    server.remove(GANG.format("v1beta1", "new"))
    await eventually(lambda: source.lookup.pod_group("team-a/new") is None)
    assert not [path for _, path, *_ in server.requests if path.endswith(("/gang", "/new"))]


async def test_a_group_that_is_not_there_is_remembered_until_the_watch_tells_of_it(groups):
    """Invented names are looked up once a second, and one that is made is known at once."""
    server, source = groups
    for _ in range(5):
        live = await source.ask([("podgroups", "team-a/ghost")], ASKER)
        assert live.pod_group("team-a/ghost") is None
    assert (
        len([path for _, path, *_ in server.requests if path.endswith("v1beta1/namespaces/team-a/podgroups/ghost")])
        == 1
    )
    server.put(GANG.format("v1beta1", "ghost"), spec={"priority": 9})
    await eventually(lambda: source.lookup.pod_group("team-a/ghost") is not None)
    live = await source.ask([("podgroups", "team-a/ghost")], ASKER)
    assert live.pod_group("team-a/ghost").spec.priority == 9


async def test_look_ups_have_turns_by_the_namespace_of_the_review(start):
    """A review in one namespace waits among the look-ups of that namespace."""
    source = GivenObjects(Objects())
    async with start(source=source) as running:
        for namespace in ("team-a", "team-b"):
            pod = make_pod(meta={"namespace": namespace}, schedulingGroup={"podGroupName": "g"}, **RESOLVED)
            await running.post("/validate", make_review(pod))
    assert [(share, ("podgroups", f"{share}/g") in unsure) for share, unsure in source.asked] == [
        ("team-a", True),
        ("team-b", True),
    ]
