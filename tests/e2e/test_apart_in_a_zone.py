"""Preemptors that may not be in one zone, beside a stock kube-scheduler: pods go for those that can be bound."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.conftest import MAY_GO
from tests.e2e.software import policies
from tests.workloads import eventually
from webhook.kube.resources import NODE

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
async def test_only_one_of_two_is_made_room_for(sandbox, giveway, spec):
    """Two full nodes of a zone, and one preemptor can be there: two pods go, and not four; spread has another zone."""
    low, high = await sandbox.classes()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        full = await sandbox.node(name, cpu="4")
        await sandbox.client.patch(NODE.path(None, full), {"metadata": {"labels": {ZONE: zone}}})
        annotations = MAY_GO if zone == "a" else {}
        for half in "ab":
            await sandbox.run(f"{name}-{half}", annotations=annotations, node=full, priorityClassName=low)
    await giveway.reconcile(policies(high))
    for name in ("p", "q"):
        await sandbox.preemptor(high, name=name, app="apart", **spec)

    async def placed() -> list[str]:
        return [name for name in ("p", "q") if (await sandbox.get(name))["spec"].get("nodeName")]

    await eventually(placed, 20)
    await asyncio.sleep(5)
    assert len(await placed()) == 1
    assert len(await sandbox.here() - {"p", "q"}) == 4
