"""Devices (DRA) of one test: a driver that is played, classes, claims, and pods of two priorities that ask for them.

kube-scheduler allocates and kube-controller-manager takes back. Needs `resource.k8s.io/v1` (1.34 and newer).
"""

from __future__ import annotations

from typing import Any

import pytest

from webhook.kube.client import ApiError, Client
from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, Resource

__all__ = ["Devices", "exactly", "plain", "skip_without_devices"]

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


async def skip_without_devices(client: Client) -> None:
    """Skip the test where the API server has no devices."""
    try:
        await client.get("/apis/resource.k8s.io/v1")
    except ApiError as error:
        pytest.skip(f"this API server serves no resource.k8s.io/v1: {error.status}")


def exactly(device_class: str, count: int = 1, name: str = "r", **more: Any) -> dict[str, Any]:
    """A request for so many devices of the class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **more}}


def plain(count: int, **attributes: Any) -> list[dict[str, Any]]:
    """So many devices; the attributes are lists with one value for each."""
    return [
        {"name": f"d{n}", "attributes": {name: {"string": values[n]} for name, values in attributes.items()}}
        for n in range(count)
    ]
