"""Installing, changing and removing with real kubectl and a real server: who is refused, and when."""

import asyncio
import signal

import pytest

from tests.manifests.at_work import WEBHOOK, Installed, with_base
from tests.manifests.objects import BASE, NAMESPACE
from tests.manifests.rendering import containers
from tests.workloads import eventually, namespace, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources
from webhook.kube.errors import ApiError
from webhook.registration.entries import PROBES

pytestmark = pytest.mark.kubectl
PODS = resources.POD.path("team-a")


@pytest.fixture
async def installed(tmp_path):
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        found = Installed(cluster, admin, tmp_path)
        assert all(line.endswith(" created") for line in await found.kubectl("apply", "-k", str(BASE)))
        await admin.create(resources.NAMESPACE.path(), namespace("team-a"))
        yield found


async def test_a_webhook_that_the_api_server_cannot_reach_blocks_nobody(installed):
    """A server that is ready but is not reached writes the entries that probe, and nothing that refuses."""
    installed.cluster.services.clear()
    async with installed.serving(enforced=False):

        async def probed():
            return await installed.entries() == PROBES

        await eventually(probed)
        assert await installed.can_make_pods()
        assert "giveway_webhook_configurations_in_force 0.0" in await installed.shown("metrics")
        assert "does not reach this webhook yet (mutate, validate)" in await installed.shown("readyz?verbose")
        installed.reach()
        await eventually(installed.in_force, 20)
        assert "giveway_webhook_configurations_in_force 1.0" in await installed.shown("metrics")


async def test_deleted_configurations_stay_deleted(installed):
    """The break-glass opens at once and is not undone; applied again, the configurations are filled in again."""
    async with installed.serving():
        kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        await installed.kubectl("delete", kinds, "giveway")
        async with asyncio.timeout(0.5):
            assert await installed.can_make_pods()
        await installed.kubectl("apply", "-k", str(BASE))
        await eventually(installed.in_force, 20)


async def test_what_is_judged_and_what_goes_on_without_a_server(installed):
    """Pods are judged while it is there; then they are refused, but for its own namespace and exempt ones."""
    async with installed.serving(code=-signal.SIGKILL) as server:
        async with installed.running(WEBHOOK, containers(WEBHOOK)["keep-certificates"]) as keeping:
            made = await installed.admin.create(PODS, pod("later"))
            assert made["spec"]["priority"] == 0
            with pytest.raises(ApiError, match="system-node-critical") as denied:
                await installed.admin.create(PODS, pod("greedy", priorityClassName="system-node-critical"))
            assert (denied.value.status, keeping.returncode) == (403, None)
        server.kill()
        await server.wait()
    later = f"{PODS}/later"
    await installed.admin.patch(later, {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await installed.admin.patch(later, {"metadata": {"labels": {"giveway.dev/preemption": "managed"}}})
    await installed.admin.patch(
        later, {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "me"}}}
    )
    await installed.admin.patch(later, {"metadata": {"labels": {"role": "leader"}, "finalizers": None}})
    await installed.admin.create(resources.POD.path(NAMESPACE), pod("its-own"))
    with pytest.raises(ApiError, match="failed calling webhook") as refused:
        await installed.admin.create(PODS, pod("too-late"))
    assert refused.value.status == 500
    for label, can in (("giveway.dev/exempt=", True), ("giveway.dev/exempt-", False)):
        await installed.kubectl("label", "namespace", "team-a", label)
        assert await installed.can_make_pods() is can
    await installed.kubectl("delete", "--ignore-not-found", "-k", str(BASE), "--wait=false")
    assert await installed.can_make_pods()


async def test_replicas_that_start_at_once_share_their_certificates(tmp_path):
    """Two init containers at the same moment end with the same files and one Secret."""
    issue, directories = containers(WEBHOOK)["issue-certificates"], [tmp_path / name for name in "ab"]
    async with with_base(tmp_path, deployments=False) as installed, asyncio.TaskGroup() as tasks:
        for directory in directories:
            args = [f"--dir={directory}" if arg.startswith("--dir=") else arg for arg in issue["args"]]
            installed.changes.pop("--dir", None)
            tasks.create_task(installed.finish({"args": args}))
    first, second = ((directory / "tls.crt").read_bytes() for directory in directories)
    assert first == second
