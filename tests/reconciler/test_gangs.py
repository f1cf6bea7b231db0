"""Gangs in the control loop: all members are nominated before anybody goes, whatever happens in between."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.preemption.building import node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import plain_gang, remove_group, set_minimum
from tests.reconciler.harness.notice_judge import say_ready
from tests.reconciler.harness.pods import fixed, group, members, victim
from tests.reconciler.harness.scenarios import bound, killed_at_each_step, later, lived, on_request, simulated
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

ALL = ["gang-0", "gang-1", "gang-2"]


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_killed_at_every_step(whole):
    """Whichever step is the last of a process, all members are bound, and one of two victims of each node is gone."""
    samples = {}

    def take_samples(made):
        for kind in made.process.registry.collect():
            samples.update({(sample.name, *sample.labels.values()): sample.value for sample in kind.samples})

    for step, made in killed_at_each_step(partial(plain_gang, whole=whole), at_290=take_samples):
        assert (len(made.evicted), bound(made, "gang"), made.remembered()) == (3, ALL, []), step
        assert len({name[-1] for name in made.evicted}) == 1 or not whole, f"{step}: a group is broken"
        counted = [samples["giveway_preemption_gangs_total", "together"], samples["giveway_gangs_ended_total", "bound"]]
        assert step > 0 or (counted, made.gang_judge.for_gangs >= 3) == ([1, 1], True)
    assert step >= 12


@pytest.mark.parametrize("gated", [False, True], ids=["it is missing", "a scheduling gate holds it back"])
def test_a_part_of_a_gang_evicts_nobody(gated: bool):
    """While a member is missing or gated nobody goes, and of a gate the log says so; when it comes, all are placed."""

    def make():
        made = plain_gang()
        late = made.pods["gang-2"]
        if not gated:
            made.withdraw("gang-2")
            later(100.0, made.put, late)
            return made
        spec = {**late["spec"], "schedulingGates": [{"name": "wait"}]}
        made.put(
            {**late, "metadata": dict(late["metadata"]), "spec": spec, "status": {**late["status"], "conditions": []}}
        )
        later(100.0, lambda: made.put({**late, "metadata": {**made.pods["gang-2"]["metadata"]}}))
        return made

    seen = []
    made = lived(make, at_99=lambda made: seen.append((list(made.evicted), str(made.told))))
    ((evicted, told),) = seen
    assert (evicted, "held back by scheduling gates" in told) == ([], gated)
    assert bound(made, "gang") == ALL


@pytest.mark.parametrize("at", [0.3, 50.0])
def test_a_member_that_comes_later_joins(at):
    """Beyond the minimum a further member is placed by itself, while the others' plan is under way or after it."""

    def make():
        made = plain_gang()
        made.nodes.append(node("n9", "8"))
        made.put(victim("v9", "n9", "8", grace=1))
        later(at, made.add, *members("gang", 1, 4, first=9))
        return made

    assert bound(lived(make), "gang") == [*ALL, "gang-9"]


@pytest.mark.parametrize(("priority", "winner"), [(100, "gang"), (110, "other")])
def test_two_gangs_for_one_room(priority, winner):
    """The more important gang gets the room, or the first of two equals; nobody goes for the other one."""

    def make():
        made = plain_gang()
        for name in [name for name in made.pods if name.endswith("b")]:
            made.put({**made.pods[name], "spec": {**made.pods[name]["spec"], "priority": 2000}})
        made.groups.append(group("other", 3))
        later(0.05, made.add, *members("other", 3, 4, priority=priority, at=0.05))
        return made

    made = lived(make)
    assert (len(made.evicted), bound(made, "gang", "other")) == (3, [f"{winner}-{number}" for number in range(3)])


def test_a_member_that_is_deleted_ends_the_plan():
    """If a member goes before all are nominated nobody else does, and the others give their nominations up."""

    def make(seed):
        made = plain_gang()
        made.dice.seed(seed)
        made.slow_writes = True
        return made

    for seed in range(10):
        made = lived(partial(make, seed), at_0_2=lambda made: made.withdraw("gang-1"))
        assert made.faults(150.0) == [], seed


@pytest.mark.parametrize(
    ("change", "placed"),
    [
        pytest.param(partial(set_minimum, name="gang", minimum=5), False, id="more are needed than there are"),
        pytest.param(partial(set_minimum, name="gang", minimum=2), True, id="fewer are needed"),
        pytest.param(partial(remove_group, name="gang"), True, id="the PodGroup is deleted"),
    ],
)
def test_what_changes_when_a_member_is_nominated(change: Callable[[Cluster], None], placed: bool):
    """If more are needed nobody is evicted for those that are there; else all that were nominated are bound."""

    def make() -> Cluster:
        made = plain_gang()
        made.slow_writes = True
        return on_request(made, lambda: later(0.0, change, made), "patch", of="gang-0", done=True)

    made = lived(make)
    assert (len(made.evicted), bound(made, "gang")) == ((3, ALL) if placed else (0, []))
    assert placed or made.faults(150.0) == []


def test_a_member_that_is_deleted_while_it_is_nominated():
    """Before a watch shows that, and the others are enough by then: the plan goes on for them, and spares a victim."""

    def make() -> Cluster:
        made = plain_gang()

        def delete() -> None:
            set_minimum(made, "gang", 2)
            made.hold_watch(2.0)
            made.withdraw("gang-1")

        return on_request(made, delete, "patch", of="gang-1")

    made = lived(make)
    ended = [line["ending"] for line in made.told if line["message"] == "plan ended"]
    assert (ended, bound(made, "gang"), len(made.evicted)) == (["bound"], ["gang-0", "gang-2"], 2)


def test_who_is_left_stays_if_others_take_the_room_of_a_member_that_fits_elsewhere():
    """After the first victim has gone the node of the other is taken: nobody goes there, though a third has room."""

    def make() -> Cluster:
        made = simulated("8", "8", "8", victims=Victims(notice=20.0))
        made.groups = [group("gang", 2)]
        made.add(victim("a", "n1", "8", grace=90), victim("b", "n2", "8"), fixed("c", "n3", "8"))
        made.ends_after["a"] = 90.0
        made.scheduler.away_until = 100.0
        made.add(*members("gang", 2, 8))
        return made

    made = lived(
        make,
        at_5=lambda made: say_ready(made, "a"),
        at_7=lambda made: made.leave("c"),
        at_12=lambda made: made.put(fixed("d", "n2")),
    )
    assert (made.evicted, bound(made, "gang")) == (["a"], ["gang-0", "gang-1"])
