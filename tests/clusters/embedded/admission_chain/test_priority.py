"""The Priority plugin: before and after the webhooks, in its own words (docs/kubernetes-behaviour.md K1 to K4)."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.admission_chain.asking import refused
from tests.clusters.embedded.webhook_server import WebhookServer, configuration, patching, set_field
from tests.workloads import pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import MUTATING_WEBHOOK_CONFIGURATION, POD, PRIORITY_CLASS

PODS = POD.path("default")
CLASSES = PRIORITY_CLASS.path()
QUIET = ("scheduler", "kubelet")


@pytest.fixture
async def admin():
    async with EmbeddedCluster(nodes=0, without=QUIET) as cluster:
        client = cluster.api.local()
        await client.create(CLASSES, priority_class("high", 100))
        await client.create(CLASSES, priority_class("meek", 50, preemptionPolicy="Never"))
        yield client


def priority_of(made) -> tuple[object, ...]:
    spec = made["spec"]
    return spec.get("priorityClassName"), spec.get("priority"), spec.get("preemptionPolicy")


def disagrees(what: str, given: object, computed: object) -> str:
    """The sentence for a pod that says something else than its class."""
    said = f"the {what} ({given}) must not be provided in pod spec; priority admission controller computed {computed}"
    return f"{said} from the given PriorityClass name"


PRIORITY, POLICY = "integer value of priority", "string value of PreemptionPolicy"
MAY = "PreemptLowerPriority"


async def test_disabled_plugin_leaves_the_pod_alone():
    """Without the plugin a pod keeps what its author wrote, also a class that does not exist."""
    async with EmbeddedCluster(nodes=0, without=QUIET, disabled_plugins=("Priority",)) as cluster:
        client = cluster.api.local()
        assert priority_of(await client.create(PODS, pod("bare"))) == (None, None, None)
        assert priority_of(await client.create(PODS, pod("raw", priority=2_000_000_000)))[1] == 2_000_000_000
        assert priority_of(await client.create(PODS, pod("ghost", priorityClassName="ghost")))[0] == "ghost"


NEW = "/spec/priorityClassName"


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        ([set_field(NEW, "high")], disagrees(PRIORITY, 0, 100)),
        ([set_field("/spec/preemptionPolicy", "Never")], disagrees(POLICY, "Never", MAY)),
        ([set_field("/spec/priority", 5)], disagrees(PRIORITY, 5, 0)),
    ],
    ids=["class-alone", "policy-alone", "priority-alone"],
)
async def test_second_run_refuses_a_patch_that_disagrees(admin, tmp_path, operations, text):
    """After a webhook changed the pod the plugin runs again and refuses disagreement with the class."""
    async with WebhookServer(tmp_path, patching(*operations)) as server:
        await admin.create(MUTATING_WEBHOOK_CONFIGURATION.path(), configuration("Mutating", "m", server.hook()))
        error = await refused(admin.create(PODS, pod("p")))
        assert (error.status, error.message) == (403, f'pods "p" is forbidden: {text}')


async def test_patch_that_agrees_is_accepted(admin, tmp_path):
    """Class, priority and policy patched together to what the class says are stored."""
    answer = patching(
        set_field(NEW, "meek"), set_field("/spec/priority", 50), set_field("/spec/preemptionPolicy", "Never")
    )
    async with WebhookServer(tmp_path, answer) as server:
        await admin.create(MUTATING_WEBHOOK_CONFIGURATION.path(), configuration("Mutating", "m", server.hook()))
        assert priority_of(await admin.create(PODS, pod("p"))) == ("meek", 50, "Never")
        assert server.requests[0]["object"]["spec"]["priority"] == 0, "the plugin ran before the webhook"


REMOVE = [{"op": "remove", "path": "/spec/priority"}, {"op": "remove", "path": "/spec/preemptionPolicy"}]


@pytest.mark.parametrize(
    ("policy", "stored"),
    [("Never", ("high", 100, "PreemptLowerPriority")), ("IfNeeded", ("high", None, None))],
)
async def test_removed_values_come_back_once(admin, tmp_path, policy, stored):
    """The plugin restores what a webhook removed; a webhook called again removes it for good."""
    async with WebhookServer(tmp_path, patching(*REMOVE)) as server:
        hook = server.hook(reinvocationPolicy=policy)
        await admin.create(MUTATING_WEBHOOK_CONFIGURATION.path(), configuration("Mutating", "m", hook))
        assert priority_of(await admin.create(PODS, pod("p", priorityClassName="high"))) == stored
