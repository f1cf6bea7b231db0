"""What taking other policies into use costs: many pods are looked at again, and others get their turn meanwhile."""

import asyncio
import time
from itertools import pairwise

import pytest

from tests.processor_time import slowness
from tests.reconciler.builders import Desk, Setting, node, pod, policy, preemptor
from webhook.policy.model.policies import Policies
from webhook.policy.model.victims import PreemptibilityAnnotations, Victims

pytestmark = pytest.mark.slow

PODS, NODES = 12_000, 120
LONGEST = 0.02
"""Seconds of the processor for which the event loop may stand still."""


async def test_the_loop_does_not_stand_still_when_more_is_kept():
    """12 000 pods are read again for an annotation that a rule reads now, bit by bit, and nothing is decided then."""
    setting = Setting(*(node(f"n{number}", "800", pods="200") for number in range(NODES)))
    annotations = {"volcano.sh/preemptable": "false", "other.example.com/preemptible": "true"}
    for number in range(PODS):
        setting.add(pod(f"v{number}", "8", node=f"n{number % NODES}", annotations=annotations))
    desk = Desk(setting)
    setting.add(preemptor("p", "8"))
    desk.reconciler.turn()
    assert not desk.lines("decision"), "the pods are not opted in"
    names = PreemptibilityAnnotations(preemptible=("other.example.com/preemptible",))
    times = [time.process_time()]
    desk.reconciler.use(Policies(preemption=(policy(victims=Victims(annotations=names)),)))
    times.append(time.process_time())
    assert not setting.state.whole
    reading = asyncio.create_task(setting.state.wait_until_whole())
    while not reading.done():
        await asyncio.sleep(0)
        times.append(time.process_time())
    assert setting.state.whole
    for _ in range(200):
        desk.reconciler.turn()
        times.append(time.process_time())
    assert len(times) > 207
    stalls = sorted(after - before for before, after in pairwise(times))
    assert stalls[-2] < LONGEST * slowness(), "but for a collection of garbage"
    setting.clock.now += 60.0
    desk.reconciler.turn()
    assert desk.lines("decision")
