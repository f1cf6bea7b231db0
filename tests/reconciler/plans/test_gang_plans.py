"""The plans of a gang belong together, also those of members that join later, and those that are about to end."""

import msgspec

from tests.reconciler.builders import Desk, Setting, node, pod, policy, preemptor
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.preemption.snapshot.kinds import POD_GROUPS
from webhook.preemption.snapshot.pod_groups import COSCHEDULING
from webhook.reconciler.plans.actions import End, Ending, Try, Wait

GANG = "scheduling.x-k8s.io/pod-group"


def full_nodes(members: int, *, of: str = "") -> Desk:
    """Three full nodes, and so many members of a gang with a minimum of two, each of which needs a node.

    The pods there may be `of` a group that goes whole, and that needs two of them.
    """
    setting = Setting(
        *(node(f"n{number}", "4") for number in range(3)),
        under=policy(groups=Groups(disruption=GroupDisruption.GROUP)),
    )
    labels = {GANG: of} if of else {}
    setting.add(*(pod(f"v{number}", "4", node=f"n{number}", labels=labels) for number in range(3)))
    for name in filter(None, ("gang", of)):
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 2}}
        setting.state.snapshot.put(POD_GROUPS[COSCHEDULING], msgspec.convert(body, PodGroup))
    desk = Desk(setting)
    for number in range(members):
        setting.add(preemptor(f"gang-{number}", "4", labels={GANG: "gang"}))
    desk.reconciler.turn()
    return desk


async def test_nobody_is_planned_for_beside_plans_that_are_about_to_end():
    """A member whose plan is over waits until the others' plans are over, too: then all are decided for together."""
    desk = full_nodes(2)
    reconciler = desk.reconciler
    first = reconciler.plans["default/gang-0"]
    reconciler._end(reconciler.plans["default/gang-1"], Ending.OUTDATED)
    reconciler.turn()
    assert first.ended is Ending.GANG
    assert sorted(reconciler.plans) == ["default/gang-0", "default/gang-1"]
    assert len({plan.record.gang for plan in reconciler.plans.values()} - {first.record.gang}) == 1


async def test_once_somebody_was_asked_for_a_gang_all_its_plans_go_on():
    """That a member fits elsewhere by now ends its plan before anybody was asked, and not when somebody was."""
    desk = full_nodes(2)
    reconciler, manager = desk.reconciler, desk.reconciler.plan_manager
    first, second = reconciler.plans.values()
    for plan in (first, second):
        plan.nominated = True
        plan.displaced = True
    reconciler.state.nodes.take("n9", node("n9", "4"))
    ended = manager.next_action(second)
    assert isinstance(ended, End)
    assert ended.note == "it fits without preemption by now"
    (victim,) = first.record.victims
    manager.asked(first, reconciler.state.pods.get(victim.key))
    assert isinstance(manager.next_action(second), Try)


async def test_a_victim_that_another_plan_has_asked_is_not_asked_again():
    """Also as long as no watch shows that it leaves."""
    desk = full_nodes(2)
    reconciler, manager = desk.reconciler, desk.reconciler.plan_manager
    first, second = reconciler.plans.values()
    manager.index.remove(second)
    second.record = msgspec.structs.replace(second.record, victims=first.record.victims)
    manager.index.add(second)
    for plan in (first, second):
        plan.nominated = True
        plan.displaced = True
    (victim,) = first.record.victims
    manager.asked(first, reconciler.state.pods.get(victim.key))
    assert isinstance(manager.next_action(second), Wait)
    assert second.waiting


async def test_a_member_that_joins_depends_on_those_before_it():
    """Its plan is one of the same gang, and over with theirs; theirs do not need it."""
    desk = full_nodes(2)
    reconciler, manager = desk.reconciler, desk.reconciler.plan_manager
    reconciler.state.pods.take("default/gang-2", preemptor("gang-2", "4", labels={GANG: "gang"}))
    reconciler.turn()
    first, joined = (reconciler.plans[f"default/gang-{number}"] for number in (0, 2))
    assert joined.record.gang.members == ("gang-0", "gang-1", "gang-2")
    assert manager.index.siblings(joined) == [first, reconciler.plans["default/gang-1"]]
    reconciler._end(joined, Ending.OUTDATED)
    assert not isinstance(manager.next_action(first), End)
    reconciler.turn()
    assert reconciler.plans["default/gang-2"].record.id != joined.record.id


async def test_all_plans_of_a_gang_know_who_goes_together():
    """A pod that its group could spare goes with the group, by each of the plans that the group goes for."""
    desk = full_nodes(2, of="train")
    together = {f"default/v{number}": 1 for number in range(3)}
    for plan in desk.reconciler.plans.values():
        assert {victim.key: victim.group for victim in plan.record.victims} == together
    assert len(desk.reconciler.plans) == 2
