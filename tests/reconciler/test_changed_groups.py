"""What becomes of a gang's plans if its PodGroup changes or goes while they are under way."""

from __future__ import annotations

import asyncio

import pytest

from tests.reconciler.gang_changes import remove_group, set_minimum
from tests.reconciler.gang_clusters import plain_gang
from tests.reconciler.gang_judge import GangJudge
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run

pytestmark = pytest.mark.slow


def changed_when_nominated(change: object) -> tuple[Simulation, GangJudge]:
    """A gang of three that needs a victim each, and what somebody does as soon as one of them is nominated."""
    clusters: list[tuple[Simulation, GangJudge]] = []

    async def live() -> None:
        made, judge = plain_gang()
        made.slow_writes = True
        clusters.append((made, judge))
        done = []

        def nominated(old: object, new: dict | None) -> None:
            if new is not None and new["status"].get("nominatedNodeName") and not done:
                done.append(new)
                asyncio.get_running_loop().call_soon(change, made)

        made.changes.append(nominated)
        await made.live(300.0)
        assert done

    run(live())
    return clusters[0]


def test_nobody_goes_if_the_minimum_rises():
    """If more members are needed than there are, nobody is evicted for those that are there."""
    made, judge = changed_when_nominated(lambda cluster: set_minimum(cluster, "gang", 5))
    assert made.evicted == []
    assert judge.faults == []
    assert not made.outcomes.unfinished(150.0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cluster: set_minimum(cluster, "gang", 2), id="fewer are needed"),
        pytest.param(lambda cluster: remove_group(cluster, "gang"), id="the PodGroup is deleted"),
    ],
)
def test_plans_go_on_if_less_is_needed(change: object):
    """All members that have been nominated together are bound."""
    made, judge = changed_when_nominated(change)
    assert judge.faults == []
    assert (len(made.evicted), made.outcomes.in_vain) == (3, [])
    assert all(made.pods[f"gang-{number}"]["spec"].get("nodeName") for number in range(3))
