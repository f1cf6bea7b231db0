"""Host ports beside a stock kube-scheduler: groups that hold them go whole, and nobody goes for a port that is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.software import installed
from tests.e2e.test_eviction_costs import YES, alive, made, policy
from webhook.policy.model.values import MANAGED, MARK

TRAIN = {"jobset.sigs.k8s.io/jobset-name": "train"}


def with_port(cpu: str) -> dict[str, Any]:
    """What a pod of one container asks for that takes a port of its node."""
    port = {"containerPort": 80, "hostPort": 8080}
    return {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}, "ports": [port]}]}


async def test_a_group_that_holds_the_port_goes_whole(sandbox, kubeconfig, tmp_path):
    """A preemptor that wants a port of the node gets it, and both members of the group leave."""
    await sandbox.node("n1", cpu="4")
    low = await sandbox.priority_class("low", 80)
    await made(sandbox, "first", annotations=YES, labels=TRAIN, priorityClassName=low, **with_port("1"))
    await made(sandbox, "second", annotations=YES, labels=TRAIN, priorityClassName=low)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, groups={"disruption": "Group"}))
        await sandbox.pod("p", priorityClassName=high, labels={MARK: MANAGED}, **with_port("1"))
        await sandbox.bound("p", 30)
        assert not await alive(sandbox, "first")
        assert not await alive(sandbox, "second")


async def test_a_port_that_a_higher_pod_takes(sandbox, kubeconfig, tmp_path):
    """Nobody goes while a pod of higher priority waits for the same port; once that is gone, the preemptor gets it."""
    await sandbox.node("n1", cpu="4")
    low = await sandbox.priority_class("low", 80)
    await made(sandbox, "running", annotations=YES, priorityClassName=low, **with_port("4"))
    front = await sandbox.priority_class("front", 200, preemptionPolicy="Never")
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    await sandbox.pod("first", priorityClassName=front, **with_port("1"))
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high))
        await sandbox.pod("p", priorityClassName=high, labels={MARK: MANAGED}, **with_port("1"))
        await asyncio.sleep(5)
        assert await alive(sandbox, "running")
        await sandbox.client.delete(f"{sandbox.pods}/first")
        await sandbox.bound("p", 30)
        assert not await alive(sandbox, "running")
