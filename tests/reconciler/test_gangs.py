"""Gangs in the control loop: all members are nominated before anybody goes, whatever happens in between."""

from typing import Any

import pytest

from tests.cases import table
from tests.preemption.building import node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import remove_group, set_minimum
from tests.reconciler.harness.judge import say_ready
from tests.reconciler.harness.pods import GANG, fixed, group, members, preemptor, victim
from tests.reconciler.harness.scenarios import (
    WHOLE,
    Happens,
    Scene,
    at,
    bound,
    changed,
    does,
    ended,
    having,
    killed_at_each_step,
    later,
    lived,
    on_request,
    plain_gang,
    scene,
)
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

ALL = ["gang-0", "gang-1", "gang-2"]
SLOW_WRITES = having(slow_writes=True)


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_killed_at_every_step(whole):
    """Whichever step is the last of a process, all members are bound, and one of two victims of each node is gone."""
    samples = {}

    def take_samples(made):
        for kind in made.process.registry.collect():
            samples.update({(sample.name, *sample.labels.values()): sample.value for sample in kind.samples})

    for step, made in killed_at_each_step(plain_gang(whole=whole), at_290=take_samples):
        assert (len(made.evicted), bound(made, "gang"), made.remembered()) == (3, ALL, []), step
        assert len({name[-1] for name in made.evicted}) == 1 or not whole, f"{step}: a group is broken"
        counted = [samples["giveway_preemption_gangs_total", "together"], samples["giveway_gangs_ended_total", "bound"]]
        assert step > 0 or (counted, made.record.for_gangs >= 3) == ([1, 1], True)
    assert step >= 12


def comes_at_100(made: Cluster) -> None:
    """A member comes after 100 seconds."""
    late = made.pods["gang-2"]
    made.withdraw("gang-2")
    later(100.0, made.put, late)


def gate_opens_at_100(made: Cluster) -> None:
    """A scheduling gate holds a member back for 100 seconds."""
    conditions = made.pods["gang-2"]["status"]["conditions"]
    changed("gang-2", conditions=[])(made)
    made.edit("gang-2", lambda pod: pod["spec"].update(schedulingGates=[{"name": "wait"}]))
    later(100.0, made.edit, "gang-2", lambda pod: pod["spec"].pop("schedulingGates"))
    later(100.0, changed("gang-2", conditions=conditions), made)


@table("late, said", ("it is missing", comes_at_100, False), ("a gate holds it back", gate_opens_at_100, True))
def test_a_part_of_a_gang_evicts_nobody(late: Happens, said: bool):
    """While a member is missing or gated nobody goes, and of a gate the log says so; when it comes, all are placed."""
    seen = []
    made = lived(plain_gang(late), at_99=lambda made: seen.append((list(made.evicted), str(made.told))))
    ((evicted, told),) = seen
    assert (evicted, "held back by scheduling gates" in told) == ([], said)
    assert bound(made, "gang") == ALL


@pytest.mark.parametrize("joins", [0.3, 50.0])
def test_a_member_that_comes_later_joins(joins):
    """Beyond the minimum a further member is placed by itself, while the others' plan is under way or after it."""
    more = (node("n9", "8"), victim("v9", "n9", "8", grace=1), at(joins, *members("gang", 1, 4, first=9)))
    assert bound(lived(plain_gang(*more)), "gang") == [*ALL, "gang-9"]


@pytest.mark.parametrize(("priority", "winner"), [(100, "gang"), (110, "other")])
def test_two_gangs_for_one_room(priority, winner):
    """The more important gang gets the room, or the first of two equals; nobody goes for the other one."""
    pods = [victim(f"v{n}{half}", f"n{n}", priority=2000 if half == "b" else 10) for n in (1, 2, 3) for half in "ab"]
    gangs = (group("gang", 3), *members("gang", 3, 4), group("other", 3))
    made = lived(scene(*"888", *pods, *gangs, at(0.05, *members("other", 3, 4, priority=priority, at=0.05))))
    assert (len(made.evicted), bound(made, "gang", "other")) == (3, [f"{winner}-{number}" for number in range(3)])


@table(
    "change, placed",
    ("more are needed than there are", lambda made: set_minimum(made, "gang", 5), False),
    ("fewer are needed", lambda made: set_minimum(made, "gang", 2), True),
    ("the PodGroup is deleted", lambda made: remove_group(made, "gang"), True),
    ("a member is deleted", does("withdraw", "gang-1"), False),
)
def test_what_changes_when_a_member_is_nominated(change: Happens, placed: bool):
    """If there are too few nobody is evicted for them, and they give their nominations up; else all are bound."""
    made = lived(plain_gang(SLOW_WRITES, on_request(at(0.0, change), "patch", of="gang-0", done=True)))
    assert (len(made.evicted), bound(made, "gang")) == ((3, ALL) if placed else (0, []))
    assert placed or made.faults(150.0) == []


def test_a_member_that_is_deleted_while_it_is_nominated():
    """Before a watch shows that, and the others are enough by then: the plan goes on for them, and spares a victim."""

    def delete(made: Cluster) -> None:
        set_minimum(made, "gang", 2)
        made.hold_watch(2.0)
        made.withdraw("gang-1")

    made = lived(plain_gang(on_request(delete, "patch", of="gang-1")))
    assert (ended(made), bound(made, "gang"), len(made.evicted)) == (["bound"], ["gang-0", "gang-2"], 2)


def test_who_is_left_stays_if_others_take_the_room_of_a_member_that_fits_elsewhere():
    """After the first victim has gone the node of the other is taken: nobody goes there, though a third has room."""
    pods = (victim("a", "n1", "8", grace=90), victim("b", "n2", "8"), fixed("c", "n3", "8"), *members("gang", 2, 8))
    slow = having(ends_after={"a": 90.0}, away_until=100.0)
    happens = (at(5.0, lambda made: say_ready(made, "a")), at(7.0, does("leave", "c")), at(12.0, fixed("d", "n2")))
    made = lived(scene(*"888", group("gang", 2), slow, *pods, *happens, victims=Victims(notice=20.0)))
    assert (made.evicted, bound(made, "gang")) == (["a"], ["gang-0", "gang-1"])


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
