"""What the tests of the control plane start from: a cluster with its administrator, or a bare API server."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.background import running
from tests.clusters.embedded.bare import bare_server
from tests.clusters.embedded.kubectl import in_namespace_of
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster


@pytest.fixture
async def cluster(request):
    """A cluster with the options that the module calls CLUSTER."""
    async with EmbeddedCluster(**request.module.CLUSTER) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster):
    """The administrator's client, without a connection."""
    return cluster.api.local()


@pytest.fixture
def api():
    """An API server that allows everything and has nothing around it."""
    return bare_server()


@pytest.fixture
def client(api):
    """A client of the bare API server."""
    return api.local()


@pytest.fixture(scope="module")
def background():
    """A cluster of two nodes in a thread of its own, shared by the module."""
    with running(nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Kubectl's home, where it caches what the server serves."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(background, home, request):
    """Kubectl on the cluster in the background, in a namespace of the test's own."""
    return in_namespace_of(request.node.name, background, home)
