"""What is done for one preemptor: nothing, wait, evict, or nothing that helps."""

from typing import Any

import pytest

from tests.cases import table
from tests.reconciler.builders import START, Setting, budget, evicted, names, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import Protection
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import PROTECTION_DURATION
from webhook.preemption.ranking import RANKING
from webhook.preemption.victims.costs import COST_KEYS
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Unschedulable, Waits


def full(*more, under=None) -> Setting:
    """One node of 8 CPU, full of four victims of 2 CPU."""
    setting = Setting(node("n1"), under=under)
    setting.add(*(pod(f"v{number}", node="n1", start=rfc3339(START - 4000 + number)) for number in range(4)), *more)
    return setting


# START is 08:00 UTC.
def daily(hour: int, hours: float) -> Schedule:
    """From an hour UTC, for some hours."""
    return Schedule(cron=f"0 {hour} * * *", duration=hours * 3600)


def leaves(name: str, after: float, cpu: str = "8", on: str = "n1", **more: Any) -> Pod:
    """A pod that is gone so many seconds from now."""
    return pod(name, cpu, node=on, deleted=rfc3339(START + after), **more)


def nominee(name: str, cpu: str, on: str, priority: int) -> Pod:
    """A preemptor that is nominated to a node."""
    return preemptor(name, cpu, priority=priority, nominated=on)


FULL = [pod(f"v{number}", node="n1", start=rfc3339(START - 4000 + number)) for number in range(4)]
"""Four victims of 2 CPU, the least important last."""
KEPT = pod("kept", "8", node="n2", priority=2_000_003_000)
B = pod("b", "8", node="n2", priority=10)
SLOW = leaves("slow", 295)
QUICK = pod("quick", "8", node="n2", spec={"terminationGracePeriodSeconds": 1})
STATIC = ("Node", "n1")


def told(outcome: Any) -> str:
    """An outcome in a few words: who goes, for how many it waits on which node, or where it fits."""
    match outcome:
        case Evicts():
            return f"{' '.join(names(outcome))} on {outcome.node}"
        case Waits(node, leaving):
            return f"waits for {leaving} on {node}"
        case Fits(nodes):
            return f"fits on {' '.join(nodes)}"
        case _:
            return "nobody"


@table(
    "pods, asks, fields, expected",
    ("it fits", [B], {}, {}, "fits on n1"),
    ("as few as needed, the least important", [*FULL, KEPT], {}, {}, "v2 v3 on n1"),
    (
        "pods that leave make the room",
        [*FULL[2:], *(leaves(f"v{number}", 5, "2") for number in (0, 1)), B],
        *({}, {}, "waits for 2 on n1"),
    ),
    (
        "the same outside the schedule",
        [*FULL[2:], *(leaves(f"v{number}", 5, "2") for number in (0, 1)), KEPT],
        *({}, {"schedule": daily(10, 1)}, "waits for 2 on n1"),
    ),
    (
        "they leave in a day",
        [*FULL[2:], *(leaves(f"v{number}", 100_000, "2") for number in (0, 1)), KEPT],
        *({}, {}, "v2 v3 on n1"),
    ),
    (
        "they are overdue",
        [*FULL[2:], *(leaves(f"v{number}", -100_000, "2") for number in (0, 1)), KEPT],
        *({}, {}, "v2 v3 on n1"),
    ),
    ("a second of grace instead of 295 s", [SLOW, QUICK], {}, {}, "quick on n2"),
    *(
        (f"waits for {wait:g} s", [SLOW, QUICK], {}, {"wait_for_terminating": wait}, expected)
        for wait, expected in (
            (300.0, "waits for 1 on n1"),
            (295.0, "waits for 1 on n1"),
            (294.0, "quick on n2"),
            (0.0, "quick on n2"),
        )
    ),
    ("nothing else helps: within the plan's time", [SLOW, KEPT], {}, {}, "waits for 1 on n1"),
    ("nothing else helps: after the plan's time", [leaves("slow", 305), KEPT], {}, {}, "nobody"),
    ("a plan shorter than that", [leaves("slow", 10), KEPT], {}, {"plan_timeout": 5.0}, "nobody"),
    (
        "room of a pod that leaves is used first, however important it is",
        [leaves("a", 5, "4", priority=90), *(pod(name, node="n1", priority=10) for name in "bc"), KEPT],
        *({"cpu": "6"}, {}, "c on n1"),
    ),
    ("a static pod", [pod("a", "6", node="n1", owner=STATIC), KEPT], {}, {}, "nobody"),
    (
        "a pod that somebody calls static",
        [pod("a", "6", node="n1", owner=STATIC, spec={"serviceAccountName": "default"}), KEPT],
        *({}, {}, "a on n1"),
    ),
    (
        "a DaemonSet's pod is the last resort on its node, too",
        [pod("agent", "4", node="n1", priority=1, owner=("DaemonSet", "d")), pod("w", "4", node="n1"), KEPT],
        *({"cpu": "4"}, {}, "w on n1"),
    ),
    *(
        (
            f"a system-critical pod of priority {priority}",
            [pod("a", "6", node="n1", priority=priority), KEPT],
            *({"priority": 2_000_002_000}, {}, "nobody"),
        )
        for priority in (2_000_000_000, 2_000_001_000)
    ),
    (
        "a pod of another scheduler",
        [pod("a", "6", node="n1", spec={"schedulerName": "volcano"}), KEPT],
        *({}, {}, "nobody"),
    ),
    ("it is nominated already", [*FULL, KEPT], {"nominated": "n1"}, {}, "v2 v3 on n1"),
    ("a pod with an impossible amount", [*FULL, pod("odd", "-5", node="n1"), KEPT], {}, {}, "v2 v3 on n1"),
    (
        "protected by the policy alone",
        [pod("a", "6", node="n1", start=rfc3339(START)), KEPT],
        *({}, {"protection": Protection(default=60.0)}, "nobody"),
    ),
    *(
        (
            f"room that comes up under a lower nomination: {cpu} of 8 CPU",
            [leaves("a", 5), B, nominee("low", "1", "n1", 90)],
            *({"cpu": cpu}, {}, "waits for 1 on n1"),
        )
        for cpu in ("1", "7", "8")
    ),
    (
        "a lower nomination keeps its place if another node does",
        [leaves("a", 5), leaves("b", 0, on="n2"), *(nominee(f"l{n}", str(6 * n - 4), f"n{n}", 90) for n in (1, 2))],
        *({"cpu": "6"}, {}, "waits for 1 on n1"),
    ),
    (
        "an equal nomination keeps the room",
        [leaves("a", 5), B, nominee("high", "4", "n1", 100)],
        *({"cpu": "6"}, {}, "b on n2"),
    ),
)
def test_what_is_done(pods: list[Pod], asks: dict[str, Any], fields: dict[str, Any], expected: str):
    """For a preemptor of 3 CPU and priority 100 on two nodes of 8 CPU, under a policy with these fields."""
    setting = Setting(node("n1"), node("n2"), under=policy(**fields))
    setting.add(*pods)
    assert told(setting.evaluate(preemptor(**asks))) == expected


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
    setting.evaluator.log.returned("Job/default/j", 0.0)
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Evicts)
    assert (outcome.node, names(outcome)) == ("n2", ["b"])
    setting.clock.now = 61.0
    setting.add(pod("a", "8", node="n1", owner=("Job", "j"), deleted=rfc3339(START + 70)))
    assert setting.evaluate(preemptor()) == Waits("n1", 1)


@table(
    "schedule, due",
    ("it has just begun", daily(8, 1), None),
    ("it has just ended", daily(7, 1), 23 * 3600.0),
    ("in two hours", daily(10, 1), 2 * 3600.0),
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


def test_a_rate_holds_by_its_schedule():
    """Before it begins evictions are counted and not held back; within it they count."""
    rate = Rate(1, 4 * 3600.0, daily(10, 1))
    setting = full(under=policy(limits=Limits(per_node=rate)))
    setting.evaluator.log.remember(setting.policy.limits)
    evicted(setting.evaluator.log, "", 0.0)
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


def test_a_hole_is_shared_and_promised_once():
    """A second preemptor that fits into what the first one's victims leave evicts nobody, one that does not others."""
    setting = Setting(node("n1"))
    setting.add(pod("big", "8", node="n1"))
    setting.expect(preemptor("p1"), setting.evaluate(preemptor("p1")))
    assert setting.evaluate(preemptor("p2")) == Waits("n1", 1)
    setting = full()
    gone = []
    for name in ("p1", "p2"):
        outcome = setting.evaluate(preemptor(name))
        setting.expect(preemptor(name), outcome)
        gone += names(outcome)
    assert sorted(gone) == ["v1", "v2", "v3"]


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


def test_budget_is_spent_once():
    """Two plans spend no disruption twice before the status follows; one that is dropped gives it back."""
    setting, labels = Setting(node("n1"), node("n2")), {"app": "web"}
    setting.add(pod("a", "6", node="n1", labels=labels), pod("b", "6", node="n2", labels=labels))
    setting.budget(budget("web", 1, labels))
    first = setting.evaluate(preemptor("p1", "5"))
    setting.expect(preemptor("p1", "5"), first)
    assert isinstance(setting.evaluate(preemptor("p2", "5")), Unschedulable)
    setting.state.pending.give_up("plan", ())
    assert len(setting.state.pending) == 0
    assert isinstance(setting.evaluate(preemptor("p2", "5")), Evicts)
    setting.expect(preemptor("p1", "5"), first)
    setting.budget(budget("web", 1, labels, disruptedPods={first.victims[0].metadata.name: rfc3339(START)}))
    assert isinstance(setting.evaluate(preemptor("p3", "5")), Evicts)


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


def test_refused_victim_is_left_alone_for_a_while():
    """A pod the API server would not remove is passed over in favour of another node, and tried again later."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("kept", "6", node="n1", priority=10), pod("web", "6", node="n2", priority=90))
    assert names(setting.evaluate(preemptor())) == ["kept"]
    setting.evaluator.log.refused(setting.state.pods.get("default/kept"), 0.0)
    assert names(setting.evaluate(preemptor())) == ["web"]
    setting.remove("default/web")
    setting.add(pod("web", "6", node="n2", priority=200))
    outcome = setting.evaluate(preemptor())
    assert "pods that would not go" in outcome.reason
    setting.clock.now = outcome.due
    assert names(setting.evaluate(preemptor())) == ["kept"]


def test_attempts_are_capped():
    """After the policy's number of attempts nobody is evicted for this pod any more."""
    setting = full(under=policy(limits=Limits(attempts_per_preemptor=3)))
    assert isinstance(setting.evaluate(preemptor(), attempts=2), Evicts)
    outcome = setting.evaluate(preemptor(), attempts=3)
    assert isinstance(outcome, Unschedulable)
    assert outcome.limited


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


@table(
    "priority, room, told",
    ("it fits in their place", -11, "6", True),
    ("at the cutoff", -10, "6", False),
    ("it does not fit there either", -11, "1", False),
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
