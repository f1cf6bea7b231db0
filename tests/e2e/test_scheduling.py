"""What an outside preemptor relies on in kube-scheduler (docs/kubernetes-behaviour.md K7 to K15, K57)."""

import asyncio

import pytest

from tests.workloads import never
from webhook.kube.errors import ApiError
from webhook.kube.resources import NODE


async def test_never_pod_that_does_not_fit_says_why(sandbox):
    """A pod of a Never class that fits nowhere says so, and that preemption is not for it."""
    await sandbox.node("n1", cpu="1")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
    await sandbox.run("low", "800m")
    message = await sandbox.stuck("big", "800m", priorityClassName=meek)
    assert "nodes are available: " in message
    assert "1 Insufficient cpu" in message
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert (await sandbox.get("low"))["status"]["phase"] == "Running"


async def test_scheduler_preempts_for_pods_that_may(sandbox):
    """A pod that may preempt takes the place of a lower one: nominated, victim marked and gone, bound."""
    node = await sandbox.node("n1", cpu="1")
    high = await sandbox.priority_class("high", 1000)
    await sandbox.run("low", "800m")
    await sandbox.pod("big", cpu="800m", priorityClassName=high)
    await sandbox.gone("low")
    assert await sandbox.bound("big") == node


async def test_outside_nomination_is_kept_and_reserves_the_space(sandbox):
    """A nomination set from outside stays, and keeps pods of lower and equal priority out; higher ones pass."""
    node = await sandbox.node("n1", cpu="4")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
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


async def test_victims_disappearance_wakes_the_nominated_pod(sandbox):
    """Setting the nomination moves nothing; once the victim is gone the pod is bound within seconds."""
    node = await sandbox.node("n1", cpu="1")
    await sandbox.node("n2", cpu="1")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
    for name, on in (("v1", "n1"), ("v2", "n2")):
        await sandbox.run(name, "800m", node=f"{sandbox.id}-{on}")
    await sandbox.stuck("big", "800m", priorityClassName=meek)
    await sandbox.nominate("big", node)

    async def bound():
        return (await sandbox.get("big"))["spec"].get("nodeName")

    await never(bound, 0.5)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "v1", "namespace": sandbox.id}}
    await sandbox.client.create(f"{sandbox.pods}/v1/eviction", eviction)
    await sandbox.gone("v1")
    assert await sandbox.bound("big", seconds=5) == node


async def test_nominated_node_is_tried_first(sandbox):
    """Of two nodes that fit, the nominated one is taken."""
    await sandbox.node("n1", cpu="1")
    await sandbox.node("n2", cpu="1")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
    for number in (1, 2):
        await sandbox.run(f"v{number}", "800m", node=f"{sandbox.id}-n{number}")
    await sandbox.stuck("big", "800m", priorityClassName=meek)
    await sandbox.nominate("big", f"{sandbox.id}-n2")
    await sandbox.client.delete(f"{sandbox.pods}/v2", {"gracePeriodSeconds": 0})
    assert await sandbox.bound("big") == f"{sandbox.id}-n2"


async def test_nobody_clears_a_nomination_that_was_never_used(sandbox):
    """A nomination to a node that does not exist stays, and the pod is still bound where it fits later."""
    await sandbox.node("n1", cpu="1")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
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
    path = f"{sandbox.pods}/big/status"
    stale = {
        "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        "status": {"nominatedNodeName": node},
    }
    with pytest.raises(ApiError) as caught:
        await sandbox.client.patch(path, stale, kind="merge")
    assert caught.value.status == 409
    both = {"metadata": {"annotations": {"plan": "1"}}, "status": {"nominatedNodeName": node}}
    written = await sandbox.client.patch(path, both, kind="merge")
    assert written["metadata"]["annotations"]["plan"] == "1"
    assert written["status"]["nominatedNodeName"] == node
    cleared = {"metadata": {"annotations": {"plan": None}}, "status": {"nominatedNodeName": None}}
    written = await sandbox.client.patch(path, cleared, kind="merge")
    assert "plan" not in (written["metadata"].get("annotations") or {})
    assert "nominatedNodeName" not in written["status"]


async def test_higher_priority_is_scheduled_first(sandbox):
    """Of pods that wait for the same space the one of higher priority gets it."""
    await sandbox.node("n1", cpu="1")
    meek = await sandbox.priority_class("meek", 100, preemptionPolicy="Never")
    above = await sandbox.priority_class("above", 200, preemptionPolicy="Never")
    await sandbox.run("occupant", "800m")
    await sandbox.pod("early-low", cpu="800m", priorityClassName=meek)
    await sandbox.pod("late-high", cpu="800m", priorityClassName=above)
    await sandbox.unschedulable("early-low")
    await sandbox.unschedulable("late-high")
    await asyncio.sleep(2.5)  # both have served their back-off, which would otherwise order them
    await sandbox.client.delete(f"{sandbox.pods}/occupant", {"gracePeriodSeconds": 0})
    await sandbox.bound("late-high")
    assert "nodeName" not in (await sandbox.get("early-low"))["spec"]


async def test_spread_takes_a_terminating_victim_off_twice(sandbox):
    """It evicts a pod in vain: the one that leaves anyway, of two that spread is about, seems to make room by that."""
    low, top = await sandbox.priority_class("low", 5), await sandbox.priority_class("top", 200)
    high, labels = await sandbox.priority_class("high", 100), {"app": "db"}
    full, empty = await sandbox.node("n1", cpu="4"), await sandbox.node("n2", cpu="4")
    await sandbox.client.patch(NODE.path(None, empty), {"spec": {"unschedulable": True}})
    await sandbox.pod("stays", cpu="1", priorityClassName=top, nodeName=full, labels=labels)
    await sandbox.pod("leaves", cpu="1", priorityClassName=low, nodeName=full, labels=labels)
    await sandbox.pod("other", cpu="2", priorityClassName=low, nodeName=full)
    for name in ("stays", "leaves", "other"):
        await sandbox.running(name)
    held = f"{sandbox.pods}/leaves"
    await sandbox.client.patch(held, {"metadata": {"finalizers": ["example.com/held"]}})
    await sandbox.client.delete(held)
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": labels}}
    played = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]
    more = {"tolerations": played, "topologySpreadConstraints": [spread]}
    await sandbox.pod("p", cpu="2", priorityClassName=high, labels=labels, **more)
    try:
        await sandbox.gone("other")
        await asyncio.sleep(2)
        pod = await sandbox.get("p")
        assert (pod["spec"].get("nodeName"), pod["status"]["nominatedNodeName"]) == (None, full)
    finally:
        await sandbox.client.patch(held, {"metadata": {"finalizers": None}})
