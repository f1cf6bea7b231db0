"""kill -9 at every step of a plan, then a new leader: no victim too many, no nomination leaked, the preemptor bound."""

import asyncio
import signal

import pytest

from tests.e2e.software import policies
from tests.killing import STEPS
from webhook.policy.model.values import PLAN


@pytest.mark.parametrize("step", STEPS)
async def test_kill_at_every_step(sandbox, giveway, step):
    """A process killed at this step leaves a plan that the next leader finishes, or takes back and makes again."""
    nodes = [await sandbox.node(f"n{number}", cpu="8") for number in range(2)]
    low, high = await sandbox.classes()
    for number in range(8):
        await sandbox.victim(f"v{number}", low, "2", node=nodes[number % 2])
    first = await giveway.reconcile(policies(high), kill_at=step)
    await sandbox.preemptor(high, "6", "preemptor")
    assert await first.ended() == -signal.SIGKILL
    second = await giveway.reconcile(policies(high))
    node = await sandbox.bound("preemptor", 30)

    await sandbox.without(PLAN, "preemptor")
    await asyncio.sleep(1)
    gone = {f"v{number}" for number in range(8)} - await sandbox.here()
    assert len(gone) == 3, second.log.read_text()
    assert {f"v{number}" for number in range(8) if nodes[number % 2] == node} > gone, "all of one node"
    pods, _ = await sandbox.client.list(sandbox.pods, dict)
    assert not [pod for pod in pods if pod["status"].get("nominatedNodeName") and not pod["spec"].get("nodeName")]
