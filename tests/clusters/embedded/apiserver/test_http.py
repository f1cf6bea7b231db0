"""The API server on its socket: TLS, headers, bodies, discovery documents, and clients that do not read."""

import asyncio
import ssl

import aiohttp
import pytest

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


async def test_tls_only(cluster):
    """The certificate is vouched for by the CA in the kubeconfig, and by nobody else."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{cluster.url}/version")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("*/*", 200),
        ("", 200),
        ("application/vnd.kubernetes.protobuf", 406),
        ("text/html", 406),
    ],
)
async def test_what_clients_accept(session, accept, status):
    """JSON is what there is, also for clients that would rather have protobuf."""
    async with session.get(MAPS, headers={"Accept": accept}) as answer:
        assert answer.status == status
        assert answer.content_type == "application/json"


async def test_unknown_type_of_body(session):
    """A body of another type is a 415."""
    async with session.post(MAPS, data=b"x", headers={"Content-Type": "text/plain"}) as answer:
        assert answer.status == 415


@pytest.mark.parametrize(("size", "status"), [(2_000_000, 201), (4_000_000, 413)])
async def test_size_of_a_body(session, size, status):
    """Bodies of up to 3 MiB are taken, larger ones refused with a Status."""
    body = {"metadata": {"name": "a"}, "data": {"k": "x" * size}}
    async with session.post(MAPS, json=body) as answer:
        assert answer.status == status
        assert (await answer.json())["kind"] == ("ConfigMap" if status == 201 else "Status")


def open_watches(cluster):
    watches = cluster.api.handlers.watches
    return [watch for watch in watches if watch.selection.resource.plural == "configmaps" and watch.selection.namespace]


async def test_a_gone_client_is_forgotten(cluster, session):
    """A watch whose client went away is closed."""
    answer = await session.get(f"{MAPS}?watch=1&resourceVersion=0")
    await asyncio.sleep(0.1)
    assert open_watches(cluster)
    answer.close()
    for _ in range(100):
        if not open_watches(cluster):
            break
        await asyncio.sleep(0.02)
    assert not open_watches(cluster)


async def test_impersonation(cluster, session):
    """The administrator may act as another; another may not."""
    as_alice = {"Impersonate-User": "alice", "Impersonate-Group": "dev"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with session.post(path, json=review, headers=as_alice) as answer:
        user = (await answer.json())["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("alice", ["dev", "system:authenticated"])
    token = cluster.add_user("bob")
    async with session.get(MAPS, headers={**as_alice, "Authorization": f"Bearer {token}"}) as answer:
        assert answer.status == 403
        assert 'User "bob" cannot impersonate resource "users"' in (await answer.json())["message"]
