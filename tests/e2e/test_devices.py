"""Devices (DRA) with the real scheduler and the real controller: what a decision says would make room does make room.

Drivers are played: the tests publish slices, kube-scheduler allocates, kube-controller-manager takes back. Skipped
where `resource.k8s.io/v1` is not served (before 1.34, and on the embedded control plane). The reconciler does not act
for such pods yet, so the tests remove the victims themselves.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.workloads import eventually
from webhook.kube.client import ApiError, Client
from webhook.kube.objects import Pod
from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, Resource
from webhook.preemption.decision import decide
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

V1 = "resource.k8s.io/v1"
TEMPLATE = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")


class Devices:
    """The devices of one sandbox: a driver and classes of its own, and pods of two priorities that ask for them."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox, self.client = sandbox, sandbox.client
        self.driver = f"{sandbox.id}.example.com"
        self.classes: dict[str, str] = {}

    async def begin(self) -> None:
        self.classes["low"] = await self.sandbox.priority_class("low", 1000)
        self.classes["high"] = await self.sandbox.priority_class("high", 2000, preemptionPolicy="Never")

    async def device_class(self, name: str = "any", expression: str = "true", **spec: Any) -> str:
        """Add a class of the sandbox's devices that the expression selects; its full name."""
        full = f"{self.sandbox.id}-{name}"
        selectors = [{"cel": {"expression": f'device.driver == "{self.driver}" && ({expression})'}}]
        body = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": full}, "spec": {"selectors": selectors}}
        body["spec"] |= spec
        await self.client.create(DEVICE_CLASS.path(), body)
        self.sandbox.cleans_up(DEVICE_CLASS.path(None, full))
        return full

    async def publish(self, node: str, devices: list[Any], counters: list[Any] | None = None) -> None:
        """Publish the devices of a node, and the counters that they share."""
        specs = [{"devices": devices}] + ([{"sharedCounters": counters}] if counters else [])
        for number, spec in enumerate(specs):
            pool = {"name": node, "generation": 1, "resourceSliceCount": len(specs)}
            name = f"{node}-{number}"
            body = {"apiVersion": V1, "kind": "ResourceSlice", "metadata": {"name": name}}
            await self.client.create(
                RESOURCE_SLICE.path(),
                {**body, "spec": {"driver": self.driver, "nodeName": node, "pool": pool, **spec}},
            )
            self.sandbox.cleans_up(RESOURCE_SLICE.path(None, name))

    async def template(self, name: str, requests: list[Any], **more: Any) -> dict[str, Any]:
        """Add a template of claims; the entry of a pod that has one made for it."""
        spec = {"spec": {"devices": {"requests": requests, **more}}}
        body = {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}
        await self.client.create(TEMPLATE.path(self.sandbox.id), body)
        return {"name": "dev", "resourceClaimTemplateName": name}

    async def claim(self, name: str, requests: list[Any]) -> dict[str, Any]:
        """Add a claim; the entry of a pod that uses it."""
        spec = {"devices": {"requests": requests}}
        body = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
        await self.client.create(RESOURCE_CLAIM.path(self.sandbox.id), body)
        return {"name": "dev", "resourceClaimName": name}

    async def low(self, name: str, *claims: Any, **fields: Any) -> str:
        """Run a pod of low priority; the node it came to."""
        await self.pod(name, "low", claims, fields)
        return await self.sandbox.bound(name)

    async def pod(self, name: str, priority: str, claims: Any, fields: Any) -> None:
        requests = fields.pop("resources", {})
        await self.sandbox.pod(
            name,
            cpu="10m",
            priorityClassName=self.classes[priority],
            resourceClaims=list(claims),
            containers=[
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {
                        "requests": {"cpu": "10m", **requests},
                        "limits": requests,
                        "claims": [{"name": one["name"]} for one in claims],
                    },
                }
            ],
            **fields,
        )

    async def decided(self, name: str) -> Decision:
        """What the decision says of the waiting pod, as if it might preempt by plain rules."""
        snapshot = Snapshot()
        for kind in SNAPSHOT_KINDS:
            try:
                found, _ = await self.client.list(kind.resource.path(), kind.type_)
            except ApiError as error:
                if error.status == 404 and kind.optional:
                    continue
                raise
            for one in found:
                kind.put(snapshot, one)
        waiting = msgspec.convert(await self.sandbox.get(name), Pod)
        waiting.spec.preemption_policy = None
        return decide(snapshot, waiting, kubernetes_rules(), 0.0)

    async def makes_room(self, name: str, victims: set[str], *claims: Any, **fields: Any) -> None:
        """A pod of high priority waits; the decision names these victims; without them it is bound to their node."""
        await self.pod(name, "high", claims, fields)
        await self.sandbox.unschedulable(name)
        decision = await self.decided(name)
        assert decision.selected is not None, (decision.reason, decision.node_reasons)
        assert {victim.name for victim in decision.selected.victims} == victims
        for victim in sorted(victims):
            await self.client.delete(f"{self.sandbox.pods}/{victim}", {"gracePeriodSeconds": 0})
        assert await self.sandbox.bound(name, 30) == decision.selected.node


@pytest.fixture
async def devices(client: Client, sandbox: Any) -> Devices:
    """The sandbox's devices; skipped where there are none."""
    try:
        await client.get("/apis/resource.k8s.io/v1")
    except ApiError as error:
        pytest.skip(f"this API server serves no resource.k8s.io/v1: {error.status}")
    made = Devices(sandbox)
    await made.begin()
    return made


def exactly(device_class: str, count: int = 1, name: str = "r", **more: Any) -> dict[str, Any]:
    """A request for so many devices of the class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **more}}


def plain(count: int, **attributes: Any) -> list[dict[str, Any]]:
    """So many devices; the attributes are lists with one value for each."""
    return [
        {"name": f"d{n}", "attributes": {name: {"string": values[n]} for name, values in attributes.items()}}
        for n in range(count)
    ]


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
    decision = await devices.decided("high")
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
    await devices.makes_room("high", {"low-0", "low-1"}, own)


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
    await devices.makes_room("high", {"low-0", "low-1"}, wanted)


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
    await devices.makes_room("high", {"holds-large"}, wanted)


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
    await devices.makes_room("high", {"low-0", "low-1"}, whole)


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
    await devices.makes_room("high", {"holds-y"}, wanted)


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
    await devices.makes_room("high", {"low-0", "low-1"}, wanted)


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
    await devices.makes_room("high", {"low-0"}, await share("5Gi"))


async def test_an_extended_resource_that_a_class_serves(devices: Devices) -> None:
    """Pods that ask for an extended resource get claims; who holds the devices has to go."""
    node = await devices.sandbox.node("a")
    resource = f"{devices.driver}/gpu"
    await devices.device_class("gpu", extendedResourceName=resource)
    await devices.publish(node, plain(2))
    await devices.low("low-0", resources={resource: "1"})
    await devices.low("low-1", resources={resource: "1"})
    await devices.makes_room("high", {"low-0", "low-1"}, resources={resource: "2"})


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
    decision = await devices.decided("high")
    assert decision.eligible
    assert decision.selected is None
