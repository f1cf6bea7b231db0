"""The scheduler stand-in: order, reservation, messages, preemption on and off, and a burst of pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from tests.failing import fail
from tests.workloads import condition, eventually, never, pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster, node
from webhook.kube.resources import NODE, POD, PRIORITY_CLASS

PODS = POD.path("default")


@asynccontextmanager
async def played(**options):
    """The administrator's client of a cluster with three classes and these options."""
    async with EmbeddedCluster(**{"nodes": 1, "cpu": "1", "termination_seconds": 0.1, **options}) as cluster:
        admin = cluster.api.local()
        for name, value in (("high", 1000), ("meek", 1000), ("low", 10)):
            policy = "PreemptLowerPriority" if name == "high" else "Never"
            await admin.create(PRIORITY_CLASS.path(), priority_class(name, value, preemptionPolicy=policy))
        yield admin
        assert not cluster.failures()


@pytest.fixture
async def admin():
    async with played() as client:
        yield client


async def bound(admin, name: str, seconds: float = 10.0) -> str:
    async def check():
        return (await admin.get(f"{PODS}/{name}"))["spec"].get("nodeName")

    return await eventually(check, seconds, f"{name} is bound")


async def message(admin, name: str) -> str:
    async def check():
        row = condition(await admin.get(f"{PODS}/{name}"), "PodScheduled")
        return row.get("reason") == "Unschedulable" and row["message"]

    return await eventually(check, what=f"{name} is unschedulable")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param(
            {"cpu": "2"},
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
            "1 Preemption is not helpful for scheduling.",
            id="larger-than-the-node",
        ),
        pytest.param(
            {"nodeSelector": {"disk": "ssd"}},
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: "
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
            id="selector",
        ),
    ],
)
async def test_message_is_kube_schedulers(admin, spec, text):
    """PodScheduled=False carries kube-scheduler's sentence."""
    await admin.create(PODS, pod("p", **spec))
    assert await message(admin, "p") == text


async def test_message_without_nodes():
    """Without any node the message says so."""
    async with played(nodes=0) as admin:
        await admin.create(PODS, pod("p"))
        assert await message(admin, "p") == "no nodes available to schedule pods"
        await admin.create(NODE.path(), node("late"))
        assert await bound(admin, "p") == "late"


async def test_preemption_can_be_left_out():
    """Without the `preemption` stand-in nothing is preempted, and nothing is said of it."""
    async with played(without=("preemption",)) as admin:
        await admin.create(PODS, pod("low", cpu="800m", priorityClassName="low"))
        await bound(admin, "low")
        await admin.create(PODS, pod("big", cpu="800m", priorityClassName="high"))
        assert await message(admin, "big") == "0/1 nodes are available: 1 Insufficient cpu."


async def test_cleared_nomination_wakes_those_it_kept_out(admin):
    """When a nomination is withdrawn, a pod of lower priority that waited for the space gets it."""
    await admin.create(PODS, pod("occupant", cpu="500m"))
    await bound(admin, "occupant")
    await admin.create(PODS, pod("promised", cpu="900m", priorityClassName="meek"))
    await message(admin, "promised")
    await admin.patch(f"{PODS}/promised/status", {"status": {"nominatedNodeName": "node-1"}})
    await asyncio.sleep(0.1)
    await admin.create(PODS, pod("below", cpu="400m", priorityClassName="low"))
    await message(admin, "below")
    await admin.patch(f"{PODS}/promised/status", {"status": {"nominatedNodeName": None}})
    assert await bound(admin, "below") == "node-1"


async def test_gated_and_foreign_pods_are_left_alone(admin):
    """Pods with scheduling gates or another scheduler's name are not scheduled."""
    await admin.create(PODS, pod("gated", schedulingGates=[{"name": "wait"}]))
    await admin.create(PODS, pod("foreign", schedulerName="another"))

    async def any_bound():
        pods, _ = await admin.list(PODS, dict)
        return any(one["spec"].get("nodeName") for one in pods)

    await never(any_bound, 0.4)
    await admin.patch(f"{PODS}/gated", {"spec": {"schedulingGates": None}})
    assert await bound(admin, "gated") == "node-1"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda admin: admin.patch(NODE.path(None, "node-1", "status"), {"status": {"allocatable": {"cpu": "8"}}}),
            id="node-grows",
        ),
        pytest.param(
            lambda admin: admin.patch(f"{PODS}/occupant/status", {"status": {"phase": "Failed"}}), id="pod-fails"
        ),
    ],
)
async def test_event_that_helps_wakes_the_pod(admin, change):
    """A waiting pod is tried again as soon as something happened that could help it."""
    await admin.create(PODS, pod("occupant", cpu="800m"))
    await bound(admin, "occupant")
    await admin.create(PODS, pod("waiting", cpu="800m"))
    await message(admin, "waiting")
    await change(admin)
    await bound(admin, "waiting", seconds=3)


async def test_cordoned_node_takes_nothing_until_uncordoned(admin):
    """An unschedulable node is passed over, and tried again when it is uncordoned."""
    await admin.patch(NODE.path(None, "node-1"), {"spec": {"unschedulable": True}})
    await admin.create(PODS, pod("p"))
    assert "1 node(s) were unschedulable" in await message(admin, "p")
    await admin.patch(NODE.path(None, "node-1"), {"spec": {"unschedulable": None}})
    await bound(admin, "p", seconds=3)


async def test_no_node_is_ever_overbooked():
    """Pods created all at once never add up to more than a node has."""
    async with played(nodes=5) as admin:
        await asyncio.gather(*(admin.create(PODS, pod(f"p{number}", cpu="300m")) for number in range(40)))

        async def settled():
            pods, _ = await admin.list(PODS, dict)
            return pods if all(condition(one, "PodScheduled") for one in pods) else None

        nodes = Counter(one["spec"].get("nodeName") for one in await eventually(settled))
    assert nodes == {**{f"node-{number}": 3 for number in range(1, 6)}, None: 25}


async def test_binding_that_fails_is_tried_again():
    """A refused binding puts the pod back, and its space is not lost."""
    async with EmbeddedCluster(nodes=1, cpu="1") as cluster:
        fail(cluster, 2, "pods/binding")
        await cluster.api.local().create(PODS, pod("p", cpu="800m"))
        assert await bound(cluster.api.local(), "p") == "node-1"
