"""Whom the reconciler acts for: all of mark, managed class, Pending, found unschedulable by a named scheduler."""

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, are_nominated, node, pod, policy, preemptor
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.values import MARK
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.plans.actions import End
from webhook.reconciler.preemptors import ineligible_reason, unschedulable_since


def for_scheduler(name: str) -> PreemptionPolicy:
    """A policy for the pods of another scheduler."""
    preemptors = Preemptors(priority_classes=("high",), scheduler_names=(name,))
    return msgspec.structs.replace(policy(), preemptors=preemptors)


UNSEEN = preemptor()
UNSEEN.status.conditions = None


@pytest.mark.parametrize(
    ("made", "under", "why"),
    [
        pytest.param(preemptor(), policy(), "", id="acted for"),
        pytest.param(
            preemptor(spec={"schedulerName": "other"}), for_scheduler("other"), "", id="the policy's scheduler"
        ),
        pytest.param(pod("p"), policy(), "does not carry the label", id="no mark"),
        pytest.param(preemptor(labels={MARK: "yes"}), policy(), "does not carry the label", id="another mark"),
        pytest.param(preemptor(), None, "no PreemptionPolicy manages", id="not managed"),
        pytest.param(preemptor(spec={"schedulerName": "other"}), policy(), "'other'", id="another scheduler"),
        *(
            pytest.param(
                preemptor(spec={"preemptionPolicy": said}), policy(), "preempts for it by itself", id=str(said)
            )
            for said in ("PreemptLowerPriority", None)
        ),
        pytest.param(preemptor(deleted="2026-01-01T00:00:00Z"), policy(), "being deleted", id="being deleted"),
        pytest.param(preemptor(node="n1"), policy(), "bound to node n1", id="bound"),
        pytest.param(preemptor(phase="Succeeded"), policy(), "Succeeded", id="over"),
        pytest.param(preemptor(spec={"schedulingGates": [{"name": "quota"}]}), policy(), "gates", id="gated"),
        pytest.param(UNSEEN, policy(), "has not found it unschedulable", id="no scheduler has looked at it"),
    ],
)
def test_for_whom(made: Pod, under: PreemptionPolicy | None, why: str):
    """For a marked pod of a managed class that a scheduler of the policy found unschedulable; else it says why not."""
    reason = ineligible_reason(made, under)
    assert why in reason
    assert bool(why) == bool(reason)


async def test_a_class_that_was_made_again_is_told_until_it_has_its_value():
    """Its pods wait and are told why, and are acted for as soon as the class speaks for them again."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "8", node="n1"), preemptor("p", "4"))

    def show(value: int) -> None:
        body = {"metadata": {"name": "high"}, "value": value, "preemptionPolicy": "Never"}
        setting.state.caches[PRIORITY_CLASS].take("high", msgspec.convert(body, PriorityClass))

    show(7)
    desk = Desk(setting)
    desk.lead()
    (line,) = desk.lines("no preemption")
    assert "PriorityClass high was made again: its value is 7, and the priority is 100" in line["reason"]
    assert desk.lines("decision") == []
    setting.clock.now += 2.0
    desk.reconciler.turn()
    assert desk.lines("decision") == []
    show(100)
    desk.reconciler.turn()
    (line,) = desk.lines("decision")
    assert [victim["pod"] for victim in line["victims"]] == ["default/v"]


def test_a_plan_asks_nobody_any_more_when_its_class_was_made_again():
    """What it was made by does not hold; who left by then has left."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "8", node="n1"))
    made = preemptor("p", "4")
    outcome = setting.evaluate(made)
    desk = Desk(setting)
    plan = desk.reconciler.plan_manager.begin(made, setting.policy, outcome, 0)
    are_nominated(plan)
    body = {"metadata": {"name": "high"}, "value": 7}
    setting.state.snapshot.put(PRIORITY_CLASSES, msgspec.convert(body, PriorityClass))
    found = desk.reconciler.plan_manager.look(plan)
    assert isinstance(found, End)
    assert "PriorityClass high was made again" in found.note


def test_since_when():
    """The time is the condition's; a condition without one counts from the pod's creation."""
    assert unschedulable_since(preemptor()) == START - 10
