"""Pods that want to grow in place, on a real API server; the kubelet's part is played (`PodResizePending`).

Skipped where pods have no sub-resource `resize` (before 1.33, and on the embedded control plane).
"""

import asyncio
from typing import Any

import pytest

from tests.e2e.software import Process, Software, policies
from tests.workloads import eventually, refusal
from webhook.kube.client import Client
from webhook.policy.model.values import MANAGED, MARK, PLAN


class Growing:
    """A node of 8 CPU, pods that run on it, and what a kubelet says of their sizes."""

    def __init__(self, sandbox: Any, giveway: Software) -> None:
        self.sandbox, self.client, self.giveway = sandbox, sandbox.client, giveway
        self.classes: dict[str, str] = {}
        self.node = ""

    async def begin(self) -> None:
        self.node = await self.sandbox.node("n1", cpu="8")
        self.classes["low"], self.classes["high"] = await self.sandbox.classes()
        self.classes["other"] = await self.sandbox.priority_class("other", 500)

    async def reconcile(self, *, resize: bool = True) -> Process:
        preemptors = {"priorityClasses": [self.classes["high"]], "resize": resize}
        return await self.giveway.reconcile(policies("", preemptors=preemptors, victims={"mode": "opt-out"}))

    async def run(self, name: str, cpu: str, priority: str, **fields: Any) -> None:
        """Run a pod of that size."""
        await self.sandbox.run(name, cpu, priorityClassName=self.classes[priority], **fields)
        await self.says(name, cpu)

    async def says(self, name: str, has: str, reason: str = "") -> None:
        """The kubelet says what the pod has, and why it does not get what it wants."""
        says = {"status": "True", "reason": reason} if reason else {"$patch": "delete"}
        conditions = [{"type": "PodResizePending", **says}]
        row = {"name": "c", "ready": True, "image": "i", "imageID": "i", "restartCount": 0, "state": {"running": {}}}
        amounts = {"resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": has}}
        body = {"status": {"conditions": conditions, "containerStatuses": [{**row, **amounts}]}}
        await self.client.patch(f"{self.sandbox.pods}/{name}/status", body, kind="strategic")

    async def wants(self, name: str, cpu: str, has: str, reason: str = "Deferred") -> None:
        """Somebody resizes the pod, and the kubelet does not grant it."""
        rows = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        path, body = f"{self.sandbox.pods}/{name}/resize", {"spec": {"containers": rows}}

        async def taken() -> bool:
            """A kubelet that begins with the pod later writes over what this one has said of its amounts."""
            await self.says(name, has)
            return not await refusal(self.client.patch(path, body, kind="strategic"))

        await eventually(taken)
        await self.says(name, has, reason)

    async def one_less(self) -> bool:
        return len(await self.sandbox.here()) == 3

    async def plan(self, name: str) -> str:
        return ((await self.sandbox.get(name))["metadata"].get("annotations") or {}).get(PLAN, "")


@pytest.fixture
async def growing(client: Client, sandbox: Any, giveway: Software) -> Growing:
    """A node, and classes."""
    resources = (await client.get("/api/v1"))["resources"]
    if not any(one["name"] == "pods/resize" for one in resources):
        pytest.skip("this API server has no pods/resize")
    made = Growing(sandbox, giveway)
    await made.begin()
    return made


async def test_a_deferred_resize(growing: Growing) -> None:
    """As many pods go as the growth needs; the pod gets no nomination, and its plan ends when it has grown."""
    await growing.run("grows", "2", "high", labels={MARK: MANAGED})
    for number in range(3):
        await growing.run(f"low-{number}", "2", "low")
    process = await growing.reconcile()
    await growing.wants("grows", "4", "2")
    await eventually(lambda: growing.plan("grows"), 20, "the plan is under way")
    assert '"resize":true' in await growing.plan("grows")

    await eventually(growing.one_less, 20, "one pod goes")
    assert not (await growing.sandbox.get("grows"))["status"].get("nominatedNodeName")
    await growing.says("grows", "4")

    await growing.sandbox.without(PLAN, "grows", 20)
    await asyncio.sleep(2)
    assert len(await growing.sandbox.here()) == 3
    assert [line["ending"] for line in process.lines("plan ended")] == ["resized"]


async def test_a_neighbours_wish(growing: Growing) -> None:
    """What a neighbour wants and has not got makes nobody go."""
    await growing.run("grows", "2", "high", labels={MARK: MANAGED})
    await growing.run("neighbour", "2", "other")
    for number in range(2):
        await growing.run(f"low-{number}", "1", "low")
    await growing.wants("neighbour", "7", "2")
    await growing.reconcile()
    await growing.wants("grows", "5", "2")

    await eventually(growing.one_less, 20, "one pod goes")
    await asyncio.sleep(2)
    assert len(await growing.sandbox.here()) == 3


@pytest.mark.parametrize("resize", [True, False], ids=["infeasible", "the policy does not say so"])
async def test_nobody_goes(growing: Growing, resize: bool) -> None:
    """Infeasible evicts nobody, and neither does a policy that does not say so."""
    await growing.run("grows", "2", "high", labels={MARK: MANAGED})
    await growing.run("low-0", "6", "low")
    await growing.reconcile(resize=resize)
    await growing.wants("grows", "6", "2", "Infeasible" if resize else "Deferred")
    await asyncio.sleep(4)
    assert await growing.sandbox.here() == {"grows", "low-0"}
    assert not await growing.plan("grows")
