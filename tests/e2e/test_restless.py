"""A pod is not kept by changing it all the time, nor by annotations that leave no room: on any kubeconfig."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.software import installed
from tests.e2e.test_notice import asks, full, policy, reasons, told, withdrawn
from tests.workloads import eventually

MOST = 262_144
"""Bytes that the annotations of an object may have in all."""


@asynccontextmanager
async def restless(sandbox: Any, name: str) -> AsyncIterator[list[int]]:
    """The pod is changed all the time, over four connections; counts how often."""
    changes: list[int] = []

    async def change(connection: int) -> None:
        while True:
            body = {"metadata": {"annotations": {"example.com/count": f"{connection}-{len(changes)}"}}}
            await sandbox.client.patch(f"{sandbox.pods}/{name}", body)
            changes.append(connection)

    tasks = [asyncio.create_task(change(connection)) for connection in range(4)]
    try:
        yield changes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0, 3])
async def test_a_victim_that_changes_all_the_time_goes(sandbox, kubeconfig, tmp_path, seconds: int):
    """It is judged again a few times, with a notice told, and then asked to leave."""
    high = await full(sandbox, "a")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway, restless(sandbox, "a") as changes:
        await giveway.reconcile(policy(high, seconds))
        before = len(changes)
        await asks(sandbox, high, "2")
        await sandbox.bound("p", 60 + seconds)
        assert len(changes) > before + 20


async def test_a_notice_is_taken_off_a_pod_that_changes_all_the_time(sandbox, kubeconfig, tmp_path):
    """When the preemptor is gone nothing on the pod says any more that it goes."""
    high = await full(sandbox, "a")
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway, restless(sandbox, "a") as changes:
        await giveway.reconcile(policy(high, 60))
        await asks(sandbox, high, "2")
        await told(sandbox, "a")
        before = len(changes)
        await sandbox.client.delete(f"{sandbox.pods}/p")
        await withdrawn(sandbox, "a")
        assert len(changes) > before


async def test_a_victim_whose_annotations_have_no_room_goes(sandbox, kubeconfig, tmp_path):
    """The Event tells it, and it has its time."""
    high = await full(sandbox, "a")
    pod = await sandbox.get("a")
    there = sum(len(key) + len(text) for key, text in pod["metadata"]["annotations"].items())
    body = {"metadata": {"annotations": {"filled": "x" * (MOST - there - len("filled"))}}}
    await sandbox.client.patch(f"{sandbox.pods}/a", body)
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        await giveway.reconcile(policy(high, 3))
        await asks(sandbox, high, "2")
        await eventually(lambda: told_by_event(sandbox), 20, "an Event tells it")
        await sandbox.bound("p", 20)


async def told_by_event(sandbox: Any) -> bool:
    return "PreemptionNotice" in await reasons(sandbox, "a")
