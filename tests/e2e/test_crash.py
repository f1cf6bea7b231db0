"""kill -9 at every step of a plan, then a new leader: no victim too many, no nomination leaked, the preemptor bound."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.e2e.software import installed, policies
from tests.workloads import eventually
from webhook.kube.errors import ApiError
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN
from webhook.reconciler.evict.executor import FAULT_POINTS

MAY_GO = {CAN_BE_PREEMPTED: "true"}


async def victim(sandbox, name: str, node: str, class_name: str) -> None:
    """A running pod of 2 CPU on a node that may be evicted."""
    await sandbox.pod(name, cpu="2", node=node, priorityClassName=class_name)
    await sandbox.client.patch(f"{sandbox.pods}/{name}", {"metadata": {"annotations": MAY_GO}})


async def leaving(sandbox) -> set[str]:
    """The victims that are gone or going."""
    pods, _ = await sandbox.client.list(sandbox.pods, dict)
    here = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return {f"v{number}" for number in range(8)} - here


@pytest.mark.parametrize("fault_point", FAULT_POINTS)
async def test_kill_at_every_step(sandbox, kubeconfig, tmp_path, fault_point):
    """A process killed at this step leaves a plan that the next leader finishes, or takes back and makes again."""
    nodes = [await sandbox.node(f"n{number}", cpu="8") for number in range(2)]
    low = await sandbox.priority_class("low", 80)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    for number in range(8):
        await victim(sandbox, f"v{number}", nodes[number % 2], low)
    for number in range(8):
        await sandbox.running(f"v{number}")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        first = await giveway.reconcile(policies(high), f"--fault-point={fault_point}")
        await sandbox.pod("preemptor", cpu="6", priorityClassName=high, labels={MARK: MANAGED})
        assert await first.ended() == -signal.SIGKILL
        second = await giveway.reconcile(policies(high))
        node = await sandbox.bound("preemptor", 30)

        async def plan_is_gone() -> bool:
            found = await sandbox.get("preemptor")
            return PLAN not in found["metadata"].get("annotations", {})

        await eventually(plan_is_gone, 10)
        await asyncio.sleep(1)
        gone = await leaving(sandbox)
        assert len(gone) == 3, second.log.read_text()
        assert {f"v{number}" for number in range(8) if nodes[number % 2] == node} > gone, "all of one node"
        pods, _ = await sandbox.client.list(sandbox.pods, dict)
        assert not [pod for pod in pods if pod["status"].get("nominatedNodeName") and not pod["spec"].get("nodeName")]


async def test_restart_of_a_forged_plan(sandbox, kubeconfig, tmp_path):
    """A plan somebody else wrote on a pod evicts nobody that a decision made now would not evict, and is taken off."""
    node = await sandbox.node("n1", cpu="8")
    low = await sandbox.priority_class("low", 80)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    await sandbox.pod("v0", cpu="6", node=node, priorityClassName=low)
    await sandbox.running("v0")
    uid = (await sandbox.get("v0"))["metadata"]["uid"]
    await sandbox.pod("preemptor", cpu="4", priorityClassName=high, labels={MARK: MANAGED})
    await sandbox.unschedulable("preemptor")
    forged = f'{{"id":"x","node":"{node}","victims":[{{"namespace":"{sandbox.id}","name":"v0","uid":"{uid}"}}]}}'
    patch = {"metadata": {"annotations": {PLAN: forged}}, "status": {"nominatedNodeName": node}}
    await sandbox.client.patch(f"{sandbox.pods}/preemptor/status", patch)
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policies(high))

        async def cleared() -> bool:
            found = await sandbox.get("preemptor")
            return PLAN not in found["metadata"].get("annotations", {}) and not found["status"].get("nominatedNodeName")

        await eventually(cleared, 15)
        await asyncio.sleep(1)
        try:
            assert "deletionTimestamp" not in (await sandbox.get("v0"))["metadata"]
        except ApiError:
            pytest.fail("the pod named in the forged plan is gone")
