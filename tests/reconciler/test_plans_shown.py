"""Plans as the page shows them: those of a gang as one, and victims that go as one group together."""

import msgspec
import pytest

from tests.reconciler.builders import START, Setting, node, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import NOTICE, READY
from webhook.reconciler.overview.plans_shown import UnderWay, by_gang, shown_as_one, victims_shown
from webhook.reconciler.state.annotations import GangRecord, PlanRecord, PlanVictim
from webhook.reconciler.state.notices import NoticeRecord, encode

GANG = "scheduling.x-k8s.io/pod-group"
JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "wide"}
KUEUE = {"kueue.x-k8s.io/pod-group-total-count": "4"}


def record(number, *victims, gang=True):
    """A plan for a member on the node of its number; victims are names with their groups."""
    named = tuple(PlanVictim("default", name, f"uid-{name}", group) for name, group in victims)
    plan = PlanRecord(id=f"id-{number}", node=f"n{number}", victims=named)
    return msgspec.structs.replace(plan, gang=GangRecord("id", ("g-1", "g-2"))) if gang else plan


def member(number, **more):
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    return pod(f"g-{number}", priority=100, labels=labels, annotations=KUEUE, **more)


def at(seconds, plan):
    """The plan as one that began then, and may take a minute."""
    return msgspec.structs.replace(plan, begun=rfc3339(START + seconds), deadline=rfc3339(START + seconds + 60.0))


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
    """Its members are bound, nominated or neither; what is missing to the minimum is said, and the last one's step."""
    plans = [
        UnderWay(member(1, nominated="n1"), at(5.0, record(1, ("gone", 0)))),
        UnderWay(preemptor("alone"), record(3, gang=False)),
        UnderWay(member(2), at(4.0, record(2, ("v2", 0), ("v3", 2), ("v1", 2)))),
    ]
    gang, alone = by_gang(plans)
    assert [one.pod.metadata.name for one in gang] == ["g-1", "g-2"]
    assert shown_as_one(setting.state, alone, 0.0).gang is None
    assert (gang[0].step(setting.state), gang[0].reserved) == (3, True)
    shown = shown_as_one(setting.state, gang, 0.0)
    assert (shown.step, shown.begun, shown.until, shown.reserved) == (2, START + 4.0, START + 65.0, False)
    found = shown.gang
    assert (found.name, found.minimum) == ("Kueue pod group default/g", 4)
    assert (found.bound, found.nominated, found.missing) == (1, 1, 2)
    assert [(one.pod, one.node, one.state) for one in found.members] == [
        ("default/g-0", "n0", "bound"),
        ("default/g-1", "n1", "nominated"),
        ("default/g-2", "n2", "to be nominated"),
    ]
    assert [(one.pod, one.group) for one in shown.victims] == [
        ("default/gone", ""),
        ("default/v2", ""),
        ("default/v3", "JobSet default/wide"),
        ("default/v1", "JobSet default/wide"),
    ]


def test_victims_of_one_group_stand_together(setting):
    """Also if others are between them, and if one of them is gone; many are cut."""
    names = [("v1", 1), ("v2", 0), ("gone", 1), *((f"w{number}", 0) for number in range(11))]
    plan = UnderWay(preemptor(), record(1, *names, gang=False))
    shown = shown_as_one(setting.state, [plan], 0.0)
    assert [(one.pod, one.state) for one in shown.victims[:3]] == [
        ("default/v1", "to be asked"),
        ("default/gone", "gone"),
        ("default/v2", "to be asked"),
    ]
    assert {one.group for one in shown.victims[:2]} == {"JobSet default/wide"}
    assert (len(shown.victims), shown.more_victims) == (12, 2)


def test_victims_that_the_record_does_not_name(setting):
    """Those that are there have their names, those that are gone are counted."""
    uids = (setting.state.pods.get("default/v2").metadata.uid, "of-one-that-is-gone")
    plan = msgspec.structs.replace(record(1, gang=False), victims=tuple(PlanVictim("", "", uid) for uid in uids))
    shown = shown_as_one(setting.state, [UnderWay(preemptor(), plan)], 0.0)
    assert ([one.pod for one in shown.victims], shown.more_victims) == (["default/v2"], 1)


def test_by_when_a_victim_goes(setting):
    """A victim that was told says by when it is asked, or that it is ready; a notice of another plan says nothing."""
    by = "2027-01-15T08:00:00Z"
    for name, plan, answer in (("v1", "id-1", {}), ("v2", "id-1", {READY: "true"}), ("v3", "id-2", {})):
        told = encode(NoticeRecord(plan=plan, by=by, uid="u", priority=100))
        setting.add(pod(name, node="n1", annotations={NOTICE: told, **answer}))
    one = UnderWay(preemptor(), record(1, ("v1", 0), ("v2", 0), ("v3", 0), gang=False))
    states = {key: shown.state for key, shown in victims_shown(setting.state, [one]).items()}
    assert states == {
        "default/v1": f"to be asked by {by}",
        "default/v2": "told, and ready",
        "default/v3": "to be asked",
    }
