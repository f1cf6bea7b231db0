"""Gangs in the control loop: all members are nominated before anybody goes, whatever happens in between."""

from __future__ import annotations

import asyncio

import pytest

from tests.reconciler.gang_clusters import group, members, plain_gang, random_gangs, victim
from tests.reconciler.outcome_judge import GANG
from tests.reconciler.virtual_time import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SETTLED = 300.0
CLUSTERS = 40


def bound(made, gang="gang"):
    """The members that have a node."""
    return sorted(
        name
        for name, pod in made.pods.items()
        if pod["metadata"]["labels"].get(GANG) == gang and pod["spec"].get("nodeName")
    )


def lived(make, seconds=SETTLED):
    """The cluster that is made, and its judge, when it has lived."""
    found = []

    async def live():
        made, judge = make()
        await made.live(seconds)
        found.extend((made, judge))

    run(live())
    return found


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_one_victim_goes_for_each_member(whole):
    """Every member is bound, one of two victims of each node is gone, and no plan is left."""
    made, judge = lived(lambda: plain_gang(whole=whole))
    assert bound(made) == ["gang-0", "gang-1", "gang-2"]
    assert (len(made.evicted), judge.faults, judge.half_nominated()) == (3, [], [])
    assert judge.for_gangs >= 3
    gangs = made.reconciler.reporter.metrics.gangs.labels("together")
    assert gangs._value.get() == 1
    assert made.reconciler.reporter.metrics.gangs_ended.labels("bound")._value.get() == 1
    assert len({name[-1] for name in made.evicted}) == 1 or not whole
    assert not made.remembered()


def steps_of(whole):
    return lived(lambda: plain_gang(whole=whole), 60.0)[0].steps


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_killed_at_every_step(whole):
    """Whichever step is the last of a process, the next one ends with all members bound and nobody gone in vain."""
    steps = steps_of(whole)
    assert steps >= 12
    for step in range(1, steps + 1):

        def make(step=step):
            made, judge = plain_gang(whole=whole)
            made.killed_at = frozenset({step})
            return made, judge

        made, judge = lived(make)
        assert bound(made) == ["gang-0", "gang-1", "gang-2"], f"step {step}"
        assert (len(made.evicted), judge.faults, judge.half_nominated()) == (3, [], []), f"step {step}"
        assert len({name[-1] for name in made.evicted}) == 1 or not whole, f"step {step}: a group is broken"
        assert not made.outcomes.in_vain, f"step {step}"


def test_a_part_of_a_gang_evicts_nobody():
    """While a member is missing nobody goes; when it comes, all are placed."""

    def make():
        made, judge = plain_gang()
        late = made.pods.pop("gang-2")
        asyncio.get_running_loop().call_later(100.0, made.put, late)
        asyncio.get_running_loop().call_later(99.0, lambda: seen.append(list(made.evicted)))
        return made, judge

    seen = []
    made, judge = lived(make)
    assert seen == [[]]
    assert (bound(made), judge.faults) == (["gang-0", "gang-1", "gang-2"], [])


def test_gated_members_are_waited_for():
    """A member that a scheduling gate holds back is waited for."""

    def make():
        made, judge = plain_gang()
        freed = made.pods["gang-2"]
        made.put(
            {
                **freed,
                "metadata": dict(freed["metadata"]),
                "spec": {**freed["spec"], "schedulingGates": [{"name": "wait"}]},
                "status": {**freed["status"], "conditions": []},
            }
        )
        loop = asyncio.get_running_loop()
        loop.call_later(100.0, lambda: made.put({**freed, "metadata": {**made.pods["gang-2"]["metadata"]}}))
        loop.call_later(99.0, lambda: seen.append((list(made.evicted), made.reconciler.queue.get("default/gang-0"))))
        return made, judge

    seen = []
    made, judge = lived(make)
    ((evicted, entry),) = seen
    assert evicted == []
    assert "held back by scheduling gates" in entry.reason
    assert (bound(made), judge.faults) == (["gang-0", "gang-1", "gang-2"], [])


def test_a_member_that_comes_later_joins():
    """Beyond the minimum a further member is placed by itself, while the others' plan is under way or after it."""
    for at in (0.3, 50.0):

        def make(at=at):
            made, judge = plain_gang()
            made.nodes.append({**made.nodes[0], "metadata": {"name": "n9", "labels": {"kubernetes.io/hostname": "n9"}}})
            made.put(victim("v9", "n9", 8))
            (late,) = members("gang", 1, 4, first=9)
            asyncio.get_running_loop().call_later(at, made.put, late)
            return made, judge

        made, judge = lived(make)
        assert (bound(made), judge.faults) == (["gang-0", "gang-1", "gang-2", "gang-9"], [])


def test_two_gangs_for_one_room():
    """The more important gang gets the room, or the first of two equals; nobody goes for the other one."""
    for priority, winner in ((100, "gang"), (110, "other")):

        def make(priority=priority):
            made, judge = plain_gang()
            for name in [name for name in made.pods if name.endswith("b")]:
                made.put({**made.pods[name], "spec": {**made.pods[name]["spec"], "priority": 2000}})
            made.groups.append(group("other", 3))
            for one in members("other", 3, 4, priority=priority, at=0.05):
                asyncio.get_running_loop().call_later(0.05, made.put, one)
            return made, judge

        made, judge = lived(make)
        loser = {"gang": "other", "other": "gang"}[winner]
        assert (len(bound(made, winner)), bound(made, loser)) == (3, []), priority
        assert (len(made.evicted), judge.faults, judge.half_nominated()) == (3, [], [])


def test_a_member_that_is_deleted_ends_the_plan():
    """If a member goes before all are nominated nobody else does, and the others give their nominations up."""

    def make():
        made, judge = plain_gang()
        made.slow_writes = True
        asyncio.get_running_loop().call_later(0.2, made.withdraw, "gang-1")
        return made, judge

    for seed in range(10):
        made, judge = lived(lambda seed=seed: make())
        assert (judge.faults, judge.half_nominated()) == ([], [])
        assert not made.outcomes.unfinished(SETTLED / 2)


@pytest.mark.parametrize("first", range(0, CLUSTERS, 20))
def test_random_clusters_with_gangs(first):
    """No gang is half nominated when somebody goes or in the end, and plans that evicted ended with a bound pod."""
    for_gangs = 0
    for seed in range(first, first + 20):
        made, judge = lived(lambda seed=seed: random_gangs(seed))
        assert not judge.faults, f"seed {seed}"
        assert not judge.half_nominated(), f"seed {seed}"
        assert not made.outcomes.in_vain, f"seed {seed}"
        assert not made.outcomes.unfinished(SETTLED / 2), f"seed {seed}"
        assert not made.remembered(), f"seed {seed}"
        for_gangs += judge.for_gangs
    assert for_gangs > 5
