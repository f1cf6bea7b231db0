"""A gang has one plan: how it goes on without a member, how a new leader finds it, and who joins it later."""

from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, are_nominated, asks, logged, node, planned, pod, policy, preemptor
from tests.reconciler.device_settings import Devices
from webhook.kube.objects.pod import Pod
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import Preemptors
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.plans.actions import End, Ending, Verb
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanRecord

GANG = "scheduling.x-k8s.io/pod-group"


def member(number: int, **more: Any) -> Pod:
    """A member of the gang, which needs a node."""
    return preemptor(f"gang-{number}", "4", labels={GANG: "gang"}, **more)


def full_nodes(members: int) -> Desk:
    """Three full nodes, and so many members of a gang with a minimum of two, each of which needs a node."""
    setting = Setting(*(node(f"n{number}", "4") for number in range(3)))
    setting.add(*(pod(f"v{number}", "4", node=f"n{number}") for number in range(3)))
    setting.group()
    desk = Desk(setting)
    for number in range(members):
        setting.add(member(number))
    desk.reconciler.turn()
    return desk


async def test_a_gang_has_one_plan():
    """It has a node for each member, and is written on all of them, each with its own node and the victims of all."""
    desk = full_nodes(2)
    first, second = desk.reconciler.plans.values()
    assert first is second
    written = [first.written_on(member) for member in first.members.values()]
    assert [record.node for record in written] == [member.node for member in first.members.values()]
    assert len({member.node for member in first.members.values()}) == len(written[0].victims) == 2
    assert len({(record.id, record.victims, record.members) for record in written}) == 1
    assert [member.name for member in written[0].members] == ["gang-0", "gang-1"]


@table(
    "ending, queued",
    ("it is bound", Ending.BOUND, False),
    ("its nomination is lost", Ending.LOST, True),
    ("its nomination is taken for a pod of higher priority", Ending.DISPLACED, True),
    ("it is deleted", Ending.DELETED, False),
)
async def test_a_member_that_leaves(ending: Ending, queued: bool):
    """The others go on if they are enough with those that are bound; else the plan ends, and all are decided for."""
    desk = full_nodes(2)
    reconciler = desk.reconciler
    plan = reconciler.plans["default/gang-0"]
    if ending is Ending.BOUND:
        bound = member(1, node=plan.members["default/gang-1"].node)
        reconciler.state.pods.take("default/gang-1", bound)
    else:
        reconciler._end(plan, ending, because=plan.members["default/gang-1"])
    assert (plan.ended, [member.key for member in plan.unplaced]) == (None, ["default/gang-0"])
    assert ("default/gang-1" in reconciler.queue.entries) is queued
    action = reconciler.plan_manager.look(plan)
    assert isinstance(action, End) is (ending is not Ending.BOUND)
    if isinstance(action, End):
        assert action.note == "coscheduling PodGroup default/gang needs 2 pods, and 1 are nominated or bound"
    reconciler.turn()
    assert plan.ended is (None if ending is Ending.BOUND else Ending.GANG)
    if ending is Ending.LOST:  # nobody is planned for beside a plan that is about to end
        assert sorted(reconciler.plans) == ["default/gang-0", "default/gang-1"]
        assert len({new.id for new in reconciler.plans.values()} - {plan.id}) == 1


@pytest.mark.parametrize("on", [(0, 1), (0,)], ids=["too many to be written", "on the first alone"])
async def test_a_new_leader_holds_the_devices_of_all_members(on: tuple[int, ...]):
    """Also those that are not written: the ones that a member would get once all victims are gone."""

    def gang(plan: Plan | None = None) -> Desk:
        setting = Devices(n1=2, n2=2)
        setting.group()
        for number in range(2):
            member = plan.unplaced[number] if plan is not None and number in on else None
            made = setting.wants(f"gang-{number}", 2, labels={GANG: "gang"}, nominated=member.node if member else "")
            if plan is not None and member is not None:
                record = plan.written_on(member)
                setting.add(planned(made, msgspec.structs.replace(record, devices=()) if len(on) > 1 else record))
        return Desk(setting)

    desk = gang()
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    before = desk.reconciler.plans["default/gang-0"]
    assert len(before.devices) == 4
    taken = gang(before)
    taken.lead()
    assert sorted(taken.reconciler.plans["default/gang-0"].devices) == sorted(before.devices)
    assert isinstance(taken.setting.evaluate(taken.setting.wants("q", 1)), Unschedulable)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_plan_of_a_gang_that_is_found_leaves_others_their_members(order: tuple[int, ...]):
    """Who lost its nomination and has another plan by now keeps that, whichever is found first."""
    before, desk = full_nodes(2).reconciler.plans["default/gang-0"], full_nodes(0)
    records = [before.written_on(row) for row in before.members.values()]
    records[1] = PlanRecord(id="alone", node=records[1].node, victims=records[1].victims)
    made = [planned(member(n, nominated=record.node), record) for n, record in enumerate(records)]
    desk.setting.add(*made)
    desk.reconciler.queue.clear()
    logged(desk.reconciler.evaluator.log, *made)
    for number in order:
        desk.reconciler._look_at(f"default/gang-{number}")
    plans = {key: plan.id for key, plan in desk.reconciler.plans.items()}
    assert plans == {"default/gang-0": before.id, "default/gang-1": "alone"}


async def test_victims_are_tried_once_members_are_nominated():
    """Nothing is written between a dry run and the evictions: they would wait for it."""
    desk = full_nodes(2)
    plan = desk.reconciler.plans["default/gang-0"]
    assert asks(desk.reconciler.plan_manager.look(plan)).keys() == {Verb.NOMINATE}
    are_nominated(plan)
    assert asks(desk.reconciler.plan_manager.look(plan)).keys() == {Verb.TRY}


async def test_members_that_go_by_several_policies():
    """They are decided for again: nobody goes by the rules of a policy that does not manage its preemptor."""
    desk = full_nodes(1)
    desk.reconciler.state.pods.take("default/gang-1", member(1, class_name="other"))
    both = msgspec.structs.replace(policy(), preemptors=Preemptors(priority_classes=("high", "other")))
    desk.reconciler.use(Policies(preemption=(both,)))
    desk.reconciler.turn()
    plan = desk.reconciler.plans["default/gang-0"]
    are_nominated(plan)
    other = msgspec.structs.replace(policy(), name="other", preemptors=Preemptors(priority_classes=("other",)))
    desk.reconciler.use(Policies(preemption=(policy(), other)))
    action = desk.reconciler.plan_manager.look(plan)
    assert isinstance(action, End)
    assert action.ending is Ending.OUTDATED
