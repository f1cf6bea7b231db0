"""Plans as the page shows them: those of a gang as one, and victims that go as one group together."""

import msgspec
import pytest

from tests.reconciler.builders import START, Setting, node, plan_for, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import NOTICE, PLAN, READY
from webhook.reconciler.overview.overview import plan_shown, written_plans
from webhook.reconciler.plans.actions import Ending
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.state.annotations import NoticeRecord, PlanMember, PlanRecord, PlanVictim, encode

JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "wide"}
KUEUE = {"kueue.x-k8s.io/pod-group-total-count": "4"}


def record(*victims, members=()):
    """A plan for n1, or for members on the nodes of their numbers; victims are names with their groups."""
    named = tuple(PlanVictim("default", name, f"uid-{name}", group) for name, group in victims)
    plan = PlanRecord(id="id", node="n1", victims=named, begun=rfc3339(START + 4.0), deadline=rfc3339(START + 64.0))
    own = tuple(PlanMember(f"g-{number}", f"uid-g-{number}", f"n{number}") for number in members)
    return msgspec.structs.replace(plan, members=own) if own else plan


def member(number, **more):
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    return pod(f"g-{number}", priority=100, labels=labels, annotations=KUEUE, **more)


def shown(setting, plan, *pods):
    """What is shown of a plan that is written on these pods, by default on one."""
    pods, nodes = pods or (preemptor(),), {row.uid: row.node for row in plan.members or ()}
    for one in pods:
        own = msgspec.structs.replace(plan, node=nodes.get(one.metadata.uid, plan.node))
        one.metadata.annotations = {**(one.metadata.annotations or {}), PLAN: encode(own)}
        setting.add(one)
    (written,) = written_plans(setting.state, pods, 0.0)
    return plan_shown(setting.state, written, 0.0)


@pytest.fixture
def setting():
    made = Setting(*(node(f"n{number}") for number in range(4)))
    made.add(
        pod("v1", node="n1", labels=JOB_SET),
        pod("v2", node="n2"),
        pod("v3", node="n2", labels=JOB_SET),
        member(0, node="n0"),
    )
    return made


def test_a_gang_is_one_plan(setting):
    """Its members are bound, nominated or neither; what is missing to the minimum is said."""
    whole = record(("v2", 0), ("v3", 2), ("gone", 0), ("v1", 2), members=(1, 2))
    assert shown(setting, record(), preemptor("alone")).gang is None
    plan = shown(setting, whole, member(1, nominated="n1"), member(2))
    assert (plan.step, plan.begun, plan.until, plan.reserved) == (2, START + 4.0, START + 64.0, False)
    found = plan.gang
    assert (found.name, found.minimum) == ("Kueue pod group default/g", 4)
    assert (found.bound, found.nominated, found.missing) == (1, 1, 2)
    assert [(one.pod, one.node, one.state) for one in found.members] == [
        ("default/g-0", "n0", "bound"),
        ("default/g-1", "n1", "nominated"),
        ("default/g-2", "n2", "to be nominated"),
    ]
    assert [(one.pod, one.group) for one in plan.victims] == [
        ("default/v2", ""),
        ("default/v3", "JobSet default/wide"),
        ("default/v1", "JobSet default/wide"),
        ("default/gone", ""),
    ]


def test_a_plan_whose_first_member_has_left_it(setting):
    """The first one that goes on stands for it, with its own priority and node."""
    first = Member("default/a", "uid-a", 200, "n1", ended=Ending.DELETED)
    row = plan_shown(setting.state, Plan(record(), [first, Member("default/b", "uid-b", 100, "n2")], 0.0, 300.0), 0.0)
    assert (row.preemptor, row.priority, row.node) == ("default/b", 100, "n2")


def test_victims_of_one_group_stand_together(setting):
    """Also if others are between them, and if one of them is gone; many are cut."""
    names = [("v1", 1), ("v2", 0), ("gone", 1), *((f"w{number}", 0) for number in range(11))]
    plan = shown(setting, record(*names))
    assert [(one.pod, one.state) for one in plan.victims[:3]] == [
        ("default/v1", "to be asked"),
        ("default/gone", "gone"),
        ("default/v2", "to be asked"),
    ]
    assert {one.group for one in plan.victims[:2]} == {"JobSet default/wide"}
    assert (len(plan.victims), plan.more_victims) == (12, 2)


def test_victims_that_the_record_does_not_name(setting):
    """Those that are there have their names, those that are gone are counted."""
    uids = (setting.state.pods.get("default/v2").metadata.uid, "of-one-that-is-gone")
    plan = msgspec.structs.replace(record(), victims=tuple(PlanVictim("", "", uid) for uid in uids))
    row = shown(setting, plan)
    assert ([one.pod for one in row.victims], row.more_victims) == (["default/v2"], 1)


def test_by_when_a_victim_goes(setting):
    """A victim that was told says by when it is asked, or that it is ready; a notice of another plan says nothing."""
    by = "2027-01-15T08:00:00Z"
    for name, plan, answer in (("v1", "id", {}), ("v2", "id", {READY: "true"}), ("v3", "id-2", {})):
        told = encode(NoticeRecord(plan=plan, by=by, uid="u", priority=100))
        setting.add(pod(name, node="n1", annotations={NOTICE: told, **answer}))
    plan = shown(setting, record(("v1", 0), ("v2", 0), ("v3", 0)))
    assert [one.state for one in plan.victims] == [f"to be asked by {by}", "told, and ready", "to be asked"]
    assert plan.step == 2


def test_how_far_a_leader_is_with_a_victim(setting):
    """Also before the watch shows it."""
    plan = plan_for(record(("v1", 0), ("v2", 0), ("v3", 0), ("gone", 0)))
    plan.gone, plan.asking, plan.unneeded = {"uid-v1"}, {"uid-v2": pod("v2")}, {"uid-v3"}
    states = [one.state for one in plan_shown(setting.state, plan, 0.0).victims]
    assert states == ["asked", "being asked", "stays", "gone"]


def test_victims_are_looked_up_for_plans_that_are_shown(setting):
    """Those without names are found among all pods: whoever may write annotations need not have that done for each."""
    preemptors = [preemptor(f"p{number}") for number in range(30)]
    for one in preemptors:
        plan = PlanRecord(id=one.metadata.name, node="n1", victims=(PlanVictim(uid="uid-v1"),))
        one.metadata.annotations = {PLAN: encode(plan)}
    named = [plan.record.victims[0].name for plan in written_plans(setting.state, preemptors, 0.0)]
    assert named == ["v1"] * 20 + [""] * 10
