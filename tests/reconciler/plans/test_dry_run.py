"""A dry run: what would happen, rehearsed with expectations and rates, and nothing written."""

import asyncio

import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, budget, node, pod, policy, preemptor
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.victims import Victims


def crowded(nodes: int = 3, **fields) -> Setting:
    """So many nodes, each full with one victim of its own."""
    setting = Setting(*(node(f"n{number}") for number in range(nodes)), under=policy(**fields))
    setting.add(*(pod(f"v{number}", "8", node=f"n{number}", labels={"app": "web"}) for number in range(nodes)))
    return setting


async def rehearsed(setting: Setting, until: float = 900.0, preemptors: int = 3, cpu: str = "8") -> Desk:
    """A dry run of so many preemptors, which ask for so much each, until then."""
    desk = Desk(setting, dry_run=True)
    setting.add(*(preemptor(f"p{number}", cpu) for number in range(preemptors)))
    await desk.work(until)
    return desk


def victims(desk: Desk) -> list[str]:
    return [victim["pod"] for line in desk.lines("decision") for victim in line.get("victims", ())]


@table(
    "nodes, preemptors, cpu",
    ("each evicts one", 3, 3, "8"),
    ("the second one fits beside the first, and waits for its victim", 1, 2, "3"),
)
async def test_one_decision_a_preemptor(nodes: int, preemptors: int, cpu: str):
    """Each is shown one plan, however long the dry run takes, and together they evict one pod of each node."""
    desk = await rehearsed(crowded(nodes), preemptors=preemptors, cpu=cpu)
    assert sorted(victims(desk)) == [f"default/v{number}" for number in range(nodes)]
    assert [line["preemptor"] for line in desk.lines("decision")] == [f"default/p{n}" for n in range(preemptors)]


async def test_a_grace_period_beyond_the_calendar():
    """A pod that asks for more seconds to end than there are until the year 9999 is a victim like any other."""
    setting = Setting(node("n0"))
    setting.add(pod("v", "8", node="n0", spec={"terminationGracePeriodSeconds": 2**63 - 1}))
    assert victims(await rehearsed(setting, 60.0, 1)) == ["default/v"]


async def test_later_pods_see_the_victims_gone():
    """Long after a victim would have gone, its room is given away like any other: once."""
    desk = await rehearsed(crowded(2), 600.0, 1, "4")
    desk.setting.add(preemptor("p1", "4"), preemptor("p2", "4"))
    await desk.work(900.0)
    assert len(victims(desk)) == 2


async def test_victims_go_later_if_they_are_told_before():
    """The rehearsal counts its victims as gone by so much later as their notice lasts."""
    gone = []
    for notice in (10.0, 60.0):
        desk = await rehearsed(crowded(1, victims=Victims(notice=notice)), 1.0, 1)
        gone.append(desk.reconciler.plans["default/p0"].emptied)
    assert gone[1] - gone[0] == 50.0
    assert gone[0] >= 10.0


async def test_rates_are_charged():
    """Under a rate of one a minute, the plans are a minute apart."""
    setting = crowded(limits=Limits(per_cluster=Rate(1, 60.0)))
    desk = await rehearsed(setting)
    times = [at for at, line in zip(desk.times, desk.told, strict=True) if line["message"] == "decision"]
    assert times == [0.0, 60.0, 120.0]


async def test_budgets_are_used_up_until_the_victims_are_replaced():
    """A budget of one lets one pod go at a time; once that one is gone it counts as replaced."""
    setting = crowded(2)
    setting.budget(budget("web", 1, {"app": "web"}))
    desk = await rehearsed(setting, 20.0, 2)
    assert len(victims(desk)) == 1
    await desk.work(120.0)
    assert len(victims(desk)) == 2


@pytest.mark.parametrize("ends", ["bound", "gone"])
async def test_nothing_is_kept_of_a_pod_that_is_done(ends: str):
    """When a preemptor is bound or gone, its rehearsed plan is forgotten, and its victims are there again."""
    setting = crowded(1)
    desk = await rehearsed(setting, preemptors=1)
    if ends == "gone":
        setting.remove("default/p0")
    else:
        setting.add(preemptor("p0", node="n9"))
    await asyncio.sleep(0)
    assert (len(desk.reconciler.plans), len(desk.reconciler.queue.entries)) == (0, 0)
    setting.add(preemptor("p9", "8"))
    await desk.work(setting.clock.now + 100.0)
    assert victims(desk) == ["default/v0", "default/v0"]
