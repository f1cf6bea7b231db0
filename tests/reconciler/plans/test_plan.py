"""A plan: what is written of it, and how a new leader goes on with it."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import (
    START,
    Desk,
    Setting,
    are_nominated,
    asks,
    budget,
    node,
    plan_for,
    planned,
    pod,
    preemptor,
)
from webhook.kube.instants import rfc3339
from webhook.reconciler.plans.actions import Ending, Tries, Verb, Wait
from webhook.reconciler.plans.plan import PlanIndex
from webhook.reconciler.plans.room import later_equals
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim
from webhook.reconciler.state.state import ServerTime


@table(
    "notice, there, verbs",
    ("the victim stays: it is asked", 0.0, True, [Verb.ASK]),
    ("its notice is not known any more, and the policy asks for none", 60.0, True, [Verb.ASK]),
    ("nobody is left", 0.0, False, []),
)
async def test_a_new_leader_goes_on(notice: float, there: bool, verbs: list[Verb]):
    """Who has to be told and asked is read off the victims; when the plan began is written."""
    setting, made = Setting(node("n1")), preemptor("p", "8", nominated="n1")
    record = PlanRecord(id="plan", node="n1", victims=(PlanVictim("default", "v", "uid-v"),), begun=rfc3339(START - 60))
    planned(made, msgspec.structs.replace(record, notice=notice))
    setting.add(*([pod("v", "8", node="n1")] if there else []), made)
    desk = Desk(setting)
    desk.lead()
    plan = desk.reconciler.plans["default/p"]
    assert plan.nominated
    assert plan.evicting is not None
    assert list(asks(desk.reconciler.plan_manager.look(plan))) == verbs


@table(
    "gone, touched",
    ("a victim on its node", "near", True),
    ("a victim on another node", "far", True),
    ("another pod there", "other", False),
)
async def test_whose_end_has_a_plan_looked_at(gone: str, touched: bool):
    """A plan that has evicted is looked at as soon as another of its victims is gone, on whatever node that was."""
    setting, made = Setting(node("n1"), node("n2")), preemptor("p", "8", nominated="n1")
    victims = tuple(PlanVictim("default", name, f"uid-{name}") for name in ("near", "far", "earlier"))
    planned(made, PlanRecord(id="plan", node="n1", victims=victims, begun=rfc3339(START - 60)))
    setting.add(*(pod(name, "2", node=on) for name, on in (("near", "n1"), ("far", "n2"), ("other", "n2"))), made)
    desk = Desk(setting)
    desk.lead()
    assert desk.reconciler.plans["default/p"].record.id == "plan"
    unchecked = desk.reconciler.plan_manager.unchecked
    unchecked.clear()
    setting.remove(f"default/{gone}")
    assert ("plan" in unchecked) is touched


@pytest.mark.parametrize(("ending", "counted_on"), [(Ending.DELETED, True), (Ending.TIMED_OUT, False)])
async def test_who_is_still_being_asked_when_a_plan_ends(ending: Ending, counted_on: bool):
    """Until the answer comes decisions count on it to leave, but not if the plan's time was over: it may stay."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "8", node="n1"))
    desk = Desk(setting)
    setting.add(preemptor("p", "8"))
    desk.reconciler.turn()
    plan = desk.reconciler.plans["default/p"]
    plan.busy = True
    plan.asking["uid-v"] = setting.state.pods.items()["default/v"]
    desk.reconciler.plan_manager.end(plan, ending)
    assert ("default/v" in setting.state.index.leaving) is counted_on


def test_who_goes_with_whom():
    """Of a group of which one was asked all are bound to go; single victims and other groups are not."""
    victims = tuple(
        PlanVictim("default", name, name, group) for name, group in (("a", 1), ("b", 1), ("c", 2), ("d", 0))
    )
    plan = plan_for(PlanRecord(id="x", node="n1", victims=victims))
    bound_to_go = [plan.bound_to_go()]
    for name in ("d", "a"):
        plan.note_asked(name, 0.0, ServerTime(0.0))
        bound_to_go.append(plan.bound_to_go())
    assert bound_to_go == [frozenset(), frozenset(), {"a", "b"}]


@pytest.mark.parametrize("ids", ["xy", "yx"])
def test_plans_of_one_moment_have_an_order(ids: str):
    """Which of them loses room that was taken is said by their preemptors' names, not by what is made at random."""
    first, second = (
        plan_for(PlanRecord(id=plan_id, node="n1"), f"default/{name}") for plan_id, name in zip(ids, "ab", strict=True)
    )
    index = PlanIndex()
    for plan in (first, second):
        index.add(plan)
    assert [later_equals(plan, plan.members[0], index) for plan in (first, second)] == [["default/b"], []]


@pytest.mark.parametrize("covered", ["a", "ab"])
async def test_nobody_overtakes_who_is_asked_again(covered: str):
    """While one that a budget covers is to be asked again those that none covers wait, and so does the last one."""
    setting = Setting(node("n1", "4"))
    setting.add(*(pod(name, "2", node="n1", labels={"app": str(name in covered)}) for name in "ab"))
    setting.budget(budget("budget", 2, {"app": "True"}))
    desk = Desk(setting)
    setting.add(preemptor("p", "4"))
    desk.reconciler.turn()
    plan, manager = desk.reconciler.plans["default/p"], desk.reconciler.plan_manager
    are_nominated(plan)
    plan.tried = {"uid-a": True, "uid-b": True}
    first = asks(manager.look(plan))
    (asked,) = first[Verb.PREPARE]
    plan.tries[f"uid-{asked}"] = Tries(due=5.0)
    assert manager.look(plan) == Wait(5.0)
    setting.clock.now = 5.0
    assert asks(manager.look(plan)) == first
