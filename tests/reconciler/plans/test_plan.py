"""A plan: what is written of it, how its nominations go, when something is asked again, and how it ends."""

import itertools
from pathlib import Path

import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, node, plan_for, planned, pod, preemptor
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.reconciler.plans.actions import TRIES, Ending, Tries
from webhook.reconciler.plans.room import to_displace
from webhook.reconciler.state.annotations import PlanRecord

pytestmark = pytest.mark.skipped_waits


@pytest.mark.parametrize(("ending", "counted_on"), [(Ending.DELETED, True), (Ending.TIMED_OUT, False)])
async def test_who_is_still_being_asked_when_a_plan_ends(ending: Ending, counted_on: bool):
    """Until the answer comes decisions count on it to leave, but not if the plan's time was over: it may stay."""
    setting, made = Setting(node("n1")), preemptor("p", "8")
    setting.add(pod("v", "8", node="n1"))
    manager = Desk(setting).reconciler.plan_manager
    plan = manager.begin(made, setting.policy, setting.evaluate(made), 0)
    plan.busy, plan.asking["uid-v"] = True, setting.state.pods.items()["default/v"]
    manager.end(plan, ending)
    assert ("default/v" in setting.leaving()) is counted_on


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
    plan.unplaced *= 2  # also beside two of a gang it is asked for once
    assert [pod.metadata.name for pod in to_displace(setting.state, plan)] == displaced


async def test_looking_at_plans_gives_way():
    """However many plans wait and however long a look takes, looking goes on for a moment at a time."""
    setting, seen, longest = Setting(node("n1")), list[str](), 0
    manager = Desk(setting).reconciler.plan_manager
    for number in range(20):
        plan = plan_for(PlanRecord(id=f"x{number}", node="n1"), f"default/p{number}")
        manager.index.put(plan)
        manager.unchecked[plan] = None
    for _ in range(10):
        before = len(seen)
        for plan in manager.touched(setting.clock.now + 0.05):
            seen.append(plan.id)
            setting.clock.now += 0.015
        longest = max(longest, len(seen) - before)
    assert longest < 6
    assert len(seen) == len(set(seen)) == 20


IN_VAIN = {"space-taken", "devices-taken", "timed-out", "budget-refused", "failed", "outdated"}


@pytest.mark.parametrize("ending", Ending)
async def test_attempts_that_count(ending: Ending):
    """A plan that evicted in vain counts, unless it was displaced, or its nomination or its node was taken away."""
    reconciler = Desk(Setting(node("n1"))).reconciler
    entry = reconciler.queue.offer("default/p", uid="uid-p", priority=100, created=0.0, now=0.0)
    plan = plan_for(PlanRecord(id="x", node="n1"), gone={"uid-v"})
    reconciler.plan_manager.index.put(plan)
    reconciler._end(plan, ending)
    assert entry.attempts == int(ending in IN_VAIN)


def test_every_ending_is_told_to_people():
    """What happened is said in the table of the page for operators."""
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    _, _, table = page.partition("| ending | what happened |\n|---|---|\n")
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines())
    assert sorted(row.split("`")[1] for row in rows) == sorted(Ending)


async def test_a_clearing_that_never_began():
    """If the lease is lost just when a plan has ended, a later term takes the plan off."""
    setting = Setting(node("n1"))
    desk = Desk(setting)
    reconciler, plan = desk.reconciler, plan_for(PlanRecord(id="x", node="n1"))
    setting.add(planned(preemptor(nominated="n1"), plan.record))
    reconciler.plan_manager.index.put(plan)
    reconciler._end(plan, Ending.TIMED_OUT)
    for _ in range(2):
        reconciler.look_at_all()
        reconciler.turn()
        assert reconciler.executor._taking_off == {"default/p"}
        await reconciler.stop()


async def test_a_plan_that_went_on_elsewhere():
    """A later term goes on with a plan that was over for this process, if the leader before had it under way."""
    setting = Setting(node("n1"))
    desk, made = Desk(setting), planned(preemptor(nominated="n1"), PlanRecord(id="x", node="n1"))
    setting.add(made)
    for ending in (Ending.TIMED_OUT, None):
        desk.reconciler._began = 0.0
        desk.lead()
        assert list(desk.reconciler.plans) == ["default/p"]
        if ending is not None:
            desk.reconciler._end(desk.reconciler.plans["default/p"], ending)
        await desk.reconciler.stop()


THROTTLED = ApiError(429, "", "Too many requests, please try again later.", retry_after=3.0)
REFUSED = ApiError(429, "TooManyRequests", "not today", details={"name": "v"})
MIGRATING = ApiError(429, "TooManyRequests", "Evacuation in progress", details={"name": "v"})
BROKEN = ApiError(500, "InternalError", "")
HUNG = ApiError(NO_ANSWER, "Timeout", "no answer within 12 s")
CHANGED = ApiError(409, "Conflict", "the object has been modified")
DENIED = ApiError(403, "Forbidden", "a webhook denies it")


@table(
    "error, pauses, begun, unclear",
    ("throttled: as long as the server says", THROTTLED, [3.0, 3.0, 4.0, 5.0, 5.0], False, False),
    ("it is on its way out", MIGRATING, [1.0, 2.0, 4.0, 5.0, 5.0], True, False),
    ("a server in trouble: four times in all", BROKEN, [0.1, 0.3, 0.9, None], False, True),
    ("a webhook that answers 429", REFUSED, [0.1, 0.3, 0.9, None], False, False),
    ("an eviction that got no answer in all its time", HUNG, [None], False, True),
    ("a denial", DENIED, [None], False, False),
)
def test_it_is_asked_again_after_a_while(error: ApiError, pauses: list[float | None], begun: bool, unclear: bool):
    """A 429 without a Status is about the server, not about the victim; None is where the server is asked for it."""
    tries, now = Tries(), 100.0
    for pause in pauses:
        tries.failed(error, now)
        assert tries.over is (pause is None)
        assert pause is None or tries.due - now == pytest.approx(pause)
        now += 10.0
    assert (tries.begun, tries.unclear) == (begun, unclear)


def test_nobody_keeps_a_pod_by_changing_it():
    """After some conflicts it is asked whatever it is by then; failures before one count no more."""
    tries = Tries()
    for number in range(TRIES):
        assert not tries.whatever
        for _ in range(TRIES - 1):
            tries.failed(BROKEN, 0.0)
            assert not tries.over
        tries.failed(CHANGED, float(number))
        assert tries.due > number
    assert tries.whatever
