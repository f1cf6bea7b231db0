"""Whom the reconciler acts for: all of mark, managed class, Pending, found unschedulable by a named scheduler.

And pods that want to grow in place (docs/reconciler.md#pods-that-want-to-grow), and when a scheduler is overdue that
leaves pods pending which fit (docs/semantics.md D8).
"""

import math
from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, Desk, Setting, node, planned, pod, policy, preemptor
from tests.reconciler.harness.pods import preemptor as waiting
from tests.reconciler.harness.pods import victim
from tests.reconciler.harness.scenarios import at, bound, does, lived, scene
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import Condition
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy, Preemptors
from webhook.policy.model.values import MARK
from webhook.policy.model.victims import VictimMode, Victims
from webhook.preemption.snapshot.pod_groups import COSCHEDULING, POD_GROUP
from webhook.reconciler.preemptors import SchedulerActivity, ineligible_reason, unschedulable_since

UNSEEN, REFUSED = preemptor(), preemptor()
UNSEEN.status.conditions = None
REFUSED.status.conditions = [Condition(type="PodScheduled", status="False", message="another reason")]


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


def managing(**fields: Any) -> PreemptionPolicy:
    """A policy for pods of class `high`, with these fields for preemptors."""
    preemptors = Preemptors(priority_classes=("high",), **fields)
    return policy(victims=Victims(mode=VictimMode.OPT_OUT), preemptors=preemptors)


GROWING = managing(resize=True)


def grows(name: str, wants: str, has: str, *, reason: str = "Deferred", pending: str = "True", **more: Any) -> Pod:
    """A running pod that wants so much CPU and has so much; the kubelet says why it does not get it."""
    made = preemptor(name, wants, node="n1", **more)
    said = {"type": "PodResizePending", "status": pending, "reason": reason, "lastTransitionTime": rfc3339(START - 10)}
    amounts = {"resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": has}}
    status = {
        "phase": "Running",
        "startTime": rfc3339(START - 3600),
        "containerStatuses": [{"name": "main", **amounts}],
        "conditions": [{"type": "PodScheduled", "status": "True"}, *([said] if reason else [])],
    }
    return msgspec.structs.replace(made, status=msgspec.convert(status, type(made.status)))


NO_MARK, BY_ITSELF = "does not carry the label", "preempts for it by itself"
BY_OTHER = preemptor(spec={"schedulerName": "other"})


@table(
    "made, under, why",
    ("acted for", preemptor(), policy(), ""),
    ("the policy's scheduler", BY_OTHER, managing(scheduler_names=("other",)), ""),
    ("no mark", pod("p"), policy(), NO_MARK),
    ("another mark", preemptor(labels={MARK: "yes"}), policy(), NO_MARK),
    ("not managed", preemptor(), None, "no PreemptionPolicy manages"),
    ("another scheduler", BY_OTHER, policy(), "'other'"),
    ("it preempts", preemptor(spec={"preemptionPolicy": "PreemptLowerPriority"}), policy(), BY_ITSELF),
    ("by default", preemptor(spec={"preemptionPolicy": None}), policy(), BY_ITSELF),
    ("being deleted", preemptor(deleted="2026-01-01T00:00:00Z"), policy(), "being deleted"),
    ("bound", preemptor(node="n1"), policy(), "bound to node n1"),
    ("over", preemptor(phase="Succeeded"), policy(), "Succeeded"),
    ("gated", preemptor(spec={"schedulingGates": [{"name": "quota"}]}), policy(), "gates"),
    ("no scheduler has looked at it", UNSEEN, policy(), "has not found it unschedulable"),
    ("growth is deferred", grows("p", "5", "2"), GROWING, ""),
    ("growth, and the policy does not say so", grows("p", "5", "2"), managing(), "preemptors.resize"),
    ("growth is infeasible", grows("p", "99", "2", reason="Infeasible"), GROWING, "resize is Infeasible"),
    ("no growth", grows("p", "5", "5", reason=""), GROWING, "it is bound to node n1"),
    ("growth is taken back", grows("p", "5", "2", pending="False"), GROWING, "it is bound to node n1"),
)
def test_for_whom(made: Pod, under: PreemptionPolicy | None, why: str):
    """For a marked pod of a managed class that a scheduler of the policy found unschedulable; else it says why not.

    For a resize only if it is deferred, and only if the policy says so.
    """
    reason = ineligible_reason(made, under)
    assert why in reason
    assert bool(why) == bool(reason)


def led(*more: Pod, under: PreemptionPolicy = GROWING) -> Desk:
    """A leader at work on a cordoned node of 8 CPU with four victims of 1 CPU, another node without any, and more pods.

    Whoever is there already may grow there.
    """
    host = node("n1")
    host.spec.unschedulable = True
    setting = Setting(host, node("n2"), under=under)
    setting.add(*(pod(f"v{number}", "1", node="n1", priority=10 + number) for number in range(4)), *more)
    desk = Desk(setting)
    desk.lead()
    return desk


def victims(desk: Desk) -> set[str]:
    """Who is to go for pod p."""
    plan = desk.reconciler.plans.get("default/p")
    return {victim.name for victim in plan.record.victims} if plan else set()


BIG = pod("stays", "2", node="n1", priority=1000)
WISHFUL = grows("wishful", "6", "1", priority=1, class_name="")


@table(
    "grown, beside, expected",
    ("it has room", grows("p", "4", "2"), (), set()),
    ("one pod, whatever its other wishes are", grows("p", "5", "2", spec={"nodeSelector": {"a": "b"}}), (), {"v0"}),
    ("two pods", grows("p", "6", "2"), (), {"v0", "v1"}),
    ("all of them", grows("p", "8", "2"), (), {"v0", "v1", "v2", "v3"}),
    ("more than the node has", grows("p", "7", "2"), (BIG,), set()),
    ("beside a wish", grows("p", "4", "2"), (grows("o", "6", "1", priority=1000, class_name=""),), {"v0"}),
    ("who goes has what it has", grows("p", "4", "2"), (WISHFUL,), {"wishful"}),
    ("and not what it wants", grows("p", "5", "2"), (WISHFUL,), {"wishful", "v0"}),
)
def test_as_many_go_as_the_growth_needs(grown: Pod, beside: tuple[Pod, ...], expected: set[str]):
    """On its own node, the least important first; room elsewhere is no room, and nobody goes for a neighbour's wish."""
    assert victims(led(grown, *beside)) == expected


@table(
    "kind, of_gang",
    ("a PodGroup", POD_GROUP, {"spec": {"schedulingGroup": {"podGroupName": "gang"}}}),
    ("a PodGroup of coscheduling", COSCHEDULING, {"labels": {"scheduling.x-k8s.io/pod-group": "gang"}}),
)
async def test_a_member_of_a_gang_grows_by_itself(kind: str, of_gang: dict[str, Any]):
    """It is placed already, so it needs none of the others, whether some of them wait or not."""
    desk = led()
    desk.setting.group(kind=kind)
    desk.setting.add(grows("p", "5", "2", **of_gang))
    desk.lead()
    assert victims(desk) == {"v0"}


async def test_a_policy_that_begins_to_allow_growth():
    """Whoever waits to grow by then is decided for at once, and not at its next event."""
    desk = led(grows("p", "5", "2"), under=managing())
    assert "default/p" not in desk.reconciler.queue.entries
    desk.reconciler.use(Policies(preemption=(GROWING,)))
    desk.reconciler.turn()
    assert victims(desk) == {"v0"}


async def test_its_plan_lasts_until_the_kubelet_has_granted_it():
    """It needs no nomination, ends as `resized`, and a new leader takes it over."""
    desk = led(grows("p", "5", "2"))
    record = desk.reconciler.plans["default/p"].record
    assert record.resize
    fresh = led(planned(grows("p", "5", "2"), record))
    assert fresh.reconciler.plans["default/p"].record == record
    await fresh.reconciler.stop()
    desk.setting.add(grows("p", "5", "5", reason=""))
    assert desk.reconciler.plans == {}
    assert [line["ending"] for line in desk.lines("plan ended")] == ["resized"]


async def test_it_comes_to_the_queue_when_the_kubelet_defers_it():
    """And leaves it when the resize is taken back."""
    desk = led(BIG, grows("p", "2", "2", reason=""))
    for made, waits in ((None, False), (grows("p", "7", "2"), True), (grows("p", "2", "2", reason=""), False)):
        desk.setting.add(*filter(None, (made,)))
        assert ("default/p" in desk.reconciler.queue.entries) is waits


def at_work() -> SchedulerActivity:
    """Of a scheduler that binds a pod every minute for an hour."""
    made, waits = SchedulerActivity(), preemptor("bound")
    for now in range(0, 3600, 60):
        made.observe(Change("modified", "default/bound", waits, pod("bound", node="n1")), float(now))
    return made


@pytest.mark.parametrize("others", [0, 3000])
def test_a_pod_that_fits_and_is_left_pending_is_overdue_however_many_wait(others: int):
    """A minute after it was first found to fit, if its scheduler was at work by then."""
    schedulers, waits = at_work(), preemptor("p")
    assert not schedulers.overdue(waits, fits=True, now=100.0)
    for number in range(others):
        schedulers.overdue(preemptor(f"o{number}"), fits=True, now=101.0)
    assert not schedulers.overdue(waits, fits=True, now=159.0)
    assert schedulers.overdue(waits, fits=True, now=161.0)


@pytest.mark.parametrize("gone", [None, pod("p", node="n1")], ids=["deleted", "bound"])
def test_a_pod_that_is_gone_or_bound_is_forgotten(gone: object):
    """The next one of its name begins again, and so does one that does not fit for a while."""
    schedulers, waits = at_work(), preemptor("p")
    schedulers.overdue(waits, fits=True, now=100.0)
    schedulers.observe(Change("modified", "default/p", waits, gone), 150.0)
    again = msgspec.structs.replace(waits)
    assert not schedulers.overdue(again, fits=True, now=161.0)
    schedulers.overdue(again, fits=False, now=200.0)
    assert not schedulers.overdue(again, fits=True, now=230.0)


@pytest.mark.parametrize("listed", [True, False])
async def test_what_a_list_shows_of_a_pod_is_no_sign_of_its_scheduler(listed: bool):
    """A scheduler may have refused the pod long before: only a watch shows that it does so now."""
    setting = Setting(node("n1"))
    desk = Desk(setting)
    setting.add(preemptor())
    if listed:
        setting.state.pods.whole.clear()
    setting.add(REFUSED)
    setting.state.pods.whole.set()
    assert (desk.reconciler.evaluator.schedulers.chance(REFUSED, 0.0, 60.0) < math.inf) is not listed
