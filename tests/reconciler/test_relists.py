"""What is decided, and who is evicted, while a cache takes in a list: nothing and nobody."""

import asyncio
import math

import pytest

from tests.reconciler.builders import Desk, Setting, node, pod, policy, preemptor
from webhook.kube.objects.meta import Condition
from webhook.policy.model.preemption import EvictionMode
from webhook.reconciler.plans.actions import Ending

pytestmark = pytest.mark.skipped_waits


async def passes(seconds: float = 1.0) -> None:
    """Let everybody have their turns."""
    await asyncio.sleep(seconds)


@pytest.mark.parametrize("mode", EvictionMode)
async def test_nobody_is_evicted_on_half_a_list(monkeypatch: pytest.MonkeyPatch, mode: EvictionMode):
    """A plan that is under way waits with its next eviction, and then looks at what has become of its node."""
    setting = Setting(node("n1", "8"), under=policy(eviction=mode))
    setting.add(pod("low", "8", node="n1"))
    desk = Desk(setting)
    made = preemptor("p", "8")
    setting.add(made)
    asked = []

    async def nominate(*_: object) -> None:
        setting.state.pods.whole.clear()  # a list begins while the nomination is written

    async def answered(what: str, _: object, *, removes: bool = False) -> None:
        asked.extend([what] * removes)

    writer = desk.reconciler.executor._writer
    monkeypatch.setattr(writer, "nominate", nominate)
    monkeypatch.setattr(writer, "timely", answered)
    working = asyncio.create_task(desk.reconciler.work())
    await passes()
    plan = desk.reconciler.plans["default/p"]
    assert plan.nominated
    assert not asked
    setting.add(pod("newer", "8", node="n1", priority=200))
    setting.state.pods.whole.set()
    await passes()
    assert not asked, "somebody else has the room by now"
    assert plan.ended is Ending.OUTDATED
    working.cancel()


@pytest.mark.parametrize("listed", [True, False])
async def test_what_a_list_shows_of_a_pod_is_no_sign_of_its_scheduler(listed: bool):
    """A scheduler may have refused the pod long before: only a watch shows that it does so now."""
    setting = Setting(node("n1"))
    setting.add(preemptor("p"))
    desk, refused = Desk(setting), preemptor("p")
    refused.status.conditions = [Condition(type="PodScheduled", status="False", message="another reason")]
    if listed:
        setting.state.pods.whole.clear()
    setting.add(refused)
    setting.state.pods.whole.set()
    had_its_chance = desk.reconciler.evaluator.schedulers.chance(refused, 0.0, 60.0) < math.inf
    assert had_its_chance is not listed
