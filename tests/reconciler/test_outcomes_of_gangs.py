"""The same as `test_outcomes` where pods belong to groups: gangs that preempt, and groups that go whole."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reconciler.gang_changes import groups_change
from tests.reconciler.gang_judge import GangJudge
from tests.reconciler.gang_trouble import gangs_beside, troubled_gangs
from tests.reconciler.random_clusters import lived_in_trouble
from tests.reconciler.virtual_time import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SETTLED = 300.0
CLUSTERS = 40


def faults(seed: int, seen: Counter[str] | None = None, *, changing: bool = False) -> list[str]:
    """What one random cluster shows: plans that evicted in vain, gangs of which a part was nominated.

    Groups change on the way if it is `changing`.
    """
    found: list[str] = []

    async def live() -> None:
        made = troubled_gangs(seed)
        judge = GangJudge(made)
        await lived_in_trouble(made, seed, SETTLED, gangs_beside, *((groups_change,) if changing else ()))
        found.extend(made.outcomes.in_vain + made.outcomes.unfinished(SETTLED / 2))
        found.extend(judge.faults + judge.half_nominated())
        if seen is not None:
            seen["for gangs"] += judge.for_gangs
            seen["of groups"] += sum(name in judge.of_groups for name in made.evicted)
            seen["leaders"] += bool(judge.for_gangs and (made.terms or made.killed_at))

    run(live())
    return found


@pytest.mark.parametrize("first", range(0, CLUSTERS, 20))
def test_every_eviction_ends_in_a_bound_pod(first: int):
    """No plan evicts in vain and no gang is half nominated, also with other leaders, kills and changes on the way."""
    seen: Counter[str] = Counter()
    found = {seed: said for seed in range(first, first + 20) if (said := faults(seed, seen))}
    assert not found
    assert min(seen["for gangs"], seen["of groups"], seen["leaders"]) > 0, seen


@pytest.mark.parametrize("first", range(0, CLUSTERS, 20))
def test_the_same_while_groups_change(first: int):
    """The same if minimums change, PodGroups are deleted, scheduling gates open late and domains lose a node."""
    found = {seed: said for seed in range(first, first + 20) if (said := faults(seed, changing=True))}
    assert not found


@pytest.mark.parametrize(
    ("seed", "changing"),
    [
        pytest.param(1768, False, id="room of a member for whom nobody went, while somebody did for another one"),
        pytest.param(70353, False, id="the same with other leaders"),
        pytest.param(70808, False, id="a member for whom nobody went is deleted"),
        pytest.param(1403, False, id="a plan of higher priority comes while the mark on a victim is written"),
        pytest.param(90075, False, id="a pod that is put back, found by a member that did not ask"),
        pytest.param(70446, False, id="a plan counts on a victim of another one, for another node, that stays"),
        pytest.param(31, False, id="a member whose plan is over while those of the others are about to end"),
        pytest.param(100064, False, id="a member that fits elsewhere when others went for its gang already"),
        pytest.param(285, False, id="an owner whose pods leave, and come back"),
        pytest.param(300109, False, id="two plans of one node, and room for one"),
        pytest.param(1277, False, id="a member is deleted, and no watch shows it yet"),
        pytest.param(2039, True, id="members wait for room on one node, and a pod in front comes"),
        pytest.param(2052, True, id="members in front are nominated, and their plan needs a victim no more"),
        pytest.param(5088, True, id="a member in front that needs no others"),
        pytest.param(2184, True, id="a member waits for room that a plan made, and a pod in front comes"),
        pytest.param(6269, True, id="a gang counts on pods that a plan of lower priority has yet to ask"),
        pytest.param(5774, True, id="the same with a pod that takes its time"),
    ],
)
def test_clusters_that_were_found_later(seed: int, changing: bool):
    """Clusters of longer runs, with groups that change or without, in which a gang evicted in vain once."""
    assert not faults(seed, changing=changing)


@pytest.mark.soak
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters(seed: int):
    """The same over many more clusters."""
    assert not faults(seed)


@pytest.mark.soak
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters_while_groups_change(seed: int):
    """The same over many more clusters in which groups change."""
    assert not faults(seed, changing=True)
