"""Installing, upgrading and removing with kubectl and helm while pods are made: nobody is locked out."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tests.cases import table
from tests.e2e.installing import Installation, Making, Service
from tests.e2e.software import CONFIGURATIONS, SYSTEM, Software
from tests.manifests.objects import ROOT
from tests.manifests.rendering import rendered
from tests.tools import needed
from tests.workloads import eventually, is_there
from webhook.registration.entries import PROBES

pytestmark = pytest.mark.kubectl
OTHER = "--priority-plugin-off"
"""What makes a server want other entries, as another version does."""
SECONDS = 5.0
"""For how long a removal may refuse pods."""


@pytest.fixture
async def installation(client, kubeconfig, kubectl, tmp_path) -> AsyncIterator[Installation]:
    """Nothing installed yet; at the end nothing is left."""
    software = Software(client, kubeconfig, tmp_path)
    async with Service().listening() as service:
        made = Installation(software, client, kubectl, service)
        try:
            yield made
        finally:
            await made.delete(rendered().values())
            await software.end()
            await made.gone()


@pytest.fixture
def helm_program() -> str:
    """The path of helm; without it the test is skipped, before anything else is set up."""
    return needed("helm")


@pytest.fixture
async def making(sandbox) -> AsyncIterator[Making]:
    """Pods are made from the beginning of the test to its end."""
    async with Making().going_on(sandbox) as started:
        yield started
    assert started.made > 10


def group(obj) -> str:
    """Which part of an installation an object belongs to, for people who take parts away."""
    kind = obj["kind"]
    if "Role" in kind or kind == "ServiceAccount":
        return "rights"
    parts = {"Namespace": "namespace", "Deployment": "deployments"}
    return "configurations" if "Webhook" in kind else parts.get(kind, "rest")


GROUPS = ("namespace", "rights", "rest", "configurations", "deployments")


def objects_of(name):
    return [obj for obj in rendered().values() if group(obj) == name]


async def test_an_image_that_cannot_be_pulled_refuses_nobody(another_cluster, installation, making):
    """All objects at once, and no pod of giveway ever runs: nothing is sent to anybody, pods are made."""
    await installation.apply(rendered().values())
    await making.goes_on()
    assert await installation.entries() == []
    assert making.refusals == []


@pytest.mark.parametrize("order", [GROUPS[::-1], GROUPS[3:] + GROUPS[:3]], ids=["backwards", "configurations-first"])
async def test_any_order_refuses_nobody(installation, making, order):
    """The parts come in whatever order, and again by server-side apply; pods are made all the time."""
    await installation.apply_in_order(objects_of(name) for name in order)
    process, port = await installation.start()
    await installation.until_in_force()
    before = await installation.entries()
    await installation.apply(rendered().values(), "--server-side", "--force-conflicts")
    assert await installation.entries() == before
    await making.goes_on()
    assert making.refusals == []
    await installation.leave(process, port)


async def test_a_server_that_is_not_reached_refuses_nobody(another_cluster, installation, making):
    """It runs, but no connection gets through to it: only the entries that probe are written, until one does."""
    await installation.apply(rendered().values())
    process, port = await installation.start()
    installation.service.remove(port)
    await eventually(lambda: has_entries(installation, PROBES), 30)
    await making.goes_on()
    installation.service.add(port)
    await installation.until_in_force()
    assert making.refusals == []
    await installation.leave(process, port)


async def has_entries(installation, names) -> bool:
    return set(await installation.entries()) == set(names)


async def test_two_versions_side_by_side_refuse_nobody(installation, making):
    """Upgrade and rollback, each with a while in which both answer and want different entries."""
    old = await installation.begin()
    before = await installation.entries()

    new = await installation.start(OTHER)
    await eventually(lambda: changed(installation, before), 30)
    await asyncio.sleep(1)  # one configuration is written after the other
    upgraded = await installation.entries()
    await installation.stop(*old)
    assert await installation.entries() == upgraded

    again = await installation.start()
    await eventually(lambda: has_entries(installation, before), 30)
    await installation.stop(*new)
    await making.goes_on()
    assert await installation.entries() == before
    assert making.refusals == []
    await installation.leave(*again)


async def changed(installation, before) -> bool:
    return await installation.entries() != before


@table(
    "order",
    ("deployments-first", GROUPS[::-1]),
    ("namespace-first", GROUPS),
    ("rights-first", ("rights", "deployments", "rest", "namespace", "configurations")),
    ("configurations-first", ("configurations", "rights", "namespace", "deployments", "rest")),
    ("services-first", ("rest", "deployments", "rights", "configurations", "namespace")),
)
async def test_removal_in_any_order_refuses_for_seconds_at_most(installation, making, order):
    """Whatever goes first, pods are refused for some seconds at most, and in the end nothing is left that asks."""
    started = await installation.begin()
    async with installation.kubelet(*started):
        for name in order:
            await installation.delete(objects_of(name))
    assert making.seconds < SECONDS, making.refusals[-1]
    assert not [path for path in CONFIGURATIONS if await is_there(installation.client, path)]
    await making.goes_on()


async def test_helm_installs_upgrades_rolls_back_and_removes(helm_program, installation, making, kubeconfig, tmp_path):
    """`helm upgrade` and `rollback` leave the entries alone, no pod is refused, and `uninstall` opens the cluster."""

    async def helm(*arguments):
        process = await asyncio.create_subprocess_exec(
            helm_program,
            *arguments,
            f"--namespace={SYSTEM}",
            env={**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, output.decode()

    chart = str(ROOT / "manifests" / "chart")
    await helm("install", "giveway", chart, "--create-namespace")
    assert await installation.entries() == []
    started = await installation.start()
    await installation.until_in_force()
    before = await installation.software.entries()
    await helm("upgrade", "giveway", chart, "--set", "webhook.replicas=3")
    await helm("rollback", "giveway", "1")
    assert await installation.software.entries() == before
    assert making.refusals == []
    async with installation.kubelet(*started):
        await helm("uninstall", "giveway")
    assert making.seconds < SECONDS
    assert not [path for path in CONFIGURATIONS if await is_there(installation.client, path)]
