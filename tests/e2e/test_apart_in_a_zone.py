"""Preemptors that may not be in one zone, beside a stock kube-scheduler: pods go for those that can be bound."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.software import installed
from tests.e2e.test_eviction_costs import YES, alive, made, policy
from webhook.kube.resources import NODE
from webhook.policy.model.values import MANAGED, MARK

ZONE = "e2e.example.com/zone"
ALIKE = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": ZONE}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"affinity": {"podAntiAffinity": {REQUIRED: [ALIKE]}}}, id="anti-affinity"),
        pytest.param(
            {"topologySpreadConstraints": [{**ALIKE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}, id="spread"
        ),
    ],
)
async def test_only_one_of_two_is_made_room_for(sandbox, kubeconfig, tmp_path, spec):
    """Two full nodes of a zone, and one preemptor can be there: two pods go, and not four; spread has another zone."""
    low = await sandbox.priority_class("low", 80)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        full = await sandbox.node(name, cpu="4")
        await sandbox.client.patch(NODE.path(None, full), {"metadata": {"labels": {ZONE: zone}}})
        annotations = YES if zone == "a" else {}
        for half in "ab":
            await made(sandbox, f"{name}-{half}", annotations=annotations, node=full, priorityClassName=low)
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high))
        for name in ("p", "q"):
            labels = {MARK: MANAGED, "app": "apart"}
            await sandbox.pod(name, cpu="4", priorityClassName=high, labels=labels, **spec)

        async def placed() -> list[str]:
            return [name for name in ("p", "q") if (await sandbox.get(name))["spec"].get("nodeName")]

        for _ in range(20):
            await asyncio.sleep(1)
            if await placed():
                break
        await asyncio.sleep(5)
        assert len(await placed()) == 1
        left = [name for name in ("n1-a", "n1-b", "n2-a", "n2-b", "n3-a", "n3-b") if await alive(sandbox, name)]
        assert len(left) == 4
