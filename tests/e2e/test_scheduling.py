"""What an outside preemptor relies on in kube-scheduler (docs/kubernetes-behaviour.md K7 to K15, K57)."""

import asyncio

import pytest

from tests.e2e.conftest import PLAYED
from tests.workloads import never
from webhook.inspection.doctor import LABEL, examine_nominations
from webhook.kube.errors import ApiError
from webhook.kube.resources import NODE, POD, PRIORITY_CLASS


@pytest.fixture
async def meek(sandbox) -> str:
    """A class that does not preempt, above pods without a class."""
    return await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")


async def full(sandbox, *nodes: str) -> list[str]:
    """Nodes of 1 CPU, each with a pod `low-` and its name that leaves room for nothing; their full names."""
    names = [await sandbox.node(node, cpu="1") for node in nodes]
    for node, name in zip(nodes, names, strict=True):
        await sandbox.run(f"low-{node}", "800m", node=name)
    return names


async def test_never_pod_that_does_not_fit_says_why(sandbox, meek):
    """A pod of a Never class that fits nowhere says so, and that preemption is not for it."""
    await full(sandbox, "n1")
    message = await sandbox.stuck("big", "800m", priorityClassName=meek)
    assert "nodes are available: " in message
    assert "1 Insufficient cpu" in message
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert (await sandbox.get("low-n1"))["status"]["phase"] == "Running"


async def test_scheduler_preempts_for_pods_that_may(sandbox):
    """A pod that may preempt takes the place of a lower one: nominated, victim marked and gone, bound."""
    [node] = await full(sandbox, "n1")
    await sandbox.pod("big", cpu="800m", priorityClassName=await sandbox.priority_class("high", 1000))
    await sandbox.gone("low-n1")
    assert await sandbox.bound("big") == node


async def test_outside_nomination_is_kept_and_reserves_the_space(sandbox, meek):
    """A nomination set from outside stays, and keeps pods of lower and equal priority out; higher ones pass."""
    node = await sandbox.node("n1", cpu="4")
    higher = await sandbox.priority_class("higher", 2000, preemptionPolicy="Never")
    await sandbox.run("full", "2")
    await sandbox.stuck("nominated", "3", priorityClassName=meek)
    await sandbox.nominate("nominated", node)
    await asyncio.sleep(0.2)
    await sandbox.pod("lower", cpu="1")
    await sandbox.pod("equal", cpu="1", priorityClassName=meek)
    await sandbox.unschedulable("lower")
    await sandbox.unschedulable("equal")
    await sandbox.pod("higher", cpu="1", priorityClassName=higher)
    assert await sandbox.bound("higher") == node
    assert (await sandbox.get("nominated"))["status"]["nominatedNodeName"] == node


async def test_the_canary_keeps_its_nomination(sandbox):
    """`giveway doctor --canary`: over a failed attempt (K8, K12); neither pod nor class stays behind."""
    await sandbox.node("n1")
    assert await examine_nominations(sandbox.client, sandbox.id) == []
    for path in (POD.path(sandbox.id), PRIORITY_CLASS.path()):
        found, _ = await sandbox.client.list(path, labelSelector=LABEL)
        assert not found


async def test_victims_disappearance_wakes_the_nominated_pod(sandbox, meek):
    """Setting the nomination moves nothing; once the victim is gone the pod is bound within seconds."""
    node, _ = await full(sandbox, "n1", "n2")
    await sandbox.stuck("big", "800m", priorityClassName=meek)
    await sandbox.nominate("big", node)

    async def bound():
        return (await sandbox.get("big"))["spec"].get("nodeName")

    await never(bound, 0.5)
    await sandbox.evict("low-n1")
    await sandbox.gone("low-n1")
    assert await sandbox.bound("big", seconds=5) == node


async def test_nominated_node_is_tried_first(sandbox, meek):
    """Of two nodes that fit, the nominated one is taken."""
    _, second = await full(sandbox, "n1", "n2")
    await sandbox.stuck("big", "800m", priorityClassName=meek)
    await sandbox.nominate("big", second)
    await sandbox.client.delete(f"{sandbox.pods}/low-n2", {"gracePeriodSeconds": 0})
    assert await sandbox.bound("big") == second


async def test_nobody_clears_a_nomination_that_was_never_used(sandbox, meek):
    """A nomination to a node that does not exist stays, and the pod is still bound where it fits later."""
    await sandbox.node("n1", cpu="1")
    await sandbox.stuck("big", "2", priorityClassName=meek)
    await sandbox.nominate("big", f"{sandbox.id}-nowhere")

    async def cleared():
        return not (await sandbox.get("big"))["status"].get("nominatedNodeName")

    await never(cleared, 1.0)
    larger = await sandbox.node("n2", cpu="4")
    assert await sandbox.bound("big") == larger


async def test_nomination_and_annotations_are_one_atomic_write(sandbox):
    """One status patch writes nomination and annotations, and a stale resourceVersion is a conflict."""
    node = await sandbox.node("n1", cpu="1")
    made = await sandbox.pod("big", cpu="2")
    await sandbox.unschedulable("big")
    path, version = f"{sandbox.pods}/big/status", made["metadata"]["resourceVersion"]
    stale = {"metadata": {"resourceVersion": version}, "status": {"nominatedNodeName": node}}
    with pytest.raises(ApiError) as caught:
        await sandbox.client.patch(path, stale, kind="strategic")
    assert caught.value.status == 409
    for plan, nominated in (("1", node), (None, None)):
        both = {"metadata": {"annotations": {"plan": plan}}, "status": {"nominatedNodeName": nominated}}
        written = await sandbox.client.patch(path, both, kind="strategic")
        assert (written["metadata"].get("annotations") or {}).get("plan") == plan
        assert written["status"].get("nominatedNodeName") == nominated


async def test_higher_priority_is_scheduled_first(sandbox):
    """Of pods that wait for the same space the one of higher priority gets it."""
    await full(sandbox, "n1")
    for name, value in (("lower", 100), ("higher", 200)):
        class_name = await sandbox.priority_class(name, value, preemptionPolicy="Never")
        await sandbox.stuck(name, "800m", priorityClassName=class_name)
    await asyncio.sleep(2.5)  # both have served their back-off, which would otherwise order them
    await sandbox.client.delete(f"{sandbox.pods}/low-n1", {"gracePeriodSeconds": 0})
    await sandbox.bound("higher")
    assert "nodeName" not in (await sandbox.get("lower"))["spec"]


async def test_spread_takes_a_terminating_victim_off_twice(sandbox):
    """It evicts a pod in vain: the one that leaves anyway, of two that spread is about, seems to make room by that."""
    low, top = await sandbox.priority_class("low", 5), await sandbox.priority_class("top", 200)
    high, labels = await sandbox.priority_class("high", 100), {"app": "db"}
    node, empty = await sandbox.node("n1", cpu="4"), await sandbox.node("n2", cpu="4")
    await sandbox.client.patch(NODE.path(None, empty), {"spec": {"unschedulable": True}})
    await sandbox.run("stays", "1", priorityClassName=top, nodeName=node, labels=labels)
    await sandbox.run("leaves", "1", priorityClassName=low, nodeName=node, labels=labels)
    await sandbox.run("other", "2", priorityClassName=low, nodeName=node)
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": labels}}
    more = {"tolerations": PLAYED, "topologySpreadConstraints": [spread]}
    async with sandbox.held("leaves"):
        await sandbox.client.delete(f"{sandbox.pods}/leaves")
        await sandbox.pod("p", cpu="2", priorityClassName=high, labels=labels, **more)
        await sandbox.gone("other")
        await asyncio.sleep(2)
        pod = await sandbox.get("p")
        assert (pod["spec"].get("nodeName"), pod["status"]["nominatedNodeName"]) == (None, node)
