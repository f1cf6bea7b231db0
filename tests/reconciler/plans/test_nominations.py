"""Whose nomination a plan takes, and what it costs those who lose theirs."""

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, are_nominated, asks, node, plan_for, pod, preemptor
from webhook.reconciler.plans.actions import ENDINGS, Ending, Verb
from webhook.reconciler.plans.room import to_displace
from webhook.reconciler.state.annotations import PlanRecord

pytestmark = pytest.mark.skipped_waits


@table(
    "requests, displaced",
    ("both fit beside it", (("a", "2", 90), ("b", "3", 80)), []),
    ("the more important one fits", (("a", "3", 90), ("b", "3", 80)), ["b"]),
    ("the less important one fits", (("a", "6", 90), ("b", "3", 80)), ["a"]),
    ("neither fits", (("a", "6", 90), ("b", "6", 80)), ["a", "b"]),
    ("that of another scheduler is its own affair", (("a", "6", 90), ("other", "9", 80)), ["a"]),
)
def test_who_is_displaced(requests, displaced: list[str]):
    """Beside a preemptor of 3 CPU on a node of 8, the more important pods keep their place first."""
    setting = Setting(node("n1"))
    for name, cpu, priority in requests:
        spec = {"schedulerName": "other" if name == "other" else "default-scheduler"}
        setting.add(preemptor(name, cpu, priority=priority, nominated="n1", spec=spec))
    setting.add(preemptor("p", "3", nominated="n1"))
    plan = plan_for(PlanRecord(id="x", node="n1"))
    assert [pod.metadata.name for pod in to_displace(setting.state, plan)] == displaced


async def test_lower_nominations_are_cleared_before_anybody_goes():
    """Once, if there are any: one that could not be cleared does not hold the plan up."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "8", node="n1"), preemptor("low", "8", priority=90, nominated="n1"))
    made, desk = preemptor("p", "8"), Desk(setting)
    manager = desk.reconciler.plan_manager
    plan = manager.begin(made, setting.policy, setting.evaluate(made), 0)
    are_nominated(plan)
    assert asks(manager.look(plan)) == {Verb.DISPLACE: ["low"]}
    plan.displaced = {"uid-low"}
    assert asks(manager.look(plan)) == {Verb.ASK: ["v"]}


async def test_a_step_is_over_when_all_of_it_is(monkeypatch: pytest.MonkeyPatch):
    """Asking about a victim fails while the nomination is on its way: the plan ends once that is written."""
    setting, written = Setting(node("n1")), []
    setting.add(pod("a", "4", node="n1"), pod("b", "4", node="n1"))
    desk = Desk(setting)
    setting.add(preemptor("p", "8"))

    async def nominate(*_: object) -> None:
        await asyncio.sleep(0.5)
        written.append(len(desk.lines("plan ended")))

    async def evict(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(desk.reconciler.executor._writer, "nominate", nominate)
    monkeypatch.setattr(desk.reconciler.executor._writer, "evict", evict)
    working = asyncio.create_task(desk.reconciler.work())
    await asyncio.sleep(1.0)
    assert (written, [line["ending"] for line in desk.lines("plan ended")]) == ([0], ["failed"])
    working.cancel()


_NO_ATTEMPT = {
    Ending.DISPLACED,
    Ending.GANG,
    Ending.LOST,
    Ending.NODE_CHANGED,
    Ending.NODE_GONE,
    # Nothing is tried again after these
    Ending.BOUND,
    Ending.RESIZED,
    Ending.DELETED,
    Ending.DEPOSED,
}


@pytest.mark.parametrize("ending", Ending)
async def test_attempts_that_count(ending: Ending):
    """A plan that evicted in vain counts, unless it was displaced, or its nomination or its node was taken away."""
    reconciler = Desk(Setting(node("n1"))).reconciler
    entry = reconciler.queue.offer("default/p", uid="uid-p", priority=100, created=0.0, now=0.0)
    plan = plan_for(PlanRecord(id="x", node="n1"), gone={"uid-v"})
    reconciler.plan_manager.index.add(plan)
    reconciler._end(plan, ending)
    assert entry.attempts == int(ending not in _NO_ATTEMPT)


def test_every_ending_has_a_row_and_is_told_to_people():
    """What an ending means is said in the code, and what happened in the table of the page for operators."""
    assert list(ENDINGS) == list(Ending)
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    _, _, table = page.partition("| ending | what happened |\n|---|---|\n")
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines())
    assert sorted(row.split("`")[1] for row in rows) == sorted(Ending)


async def test_a_clearing_that_never_began():
    """If the lease is lost just when a plan has ended, a later term takes the plan off."""
    setting = Setting(node("n1"))
    desk = Desk(setting)
    reconciler = desk.reconciler
    setting.add(preemptor())
    plan = plan_for(PlanRecord(id="x", node="n1"))
    reconciler.plan_manager.index.add(plan)
    reconciler._end(plan, Ending.TIMED_OUT)
    assert setting.state.pending.is_clearing("default/p", "x")
    await reconciler.stop()
    assert not setting.state.pending.is_clearing("default/p", "x")
