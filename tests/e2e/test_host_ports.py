"""Host ports beside a stock kube-scheduler: groups that hold them go whole, and nobody goes for a port that is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.conftest import MAY_GO
from tests.e2e.software import policies
from webhook.policy.model.values import MANAGED, MARK

TRAIN = {"jobset.sigs.k8s.io/jobset-name": "train"}


def with_port(cpu: str) -> dict[str, Any]:
    """What a pod of one container asks for that takes a port of its node."""
    port = {"containerPort": 80, "hostPort": 8080}
    return {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}, "ports": [port]}]}


async def test_a_group_that_holds_the_port_goes_whole(sandbox, giveway):
    """A preemptor that wants a port of the node gets it, and both members of the group leave."""
    await sandbox.node("n1", cpu="4")
    low, high = await sandbox.classes()
    await sandbox.run("first", annotations=MAY_GO, labels=TRAIN, priorityClassName=low, **with_port("1"))
    await sandbox.run("second", annotations=MAY_GO, labels=TRAIN, priorityClassName=low)
    await giveway.reconcile(policies(high, groups={"disruption": "Group"}))
    await sandbox.pod("p", priorityClassName=high, labels={MARK: MANAGED}, **with_port("1"))
    await sandbox.bound("p", 30)
    assert await sandbox.here() == {"p"}


async def test_a_port_that_a_higher_pod_takes(sandbox, giveway):
    """Nobody goes while a pod of higher priority waits for the same port; once that is gone, the preemptor gets it."""
    await sandbox.node("n1", cpu="4")
    low, high = await sandbox.classes()
    await sandbox.run("running", annotations=MAY_GO, priorityClassName=low, **with_port("4"))
    front = await sandbox.priority_class("front", 200, preemptionPolicy="Never")
    await sandbox.pod("first", priorityClassName=front, **with_port("1"))
    await giveway.reconcile(policies(high))
    await sandbox.pod("p", priorityClassName=high, labels={MARK: MANAGED}, **with_port("1"))
    await asyncio.sleep(5)
    assert "running" in await sandbox.here()
    await sandbox.client.delete(f"{sandbox.pods}/first")
    await sandbox.bound("p", 30)
    assert "running" not in await sandbox.here()
