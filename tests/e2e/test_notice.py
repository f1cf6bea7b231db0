"""Victims are told before they are asked to leave, beside a stock kube-scheduler; whatever they do about it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.software import policies
from tests.killing import NOTICE_STEPS
from tests.workloads import Json, condition

NOTICE, READY, CONDITION = "giveway.dev/notice", "giveway.dev/ready-to-leave", "giveway.dev/PreemptionNotice"
SECONDS = 6
MOST = 262_144
"""Bytes that the annotations of an object may have in all."""


def policy(high: str, seconds: int = SECONDS) -> str:
    """A PreemptionPolicy with a notice for this class."""
    return policies(high, victims={"mode": "opt-in", "notice": f"{seconds}s"})


async def full(sandbox: Any, *victims: str) -> str:
    """A node that these pods fill; the class of the preemptors."""
    node = await sandbox.node("n1", cpu=str(2 * len(victims)))
    low, high = await sandbox.classes()
    for name in victims:
        await sandbox.victim(name, low, "2", node=node)
    return high


async def told(sandbox: Any, name: str) -> Json:
    """The notice of a pod, once it has one."""

    def said(pod: Json) -> Any:
        return pod["metadata"].get("annotations", {}).get(NOTICE)

    return json.loads(await sandbox.until(name, said, 20, "is told"))


def deadline(notice: Json) -> float:
    """By when the pod goes."""
    return datetime.fromisoformat(notice["by"]).timestamp()


async def withdrawn(sandbox: Any, name: str) -> None:
    """Wait until a pod has no notice any more, and its condition says so."""
    await sandbox.without(NOTICE, name, 30)
    await sandbox.until(name, lambda pod: condition(pod, CONDITION)["status"] == "False", 30, "has no notice any more")


async def test_told_then_asked(sandbox, giveway):
    """Annotation, condition and Event say by when; the pod is there until then, and the preemptor is bound after it."""
    high = await full(sandbox, "a")
    await giveway.reconcile(policy(high))
    await sandbox.preemptor(high, "2")
    notice = await told(sandbox, "a")
    by = deadline(notice)
    assert SECONDS - 2 < by - time.time() <= SECONDS + 1
    assert (notice["preemptor"], notice["priority"]) == (f"{sandbox.id}/p", 100)
    assert condition(await sandbox.get("a"), CONDITION)["status"] == "True"
    while time.time() < by - 0.5:
        assert "a" in await sandbox.here()
        await asyncio.sleep(0.2)
    await sandbox.bound("p", 30)
    assert time.time() > by
    for reason in ("PreemptionNotice", "Preempted"):
        await sandbox.told("", reason, "a", 10)


async def test_ready_goes_at_once(sandbox, giveway):
    """Of two victims the one that is ready goes, and the other one keeps its time."""
    high = await full(sandbox, "a", "b")
    await giveway.reconcile(policy(high, 20))
    await sandbox.preemptor(high, "4")
    by = [deadline(await told(sandbox, name)) for name in ("a", "b")]
    await sandbox.client.patch(f"{sandbox.pods}/a", {"metadata": {"annotations": {READY: "true"}}})
    await sandbox.gone("a", 10)
    assert time.time() < by[0] - 5
    assert "b" in await sandbox.here()
    await sandbox.client.patch(f"{sandbox.pods}/b", {"metadata": {"annotations": {READY: "true"}}})
    await sandbox.bound("p", 30)
    assert time.time() < by[1]


@pytest.mark.parametrize("changing", [False, True], ids=["a pod at rest", "a pod that changes all the time"])
async def test_nobody_keeps_a_notice(sandbox, giveway, changing):
    """The preemptor is deleted: the pod stays, without a notice, and its condition and an Event say so."""
    high = await full(sandbox, "a")
    async with restless(sandbox, "a") if changing else nullcontext([]) as changes:
        await giveway.reconcile(policy(high, 60))
        await sandbox.preemptor(high, "2")
        await told(sandbox, "a")
        before = len(changes)
        await sandbox.client.delete(f"{sandbox.pods}/p")
        await withdrawn(sandbox, "a")
        assert (len(changes) > before) == changing
    assert "a" in await sandbox.here()
    await sandbox.told("", "PreemptionNoticeWithdrawn", "a", 10)


@pytest.mark.parametrize("step", NOTICE_STEPS)
async def test_kill_at_every_step(sandbox, giveway, step):
    """A process killed at this step of a notice leaves what the next leader keeps, or takes off."""
    high = await full(sandbox, "a", "b")
    ends = step.startswith("withdraw")
    text = policy(high, 60 if ends else 10)
    first = await giveway.reconcile(text, kill_at=step)
    await sandbox.preemptor(high, "4")
    if ends:
        for name in ("a", "b"):
            await told(sandbox, name)
        await sandbox.client.delete(f"{sandbox.pods}/p")
    await first.killed()
    said = {name: (await sandbox.get(name))["metadata"].get("annotations", {}).get(NOTICE) for name in ("a", "b")}
    await giveway.reconcile(text)
    if ends:
        for name in ("a", "b"):
            await withdrawn(sandbox, name)
        assert {"a", "b"} <= await sandbox.here()
        return
    kept = {name: json.loads(notice) for name, notice in said.items() if notice}
    assert kept
    for name, notice in kept.items():
        assert await told(sandbox, name) == notice, "the next leader keeps what the first one said"
    await sandbox.bound("p", 40)
    assert time.time() >= max(map(deadline, kept.values()))


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
