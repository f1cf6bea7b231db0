"""Whom the reconciler acts for: all of mark, managed class, Pending, found unschedulable by a named scheduler."""

from __future__ import annotations

import pytest

from tests.reconciler.builders import START, pod, policy, preemptor
from webhook.policy.model.preemption import Preemptors
from webhook.policy.model.values import MARK
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
