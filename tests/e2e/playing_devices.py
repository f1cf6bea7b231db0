"""Devices (DRA) of one test: a driver that is played, classes, claims, and pods of two priorities that ask for them.

kube-scheduler allocates and kube-controller-manager takes back. Needs `resource.k8s.io/v1` (1.34 and newer).
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, Resource

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


def exactly(device_class: str, count: int = 1, name: str = "r", **more: Any) -> dict[str, Any]:
    """A request for so many devices of the class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **more}}


def plain(count: int, **attributes: Any) -> list[dict[str, Any]]:
    """So many devices; the attributes are lists with one value for each."""
    return [
        {"name": f"d{n}", "attributes": {name: {"string": values[n]} for name, values in attributes.items()}}
        for n in range(count)
    ]


class Scenario(NamedTuple):
    """Pods of low priority on one node, and what a pod of high priority wants there.

    `prepare` begins it and returns the claims and further fields of that pod. `staying` need not go, all others do.
    """

    name: str
    prepare: Callable[[Devices], Awaitable[tuple[tuple[Any, ...], dict[str, Any]]]]
    staying: frozenset[str] = frozenset()


async def _shared(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A device that two pods share is free when both are gone; who holds another one stays."""
    await devices.publish(await devices.sandbox.node("a"), plain(2, model=["x", "y"]))
    model = f'device.attributes["{devices.driver}"].model'
    x = await devices.device_class("x", f'{model} == "x"')
    y = await devices.device_class("y", f'{model} == "y"')
    both = await devices.claim("both", [exactly(x)])
    await devices.low("low-0", both)
    await devices.low("low-1", both)
    await devices.low("other", await devices.template("y", [exactly(y)]))
    return (await devices.template("own", [exactly(x)]),), {}


async def held(devices: Devices, count: int, free: int = 0) -> str:
    """Node `a` with so many devices held by a pod `low-N` of low priority each, and free ones; their class."""
    await devices.publish(await devices.sandbox.node("a"), plain(count + free))
    device_class = await devices.device_class()
    one = await devices.template("one", [exactly(device_class)])
    for number in range(count):
        await devices.low(f"low-{number}", one)
    return device_class


async def _all(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All devices of the node: every holder has to go, though one device is free."""
    device_class = await held(devices, 2, free=1)
    all_ = {"name": "r", "exactly": {"deviceClassName": device_class, "allocationMode": "All"}}
    return (await devices.template("all", [all_]),), {}


async def _class_with_an_expression(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Only who holds a device that the class selects has to go."""
    await devices.publish(await devices.sandbox.node("a"), plain(2, model=["small", "large"]))
    model = f'device.attributes["{devices.driver}"].model'
    small = await devices.device_class("small", f'{model} == "small"')
    large = await devices.device_class("large", f'{model} == "large"')
    wanted = await devices.template("large", [exactly(large)])
    await devices.low("holds-small", await devices.template("small", [exactly(small)]))
    await devices.low("holds-large", wanted)
    return (wanted,), {}


async def _partitions(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The whole device needs the counters that both of its halves use up."""
    memory = {"whole": "80Gi", "half-0": "40Gi", "half-1": "40Gi"}
    published = [
        {
            "name": name,
            "attributes": {"size": {"string": name.partition("-")[0]}},
            "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}],
        }
        for name, amount in memory.items()
    ]
    counters = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
    await devices.publish(await devices.sandbox.node("a"), published, counters)
    size = f'device.attributes["{devices.driver}"].size'
    half = await devices.template("half", [exactly(await devices.device_class("half", f'{size} == "half"'))])
    whole = await devices.template("whole", [exactly(await devices.device_class("whole", f'{size} == "whole"'))])
    await devices.low("low-0", half)
    await devices.low("low-1", half)
    return (whole,), {}


async def _one_ring(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Two devices with one ring: the pod that holds one of the other ring may stay."""
    await devices.publish(await devices.sandbox.node("a"), plain(3, ring=["x", "y", "y"]))
    device_class = await devices.device_class()
    ring = f'device.attributes["{devices.driver}"].ring'
    selects = {name: [{"cel": {"expression": f'{ring} == "{name}"'}}] for name in "xy"}
    await devices.low("holds-x", await devices.template("x", [exactly(device_class, selectors=selects["x"])]))
    await devices.low("holds-y", await devices.template("y", [exactly(device_class, selectors=selects["y"])]))
    constraints = [{"matchAttribute": f"{devices.driver}/ring"}]
    return (await devices.template("pair", [exactly(device_class, 2)], constraints=constraints),), {}


async def _first_available(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of a prioritized list the alternative counts that can be had once pods are gone."""
    device_class = await held(devices, 2)
    alternatives = [{"name": f"n{n}", "deviceClassName": device_class, "count": n} for n in (3, 2)]
    return (await devices.template("first", [{"name": "r", "firstAvailable": alternatives}]),), {}


async def _shares(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A device with several allocations: as much of its capacity has to come free as is asked for."""
    shared = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}
    await devices.publish(await devices.sandbox.node("a"), [shared])
    device_class = await devices.device_class()

    async def share(amount: str) -> dict[str, Any]:
        wanted = exactly(device_class, capacity={"requests": {"memory": amount}})
        return await devices.template(f"share-{amount.lower()}", [wanted])

    await devices.low("low-0", await share("6Gi"))
    await devices.low("low-1", await share("4Gi"))
    return (await share("5Gi"),), {}


async def _extended_resource(devices: Devices) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Pods that ask for an extended resource get claims; who holds the devices has to go."""
    resource = f"{devices.driver}/gpu"
    await devices.device_class("gpu", extendedResourceName=resource)
    await devices.publish(await devices.sandbox.node("a"), plain(2))
    await devices.low("low-0", resources={resource: "1"})
    await devices.low("low-1", resources={resource: "1"})
    return (), {"resources": {resource: "2"}}


SCENARIOS = (
    Scenario("a shared claim", _shared, frozenset({"other"})),
    Scenario("all devices", _all),
    Scenario("a class with an expression", _class_with_an_expression, frozenset({"holds-small"})),
    Scenario("partitions", _partitions),
    Scenario("devices of one ring", _one_ring, frozenset({"holds-x"})),
    Scenario("the first that can be had", _first_available),
    Scenario("shares of a device", _shares, frozenset({"low-1"})),
    Scenario("an extended resource that a class serves", _extended_resource),
)
"""Who has to go for whom."""
