"""Plans beside a stock kube-scheduler: killed at every step, what they end in, and who goes next."""

import asyncio

import pytest

from tests.cases import table
from tests.e2e.conftest import PLAYED
from tests.e2e.software import policies
from tests.killing import STEPS
from tests.workloads import eventually
from webhook.kube.pods import TEMPLATE_HASH
from webhook.kube.resources import NODE
from webhook.policy.model.values import PLAN

KARPENTER, TOLERATES = "karpenter.sh/do-not-disrupt", "preemption-toleration.scheduling.x-k8s.io"


@pytest.mark.parametrize("step", STEPS)
async def test_kill_at_every_step(sandbox, giveway, step):
    """Kill -9, then a new leader: no victim too many, no nomination leaked, the preemptor bound.

    It finishes the plan that a process killed at this step leaves, or takes it back and makes it again.
    """
    nodes = [await sandbox.node(f"n{number}", cpu="8") for number in range(2)]
    low, high = await sandbox.classes()
    for number in range(8):
        await sandbox.victim(f"v{number}", low, "2", node=nodes[number % 2])
    first = await giveway.reconcile(policies(high), kill_at=step)
    await sandbox.preemptor(high, "6", "preemptor")
    await first.killed()
    second = await giveway.reconcile(policies(high))
    node = await sandbox.bound("preemptor", 30)

    await sandbox.without(PLAN, "preemptor")
    await asyncio.sleep(1)
    gone = {f"v{number}" for number in range(8)} - await sandbox.here()
    assert len(gone) == 3, second.log.read_text()
    assert {f"v{number}" for number in range(8) if nodes[number % 2] == node} > gone, "all of one node"
    pods, _ = await sandbox.client.list(sandbox.pods, dict)
    assert not [pod for pod in pods if pod["status"].get("nominatedNodeName") and not pod["spec"].get("nodeName")]


async def test_a_rolling_update_on_a_node_that_is_cordoned_is_not_to_blame(sandbox, giveway):
    """What is evicted ends in a bound pod (docs/semantics.md E9): once this emptied nodes for nothing.

    Its new pod takes free room beside what the plan frees, and then the node is cordoned: its other pods may go.
    """
    low, top = await sandbox.priority_class("low", 80), await sandbox.priority_class("top", 200)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    first, second = await sandbox.node("n1", cpu="8"), await sandbox.node("n2", cpu="5")
    await sandbox.pod("stays", cpu="2", priorityClassName=low, nodeName=first)
    await sandbox.victim("small", low, "1", nodeName=second)

    async def revision(number: str, replicas: int, cpu: str, class_name: str) -> None:
        """One of the two ReplicaSets of the Deployment `web` while it rolls; no controller changes their sizes."""
        labels = {TEMPLATE_HASH: number}
        await sandbox.workload(f"web-{number}", replicas, cpu, class_name, "ReplicaSet", labels=labels)

    async def on(node: str, number: str) -> str:
        """A pod of that revision on the node."""
        pods, _ = await sandbox.client.list(sandbox.pods, dict)
        names = [one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") == node]
        return next((name for name in names if name.startswith(f"web-{number}-")), "")

    await revision("1", 2, "4", low)
    leaves = str(await eventually(lambda: on(first, "1")))
    await eventually(lambda: on(second, "1"))
    process = await giveway.reconcile(policies(high))
    async with sandbox.held(leaves):
        await sandbox.preemptor(high, "5", tolerations=PLAYED)
        await sandbox.until(leaves, lambda one: "deletionTimestamp" in one["metadata"], 30, "leaves")
        await revision("2", 1, "1", top)
        await eventually(lambda: on(first, "2"))
        await sandbox.client.patch(NODE.path(None, first), {"spec": {"unschedulable": True}})
        ended = await eventually(lambda: process.lines("plan ended"), 30)
    assert ended[0]["ending"] == "node-changed"
    assert await sandbox.bound("p", 30) == second


@pytest.mark.parametrize("keep", ["Evictor", "Nobody"])
async def test_who_stays_in_a_cycle(sandbox, giveway, keep):
    """A workload whose class was raised does not evict its evictor in turn, or does and tells it."""
    await sandbox.node("n1", cpu="2")
    low, high, top = [
        await sandbox.priority_class(name, value, preemptionPolicy="Never")
        for name, value in (("low", 80), ("high", 100), ("top", 120))
    ]
    await sandbox.victim("b1", low, "2", owner="batch")
    classes = {"priorityClasses": [high, top]}
    limits = {"cycles": {"keep": keep, "window": "1h"}}
    await giveway.reconcile(policies(high, preemptors=classes, victims={"mode": "opt-out"}, limits=limits))
    await sandbox.preemptor(high, "2", "a1", owner="web")
    await sandbox.running("a1", 30)
    await sandbox.preemptor(top, "2", "b2", owner="batch")
    way = f"Training/{sandbox.id}/web evicted Training/{sandbox.id}/batch"
    if keep == "Nobody":
        await sandbox.bound("b2", 30)
        await sandbox.told(way, "PreemptionCycle")
    else:
        await sandbox.told(f"pods of Training/{sandbox.id}/web stay", "PreemptionWaits")
        assert "a1" in await sandbox.here()


@table(
    "of_pod, of_class, victims",
    ("a duration", {KARPENTER: "12s"}, {}, {"signals": [{"annotation": KARPENTER, "duration": True}]}),
    (
        "a toleration",
        {},
        {f"{TOLERATES}/minimum-preemptable-priority": "101", f"{TOLERATES}/toleration-seconds": "12"},
        {"preemptionToleration": True},
    ),
)
async def test_a_signal_with_an_end(sandbox, giveway, of_pod, of_class, victims):
    """The pod stays for the time that its annotation or class asks for, and goes then without anyone touching it."""
    await sandbox.node("n1", cpu="2")
    low = await sandbox.priority_class("low", 80, of_class, preemptionPolicy="Never")
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    await sandbox.run("v", annotations=of_pod, priorityClassName=low)
    await giveway.reconcile(policies(high, victims={"mode": "opt-out", **victims}))
    await sandbox.preemptor(high, "2")
    await sandbox.told("the protection of a pod of lower priority ends", "PreemptionWaits")
    assert "v" in await sandbox.here()
    await sandbox.bound("p", 40)
    assert "v" not in await sandbox.here()
