"""Whom the reconciler acts for: all of mark, managed class, Pending, found unschedulable by a named scheduler."""

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, node, pod, policy, preemptor
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.preemption import Preemptors
from webhook.policy.model.values import MARK
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.plans.actions import End
from webhook.reconciler.preemptors import ineligible_reason, unschedulable_since


def test_acted_for():
    """A marked pod of a managed class that the default scheduler found unschedulable."""
    assert ineligible_reason(preemptor(), policy()) == ""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        pytest.param(pod("p"), "does not carry the label", id="no mark"),
        pytest.param(preemptor(labels={MARK: "yes"}), "does not carry the label", id="another mark"),
        pytest.param(preemptor(spec={"schedulerName": "other"}), "'other'", id="another scheduler"),
        pytest.param(
            preemptor(spec={"preemptionPolicy": "PreemptLowerPriority"}), "preempts for it by itself", id="not Never"
        ),
        pytest.param(preemptor(spec={"preemptionPolicy": None}), "preempts for it by itself", id="no policy at all"),
        pytest.param(preemptor(deleted="2026-01-01T00:00:00Z"), "being deleted", id="being deleted"),
        pytest.param(preemptor(node="n1"), "bound to node n1", id="bound"),
        pytest.param(preemptor(phase="Succeeded"), "Succeeded", id="over"),
        pytest.param(preemptor(spec={"schedulingGates": [{"name": "quota"}]}), "gates", id="gated"),
    ],
)
def test_left_alone(made, why: str):
    """Every other pod is left alone, and the reason can be told."""
    assert why in ineligible_reason(made, policy())


def test_not_managed():
    """A pod whose class no policy manages is left alone."""
    assert "no PreemptionPolicy manages" in ineligible_reason(preemptor(), None)


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
    plan = desk.reconciler.plan_manager.begin(made, setting.policy, outcome, 0, ())
    plan.nominated = True
    body = {"metadata": {"name": "high"}, "value": 7}
    setting.state.snapshot.put(PRIORITY_CLASSES, msgspec.convert(body, PriorityClass))
    found = desk.reconciler.plan_manager.next_action(plan)
    assert isinstance(found, End)
    assert "PriorityClass high was made again" in found.note


def test_not_found_unschedulable_yet():
    """A pod the scheduler has not looked at is left alone."""
    made = preemptor()
    made.status.conditions = None
    assert "has not found it unschedulable" in ineligible_reason(made, policy())


def test_schedulers_of_the_policy():
    """Pods of another scheduler are acted for where the policy names it."""
    other = policy()
    other = type(other)(
        name="p", source=other.source, preemptors=Preemptors(priority_classes=("high",), scheduler_names=("other",))
    )
    assert ineligible_reason(preemptor(spec={"schedulerName": "other"}), other) == ""


def test_since_when():
    """The time is the condition's; a condition without one counts from the pod's creation."""
    assert unschedulable_since(preemptor()) == START - 10
