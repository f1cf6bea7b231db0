"""What holds whoever writes on pods, whoever leads, and whatever a server refuses: rates, whole groups, whole gangs."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import plain_gang
from tests.reconciler.harness.pods import GANG, Json, group, members, preemptor, victim
from tests.reconciler.harness.scenarios import bound, killed_at_each_step, later, led, lived, on_request, simulated
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.values import PLAN

pytestmark = pytest.mark.slow

ONCE_AN_HOUR = Rate(1, 3600.0)
WHOLE = Groups(disruption=GroupDisruption.GROUP)


def forged(*names: str) -> Json:
    """A preemptor on which somebody has written a plan for node n2 with these victims."""
    victims = [{"namespace": "default", "name": name, "uid": f"uid-{name}"} for name in names]
    plan = {"id": "forged", "node": "n2", "policy": "test", "attempt": 1, "version": 1, "victims": victims}
    plan["deadline"] = rfc3339(START + 300)
    made = preemptor(cpu="4", since=5.0)
    made["metadata"]["annotations"] = {PLAN: json.dumps(plan)}
    made["status"]["nominatedNodeName"] = "n2"
    return made


def with_a_forged_plan(*names: str, used_up: bool, at: float) -> Cluster:
    """The plan comes some time after a leader began; the decision would choose a on n1. The rate may be used up."""
    made = simulated("8", "8", "8", limits=Limits(per_cluster=ONCE_AN_HOUR if used_up else None))
    for name, on, priority in (("a", "n1", 10), ("b", "n2", 50), ("c", "n3", 5)):
        made.put(victim(name, on, "8", priority=priority))
    made.put(preemptor("first", "8"))
    later(at, made.put, forged(*names))
    return made


@pytest.mark.parametrize(
    "names", [pytest.param(("b",), id="a pod"), pytest.param(("b", "ghost"), id="one that is not there, too")]
)
@pytest.mark.parametrize("used_up", [False, True])
@pytest.mark.parametrize("at", [5.0, 40.0], ids=["soon after a change of leader", "later"])
def test_a_plan_that_somebody_else_wrote_chooses_nobody(at: float, used_up: bool, names: tuple[str, ...]):
    """Whoever may write annotations neither chooses a victim by that, nor uses a rate that is used up."""
    made = lived(lambda: with_a_forged_plan(*names, used_up=used_up, at=at), 120.0)
    assert made.evicted == (["c"] if used_up else ["c", "a"])


@pytest.mark.parametrize("field", ["per_owner", "per_cluster"])
@pytest.mark.parametrize("ends", [(), (20.0,)], ids=["one leader", "two leaders"])
def test_the_next_ones_go_when_a_window_has_passed(ends: tuple[float, ...], field: str):
    """At most so many go within it, also if leaders change in it, and all are bound in the end."""
    seen: list[int] = []

    def make() -> Cluster:
        made = simulated("8", "8", limits=Limits(**{field: Rate(1, 60.0)}))
        for number in (1, 2):
            made.add(victim(f"v{number}", f"n{number}", "8", owner="job"), preemptor(f"p{number}", "8"))
        return led(made, *ends, gap=1.0)

    made = lived(make, 200.0, at_55=lambda made: seen.append(len(made.evicted)))
    assert (seen, bound(made, "p")) == ([1], ["p1", "p2"])


def a_group_of_two(*covered: str, used_up: str = "b") -> Cluster:
    """A group that goes whole; the budget of one member is used up when the first one is asked, for 100 seconds."""
    made = simulated("8", "4", groups=WHOLE)
    for name in covered:
        made.cover(name, 1)
    for name, on, cpu in (("a", "n1", "8"), ("b", "n2", "4")):
        made.put(victim(name, on, cpu, app=name, **{GANG: "g"}))
    made.put(preemptor(cpu="8"))

    def use_up() -> None:
        made.allow(used_up, 0)
        later(100.0, made.allow, used_up, 1)

    return on_request(made, use_up, "evict")


def wide_group() -> Cluster:
    """One group on four full nodes, and a preemptor that needs the room on one."""
    made = simulated(*"8888", groups=WHOLE)
    for number in range(1, 5):
        made.put(victim(f"v-{number}", f"n{number}", "8", **{GANG: "wide"}))
        made.ends_after[f"v-{number}"] = 0.0
    made.put(preemptor(cpu="5"))
    return made


@pytest.mark.parametrize(
    ("make", "group_of"),
    [
        pytest.param(partial(a_group_of_two, "b"), 2, id="one budget keeps the second"),
        pytest.param(partial(a_group_of_two, "a", "b", used_up="a"), 2, id="a budget keeps the first"),
        pytest.param(partial(a_group_of_two, "a", "b", used_up="b"), 2, id="a budget keeps the second"),
        pytest.param(wide_group, 4, id="on four nodes"),
    ],
)
def test_no_half_of_a_group_goes_whichever_step_is_the_last_of_a_process(make: Callable[[], Cluster], group_of: int):
    """The next leader knows that a group has begun to go, and asks a member that a budget keeps until it goes."""
    for step, made in killed_at_each_step(make):
        assert (len(made.evicted), len(set(made.evicted)), bound(made, "p")) == (group_of, group_of, ["p"]), step


def beside_a_pod_in_front(needs: dict[str, Any]) -> Cluster:
    """A gang of two needs 3 CPU each on a node of 8, and a pod in front that nobody preempts for takes another 3."""
    made = simulated("8")
    made.groups = [group("gang", 2)]
    made.add(preemptor("front", "3", priority=1000, managed=False), victim("v", "n1", "8"))
    for member in members("gang", 2, 1):
        member["spec"] |= needs
        made.put(member)
    return made


MORE = {"requests": {"cpu": "3"}}


@pytest.mark.parametrize(
    "needs",
    [
        pytest.param({"containers": [{"name": "c", "resources": MORE}]}, id="containers"),
        pytest.param({"overhead": {"cpu": "2"}}, id="overhead"),
        pytest.param({"initContainers": [{"name": "i", "resources": MORE}]}, id="init containers"),
        pytest.param({"resources": MORE}, id="pod-level resources"),
    ],
)
def test_all_that_a_gang_needs_counts_beside_pods_in_front(needs: dict[str, Any]):
    """No plan is made for a gang that would not have room beside a pod in front, whatever its members need it for."""
    made = lived(lambda: beside_a_pod_in_front(needs), 60.0)
    assert {line["message"] for line in made.told} == {"no preemption"}


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_gang_of_which_one_plan_cannot_be_begun(broken: int):
    """It is decided for again, all are bound in the end, and nobody goes for a part of it."""

    def make() -> Cluster:
        made, decisions = plain_gang(), list[Json]()

        def fail(line: Json) -> None:
            if line["message"] == "decision":
                decisions.append(line)
                if len(decisions) == broken:
                    raise RuntimeError("whoever takes the log is broken")

        made.heard.append(fail)
        return made

    made = lived(make, 600.0)
    assert bound(made, "gang") == ["gang-0", "gang-1", "gang-2"]
    assert (len(made.evicted), made.faults(300.0)) == (3, [])
