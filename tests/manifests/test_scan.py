"""The component `scan`: its Job's command with its own token and rights, and what it shares with the base."""

import asyncio
import sys

import pytest

from tests.manifests.objects import NAMESPACE, POLICIES, ROOT, containers, documents, kustomization
from tests.manifests.test_install import RESOURCES, kubeconfig_of
from tests.manifests.test_rights import install_rights
from tests.workloads import namespace, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources

SCAN = ROOT / "manifests" / "components" / "scan"
ACCOUNT = "giveway-scan"
RIGHTS = documents(SCAN / "rights.yaml")
[CRON_JOB] = documents(SCAN / "cron-job.yaml")
[CONTAINER] = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=1) as started, started.client() as admin:
        await install_rights(admin)
        for obj in RIGHTS:
            await admin.create(RESOURCES[obj["kind"]].path(obj["metadata"].get("namespace")), obj)
        data = {file.name: file.read_text() for file in POLICIES.glob("*.yaml")}
        kept = {"metadata": {"name": "giveway-policies-in-force"}, "data": data}
        await admin.create(resources.CONFIG_MAP.path(NAMESPACE), kept)
        await admin.create(resources.NAMESPACE.path(), namespace("team-a"))
        started.admin = admin
        yield started


async def run(cluster):
    """The Job's command as its service account: exit code and report."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webhook.cli", *CONTAINER["args"]),
        *("--kubeconfig", str(kubeconfig_of(cluster, ACCOUNT))),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, output.decode()


async def test_the_job_at_work(cluster):
    """It succeeds while nothing would be refused, and fails with the report once something slipped in."""
    assert (await run(cluster))[0] == 0
    await cluster.admin.create(resources.POD.path("team-a"), pod("slipped", priorityClassName="system-node-critical"))
    code, report = await run(cluster)
    assert code == 1
    assert "refused  kubernetes/system-range  1 Pod" in report


def test_it_is_the_image_of_the_base():
    """The image and how its pods are confined are those of the base; the Job runs in giveway's own namespace."""
    [image] = kustomization()["images"]
    assert CONTAINER["image"] == f"{image['name']}:{image['newTag']}"
    assert CRON_JOB["metadata"]["namespace"] == NAMESPACE
    assert CONTAINER["securityContext"] == containers("giveway-reconciler")["reconciler"]["securityContext"]
