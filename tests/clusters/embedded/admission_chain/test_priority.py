"""The Priority plugin: before and after the webhooks, in its own words (docs/kubernetes-behaviour.md K1 to K4)."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.admission_chain.asking import PODS, refused, register
from tests.clusters.embedded.webhook_server import patching, set_field
from tests.workloads import pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import PRIORITY_CLASS

CLUSTER = {"nodes": 0, "without": ("scheduler", "kubelet")}


@pytest.fixture
async def admin(cluster):
    client = cluster.api.local()
    await client.create(PRIORITY_CLASS.path(), priority_class("high", 100))
    await client.create(PRIORITY_CLASS.path(), priority_class("meek", 50, preemptionPolicy="Never"))
    return client


def priority_of(made) -> tuple[object, ...]:
    spec = made["spec"]
    return spec.get("priorityClassName"), spec.get("priority"), spec.get("preemptionPolicy")


async def test_disabled_plugin_leaves_the_pod_alone():
    """Without the plugin a pod keeps what its author wrote, also a class that does not exist."""
    async with EmbeddedCluster(**CLUSTER, disabled_plugins=("Priority",)) as cluster:
        client = cluster.api.local()
        assert priority_of(await client.create(PODS, pod("bare"))) == (None, None, None)
        written = pod("written", priority=2_000_000_000, priorityClassName="ghost")
        assert priority_of(await client.create(PODS, written)) == ("ghost", 2_000_000_000, None)


NEW = "/spec/priorityClassName"
PRIORITY, POLICY = "integer value of priority", "string value of PreemptionPolicy"


@pytest.mark.parametrize(
    ("operation", "given", "computed"),
    [
        (set_field(NEW, "high"), f"{PRIORITY} (0)", "100"),
        (set_field("/spec/preemptionPolicy", "Never"), f"{POLICY} (Never)", "PreemptLowerPriority"),
        (set_field("/spec/priority", 5), f"{PRIORITY} (5)", "0"),
    ],
    ids=["class-alone", "policy-alone", "priority-alone"],
)
async def test_second_run_refuses_a_patch_that_disagrees(admin, server, operation, given, computed):
    """After a webhook changed the pod the plugin runs again and refuses disagreement with the class."""
    server.answer = patching(operation)
    await register(admin, "Mutating", server.hook())
    error = await refused(admin.create(PODS, pod("p")))
    said = f"the {given} must not be provided in pod spec; priority admission controller computed {computed}"
    text = f'pods "p" is forbidden: {said} from the given PriorityClass name'
    assert (error.status, error.message) == (403, text)


async def test_patch_that_agrees_is_accepted(admin, server):
    """Class, priority and policy patched together to what the class says are stored."""
    of_class = {NEW: "meek", "/spec/priority": 50, "/spec/preemptionPolicy": "Never"}
    server.answer = patching(*(set_field(*field) for field in of_class.items()))
    await register(admin, "Mutating", server.hook())
    assert priority_of(await admin.create(PODS, pod("p"))) == ("meek", 50, "Never")
    assert server.requests[0]["object"]["spec"]["priority"] == 0, "the plugin ran before the webhook"


@pytest.mark.parametrize(
    ("policy", "stored"),
    [("Never", ("high", 100, "PreemptLowerPriority")), ("IfNeeded", ("high", None, None))],
)
async def test_removed_values_come_back_once(admin, server, policy, stored):
    """The plugin restores what a webhook removed; a webhook called again removes it for good."""
    server.answer = patching(*({"op": "remove", "path": f"/spec/{key}"} for key in ("priority", "preemptionPolicy")))
    await register(admin, "Mutating", server.hook(reinvocationPolicy=policy))
    assert priority_of(await admin.create(PODS, pod("p", priorityClassName="high"))) == stored
