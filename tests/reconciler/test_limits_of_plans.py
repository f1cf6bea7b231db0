"""What holds whoever writes on pods, whoever leads, and whatever a server refuses: rates, whole groups, whole gangs.

So do plans whose victims are on several nodes.
"""

import json
from typing import Any

import pytest

from tests.cases import table
from tests.preemption.building import apart_from, node, spread
from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, Json, fixed, group, members, preemptor, victim
from tests.reconciler.harness.scenarios import (
    WHOLE,
    Happens,
    Scene,
    at,
    bound,
    does,
    having,
    killed_at_each_step,
    later,
    led,
    lived,
    on_request,
    plain_gang,
    scene,
)
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.values import PLAN
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow


ONCE_AN_HOUR = Rate(1, 3600.0)


def forged(*names: str) -> Json:
    """A preemptor on which somebody has written a plan for node n2 with these victims."""
    victims = [{"namespace": "default", "name": name, "uid": f"uid-{name}"} for name in names]
    plan = {"id": "forged", "node": "n2", "policy": "test", "attempt": 1, "version": 1, "victims": victims}
    plan["deadline"] = rfc3339(START + 300)
    made = preemptor(cpu="4", since=5.0)
    made["metadata"]["annotations"] = {PLAN: json.dumps(plan)}
    made["status"]["nominatedNodeName"] = "n2"
    return made


@table("names", ("a pod", ["b"]), ("one that is not there, too", ["b", "ghost"]))
@pytest.mark.parametrize("used_up", [False, True])
@table("comes", ("soon after a change of leader", 5.0), ("later", 40.0))
def test_a_plan_that_somebody_else_wrote_chooses_nobody(comes: float, used_up: bool, names: list[str]):
    """Whoever may write annotations neither chooses a victim by that, nor uses a rate that is used up."""
    pods = [
        victim(name, on, "8", priority=rank) for name, on, rank in (("a", "n1", 10), ("b", "n2", 50), ("c", "n3", 5))
    ]
    limits = Limits(per_cluster=ONCE_AN_HOUR if used_up else None)
    made = lived(scene(*"888", *pods, preemptor("first", "8"), at(comes, forged(*names)), limits=limits), 120.0)
    assert made.evicted == (["c"] if used_up else ["c", "a"])


@pytest.mark.parametrize("field", ["per_owner", "per_cluster"])
@table("ends", ("one leader", []), ("two leaders", [20.0]))
def test_the_next_ones_go_when_a_window_has_passed(ends: list[float], field: str):
    """At most so many go within it, also if leaders change in it, and all are bound in the end."""
    seen: list[int] = []
    victims = [victim(f"v{number}", f"n{number}", "8", owner="job") for number in (1, 2)]
    pods = (*victims, preemptor("p1", "8"), preemptor("p2", "8"), led(*ends, gap=1.0))
    made = scene(
        "8", "8", *pods, at(55.0, lambda made: seen.append(len(made.evicted))), limits=Limits(**{field: Rate(1, 60.0)})
    )
    assert (seen, bound(lived(made, 200.0), "p")) == ([1], ["p1", "p2"])


def a_group_of_two(*covered: str, used_up: str = "b") -> Scene:
    """A group that goes whole; the budget of one member is used up when the first one is asked, for 100 seconds."""
    pods = [victim(name, on, cpu, app=name, **{GANG: "g"}) for name, on, cpu in (("a", "n1", "8"), ("b", "n2", "4"))]

    def use_up(made: Cluster) -> None:
        made.allow(used_up, 0)
        later(100.0, made.allow, used_up, 1)

    budgets = [does("cover", name, 1) for name in covered]
    return scene("8", "4", *budgets, *pods, preemptor(cpu="8"), on_request(use_up, "evict"), groups=WHOLE)


WIDE = [victim(f"v-{number}", f"n{number}", "8", **{GANG: "wide"}) for number in range(1, 5)]


@table(
    "make, group_of",
    ("one budget keeps the second", a_group_of_two("b"), 2),
    ("a budget keeps the first", a_group_of_two("a", "b", used_up="a"), 2),
    ("a budget keeps the second", a_group_of_two("a", "b", used_up="b"), 2),
    ("on four nodes", scene(*"8888", *WIDE, preemptor(cpu="5"), groups=WHOLE), 4),
)
def test_no_half_of_a_group_goes_whichever_step_is_the_last_of_a_process(make: Scene, group_of: int):
    """The next leader knows that a group has begun to go, and asks a member that a budget keeps until it goes."""
    for step, made in killed_at_each_step(make):
        assert (len(made.evicted), len(set(made.evicted)), bound(made, "p")) == (group_of, group_of, ["p"]), step


MORE = {"requests": {"cpu": "3"}}


@table(
    "needs",
    ("containers", {"containers": [{"name": "c", "resources": MORE}]}),
    ("overhead", {"overhead": {"cpu": "2"}}),
    ("init containers", {"initContainers": [{"name": "i", "resources": MORE}]}),
    ("pod-level resources", {"resources": MORE}),
)
def test_all_that_a_gang_needs_counts_beside_pods_in_front(needs: dict[str, Any]):
    """No plan is made for a gang that would not have room beside a pod in front, whatever its members need it for."""
    gang = [{**member, "spec": {**member["spec"], **needs}} for member in members("gang", 2, 1)]
    in_front = preemptor("front", "3", priority=1000, managed=False)
    made = lived(scene("8", group("gang", 2), in_front, victim("v", "n1", "8"), *gang), 60.0)
    assert {line["message"] for line in made.told} == {"no preemption"}


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_gang_of_which_one_plan_cannot_be_begun(broken: int):
    """It is decided for again, all are bound in the end, and nobody goes for a part of it."""
    decisions = list[Json]()

    def fail(line: Json) -> None:
        decisions.extend([line] if line["message"] == "decision" else [])
        if decisions[-1:] == [line] and len(decisions) == broken:
            raise RuntimeError("whoever takes the log is broken")

    made = lived(plain_gang(lambda made: made.heard.append(fail)), 600.0)
    assert bound(made, "gang") == ["gang-0", "gang-1", "gang-2"]
    assert (len(made.evicted), made.faults(300.0)) == (3, [])


ZONE = "zone"
NODES = [node(name, "4", labels={ZONE: name[0]}) for name in ("a1", "a2", "b1")]
APART, SPREAD = apart_from(ZONE, app="x"), spread(ZONE, app="x")


def zone_for_two(
    *parts: Happens, near: object = victim, owner: str = "", notice: float = 0.0, **wants: object
) -> Scene:
    """A zone whose two nodes have a pod each that keeps the preemptor off; only on one of them is there room."""
    waits = preemptor(cpu="3")
    waits["spec"] |= wants or APART
    pods = ((near, "near", "a1"), (victim, "far", "a2"))
    blockers = (make(name, on, "1", app="x", owner=owner) for make, name, on in pods)
    full = (fixed("full-a", "a2", "3"), fixed("full-b", "b1"), waits)
    told = Victims(across_nodes=True, notice=notice)
    return scene(*NODES, does("cover", "x", 9), *blockers, *full, *parts, victims=told)


def outcome(made: Cluster) -> tuple[str, list[str]]:
    """Where the preemptor is, and who was evicted."""
    return made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)


@table(
    "make, gone",
    ("anti-affinity", zone_for_two(), ["far", "near"]),
    ("spread, and the near pod stays", zone_for_two(near=fixed, **SPREAD), ["far"]),
)
def test_killed_at_every_step(make: Scene, gone: list[str]):
    """Whichever step is the last of a process, exactly those go who stand in the way, and the preemptor is bound."""
    for step, made in killed_at_each_step(make):
        assert outcome(made) == ("a1", gone), step
        assert (step > 0 or "to make room in zone a" in str(made.told), made.faults(60.0)) == (True, [])


LATE = victim("late", "a2", "0", priority=1000, app="x")
FAR_ENDS = at(5.0, lambda made: made.end(made.pods["far"], evicted=False))


@table(
    "make, expected",
    ("one would stay", zone_for_two(having(kept={"far"})), ("", [])),
    ("a budget lets one go", zone_for_two(does("cover", "x", 1)), ("", [])),
    ("one comes that stays, while the victims have notice", zone_for_two(at(5.0, LATE), notice=20.0), ("", [])),
    ("the far one leaves by itself meanwhile", zone_for_two(FAR_ENDS, notice=20.0), ("a1", ["near"])),
)
def test_who_goes(make: Scene, expected: tuple[str, list[str]]):
    """If one of them would stay, nobody goes; what happens in the zone counts until the victims are asked."""
    assert outcome(lived(make)) == expected


def test_owners_that_put_their_pods_back():
    """A controller that puts its pods back into the zone is left alone: two evictions in a round, few rounds."""
    assert len(lived(zone_for_two(having(replacing={"o": "anywhere"}), owner="o"), 600.0).evicted) <= 8
