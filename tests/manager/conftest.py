"""The same server as in tests/serving; a control plane with giveway's namespace, and a directory of policies."""

import pytest

from tests.manager.choosing import RANGE, SYSTEM, TEAMS, put
from tests.serving.conftest import authority, start  # noqa: F401
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.resources import NAMESPACE


@pytest.fixture
async def client():
    async with EmbeddedCluster(nodes=0, without=STAND_INS) as cluster:
        client = cluster.client()
        await client.create(NAMESPACE.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        yield client
        await client.close()


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "policies"
    made.mkdir()
    put(made, RANGE, TEAMS)
    return made
