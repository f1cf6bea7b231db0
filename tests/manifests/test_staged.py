"""Installing, changing and removing with real kubectl and a real server: who is refused, and when."""

import asyncio
import shutil
import signal
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.manifests.objects import BASE, NAMESPACE, POLICIES, containers
from tests.manifests.test_install import (
    CONFIGURATIONS,
    answers,
    eventually,
    in_force,
    pod,
    running,
    serving_changes,
)
from tests.ports import free_port
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources
from webhook.kube.errors import ApiError
from webhook.registration.entries import PROBES

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
ACCOUNT = "giveway-webhook"


class Installed:
    """A cluster with the base applied by kubectl."""

    def __init__(self, cluster, admin, directory):
        self.cluster, self.admin, self.directory = cluster, admin, directory
        self.ports = free_port(), free_port()
        self.policies = directory / "policies"
        shutil.copytree(POLICIES, self.policies)
        self.changes = serving_changes(directory / "certs", *self.ports)
        self.changes["--policies"] = f"--policies={self.policies}"
        cluster.services[f"{NAMESPACE}/giveway-webhook:443"] = f"127.0.0.1:{self.ports[0]}"

    async def kubectl(self, *arguments):
        """What kubectl prints, line by line."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "--kubeconfig", str(self.cluster.kubeconfig), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, output.decode()
        return output.decode().splitlines()

    @asynccontextmanager
    async def serving(self, *, enforced=True, code=0):
        """The webhook's containers at work."""
        found = containers("giveway-webhook")
        async with running(self.cluster, ACCOUNT, found["issue-certificates"], self.changes) as issuing:
            assert await asyncio.wait_for(issuing.wait(), 30) == 0
        async with running(self.cluster, ACCOUNT, found["webhook"], self.changes, code=code) as process:
            await eventually(lambda: answers(f"http://127.0.0.1:{self.ports[1]}/readyz"))
            if enforced:
                await eventually(lambda: in_force(self.admin))
            yield process

    async def shown(self, page):
        """A page of the server's private port."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.ports[1]}/{page}") as answer,
        ):
            return await answer.text()

    async def can_make_pods(self):
        """Whether a pod may be made now."""
        try:
            await self.admin.create(resources.POD.path("team-a"), pod("tried"), dryRun="All")
        except ApiError as error:
            if "failed calling webhook" not in error.message:
                raise
            return False
        return True

    async def versions(self):
        return [(await self.admin.get(path))["metadata"]["resourceVersion"] for path in CONFIGURATIONS]

    async def webhooks(self):
        """The entries of both configurations."""
        return [(await self.admin.get(path)).get("webhooks") or [] for path in CONFIGURATIONS]

    async def entries(self):
        """The names of all entries."""
        return {entry["name"] for entries in await self.webhooks() for entry in entries}


@pytest.fixture
async def installed(tmp_path):
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        found = Installed(cluster, admin, tmp_path)
        assert all(line.endswith(" created") for line in await found.kubectl("apply", "-k", str(BASE)))
        await admin.create(resources.NAMESPACE.path(), {"metadata": {"name": "team-a"}})
        yield found


async def test_an_image_that_cannot_be_pulled_blocks_nobody(installed):
    """Everything is applied and no server ever starts: pods are made as before."""
    assert await installed.entries() == set()
    assert await installed.can_make_pods()
    await installed.kubectl("-n", "team-a", "run", "web", "--image=nginx")


async def test_a_webhook_that_the_api_server_cannot_reach_blocks_nobody(installed):
    """A server that is ready but is not reached writes the entries that probe, and nothing that refuses."""
    del installed.cluster.services[f"{NAMESPACE}/giveway-webhook:443"]
    async with installed.serving(enforced=False):
        await eventually(lambda: probed(installed))
        assert await installed.can_make_pods()
        assert "giveway_webhook_configurations_in_force 0.0" in await installed.shown("metrics")
        assert "does not reach this webhook yet (mutate, validate)" in await installed.shown("readyz?verbose")
        installed.cluster.services[f"{NAMESPACE}/giveway-webhook:443"] = f"127.0.0.1:{installed.ports[0]}"
        await eventually(lambda: in_force(installed.admin))
        assert "giveway_webhook_configurations_in_force 1.0" in await installed.shown("metrics")


async def probed(installed):
    return await installed.entries() == PROBES


async def test_applying_again_changes_nothing(installed):
    """Neither way of `kubectl apply` takes entries or trust away."""
    async with installed.serving():
        before, written = await installed.versions(), await installed.webhooks()
        again = await installed.kubectl("apply", "-k", str(BASE))
        # kubectl replaces the selector of a budget, and the strategy of a Deployment, whatever is there
        kept = [line for line in again if not line.startswith(("deployment.apps/", "poddisruptionbudget.policy/"))]
        assert [line for line in kept if not line.endswith(" unchanged")] == []
        assert await installed.versions() == before
        await installed.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(BASE))
        assert await installed.webhooks() == written
        assert all(entry["clientConfig"]["caBundle"] for entries in written for entry in entries)


async def test_deleted_configurations_stay_deleted(installed):
    """The break-glass opens at once and is not undone; applied again, the configurations are filled in again."""
    async with installed.serving():
        kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        await installed.kubectl("delete", kinds, "giveway")
        async with asyncio.timeout(0.5):
            assert await installed.can_make_pods()
        await installed.kubectl("apply", "-k", str(BASE))
        await eventually(lambda: in_force(installed.admin))


async def test_killed_servers_leave_the_door_closed_and_the_label_opens_it(installed):
    """Nobody answers: pods are refused, in exempt namespaces they are made."""
    async with installed.serving(code=-signal.SIGKILL) as server:
        server.kill()
        await server.wait()
    assert not await installed.can_make_pods()
    await installed.kubectl("label", "namespace", "team-a", "giveway.dev/exempt=")
    assert await installed.can_make_pods()
    await installed.kubectl("label", "namespace", "team-a", "giveway.dev/exempt-")
    assert not await installed.can_make_pods()
    await installed.kubectl("delete", "--ignore-not-found", "-k", str(BASE), "--wait=false")
    assert await installed.can_make_pods()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["delete", "deployment", "giveway-webhook"], id="deployment-deleted"),
        pytest.param(["scale", "deployment", "giveway-webhook", "--replicas=0"], id="scaled-to-nothing"),
    ],
)
async def test_a_server_that_nobody_follows_opens_the_door(installed, arguments):
    """The last thing it does is to empty the entries."""
    async with installed.serving():
        await installed.kubectl("-n", NAMESPACE, *arguments)
    assert await installed.entries() == set()
    assert await installed.can_make_pods()


async def test_removal_as_a_whole(installed):
    """`kubectl delete -k` leaves nothing behind that refuses a pod."""
    async with installed.serving():
        await installed.kubectl("delete", "--ignore-not-found", "-k", str(BASE), "--wait=false")
        assert await installed.can_make_pods()
    for path in CONFIGURATIONS:
        with pytest.raises(ApiError, match="not found"):
            await installed.admin.get(path)
