"""PriorityClasses that a PreemptionPolicy manages, made and applied with kubectl while the webhook is at work."""

from contextlib import suppress

import pytest

from tests.e2e.software import policies
from tests.workloads import eventually, priority_class
from webhook.kube.errors import ApiError
from webhook.kube.resources import PRIORITY_CLASS

pytestmark = pytest.mark.kubectl
PREEMPT = "preemptionPolicy: PreemptLowerPriority\n"


@pytest.fixture
async def at_work(sandbox, giveway):
    """The webhook, at work on PriorityClasses with the sandbox's name in theirs."""
    await giveway.serve(policies(f"{sandbox.id}-*"))
    probe = priority_class(f"{sandbox.id}-probe", 5)

    async def managed() -> bool:
        with suppress(ApiError):
            made = await sandbox.client.create(PRIORITY_CLASS.path(), probe, dryRun="All")
            return made.get("preemptionPolicy") == "Never"
        return False

    await eventually(managed, 20, "the webhook is at work")


async def classes(sandbox):
    """The sandbox's classes by name, with their preemption policies."""
    found, _ = await sandbox.client.list(PRIORITY_CLASS.path(), dict)
    rows = {one["metadata"]["name"]: one["preemptionPolicy"] for one in found}
    return {name: policy for name, policy in rows.items() if name.startswith(sandbox.id)}


@pytest.mark.parametrize("written", ["", PREEMPT], ids=["absent", "spelled out"])
@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["by the client", "by the server"])
async def test_a_managed_class_is_applied_again(sandbox, at_work, kubectl, written, how):
    """Its author is warned that it was made Never; the unchanged manifest is taken again, and so is a change beside."""
    name = f"{sandbox.id}-again"
    sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    head = f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\nvalue: 5\n"
    manifest = head + written
    first = await kubectl("apply", *how, "-f", "-", stdin=manifest)
    assert f"PriorityClass {name} was made Never" in first
    await kubectl("apply", *how, "-f", "-", stdin=manifest)
    await kubectl("apply", *how, "-f", "-", stdin=manifest + "description: changed\n")
    found = await sandbox.client.get(PRIORITY_CLASS.path(None, name))
    assert (found["preemptionPolicy"], found["description"]) == ("Never", "changed")
    await kubectl("replace", "-f", "-", stdin=manifest)
    assert await classes(sandbox) == {name: "Never"}


async def test_a_generated_name_does_not_escape(sandbox, at_work, kubectl):
    """A class whose name the API server makes is managed like one that is named."""
    manifest = (
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n"
        f"metadata: {{generateName: {sandbox.id}-}}\nvalue: 5\n{PREEMPT}"
    )
    warned = await kubectl("create", "-f", "-", stdin=manifest)
    found = await classes(sandbox)
    for name in found:
        sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    assert list(found.values()) == ["Never"]
    assert f"PriorityClass {sandbox.id}-* was made Never" in warned


async def test_a_class_that_nobody_manages_stays_as_it_is(sandbox, at_work, kubectl):
    """Outside the policies the API server's own rules hold: preemptionPolicy cannot change."""
    name = f"other-{sandbox.id}"
    sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    head = f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\nvalue: 5\n"
    assert "Warning" not in await kubectl("apply", "-f", "-", stdin=head + "preemptionPolicy: Never\n")
    refused = await kubectl("apply", "-f", "-", stdin=head + PREEMPT, code=1)
    assert "preemptionPolicy" in refused
