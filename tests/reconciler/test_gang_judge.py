"""What the judges of simulated clusters make of a gang of which a member is deleted."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.preemption.building import node
from tests.reconciler.faults.fault import Json, preemptor, simulated, victim
from tests.reconciler.gang_judge import GangJudge
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run
from webhook.policy.model.values import PLAN


def nominated(name: str, *victims: str) -> Json:
    """One of the members a and b of a gang, with its plan on n1."""
    gang = {"id": "g", "members": ["a", "b"]}
    plan = {"id": f"g-{name}", "node": "n1", "victims": [{"uid": f"uid-{one}"} for one in victims], "gang": gang}
    made = preemptor(name)
    made["metadata"]["annotations"] = {PLAN: json.dumps(plan)}
    made["status"]["nominatedNodeName"] = "n1"
    return made


def two_members() -> Simulation:
    """Victim v goes for member a, and nobody for b."""
    made = simulated(node("n1", "8"))
    made.put(victim("v", "n1"))
    made.put(nominated("a", "v"))
    made.put(nominated("b"))
    return made


@pytest.mark.parametrize("shown", [True, False])
def test_a_member_is_missing_once_the_watch_has_shown_it(shown: bool):
    """Nobody can know of a deletion before that."""
    found: list[str] = []

    async def live() -> None:
        made = two_members()
        judge = GangJudge(made)
        if not shown:
            made.seen["b"] = made.pods["b"]
        made.withdraw("b")
        for told in made.asked:
            told("v")
        found.extend(judge.faults)

    run(live())
    assert found == (["v goes for a while ['b'] is not nominated"] if shown else [])


@pytest.mark.parametrize("deleted", [True, False])
def test_a_member_for_whom_nobody_went(deleted: bool):
    """If somebody deletes it, the plans of the other members may end; else they have evicted in vain."""
    found: list[str] = []

    async def live() -> None:
        made = two_members()
        await asyncio.sleep(5.0)
        made.outcomes.decided({"plan": "g-a"})
        made.outcomes.evicted("uid-v")
        if deleted:
            made.withdraw("b")
        made.put({**made.pods["a"], "metadata": {**made.pods["a"]["metadata"], "annotations": {}}})
        found.extend(made.outcomes.in_vain)

    run(live())
    assert bool(found) is not deleted
