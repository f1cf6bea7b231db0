"""Devices (DRA) with the real scheduler and the real controller: what a decision says would make room does make room.

Skipped where `resource.k8s.io/v1` is not served (before 1.34, and on the embedded control plane). The tests remove the
victims themselves; `test_devices_preempted.py` has the reconciler do it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.e2e.playing_devices import SCENARIOS, Devices, Scenario, exactly, plain, skip_without_devices
from tests.workloads import eventually
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import RESOURCE_CLAIM
from webhook.preemption.decision import decide
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules


async def decided(devices: Devices, name: str) -> Decision:
    """What the decision says of the waiting pod, as if it might preempt by plain rules."""
    snapshot = Snapshot()
    for kind in SNAPSHOT_KINDS:
        try:
            found, _ = await devices.client.list(kind.resource.path(), kind.type_)
        except ApiError as error:
            if error.status == 404 and kind.optional:
                continue
            raise
        for one in found:
            snapshot.put(kind, one)
    waiting = msgspec.convert(await devices.sandbox.get(name), Pod)
    waiting.spec.preemption_policy = None
    return decide(snapshot, waiting, kubernetes_rules(), 0.0)


@pytest.fixture
async def devices(client: Client, sandbox: Any) -> Devices:
    """The sandbox's devices; skipped where there are none."""
    await skip_without_devices(client)
    made = Devices(sandbox)
    await made.begin()
    return made


async def test_claims_of_templates(devices: Devices) -> None:
    """Two of four devices, each held by a claim of its own: two pods have to go, the others stay."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(4))
    one = await devices.template("one", [exactly(device_class)])
    for number in range(4):
        await devices.low(f"low-{number}", one)
    two = await devices.template("two", [exactly(device_class, 2)])
    await devices.pod("high", "high", (two,), {})
    await devices.sandbox.unschedulable("high")
    decision = await decided(devices, "high")
    assert decision.selected is not None
    assert len(decision.selected.victims) == 2
    await devices.remove({victim.name for victim in decision.selected.victims})
    assert await devices.sandbox.bound("high", 30) == node


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
async def test_who_has_to_go(devices: Devices, scenario: Scenario) -> None:
    """The decision names just those pods, and once they are gone the waiting pod is bound to their node."""
    claims, fields = await scenario.prepare(devices)
    await devices.pod("high", "high", claims, fields)
    await devices.sandbox.unschedulable("high")
    decision = await decided(devices, "high")
    assert decision.selected is not None, (decision.reason, decision.node_reasons)
    assert {victim.name for victim in decision.selected.victims} == scenario.victims
    await devices.remove(scenario.victims)
    assert await devices.sandbox.bound("high", 30) == decision.selected.node


async def test_a_claim_without_the_finalizer_is_not_counted_on(devices: Devices) -> None:
    """The controller would not take such an allocation back (docs/kubernetes-behaviour.md K42)."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(1))
    named = await devices.claim("named", [exactly(device_class)])
    await devices.low("low", named)
    path = f"{RESOURCE_CLAIM.path(devices.sandbox.id)}/named"

    async def reserved() -> Any:
        return (await devices.client.get(path)).get("status", {}).get("reservedFor")

    await eventually(reserved)
    await devices.client.patch(path, {"metadata": {"finalizers": None}}, kind="merge")
    wanted = await devices.template("own", [exactly(device_class)])
    await devices.pod("high", "high", (wanted,), {})
    await devices.sandbox.unschedulable("high")
    decision = await decided(devices, "high")
    assert decision.eligible
    assert decision.selected is None
