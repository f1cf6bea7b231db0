"""Small builders of API objects and the one way to wait, for the embedded and the end-to-end tests."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import POD

Json = dict[str, Any]


def pod(name: str, *, cpu: str = "100m", node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod that asks for `cpu`; further arguments are fields of its spec."""
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    body: Json = {"containers": [container], **spec}
    if node:
        body["nodeName"] = node
    metadata = {"name": name, "labels": labels or {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def namespace(name: str, **labels: str) -> Json:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def priority_class(name: str, value: int, **fields: Any) -> Json:
    """A PriorityClass; further arguments are its fields."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value, **fields}


def budget(name: str, labels: dict[str, str], **spec: Any) -> Json:
    """A PodDisruptionBudget over the pods with these labels."""
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return {**kind, "metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, **spec}}


def deployment(name: str, replicas: int, cpu: str = "100m", kind: str = "Deployment", **spec: Any) -> Json:
    """A Deployment, or another workload with the same shape."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(name, cpu=cpu)["spec"]}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def condition(obj: Json, type_: str) -> Json:
    """The condition of that type, empty where there is none."""
    rows = obj.get("status", {}).get("conditions") or []
    return next((row for row in rows if row["type"] == type_), {})


async def eventually(check: Callable[[], Any], seconds: float = 10.0, what: str = "") -> Any:
    """What `check` (sync or async) returns as soon as that is true. Fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s: {what or inspect.getsource(check).strip()}"
        await asyncio.sleep(0.02)


async def never(check: Callable[[], Any], seconds: float, what: str = "") -> None:
    """Fail if `check` (sync or async) becomes true within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if inspect.isawaitable(value):
            value = await value
        assert not value, f"it happened: {what or inspect.getsource(check).strip()}"
        await asyncio.sleep(0.05)


async def refusal(request: Awaitable[Any]) -> str:
    """Why the API server refuses a request; empty if it does not."""
    try:
        await request
    except ApiError as error:
        return error.message
    return ""


async def refused(request: Awaitable[Any], words: str) -> None:
    """The request is forbidden in these words, such as the name of the rule."""
    with pytest.raises(ApiError) as caught:
        await request
    assert (caught.value.status, words in caught.value.message) == (403, True), caught.value.message


async def until_refused(make: Callable[[], Awaitable[Any]], words: str, seconds: float = 30) -> None:
    """Wait until a request is refused in these words: what is applied takes a moment to hold."""

    async def is_refused() -> bool:
        return words in await refusal(make())

    await eventually(is_refused, seconds, f"a refusal says {words!r}")


async def served(request: Awaitable[Any], what: str) -> Any:
    """The answer; the test is skipped, visibly, if the API server has no such thing."""
    try:
        return await request
    except ApiError as error:
        if error.status == 404:
            pytest.skip(f"this API server has no {what}")
        raise


async def fills_in_priorities(client: Client) -> bool:
    """Whether the API server runs with its Priority plugin."""
    return "priority" in (await client.create(POD.path("default"), pod("probe"), dryRun="All"))["spec"]


async def is_there(client: Client, path: str) -> bool:
    """Whether an object is there."""
    return await unless_absent(client.get(path)) is not None
