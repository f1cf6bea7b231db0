"""Pods that want to grow in place: who is evicted for them (docs/reconciler.md#pods-that-want-to-grow)."""

from typing import Any

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, node, planned, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import COSCHEDULING_POD_GROUP, POD_GROUP
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.victims import VictimMode, Victims
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Unschedulable
from webhook.reconciler.preemptors import ineligible_reason


def growing_policy(*, resize: bool = True) -> PreemptionPolicy:
    """A policy that evicts for pods of class `high` that want to grow, or does not."""
    made = policy(victims=Victims(mode=VictimMode.OPT_OUT))
    return msgspec.structs.replace(made, preemptors=Preemptors(priority_classes=("high",), resize=resize))


def taken_back(made: Pod) -> Pod:
    """The pod, of which the kubelet says that no resize is pending."""
    for condition in made.status.conditions or ():
        if condition.type == "PodResizePending":
            condition.status = "False"
    return made


def grows(name: str, wants: str, has: str, *, on: str = "n1", reason: str = "Deferred", **more: Any) -> Pod:
    """A running pod that wants so much CPU and has so much; the kubelet says why it does not get it."""
    made = preemptor(name, wants, node=on, **more)
    since = rfc3339(START - 10)
    amounts = {"requests": {"cpu": has}}
    status = {
        "phase": "Running",
        "startTime": rfc3339(START - 3600),
        "containerStatuses": [{"name": "c", "resources": amounts, "allocatedResources": {"cpu": has}}],
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    }
    if reason:
        pending = {"type": "PodResizePending", "status": "True", "reason": reason, "lastTransitionTime": since}
        status["conditions"].append(pending)
    return msgspec.structs.replace(made, status=msgspec.convert(status, type(made.status)))


def names(outcome: Any) -> set[str]:
    assert isinstance(outcome, Evicts), outcome
    return {victim.metadata.name for victim in outcome.victims}


def names_of_plan(desk: Desk, key: str) -> set[str]:
    return {victim.name for victim in desk.reconciler.plans[key].record.victims}


def on_full_node(*more: Pod) -> Setting:
    """A node of 8 CPU with four victims of 1 CPU on it."""
    setting = Setting(node("n1"), node("n2"), under=growing_policy())
    setting.add(*(pod(f"v{number}", "1", node="n1", priority=10 + number) for number in range(4)), *more)
    return setting


@pytest.mark.parametrize(
    ("wants", "victims"),
    [("4", 0), ("5", 1), ("6", 2), ("8", 4)],
    ids=["it has room", "one pod", "two pods", "all of them"],
)
def test_as_many_go_as_the_growth_needs(wants: str, victims: int):
    """On its own node, the least important first; room elsewhere is no room."""
    outcome = on_full_node().evaluate(grows("p", wants, "2"))
    if victims:
        assert names(outcome) == {f"v{number}" for number in range(victims)}
    else:
        assert isinstance(outcome, Fits)


def test_nobody_goes_for_a_neighbours_wish():
    """What a neighbour wants and has not got does not count, neither where it stays nor where it goes."""
    setting = on_full_node(grows("neighbour", "6", "1", priority=1000))
    assert names(setting.evaluate(grows("p", "4", "2"))) == {"v0"}
    setting = on_full_node(grows("wishful", "6", "1", priority=1, class_name=""))
    assert names(setting.evaluate(grows("p", "4", "2"))) == {"wishful"}
    assert names(setting.evaluate(grows("p", "5", "2"))) == {"wishful", "v0"}


def test_more_than_the_node_has():
    """Nobody goes if all that may go would not be enough."""
    setting = on_full_node(pod("stays", "2", node="n1", priority=1000))
    assert isinstance(setting.evaluate(grows("p", "7", "2")), Unschedulable)


def test_taints_and_affinity_do_not_matter():
    """A pod that is there already may grow on a node that is cordoned, and whatever its other wishes are."""
    cordoned = node("n1")
    cordoned.spec.unschedulable = True
    setting = Setting(cordoned, under=growing_policy())
    setting.add(pod("v", "4", node="n1", priority=10))
    assert names(setting.evaluate(grows("p", "5", "2", spec={"nodeSelector": {"a": "b"}}))) == {"v"}


@pytest.mark.parametrize(
    ("made", "resize", "why"),
    [
        pytest.param(grows("p", "5", "2"), True, "", id="deferred"),
        pytest.param(grows("p", "5", "2"), False, "preemptors.resize", id="the policy does not say so"),
        pytest.param(grows("p", "99", "2", reason="Infeasible"), True, "resize is Infeasible", id="infeasible"),
        pytest.param(grows("p", "5", "5", reason=""), True, "it is bound to node n1", id="no resize"),
        pytest.param(taken_back(grows("p", "5", "2")), True, "it is bound to node n1", id="taken back"),
    ],
)
def test_for_whom(made: Pod, resize: bool, why: str):
    """Only for a resize that is deferred, and only if the policy says so."""
    reason = ineligible_reason(made, growing_policy(resize=resize))
    assert why in reason
    assert bool(why) == bool(reason)


@pytest.mark.parametrize(
    "of_gang",
    [
        pytest.param({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, id="a PodGroup"),
        pytest.param({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, id="a PodGroup of coscheduling"),
    ],
)
async def test_a_member_of_a_gang_grows_by_itself(of_gang: dict[str, Any]):
    """It is placed already, so it needs none of the others, whether some of them wait or not."""
    setting = on_full_node()
    for resource, spec in (
        (POD_GROUP, {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        (COSCHEDULING_POD_GROUP, {"minMember": 2}),
    ):
        group = msgspec.convert({"metadata": {"name": "g", "namespace": "default"}, "spec": spec}, PodGroup)
        setting.state.caches[resource].take("default/g", group)
    setting.add(grows("p", "5", "2", **of_gang))
    desk = Desk(setting)
    desk.lead()
    assert names_of_plan(desk, "default/p") == {"v0"}


async def test_a_policy_that_begins_to_allow_growth():
    """Whoever waits to grow by then is decided for at once, and not at its next event."""
    setting = on_full_node()
    setting.policy_set.use(Policies(preemption=(growing_policy(resize=False),)))
    setting.add(grows("p", "5", "2"))
    desk = Desk(setting)
    desk.lead()
    assert "default/p" not in desk.reconciler.queue
    desk.reconciler.use(Policies(preemption=(growing_policy(),)))
    desk.reconciler.turn()
    assert names_of_plan(desk, "default/p") == {"v0"}


async def test_its_plan_lasts_until_the_kubelet_has_granted_it():
    """It needs no nomination, ends as `resized`, and a new leader takes it over."""
    setting = on_full_node()
    made = grows("p", "5", "2")
    outcome = setting.evaluate(made)
    desk = Desk(setting)
    plan = desk.reconciler.plan_manager.begin(made, setting.policy, outcome, 0)
    assert plan.record.resize
    planned(made, plan.record)
    led = on_full_node(made)
    fresh = Desk(led)
    fresh.lead()
    assert fresh.reconciler.plans["default/p"].record.resize
    await fresh.reconciler.stop()
    setting.add(grows("p", "5", "5", reason=""))
    assert desk.reconciler.plans == {}
    assert [line["ending"] for line in desk.lines("plan ended")] == ["resized"]


async def test_it_comes_to_the_queue_when_the_kubelet_defers_it():
    """And leaves it when the resize is taken back."""
    setting = on_full_node(pod("stays", "2", node="n1", priority=1000))
    setting.add(grows("p", "2", "2", reason=""))
    desk = Desk(setting)
    desk.reconciler.look_at_all()
    assert "default/p" not in desk.reconciler.queue
    setting.add(grows("p", "7", "2"))
    assert "default/p" in desk.reconciler.queue
    setting.add(grows("p", "2", "2", reason=""))
    assert "default/p" not in desk.reconciler.queue
