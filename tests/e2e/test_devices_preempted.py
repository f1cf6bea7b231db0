"""The reconciler preempts for devices (DRA): whoever has to go goes, nobody else, and the preemptor is bound.

On the real scheduler, which allocates, and the real controller, which takes back; the driver is played. Run with
`--kubelet-stand-in` where nodes have no kubelet. Skipped where `resource.k8s.io/v1` (1.34 and newer) is not served.
"""

import asyncio
import json
from typing import Any, NamedTuple

import pytest

from tests.e2e.software import Process, Software, policies
from tests.policy.builders import table
from tests.workloads import Json, eventually, served
from webhook.kube.client import Client
from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, Resource
from webhook.policy.model.values import MANAGED, MARK, PLAN

TEMPLATE = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DRIVER = "SANDBOX.example.com"
"""The driver. In what is sent SANDBOX stands for the sandbox's id, so that each test has drivers and classes alone."""
ANY = {"any": "true"}
NOTHING = list[Json]()


def exactly(count: int = 1, of: str = "any", **more: Any) -> Json:
    """A request for so many devices of the class."""
    return {"name": "r", "exactly": {"deviceClassName": f"SANDBOX-{of}", "count": count, **more}}


def plain(count: int, **attributes: str) -> list[Json]:
    """So many devices; of an attribute each has its word of the text."""
    values = {name: text.split() for name, text in attributes.items()}
    return [
        {"name": f"d{n}", "attributes": {name: {"string": words[n]} for name, words in values.items()}}
        for n in range(count)
    ]


def has(attribute: str, value: str) -> str:
    """An expression: the device has this attribute."""
    return f'device.attributes["{DRIVER}"].{attribute} == "{value}"'


def capacity(amount: str) -> Json:
    """A request for a share of a device."""
    return exactly(capacity={"requests": {"memory": amount}})


class Scenario(NamedTuple):
    """Devices of a node, pods of low priority that hold them, and what a pod of high priority wants there.

    `held` are requests by the names of the pods that share the claim. `staying` need not go, all others do.
    """

    devices: list[Json]
    held: dict[str, Json]
    wants: list[Json] = NOTHING
    staying: frozenset[str] = frozenset()
    classes: dict[str, str] = ANY
    constraints: list[Json] = NOTHING
    counters: list[Json] = NOTHING


def full(count: int) -> Scenario:
    """So many devices, each held by a pod of its own."""
    return Scenario(plain(count), {f"low-{n}": exactly() for n in range(count)})


def part(name: str, amount: str) -> Json:
    """The whole device, or a half of it, which use up the counter that they share."""
    counters = [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}]
    return {"name": name, "attributes": {"size": {"string": name[:5]}}, "consumesCounters": counters}


SCENARIOS = {
    "a shared claim is free when both pods are gone": Scenario(
        plain(2, model="x y"),
        {"low-0 low-1": exactly(of="x"), "other": exactly(of="y")},
        [exactly(of="x")],
        frozenset({"other"}),
        {"x": has("model", "x"), "y": has("model", "y")},
    ),
    "for all devices every holder goes, though one is free": Scenario(
        plain(3),
        {"low-0": exactly(), "low-1": exactly()},
        [{"name": "r", "exactly": {"deviceClassName": "SANDBOX-any", "allocationMode": "All"}}],
    ),
    "a class with an expression": Scenario(
        plain(2, model="small large"),
        {"holds-small": exactly(of="small"), "holds-large": exactly(of="large")},
        [exactly(of="large")],
        frozenset({"holds-small"}),
        {"small": has("model", "small"), "large": has("model", "large")},
    ),
    "the whole needs what both halves use up": Scenario(
        [part("whole", "80Gi"), part("half0", "40Gi"), part("half1", "40Gi")],
        {"low-0": exactly(of="half"), "low-1": exactly(of="half")},
        [exactly(of="whole")],
        classes={"half": f"!({has('size', 'whole')})", "whole": has("size", "whole")},
        counters=[{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}],
    ),
    "of two devices of one ring that of another one stays": Scenario(
        plain(3, ring="x y y"),
        {f"holds-{ring}": exactly(selectors=[{"cel": {"expression": has("ring", ring)}}]) for ring in "xy"},
        [exactly(2)],
        frozenset({"holds-x"}),
        constraints=[{"matchAttribute": f"{DRIVER}/ring"}],
    ),
    "the first alternative that can be had": Scenario(
        plain(2),
        {"low-0": exactly(), "low-1": exactly()},
        [{"name": "r", "firstAvailable": [{"name": f"n{n}", **exactly(n)["exactly"]} for n in (3, 2)]}],
    ),
    "as much of the capacity as is asked for": Scenario(
        [{"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}],
        {"low-0": capacity("6Gi"), "low-1": capacity("4Gi")},
        [capacity("5Gi")],
        frozenset({"low-1"}),
    ),
}


class Devices:
    """The devices of a sandbox, pods that ask for them, and a reconciler that acts for those of high priority."""

    def __init__(self, sandbox: Any, giveway: Software) -> None:
        self.sandbox, self.giveway = sandbox, giveway
        self.classes: dict[str, str] = {}
        self._claims = 0

    async def begin(self) -> None:
        for name, value in (("low", 1000), ("middle", 1500), ("high", 2000), ("stranger", 5000)):
            self.classes[name] = await self.sandbox.priority_class(name, value, preemptionPolicy="Never")

    async def create(self, resource: Resource, name: str, spec: Json) -> None:
        """Make an object, in the sandbox's namespace if it has one."""
        body = {"metadata": {"name": name}, "spec": json.loads(json.dumps(spec).replace("SANDBOX", self.sandbox.id))}
        if resource.namespaced:
            await self.sandbox.client.create(resource.path(self.sandbox.id), body)
        else:
            await self.sandbox.create(resource, body)

    async def publish(self, node: str, devices: list[Json], counters: list[Json] = NOTHING) -> str:
        """A new node has these devices, and the counters that they share; its full name."""
        full_name = str(await self.sandbox.node(node))
        specs = [{"devices": devices}, *([{"sharedCounters": counters}] if counters else [])]
        pool = {"name": full_name, "generation": 1, "resourceSliceCount": len(specs)}
        for number, spec in enumerate(specs):
            whole = {"driver": DRIVER, "nodeName": full_name, "pool": pool, **spec}
            await self.create(RESOURCE_SLICE, f"{full_name}-{number}", whole)
        return full_name

    async def device_class(self, name: str, expression: str, **more: Any) -> None:
        """Add a class of the sandbox's devices that the expression selects."""
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}" && ({expression})'}}
        await self.create(DEVICE_CLASS, f"{self.sandbox.id}-{name}", {"selectors": [selector], **more})

    async def prepare(self, scenario: Scenario) -> str:
        """Node `a` with the scenario's devices, and the pods that hold them; its full name."""
        node = await self.publish("a", scenario.devices, scenario.counters)
        for name, expression in scenario.classes.items():
            await self.device_class(name, expression)
        for names, request in scenario.held.items():
            first, *others = names.split()
            if others:
                await self.create(RESOURCE_CLAIM, "shared", {"devices": {"requests": [request]}})
                for name in names.split():
                    await self.pod(name, "low", {"resourceClaimName": "shared"})
            else:
                await self.asks(first, "low", request)
            for name in names.split():
                await self.sandbox.bound(name)
        return node

    async def pod(self, name: str, priority: str, claim: Json | None, resources: Json | None = None) -> None:
        """Create a pod of that priority with a claim."""
        amounts = {"requests": {"cpu": "10m", **(resources or {})}, "limits": resources or {}}
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": amounts}
        more = {}
        if claim:
            container["resources"] = {**amounts, "claims": [{"name": "dev"}]}
            more = {"resourceClaims": [{"name": "dev", **claim}]}
        labels = {MARK: MANAGED} if priority == "high" else {"app": name}
        class_name = self.classes[priority]
        await self.sandbox.pod(name, priorityClassName=class_name, labels=labels, containers=[container], **more)

    async def asks(self, name: str, priority: str, *requests: Json, **more: Any) -> None:
        """Create a pod that has a claim with these requests made for it."""
        await self.create(TEMPLATE, f"for-{name}", {"spec": {"devices": {"requests": requests, **more}}})
        await self.pod(name, priority, {"resourceClaimTemplateName": f"for-{name}"})

    async def claims(self, field: str) -> list[str]:
        """The names of the claims whose status has this."""
        claims, _ = await self.sandbox.client.list(RESOURCE_CLAIM.path(self.sandbox.id), dict)
        return [one["metadata"]["name"] for one in claims if field in (one.get("status") or {})]

    async def reconcile(self, kill_at: str = "") -> Process:
        """Start it, perhaps to be killed at a step."""
        policy = policies(self.classes["high"], victims={"mode": "opt-out"}, limits={"attemptsPerPreemptor": 3})
        return await self.giveway.reconcile(policy, kill_at=kill_at)

    async def ended(self, name: str = "high") -> str:
        """The node of the preemptor once it is bound and its plan is taken off."""
        node = str(await self.sandbox.bound(name, 40))
        await self.sandbox.without(PLAN, name)
        await asyncio.sleep(1)
        return node


@pytest.fixture
async def devices(client: Client, sandbox: Any, giveway: Software) -> Devices:
    """The sandbox's devices; skipped where there are none."""
    await served(client.get("/apis/resource.k8s.io/v1"), "resource.k8s.io/v1")
    made = Devices(sandbox, giveway)
    await made.begin()
    return made


@table("scenario", SCENARIOS)
async def test_who_has_to_go(devices: Devices, scenario: Scenario) -> None:
    """Just those pods go, and the preemptor is bound."""
    await devices.prepare(scenario)
    await devices.reconcile()
    await devices.asks("high", "high", *scenario.wants, constraints=scenario.constraints)
    await devices.ended()
    assert await devices.sandbox.here() == {"high", *scenario.staying}


async def test_an_extended_resource_that_a_class_serves(devices: Devices) -> None:
    """Pods that ask for an extended resource get claims; who holds the devices has to go."""
    resource = f"{devices.sandbox.id}.example.com/gpu"
    await devices.device_class("gpu", "true", extendedResourceName=resource)
    await devices.publish("a", plain(2))
    for name in ("low-0", "low-1"):
        await devices.pod(name, "low", None, {resource: "1"})
        await devices.sandbox.bound(name)
    await devices.reconcile()
    await devices.pod("high", "high", None, {resource: "2"})
    await devices.ended()
    assert await devices.sandbox.here() == {"high"}


async def test_a_claim_without_the_finalizer_is_not_counted_on(devices: Devices) -> None:
    """The controller would not take such an allocation back (docs/kubernetes-behaviour.md K42): nobody goes for it."""
    await devices.prepare(Scenario(plain(1), {"low-0 low-1": exactly()}))
    [claim] = await eventually(lambda: devices.claims("reservedFor"))
    path = RESOURCE_CLAIM.path(devices.sandbox.id, claim)
    await devices.sandbox.client.patch(path, {"metadata": {"finalizers": None}}, kind="merge")
    process = await devices.reconcile()
    await devices.asks("high", "high", exactly())
    await eventually(lambda: process.lines("no preemption"), 30)
    await asyncio.sleep(1)
    assert await devices.sandbox.here() == {"low-0", "low-1", "high"}


async def test_two_preemptors_for_the_devices_of_one_node(devices: Devices) -> None:
    """Each gets two of four devices, and each victim goes once."""
    await devices.prepare(full(5))
    await devices.reconcile()
    for name in ("high-0", "high-1"):
        await devices.asks(name, "high", exactly(2))
    for name in ("high-0", "high-1"):
        await devices.ended(name)
    assert len(await devices.sandbox.here() - {"high-0", "high-1"}) == 1


@pytest.mark.parametrize("step", ["nominated", "evicted"])
async def test_kill_before_the_deallocation(devices: Devices, step: str) -> None:
    """Two of four devices: the next leader waits for what the one before had planned or freed, and two pods go.

    The plan names the devices that the preemptor waits for, and nobody allocates them by hand.
    """
    await devices.prepare(full(4))
    first = await devices.reconcile(kill_at=step)
    await devices.asks("high", "high", exactly(2))
    await first.killed()
    plan = (await devices.sandbox.get("high"))["metadata"]["annotations"][PLAN]
    assert f'"devices":[["{devices.sandbox.id}.example.com"' in plan
    if step == "nominated":
        assert len(await devices.claims("allocation")) == 4
    await devices.reconcile()
    await devices.ended()
    assert len(await devices.sandbox.here() - {"high"}) == 2


async def test_a_stranger_who_takes_the_devices(devices: Devices) -> None:
    """Whoever takes a device first keeps it if nobody may evict him; once he has gone the preemptor is bound."""
    sandbox = devices.sandbox
    node = await devices.prepare(full(2))
    await devices.publish("b", plain(1))
    await devices.asks("low-b", "low", exactly())
    await sandbox.bound("low-b")
    async with sandbox.held("low-0", "low-1"):
        process = await devices.reconcile()
        await devices.asks("high", "high", exactly(2))

        async def both_leave() -> bool:
            return not {"low-0", "low-1"} & await sandbox.here()

        await eventually(both_leave, 15, "both victims have been asked")
        await devices.asks("stranger", "stranger", exactly())
        await sandbox.unschedulable("stranger")
        # With one device free the stranger has room, and the preemptor has not
        await sandbox.let_go("low-0")
        await sandbox.bound("stranger", 40)

    def ended() -> bool:
        return any(line.get("ending") in {"devices-taken", "space-taken"} for line in process.lines("plan ended"))

    await eventually(ended, 20, "the plan is over")
    assert "low-b" in await sandbox.here(), "one device less helps nobody who wants two"
    assert not (await sandbox.get("high"))["spec"].get("nodeName")
    await sandbox.client.delete(f"{sandbox.pods}/stranger")
    assert await devices.ended() == node
    assert await sandbox.here() == {"high", "low-b"}


async def test_a_waiting_pod_that_wants_fewer_devices(devices: Devices) -> None:
    """The pod whose devices come free at once goes, not two whose devices the waiting pod would take one by one."""
    await devices.prepare(full(2))
    other = await devices.publish("b", plain(2))
    await devices.asks("both", "middle", exactly(2))
    assert await devices.sandbox.bound("both") == other
    await devices.asks("waits", "low", exactly())
    await devices.sandbox.unschedulable("waits")
    await devices.reconcile()
    await devices.asks("high", "high", exactly(2))
    assert await devices.ended() == other
    assert await devices.sandbox.here() == {"high", "low-0", "low-1", "waits"}
