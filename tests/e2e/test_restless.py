"""A pod is not kept by changing it all the time, nor by annotations that leave no room: on any kubeconfig."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.test_notice import full, policy, told, withdrawn

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
async def test_a_victim_that_changes_all_the_time_goes(sandbox, giveway, seconds: int):
    """It is judged again a few times, with a notice told, and then asked to leave."""
    high = await full(sandbox, "a")
    async with restless(sandbox, "a") as changes:
        await giveway.reconcile(policy(high, seconds))
        before = len(changes)
        await sandbox.preemptor(high, "2")
        await sandbox.bound("p", 60 + seconds)
        assert len(changes) > before + 20


async def test_a_notice_is_taken_off_a_pod_that_changes_all_the_time(sandbox, giveway):
    """When the preemptor is gone nothing on the pod says any more that it goes."""
    high = await full(sandbox, "a")
    async with restless(sandbox, "a") as changes:
        await giveway.reconcile(policy(high, 60))
        await sandbox.preemptor(high, "2")
        await told(sandbox, "a")
        before = len(changes)
        await sandbox.client.delete(f"{sandbox.pods}/p")
        await withdrawn(sandbox, "a")
        assert len(changes) > before


async def test_a_victim_whose_annotations_have_no_room_goes(sandbox, giveway):
    """The Event tells it, and it has its time."""
    high = await full(sandbox, "a")
    pod = await sandbox.get("a")
    there = sum(len(key) + len(text) for key, text in pod["metadata"]["annotations"].items())
    body = {"metadata": {"annotations": {"filled": "x" * (MOST - there - len("filled"))}}}
    await sandbox.client.patch(f"{sandbox.pods}/a", body)
    await giveway.reconcile(policy(high, 3))
    await sandbox.preemptor(high, "2")
    await sandbox.told("", "PreemptionNotice", "a", 20)
    await sandbox.bound("p", 20)
