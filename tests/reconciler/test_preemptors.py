"""Whom the reconciler acts for: all of mark, managed class, Pending, found unschedulable by a named scheduler."""

import msgspec
import pytest

from tests.reconciler.builders import START, pod, policy, preemptor
from tests.reconciler.harness.pods import preemptor as waiting
from tests.reconciler.harness.pods import victim
from tests.reconciler.harness.scenarios import at, bound, does, lived, scene
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.values import MARK
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


def test_a_class_that_was_made_again_is_told_until_it_has_its_value():
    """Its pods wait and are told why, and are acted for as soon as the class speaks for them again."""
    high, again = ({"metadata": {"name": "high"}, "value": value} for value in (7, 100))
    made_again = at(10.0, does("show", PRIORITY_CLASS, again))
    made = lived(scene("8", lambda made: made.classes.append(high), victim("v", "n1", "8"), waiting(), made_again))
    (line,) = [line for line in made.told if line["message"] == "no preemption"]
    assert "PriorityClass high was made again: its value is 7, and the priority is 100" in line["reason"]
    assert (made.evicted, bound(made, "p")) == (["v"], ["p"])


def test_since_when():
    """The time is the condition's; a condition without one counts from the pod's creation."""
    assert unschedulable_since(preemptor()) == START - 10
