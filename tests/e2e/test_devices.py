"""Devices (DRA) with the real scheduler and the real controller: what a decision says would make room does make room.

Skipped where `resource.k8s.io/v1` is not served (before 1.34, and on the embedded control plane). The tests remove the
victims themselves; `test_devices_preempted.py` has the reconciler do it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.e2e.playing_devices import Devices, exactly, plain, skip_without_devices
from tests.workloads import eventually
from webhook.kube.client import ApiError, Client
from webhook.kube.objects import Pod
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
            kind.put(snapshot, one)
    waiting = msgspec.convert(await devices.sandbox.get(name), Pod)
    waiting.spec.preemption_policy = None
    return decide(snapshot, waiting, kubernetes_rules(), 0.0)


async def makes_room(devices: Devices, name: str, victims: set[str], *claims: Any, **fields: Any) -> None:
    """A pod of high priority waits; the decision names these victims; without them it is bound to their node."""
    await devices.pod(name, "high", claims, fields)
    await devices.sandbox.unschedulable(name)
    decision = await decided(devices, name)
    assert decision.selected is not None, (decision.reason, decision.node_reasons)
    assert {victim.name for victim in decision.selected.victims} == victims
    for victim in sorted(victims):
        await devices.client.delete(f"{devices.sandbox.pods}/{victim}", {"gracePeriodSeconds": 0})
    assert await devices.sandbox.bound(name, 30) == decision.selected.node


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
    for victim in decision.selected.victims:
        await devices.client.delete(f"{devices.sandbox.pods}/{victim.name}", {"gracePeriodSeconds": 0})
    assert await devices.sandbox.bound("high", 30) == node


async def test_a_shared_claim(devices: Devices) -> None:
    """A device that two pods share is free when both are gone."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(1))
    both = await devices.claim("both", [exactly(device_class)])
    await devices.low("low-0", both)
    await devices.low("low-1", both)
    own = await devices.template("own", [exactly(device_class)])
    await makes_room(devices, "high", {"low-0", "low-1"}, own)


async def test_all_devices(devices: Devices) -> None:
    """All devices of the node: every holder has to go."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(3))
    one = await devices.template("one", [exactly(device_class)])
    for number in range(2):
        await devices.low(f"low-{number}", one)
    all_ = {"name": "r", "exactly": {"deviceClassName": device_class, "allocationMode": "All"}}
    wanted = await devices.template("all", [all_])
    await makes_room(devices, "high", {"low-0", "low-1"}, wanted)


async def test_a_class_with_an_expression(devices: Devices) -> None:
    """Only who holds a device that the class selects has to go."""
    node = await devices.sandbox.node("a")
    await devices.publish(node, plain(2, model=["small", "large"]))
    model = f'device.attributes["{devices.driver}"].model'
    small = await devices.device_class("small", f'{model} == "small"')
    large = await devices.device_class("large", f'{model} == "large"')
    await devices.low("holds-small", await devices.template("small", [exactly(small)]))
    wanted = await devices.template("large", [exactly(large)])
    await devices.low("holds-large", wanted)
    await makes_room(devices, "high", {"holds-large"}, wanted)


async def test_partitions(devices: Devices) -> None:
    """The whole device needs the counters that both of its halves use up."""
    node = await devices.sandbox.node("a")
    memory = {"whole": "80Gi", "half-0": "40Gi", "half-1": "40Gi"}
    published = [
        {
            "name": name,
            "attributes": {"size": {"string": name.partition("-")[0]}},
            "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}],
        }
        for name, amount in memory.items()
    ]
    await devices.publish(node, published, [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}])
    size = f'device.attributes["{devices.driver}"].size'
    half = await devices.template("half", [exactly(await devices.device_class("half", f'{size} == "half"'))])
    whole = await devices.template("whole", [exactly(await devices.device_class("whole", f'{size} == "whole"'))])
    await devices.low("low-0", half)
    await devices.low("low-1", half)
    await makes_room(devices, "high", {"low-0", "low-1"}, whole)


async def test_devices_of_one_ring(devices: Devices) -> None:
    """Two devices with one ring: the pod that holds one of the other ring may stay."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(3, ring=["x", "y", "y"]))
    ring = f'device.attributes["{devices.driver}"].ring'
    selects = {name: [{"cel": {"expression": f'{ring} == "{name}"'}}] for name in "xy"}
    await devices.low("holds-x", await devices.template("x", [exactly(device_class, selectors=selects["x"])]))
    await devices.low("holds-y", await devices.template("y", [exactly(device_class, selectors=selects["y"])]))
    constraints = [{"matchAttribute": f"{devices.driver}/ring"}]
    wanted = await devices.template("pair", [exactly(device_class, 2)], constraints=constraints)
    await makes_room(devices, "high", {"holds-y"}, wanted)


async def test_the_first_that_can_be_had(devices: Devices) -> None:
    """Of a prioritized list the alternative counts that fits once pods are gone; the fewest go."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    await devices.publish(node, plain(2))
    one = await devices.template("one", [exactly(device_class)])
    await devices.low("low-0", one)
    await devices.low("low-1", one)
    alternatives = [{"name": f"n{n}", "deviceClassName": device_class, "count": n} for n in (3, 2)]
    wanted = await devices.template("first", [{"name": "r", "firstAvailable": alternatives}])
    await makes_room(devices, "high", {"low-0", "low-1"}, wanted)


async def test_shares_of_a_device(devices: Devices) -> None:
    """A device with several allocations: as much of its capacity has to come free as is asked for."""
    node = await devices.sandbox.node("a")
    device_class = await devices.device_class()
    shared = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}
    await devices.publish(node, [shared])

    async def share(amount: str) -> dict[str, Any]:
        wanted = exactly(device_class, capacity={"requests": {"memory": amount}})
        return await devices.template(f"share-{amount.lower()}", [wanted])

    await devices.low("low-0", await share("6Gi"))
    await devices.low("low-1", await share("4Gi"))
    await makes_room(devices, "high", {"low-0"}, await share("5Gi"))


async def test_an_extended_resource_that_a_class_serves(devices: Devices) -> None:
    """Pods that ask for an extended resource get claims; who holds the devices has to go."""
    node = await devices.sandbox.node("a")
    resource = f"{devices.driver}/gpu"
    await devices.device_class("gpu", extendedResourceName=resource)
    await devices.publish(node, plain(2))
    await devices.low("low-0", resources={resource: "1"})
    await devices.low("low-1", resources={resource: "1"})
    await makes_room(devices, "high", {"low-0", "low-1"}, resources={resource: "2"})


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
