import pytest

from tests.installation.test_install import everything
from tests.manifests.at_work import Installed
from tests.workloads import namespace
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources


@pytest.fixture
async def bare(tmp_path):
    """A cluster with two nodes and nothing of giveway; its webhook can be served."""
    async with EmbeddedCluster(nodes=2) as cluster, cluster.client() as admin:
        await admin.create(resources.NAMESPACE.path(), namespace("team-a"))
        yield Installed(cluster, admin, tmp_path)


@pytest.fixture
async def as_found(bare):
    """What the cluster has before the test, which leaves it like that."""
    before = await everything(bare.admin)
    yield before
    assert await everything(bare.admin) == before
