"""Victims are told before they are asked to leave, beside a stock kube-scheduler: on any kubeconfig."""

import asyncio
import json
import signal
import time
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.software import policies
from tests.killing import NOTICE_STEPS

Json = dict[str, Any]
NOTICE, READY, CONDITION = "giveway.dev/notice", "giveway.dev/ready-to-leave", "giveway.dev/PreemptionNotice"
SECONDS = 6


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


async def withdrawn(sandbox: Any, name: str) -> None:
    """Wait until a pod has no notice any more, and its condition says so."""
    await sandbox.without(NOTICE, name, 30)
    await sandbox.until(name, lambda pod: condition(pod) == "False", 30, "has no notice any more")


def condition(pod: Json) -> str:
    return next((one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == CONDITION), "")


async def test_told_then_asked(sandbox, giveway):
    """Annotation, condition and Event say by when; the pod is there until then, and the preemptor is bound after it."""
    high = await full(sandbox, "a")
    await giveway.reconcile(policy(high))
    await sandbox.preemptor(high, "2")
    notice = await told(sandbox, "a")
    by = datetime.fromisoformat(notice["by"]).timestamp()
    assert SECONDS - 2 < by - time.time() <= SECONDS + 1
    assert (notice["preemptor"], notice["priority"]) == (f"{sandbox.id}/p", 100)
    assert condition(await sandbox.get("a")) == "True"
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
    by = [datetime.fromisoformat((await told(sandbox, name))["by"]).timestamp() for name in ("a", "b")]
    await sandbox.client.patch(f"{sandbox.pods}/a", {"metadata": {"annotations": {READY: "true"}}})
    await sandbox.gone("a", 10)
    assert time.time() < by[0] - 5
    assert "b" in await sandbox.here()
    await sandbox.client.patch(f"{sandbox.pods}/b", {"metadata": {"annotations": {READY: "true"}}})
    await sandbox.bound("p", 30)
    assert time.time() < by[1]


async def test_nobody_keeps_a_notice(sandbox, giveway):
    """The preemptor is deleted: the pod stays, without a notice, and its condition and an Event say so."""
    high = await full(sandbox, "a")
    await giveway.reconcile(policy(high, 60))
    await sandbox.preemptor(high, "2")
    await told(sandbox, "a")
    await sandbox.client.delete(f"{sandbox.pods}/p")
    await withdrawn(sandbox, "a")
    assert "a" in await sandbox.here()
    await sandbox.told("", "PreemptionNoticeWithdrawn", "a", 10)


@pytest.mark.parametrize("step", NOTICE_STEPS)
async def test_kill_at_every_step(sandbox, giveway, step):
    """A process killed at this step of a notice leaves what the next leader keeps, or takes off."""
    high = await full(sandbox, "a", "b")
    ends = step.startswith("withdraw")
    first = await giveway.reconcile(policy(high, 60 if ends else 10), kill_at=step)
    await sandbox.preemptor(high, "4")
    if ends:
        for name in ("a", "b"):
            await told(sandbox, name)
        await sandbox.client.delete(f"{sandbox.pods}/p")
    assert await first.ended() == -signal.SIGKILL
    before = [(await sandbox.get(name))["metadata"].get("annotations", {}).get(NOTICE) for name in ("a", "b")]
    await giveway.reconcile(policy(high, 60 if ends else 10))
    if ends:
        for name in ("a", "b"):
            await withdrawn(sandbox, name)
        assert {"a", "b"} <= await sandbox.here()
        return
    kept = {name: json.loads(text) for name, text in zip(("a", "b"), before, strict=True) if text}
    assert kept
    for name, notice in kept.items():
        assert await told(sandbox, name) == notice, "the next leader keeps what the first one said"
    await sandbox.bound("p", 40)
    assert time.time() >= max(datetime.fromisoformat(one["by"]).timestamp() for one in kept.values())
