"""What is done for one preemptor: nothing, wait, evict, or nothing that helps."""

import pytest

from tests.reconciler.builders import START, Setting, budget, names, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import Protection
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import PROTECTION_DURATION
from webhook.preemption.ranking import RANKING
from webhook.preemption.victims.costs import COST_KEYS
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Unschedulable, Waits


def full(*more, under=None) -> Setting:
    """One node of 8 CPU, full of four victims of 2 CPU."""
    setting = Setting(node("n1"), under=under)
    setting.add(*(pod(f"v{number}", node="n1", start=rfc3339(START - 4000 + number)) for number in range(4)), *more)
    return setting


def test_fits_without_preemption():
    """A pod that fits is left to kube-scheduler."""
    setting = Setting(node("n1"))
    assert setting.evaluate(preemptor()) == Fits(("n1",))


def test_evicts_as_few_as_needed():
    """Two victims of 2 CPU make room for 3; the least important go."""
    outcome = full().evaluate(preemptor())
    assert isinstance(outcome, Evicts)
    assert (outcome.node, names(outcome)) == ("n1", ["v2", "v3"])


def test_waits_for_those_already_leaving():
    """Where pods that are leaving make the room, nobody is evicted."""
    setting = full()
    setting.add(*(pod(f"v{number}", node="n1", deleted=rfc3339(START + 5)) for number in range(2)))
    assert setting.evaluate(preemptor()) == Waits("n1", 2)


@pytest.mark.parametrize("leaves", [START + 100_000, START - 100_000], ids=["in a day", "overdue"])
def test_does_not_wait_for_ever(leaves: float):
    """A pod that leaves long after the plan's time, or should be long gone, is not waited for."""
    setting = full()
    setting.add(*(pod(f"v{number}", node="n1", deleted=rfc3339(leaves)) for number in range(2)))
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Evicts)
    assert names(outcome) == ["v2", "v3"]


def test_waiting_is_short_where_evicting_helps():
    """A victim with a second of grace goes rather than that a pod is waited for that leaves in 295 s."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("slow", "8", node="n1", deleted=rfc3339(START + 295)))
    setting.add(pod("quick", "8", node="n2", spec={"terminationGracePeriodSeconds": 1}))
    assert names(setting.evaluate(preemptor())) == ["quick"]


@pytest.mark.parametrize(("wait", "waits"), [(300.0, True), (295.0, True), (294.0, False), (0.0, False)])
def test_policy_says_how_long_leaving_pods_are_waited_for(wait: float, waits: bool):
    """`waitForTerminating` is the time within which leaving pods must be gone."""
    setting = Setting(node("n1"), node("n2"), under=policy(wait_for_terminating=wait))
    setting.add(pod("slow", "8", node="n1", deleted=rfc3339(START + 295)), pod("quick", "8", node="n2"))
    assert isinstance(setting.evaluate(preemptor()), Waits if waits else Evicts)


@pytest.mark.parametrize(("leaves", "waits"), [(295, True), (305, False)])
def test_waiting_is_longer_where_nothing_else_helps(leaves: float, waits: bool):
    """Where nobody may be evicted the room of a pod that leaves within the plan's time is reserved."""
    setting = Setting(node("n1"))
    setting.add(pod("slow", "8", node="n1", deleted=rfc3339(START + leaves)))
    outcome = setting.evaluate(preemptor())
    assert outcome == Waits("n1", 1) if waits else isinstance(outcome, Unschedulable)


def test_waiting_is_no_longer_than_the_plan():
    """A plan that would time out before the pods are gone is not begun."""
    setting = Setting(node("n1"), under=policy(plan_timeout=5.0))
    setting.add(pod("slow", "8", node="n1", deleted=rfc3339(START + 10)))
    assert isinstance(setting.evaluate(preemptor()), Unschedulable)


def test_of_equal_nodes_the_one_that_is_free_first():
    """Among candidates that kube-scheduler calls equal, the victims that end first go."""
    setting = Setting(node("n1"), node("n2"), node("n3"))
    for name, grace in (("n1", 86400), ("n2", 1), ("n3", 30)):
        setting.add(pod(f"v-{name}", "8", node=name, spec={"terminationGracePeriodSeconds": grace}))
    outcome = setting.evaluate(preemptor())
    assert (outcome.node, [row.node for row in outcome.alternatives]) == ("n2", ["n3", "n1"])


def test_room_of_an_owner_that_puts_its_pods_back_is_not_waited_for():
    """As long as the owner is passed over its pods that leave make no room: others take it at once."""
    setting = Setting(node("n1"), node("n2"))
    leaving = pod("a", "8", node="n1", owner=("Job", "j"), deleted=rfc3339(START + 5))
    setting.add(leaving, pod("b", "8", node="n2"))
    assert setting.evaluate(preemptor()) == Waits("n1", 1)
    setting.evaluator.eviction_backoff.returned("Job/default/j", 0.0)
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Evicts)
    assert (outcome.node, names(outcome)) == ("n2", ["b"])
    setting.clock.now = 61.0
    setting.add(pod("a", "8", node="n1", owner=("Job", "j"), deleted=rfc3339(START + 70)))
    assert setting.evaluate(preemptor()) == Waits("n1", 1)


def test_nobody_goes_in_place_of_a_pod_that_leaves_anyway():
    """Room that a leaving pod makes is used first, however important that pod is."""
    setting = Setting(node("n1", "5"))
    setting.add(pod("leaving", "1", node="n1", priority=90, deleted=rfc3339(START + 5)))
    setting.add(*(pod(name, "2", node="n1", priority=10) for name in ("a", "b")))
    assert names(setting.evaluate(preemptor(cpu="3"))) == ["b"]


# START is 08:00 UTC.
def daily(hour: int, hours: float) -> Schedule:
    """From an hour UTC, for some hours."""
    return Schedule(cron=f"0 {hour} * * *", duration=hours * 3600)


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        pytest.param(daily(8, 1), None, id="it has just begun"),
        pytest.param(daily(7, 1), 23 * 3600.0, id="it has just ended"),
        pytest.param(daily(10, 1), 2 * 3600.0, id="in two hours"),
    ],
)
def test_outside_its_schedule_a_policy_evicts_nobody(schedule: Schedule, due: float | None):
    """The preemptor waits, and is due when the schedule begins."""
    outcome = full(under=policy(schedule=schedule)).evaluate(preemptor())
    if due is None:
        assert isinstance(outcome, Evicts)
    else:
        text = f"not eligible: policy test evicts only by its schedule ({schedule}): from"
        assert outcome.reason.startswith(text)
        assert outcome.due == due


def test_outside_its_schedule_room_is_still_waited_for():
    """What evicts nobody goes on: a node where pods are leaving is reserved."""
    setting = full(under=policy(schedule=daily(10, 1)))
    setting.add(*(pod(f"v{number}", node="n1", deleted=rfc3339(START + 5)) for number in range(2)))
    assert setting.evaluate(preemptor()) == Waits("n1", 2)


def test_a_rate_holds_by_its_schedule():
    """Before it begins evictions are counted and not held back; within it they count."""
    rate = Rate(1, 4 * 3600.0, daily(10, 1))
    setting = full(under=policy(limits=Limits(per_node=rate)))
    setting.evaluator.limiter.remember(setting.policy.limits)
    setting.evaluator.limiter.note([PlannedEviction("", "n1")], 0.0)
    assert isinstance(setting.evaluate(preemptor(cpu="2")), Evicts)
    setting.clock.now = 2 * 3600.0
    outcome = setting.evaluate(preemptor(cpu="2"))
    assert isinstance(outcome, Unschedulable)
    assert outcome.limited
    assert outcome.due == 3 * 3600.0  # the schedule ends before the window of the rate does
    setting.clock.now = 3 * 3600.0
    assert isinstance(setting.evaluate(preemptor(cpu="2")), Evicts)


def test_protection_holds_by_its_schedule():
    """Within it a young pod is protected, at most to the end of the schedule; outside it is not."""
    setting = full(under=policy(protection=Protection(default=86400.0, schedule=daily(8, 1))))
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Unschedulable)
    assert outcome.due == 3600.0
    setting.clock.now = 3600.0
    assert isinstance(setting.evaluate(preemptor()), Evicts)


def test_several_share_one_hole():
    """A second preemptor that fits into what the first one's victims leave evicts nobody."""
    setting = Setting(node("n1"))
    setting.add(pod("big", "8", node="n1"))
    first = setting.evaluate(preemptor("p1"))
    setting.expect(preemptor("p1"), first)
    assert names(first) == ["big"]
    assert setting.evaluate(preemptor("p2")) == Waits("n1", 1)


def test_no_hole_is_promised_twice():
    """A preemptor for which no room is left beside the first one evicts others."""
    setting = full()
    first = setting.evaluate(preemptor("p1"))
    setting.expect(preemptor("p1"), first)
    second = setting.evaluate(preemptor("p2"))
    assert isinstance(second, Evicts)
    assert not set(names(first)) & set(names(second))


@pytest.mark.parametrize("cpu", ["1", "7", "8"], ids=["both fit", "both just fit", "only one fits"])
def test_room_that_comes_up_is_shared_with_a_lower_nomination(cpu: str):
    """Nobody is evicted where room comes up, though a pod of lower priority is nominated there."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("a", "8", node="n1", deleted=rfc3339(START + 5)), pod("b", "8", node="n2", priority=10))
    setting.add(preemptor("low", "1", priority=90, nominated="n1"))
    assert setting.evaluate(preemptor("p", cpu, priority=100)) == Waits("n1", 1)


def test_lower_nominations_are_left_alone_where_another_node_does():
    """Of two nodes with room coming up, the one where all fit is taken before the one where another pod loses it."""
    setting = Setting(node("n1"), node("n2", "16"))
    setting.add(pod("a", "8", node="n1", deleted=rfc3339(START + 5)), pod("b", "16", node="n2", deleted=rfc3339(START)))
    setting.add(*(preemptor(f"low-{number}", "4", priority=90, nominated=f"n{number}") for number in (1, 2)))
    assert setting.evaluate(preemptor("p", "6", priority=100)) == Waits("n2", 1)


def test_higher_nominations_keep_the_room():
    """Room that comes up for a pod of equal or higher priority is not taken from it."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("a", "8", node="n1", deleted=rfc3339(START + 5)), pod("b", "8", node="n2"))
    setting.add(preemptor("high", "4", priority=100, nominated="n1"))
    outcome = setting.evaluate(preemptor("p", "6", priority=100))
    assert (outcome.node, names(outcome)) == ("n2", ["b"])


def test_protected_until_a_time():
    """Where only protection stands in the way, the pod is tried again when the first window ends."""
    setting = Setting(node("n1"))
    said = {"godel.bytedance.com/can-be-preempted": "true", PROTECTION_DURATION: "30"}
    setting.add(pod("v", "6", node="n1", annotations=said, start=rfc3339(START - 10)))
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Unschedulable)
    assert outcome.due == pytest.approx(20.0)
    assert (
        outcome.change
        == f"That may change at {rfc3339(START + 20)}, when the protection of a pod of lower priority ends."
    )
    setting.clock.now = 20.0
    assert isinstance(setting.evaluate(preemptor()), Evicts)


def test_protection_by_policy_holds_for_everyone():
    """The policy's default window protects pods that say nothing."""
    setting = Setting(node("n1"), under=policy(protection=Protection(default=60.0)))
    setting.add(pod("v", "6", node="n1", start=rfc3339(START)))
    assert isinstance(setting.evaluate(preemptor()), Unschedulable)


def test_budget_is_spent_once():
    """Two plans made before the budget's status has followed do not spend the same disruption."""
    setting = Setting(node("n1"), node("n2"))
    labels = {"app": "web"}
    setting.add(pod("a", "6", node="n1", labels=labels), pod("b", "6", node="n2", labels=labels))
    setting.budget(budget("web", 1, labels))
    first = setting.evaluate(preemptor("p1", "5"))
    setting.expect(preemptor("p1", "5"), first)
    assert isinstance(setting.evaluate(preemptor("p2", "5")), Unschedulable)
    setting.budget(budget("web", 1, labels, disruptedPods={first.victims[0].metadata.name: rfc3339(START)}))
    assert isinstance(setting.evaluate(preemptor("p3", "5")), Evicts)


def test_dropped_plan_gives_its_disruption_back():
    """When a plan is given up before its victim was asked, the budget is free again."""
    setting = Setting(node("n1"))
    labels = {"app": "web"}
    setting.add(pod("a", "6", node="n1", labels=labels))
    setting.budget(budget("web", 1, labels))
    setting.expect(preemptor("p1"), setting.evaluate(preemptor("p1")))
    setting.state.give_up("plan", ())
    assert isinstance(setting.evaluate(preemptor("p2")), Evicts)
    assert len(setting.state.expectations) == 0


def test_last_resort():
    """A DaemonSet's pod goes only where nobody else could."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("agent", "6", node="n1", priority=1, owner=("DaemonSet", "agent")))
    setting.add(pod("web", "6", node="n2", priority=90))
    assert names(setting.evaluate(preemptor())) == ["web"]
    setting.add(pod("web", "6", node="n2", priority=200))
    outcome = setting.evaluate(preemptor())
    assert names(outcome) == ["agent"]
    assert outcome.last_resort == {"default/agent"}


def test_static_pod_never_goes():
    """A static pod is no victim even where nobody else is: its kubelet would start it again."""
    setting = Setting(node("n1"))
    setting.add(pod("kube-proxy-n1", "6", node="n1", priority=1, owner=("Node", "n1")))
    assert isinstance(setting.evaluate(preemptor()), Unschedulable)


def test_nobody_makes_a_pod_static_by_an_owner():
    """A pod with a ServiceAccount, which static pods do not have, goes whatever owner somebody names on it."""
    setting = Setting(node("n1"))
    spec = {"serviceAccountName": "default"}
    setting.add(pod("web", "6", node="n1", priority=1, owner=("Node", "n1"), spec=spec))
    assert names(setting.evaluate(preemptor())) == ["web"]


def test_refused_victim_is_left_alone_for_a_while():
    """A pod the API server would not remove is passed over in favour of another node, and tried again later."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("kept", "6", node="n1", priority=10), pod("web", "6", node="n2", priority=90))
    assert names(setting.evaluate(preemptor())) == ["kept"]
    setting.evaluator.eviction_backoff.refused(setting.state.pods.get("default/kept"), 0.0)
    assert names(setting.evaluate(preemptor())) == ["web"]
    setting.remove("default/web")
    setting.add(pod("web", "6", node="n2", priority=200))
    outcome = setting.evaluate(preemptor())
    assert "pods that would not go" in outcome.reason
    setting.clock.now = outcome.due
    assert names(setting.evaluate(preemptor())) == ["kept"]


def test_last_resort_is_excluded_within_a_node():
    """On one node, too, another pod goes rather than a DaemonSet's of lower priority."""
    setting = Setting(node("n1"))
    setting.add(pod("agent", "4", node="n1", priority=1, owner=("DaemonSet", "agent")))
    setting.add(pod("web", "4", node="n1", priority=90))
    assert names(setting.evaluate(preemptor())) == ["web"]


def test_attempts_are_capped():
    """After the policy's number of attempts nobody is evicted for this pod any more."""
    setting = full(under=policy(limits=Limits(attempts_per_preemptor=3)))
    assert isinstance(setting.evaluate(preemptor(), attempts=2), Evicts)
    outcome = setting.evaluate(preemptor(), attempts=3)
    assert isinstance(outcome, Unschedulable)
    assert outcome.limited


@pytest.mark.parametrize("priority", [2_000_000_000, 2_000_001_000])
def test_system_critical_pods_never_go(priority: int):
    """No policy makes a system-critical pod a victim."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "6", node="n1", priority=priority))
    assert isinstance(setting.evaluate(preemptor(priority=2_000_002_000)), Unschedulable)


def test_pods_of_other_schedulers_stay():
    """Pods of another scheduler go only where the policy says so."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "6", node="n1", spec={"schedulerName": "volcano"}))
    assert isinstance(setting.evaluate(preemptor()), Unschedulable)


def test_own_nomination_does_not_stand_in_the_way():
    """A preemptor that is nominated already is decided for as if it were not."""
    setting = full()
    assert isinstance(setting.evaluate(preemptor(nominated="n1")), Evicts)


def test_alternatives_are_recorded():
    """The record names the other nodes that would have done, best first, with plain numbers, and why its node won."""
    setting = Setting(*(node(f"n{number}") for number in range(4)))
    setting.add(*(pod(f"v{number}", "6", node=f"n{number}", priority=10 * number) for number in range(4)))
    outcome = setting.evaluate(preemptor())
    assert (outcome.node, outcome.candidates) == ("n0", 4)
    assert outcome.selected.node == "n0"
    costs = {key.name for key in COST_KEYS}
    looked_at = [key for key in RANKING if key.name not in {"groups", "elsewhere", *costs}]  # nobody is elsewhere
    assert set(outcome.selected.compared) == {key.heading for key in looked_at}
    assert outcome.selected.compared["victims"] == "1"
    assert outcome.selected.compared["earliest start"] == rfc3339(START - 3600)
    assert outcome.because == "n0 is preferred to n1 because its most important victim has a lower priority"
    assert [row.compared["sum of priorities"] for row in outcome.alternatives] == ["10", "20", "30"]
    assert [row.node for row in outcome.alternatives] == ["n1", "n2", "n3"]
    assert [row.compared["highest priority"] for row in outcome.alternatives] == ["10", "20", "30"]


def test_unreadable_objects_are_left_out_of_account():
    """A pod with an impossible amount neither stops the watch nor the next decision."""
    setting = full()
    setting.add(pod("odd", "-5", node="n1"))
    assert isinstance(setting.evaluate(preemptor()), Evicts)


@pytest.mark.parametrize(
    ("priority", "room", "told"),
    [
        pytest.param(-11, "6", True, id="it fits in their place"),
        pytest.param(-10, "6", False, id="at the cutoff"),
        pytest.param(-11, "1", False, id="it does not fit there either"),
    ],
)
def test_nobody_helps(priority, room, told):
    """Pods below -10 that may not be evicted: cluster-autoscaler counts them as gone and adds no node."""
    setting = Setting(node("n1"))
    says_no = {"godel.bytedance.com/can-be-preempted": "false"}
    setting.add(pod("kept", room, node="n1", priority=priority, annotations=says_no))
    setting.add(pod("other", str(8 - int(room)), node="n1", annotations=says_no))
    outcome = setting.evaluate(preemptor("p", "3"))
    assert isinstance(outcome, Unschedulable)
    assert ("nobody helps it" in outcome.text) is told
