"""What is done for one preemptor: nothing, wait, evict, or nothing that helps."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.cases import table
from tests.reconciler.builders import START, Setting, evicted, four_victims, names, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import PreemptionPolicy, Protection
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.preemption.ranking import RANKING
from webhook.preemption.victims.costs import COST_KEYS
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Waits


def on_nodes(*pods: Pod, number: int = 2, under: PreemptionPolicy | None = None) -> Setting:
    """So many nodes of 8 CPU, with these pods."""
    setting = Setting(*(node(f"n{each + 1}") for each in range(number)), under=under)
    setting.add(*pods)
    return setting


def full(**fields: Any) -> Setting:
    """A full node, under a policy with these fields."""
    return on_nodes(*FULL, number=1, under=policy(**fields))


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


def half_leaves(after: float) -> list[Pod]:
    """Two of four victims are gone so many seconds from now."""
    return [*FULL[2:], *(leaves(f"v{number}", after, "2") for number in (0, 1))]


FULL = four_victims()
KEPT = pod("kept", "8", node="n2", priority=2_000_003_000)
B = pod("b", "8", node="n2", priority=10)
SLOW = leaves("slow", 295)
QUICK = pod("quick", "8", node="n2", spec={"terminationGracePeriodSeconds": 1})
STATIC = ("Node", "n1")
AGENT = pod("agent", "4", node="n1", priority=1, owner=("DaemonSet", "d"))


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


class Case(NamedTuple):
    """The pods of two nodes of 8 CPU; what is done for a preemptor that asks for this, under a policy with these."""

    pods: list[Pod]
    expected: str
    asks: Mapping[str, Any] = MappingProxyType({})
    fields: Mapping[str, Any] = MappingProxyType({})


CASES = {
    "it fits": Case([B], "fits on n1"),
    "as few as needed, the least important": Case([*FULL, KEPT], "v2 v3 on n1"),
    "pods that leave make the room": Case([*half_leaves(5), B], "waits for 2 on n1"),
    "the same outside the schedule": Case(
        [*half_leaves(5), KEPT], "waits for 2 on n1", fields={"schedule": daily(10, 1)}
    ),
    "they leave in a day": Case([*half_leaves(100_000), KEPT], "v2 v3 on n1"),
    "they are overdue": Case([*half_leaves(-100_000), KEPT], "v2 v3 on n1"),
    "a second of grace instead of 295 s": Case([SLOW, QUICK], "quick on n2"),
    **{
        f"waits for {wait:g} s": Case([SLOW, QUICK], expected, fields={"wait_for_terminating": wait})
        for wait, expected in {295.0: "waits for 1 on n1", 294.0: "quick on n2", 0.0: "quick on n2"}.items()
    },
    "nothing else helps: within the plan's time": Case([SLOW, KEPT], "waits for 1 on n1"),
    "nothing else helps: after the plan's time": Case([leaves("slow", 305), KEPT], "nobody"),
    "a plan shorter than that": Case([leaves("slow", 10), KEPT], "nobody", fields={"plan_timeout": 5.0}),
    "room of a pod that leaves is used first, however important it is": Case(
        [leaves("a", 5, "4", priority=90), *(pod(name, node="n1", priority=10) for name in "bc"), KEPT],
        "c on n1",
        {"cpu": "6"},
    ),
    "a static pod": Case([pod("a", "6", node="n1", owner=STATIC), KEPT], "nobody"),
    "a pod that somebody calls static": Case(
        [pod("a", "6", node="n1", owner=STATIC, spec={"serviceAccountName": "default"}), KEPT], "a on n1"
    ),
    "a DaemonSet's pod is the last resort on its node, too": Case(
        [AGENT, pod("w", "4", node="n1"), KEPT], "w on n1", {"cpu": "4"}
    ),
    "a DaemonSet's pod is the last resort on other nodes": Case(
        [AGENT, pod("w", "6", node="n2", priority=90)], "w on n2", {"cpu": "6"}
    ),
    "nobody else could go than a DaemonSet's pod": Case([AGENT, KEPT], "agent on n1", {"cpu": "6"}),
    **{
        f"a system-critical pod of priority {priority}": Case(
            [pod("a", "6", node="n1", priority=priority), KEPT], "nobody", {"priority": 2_000_002_000}
        )
        for priority in (2_000_000_000, 2_000_001_000)
    },
    "a pod of another scheduler": Case([pod("a", "6", node="n1", spec={"schedulerName": "volcano"}), KEPT], "nobody"),
    "it is nominated already": Case([*FULL, KEPT], "v2 v3 on n1", {"nominated": "n1"}),
    "a pod with an impossible amount": Case([*FULL, pod("odd", "-5", node="n1"), KEPT], "v2 v3 on n1"),
    "protected by the policy alone": Case(
        [pod("a", "6", node="n1", start=rfc3339(START)), KEPT],
        "nobody",
        fields={"protection": Protection(default=60.0)},
    ),
    **{
        f"room that comes up under a lower nomination: {cpu} of 8 CPU": Case(
            [leaves("a", 5), B, nominee("low", "1", "n1", 90)], "waits for 1 on n1", {"cpu": cpu}
        )
        for cpu in ("1", "7", "8")
    },
    "a lower nomination keeps its place if another node does": Case(
        [leaves("a", 5), leaves("b", 0, on="n2"), *(nominee(f"l{n}", str(6 * n - 4), f"n{n}", 90) for n in (1, 2))],
        "waits for 1 on n1",
        {"cpu": "6"},
    ),
    "an equal nomination keeps the room": Case(
        [leaves("a", 5), B, nominee("high", "4", "n1", 100)], "b on n2", {"cpu": "6"}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_done(name: str):
    """For a preemptor of 3 CPU and priority 100, if nothing else is said."""
    case = CASES[name]
    outcome = on_nodes(*case.pods, under=policy(**case.fields)).evaluate(preemptor(**case.asks))
    assert told(outcome) == case.expected
    if isinstance(outcome, Evicts):
        assert [row.last_resort for row in outcome.decided] == [name == "agent" for name in names(outcome)]


def test_room_of_an_owner_that_puts_its_pods_back_is_not_waited_for():
    """As long as the owner is passed over its pods that leave make no room: others take it at once."""
    setting = on_nodes(leaves("a", 5, owner=("Job", "j")), pod("b", "8", node="n2"))
    seen = [told(setting.evaluate(preemptor()))]
    setting.evaluator.log.returned("Job/default/j", 0.0)
    seen.append(told(setting.evaluate(preemptor())))
    setting.clock.now = 61.0
    setting.add(leaves("a", 70, owner=("Job", "j")))
    seen.append(told(setting.evaluate(preemptor())))
    assert seen == ["waits for 1 on n1", "b on n2", "waits for 1 on n1"]


@table(
    "fields, due",
    ("its schedule has just begun", {"schedule": daily(8, 1)}, 0.0),
    ("its schedule has just ended", {"schedule": daily(7, 1)}, 23 * 3600.0),
    ("in two hours", {"schedule": daily(10, 1)}, 2 * 3600.0),
    (
        "young pods are protected to the end of a schedule",
        {"protection": Protection(default=86400.0, schedule=daily(8, 1))},
        3600.0,
    ),
)
def test_when_a_policy_evicts(fields: dict[str, Any], due: float):
    """Within its schedule, and outside that of its protection; the preemptor is due when it may."""
    setting = full(**fields)
    if due:
        outcome = setting.evaluate(preemptor())
        assert (told(outcome), outcome.due) == ("nobody", due)
        said = f"not eligible: policy test evicts only by its schedule ({fields.get('schedule')}): from"
        assert outcome.reason.startswith(said) is ("schedule" in fields)
    setting.clock.now = due
    assert isinstance(setting.evaluate(preemptor()), Evicts)


def test_a_rate_holds_by_its_schedule():
    """Before it begins evictions are counted and not held back; within it they count."""
    setting = full(limits=Limits(per_node=Rate(1, 4 * 3600.0, daily(10, 1))))
    setting.evaluator.log.remember([setting.policy.limits])
    evicted(setting.evaluator.log, "", 0.0)
    assert told(setting.evaluate(preemptor(cpu="2"))) == "v3 on n1"
    setting.clock.now = 2 * 3600.0
    outcome = setting.evaluate(preemptor(cpu="2"))
    # the schedule ends before the window of the rate does
    assert (told(outcome), outcome.limited, outcome.due) == ("nobody", True, 3 * 3600.0)
    setting.clock.now = 3 * 3600.0
    assert told(setting.evaluate(preemptor(cpu="2"))) == "v3 on n1"


def test_protected_until_a_time():
    """Where only protection stands in the way, the pod is tried again when the first window ends."""
    said = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
    setting = on_nodes(pod("v", "6", node="n1", annotations=said, start=rfc3339(START - 10)), number=1)
    outcome = setting.evaluate(preemptor())
    change = f"That may change at {rfc3339(START + 20)}, when the protection of a pod of lower priority ends."
    assert (told(outcome), outcome.due, outcome.change) == ("nobody", pytest.approx(20.0), change)
    setting.clock.now = 20.0
    assert isinstance(setting.evaluate(preemptor()), Evicts)


def test_refused_victim_is_left_alone_for_a_while():
    """A pod the API server would not remove is passed over in favour of another node, and tried again later."""
    setting = on_nodes(pod("kept", "6", node="n1", priority=10), pod("web", "6", node="n2", priority=90))
    assert told(setting.evaluate(preemptor())) == "kept on n1"
    setting.evaluator.log.refused(setting.state.pods.get("default/kept"), 0.0)
    assert told(setting.evaluate(preemptor())) == "web on n2"
    setting.add(pod("web", "6", node="n2", priority=200))
    outcome = setting.evaluate(preemptor())
    assert "pods that would not go" in outcome.reason
    setting.clock.now = outcome.due
    assert told(setting.evaluate(preemptor())) == "kept on n1"


def test_alternatives_are_recorded():
    """The record names the other nodes that would have done, best first, with plain numbers, and why its node won."""
    setting = on_nodes(*(pod(f"v{n}", "6", node=f"n{n}", priority=10 * n) for n in (1, 2, 3, 4)), number=4)
    outcome = setting.evaluate(preemptor())
    assert (outcome.node, outcome.candidates, outcome.selected.node) == ("n1", 4, "n1")
    hidden = {"groups", "elsewhere", *(key.name for key in COST_KEYS)}  # nobody is elsewhere
    compared = outcome.selected.compared
    assert set(compared) == {key.heading for key in RANKING if key.name not in hidden}
    assert (compared["victims"], compared["earliest start"]) == ("1", rfc3339(START - 3600))
    assert outcome.because == "n1 is preferred to n2 because its most important victim has a lower priority"
    others = {row.node: row.compared for row in outcome.alternatives}
    assert list(others) == ["n2", "n3", "n4"]
    for key in ("sum of priorities", "highest priority"):
        assert [row[key] for row in others.values()] == ["20", "30", "40"]


@table(
    "priority, room, told",
    ("it fits in their place", -11, "6", True),
    ("at the cutoff", -10, "6", False),
    ("it does not fit there either", -11, "1", False),
)
def test_nobody_helps(priority: int, room: str, told: bool):
    """Pods below -10 that may not be evicted: cluster-autoscaler counts them as gone and adds no node."""
    says_no = {CAN_BE_PREEMPTED: "false"}
    kept = pod("kept", room, node="n1", priority=priority, annotations=says_no)
    setting = on_nodes(kept, pod("other", str(8 - int(room)), node="n1", annotations=says_no), number=1)
    assert ("nobody helps it" in setting.evaluate(preemptor("p", "3")).text) is told
