"""Groups that go whole, by the policy or by their PodGroup; against every set of units: `test_across_nodes`."""

import numpy as np
import pytest

from tests.cases import table
from tests.preemption import building
from tests.preemption.building import as_pod, cluster, decided, node, outcome, pod, pod_group, rules, snapshot_of
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.decision import decide, victims_needed

WHOLE = rules(groups=GroupDisruption.GROUP)
NEVER = rules(groups=GroupDisruption.NEVER)


BOTH = [
    pod("a-0", group="a", on="n1", priority=10, cpu="4"),
    pod("a-1", group="a", on="n2", priority=10, cpu="1"),
    pod("other", on="n2", priority=50, cpu="3"),
]
TWO_NODES = [node("n1"), node("n2")]
TWO_GROUPS = [
    pod("a", group="a", on="n1", priority=10, cpu="2"),
    pod("b", group="b", on="n1", priority=10, cpu="2"),
    *(pod(f"c-{n}", group="c", on="n2", priority=10, cpu="1") for n in range(4)),
]
FOUR = [
    *(pod(f"a-{n}", group="a", on=on, priority=10, cpu="1") for n, on in ((0, "n1"), (1, "n2"), (2, "n1"), (10, "n1"))),
    pod("stays", on="n2", priority=200, cpu="3"),
]
ALL = ["a-0", "a-1", "a-10", "a-2"]


def its(mode, minimum=0, **spec):
    """The PodGroup, which says this."""
    return [pod_group("a", minimum, disruptionMode=mode, **spec)]


GOES = {
    "by default pods go one by one": (BOTH, rules(), [], "3", ["a-0"]),
    "the policy says Group": (BOTH, WHOLE, [], "3", ["a-0", "a-1"]),
    "its PodGroup says PodGroup": (BOTH, rules(), its("PodGroup"), "3", ["a-0", "a-1"]),
    "its PodGroup says all, as in 1.37": (BOTH, rules(), its({"all": {}}), "3", ["a-0", "a-1"]),
    "its PodGroup says Pod, the policy Group": (BOTH, WHOLE, its("Pod"), "3", ["a-0"]),
    "its PodGroup says single, as in 1.37": (BOTH, WHOLE, its({"single": {}}), "3", ["a-0"]),
    "a mode that nobody knows": (BOTH, WHOLE, its("later"), "3", ["a-0", "a-1"]),
    "the policy says Never": (BOTH, NEVER, its("Pod"), "3", ["other"]),
    "its own priority counts, above that of its pods": (BOTH[:2], rules(), its("PodGroup", priority=200), "4", []),
    "of equal priorities fewer groups are preferred": (TWO_GROUPS, WHOLE, [], "4", ["c-0", "c-1", "c-2", "c-3"]),
    "without a minimum it goes whole": (FOUR, WHOLE, its(None), "2", ALL),
    "above the minimum the highest index goes first, as a number": (FOUR, WHOLE, its(None, 3), "2", ["a-10"]),
    "all that is above the minimum": (FOUR, WHOLE, its(None, 2), "3", ["a-10", "a-2"]),
    "below it the group goes whole": (FOUR, WHOLE, its(None, 2), "4", ALL),
    "nothing is above the minimum": (FOUR, WHOLE, its(None, 4), "2", ALL),
    "it is below its minimum already": (FOUR, WHOLE, its(None, 9), "2", ALL),
    "its PodGroup says that it goes whole": (FOUR, WHOLE, its("PodGroup", 2), "2", ALL),
}


@pytest.mark.parametrize(("pods", "by", "groups", "cpu", "gone"), GOES.values(), ids=GOES)
def test_who_goes(pods, by, groups, cpu, gone):
    """What becomes of a group follows its PodGroup, then the policy; Never is the policy's alone.

    Of a group with a minimum those above it go by themselves.
    """
    went, _ = outcome(pods, by, nodes=TWO_NODES, preemptor=pod("p", priority=100, cpu=cpu), podGroups=groups)
    assert sorted(went) == gone


@table(
    "keeper, more, rule",
    ("priority", {"priority": 100}, {}, "policy/priority"),
    ("scheduler", {"schedulerName": "mine"}, {}, "policy/scheduler"),
    ("budget", {}, {"podDisruptionBudgets": [building.budget("b", {"app": "a-1"}, 0)]}, "policy/budget"),
)
def test_if_one_may_not_go_none_may(keeper, more, rule):
    """A member on another node that may not go keeps the whole group, and the reason names it."""
    pods = [BOTH[0], {**pod("a-1", group="a", **({"on": "n2", "priority": 10} | keeper))}]
    data = cluster(TWO_NODES, pods, pod("p", priority=100, cpu="4"), **more)
    by = rules(groups=GroupDisruption.GROUP, scheduler_names=("default-scheduler",))
    decision = decided(data, by)
    assert decision.selected is None
    if rule != "policy/priority":  # the group has one priority: the highest of its members
        assert [one.rule for one in decision.excluded("n2")] == [rule]
        assert "default/a-1 stays" in decision.excluded("n1")[0].text


def test_nobody_goes_for_one_of_its_own_group():
    """A member that waits evicts no other member, whatever their priorities."""
    went, why = outcome([BOTH[0]], WHOLE, preemptor=pod("a-9", group="a", priority=100, cpu="4"))
    assert (went, why) == ([], {"a-0": "policy/group"})


def test_what_is_needed_of_a_plan_is_whole_groups():
    """Of victims that are left, a group stays or goes whole: members on other nodes are needed with it."""
    data = cluster(TWO_NODES, [*BOTH[:2], pod("b", on="n2", cpu="1")], pod("p", priority=100, cpu="4"))
    snapshot = snapshot_of(data, WHOLE)
    among = snapshot.pod_rows(["default/a-0", "default/a-1", "default/b"])
    needed = victims_needed(snapshot, as_pod(data["preemptor"]), "n1", among, rules=WHOLE)
    assert [snapshot.pods.names[row] for row in needed.tolist()] == ["a-0", "a-1"]


def test_whoever_leaves_is_not_kept():
    """Of three with a minimum of two of which one is leaving nobody else can be spared."""
    pods = [pod(f"a-{number}", group="a", on="n1", priority=10, cpu="1") for number in range(3)]
    groups = [pod_group("a", 2)]
    data = cluster([node("n1")], pods, pod("p", priority=100, cpu="4"), podGroups=groups)
    snapshot = snapshot_of(data, WHOLE)
    leaving = np.zeros(snapshot.pods.rows, np.bool_)
    leaving[snapshot.pod_rows(["default/a-0"])] = True
    wanted = as_pod(data["preemptor"])
    assert [one.name for one in decide(snapshot, wanted, WHOLE, building.NOW).selected.victims] == ["a-0", "a-1", "a-2"]
    wanted = as_pod(pod("p", priority=100, cpu="2"))
    assert [one.name for one in decide(snapshot, wanted, WHOLE, building.NOW).selected.victims] == ["a-2"]
    victims = decide(snapshot, wanted, WHOLE, building.NOW, leaving=leaving).selected.victims
    assert [one.name for one in victims] == ["a-0"]
