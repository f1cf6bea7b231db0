"""Notices over random clusters in which a good deal goes wrong: they are kept, and plans that evict end bound."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reconciler.random_clusters import lived_in_trouble, with_notices
from tests.reconciler.virtual_time import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SETTLED = 400.0
"""Seconds: everybody who was away is back for a while, and the longest notices are over."""
CLUSTERS = 40


def wrong(seed: int) -> list[str]:
    """What is wrong with the notices of one random cluster, and its plans that evicted in vain."""
    found: list[str] = []

    async def live() -> None:
        made, judge = with_notices(seed)
        await lived_in_trouble(made, seed, SETTLED)
        found.extend(judge.faults + [f"{name} still has a notice" for name in judge.left_over()])
        found.extend(made.outcomes.in_vain + made.outcomes.unfinished(SETTLED / 2))

    run(live())
    return found


@pytest.mark.parametrize("first", range(0, CLUSTERS, 20))
def test_notices_are_kept_and_evictions_end_in_bound_pods(first: int):
    """Nobody is asked before its time or without a notice, none outlives its plan, and nobody goes in vain."""
    found = {seed: said for seed in range(first, first + 20) if (said := wrong(seed))}
    assert not found


def test_a_victim_of_a_higher_plan_that_stays_is_not_counted_on():
    """A cluster of longer runs: a higher preemptor came to the room that a lower one had made beside it."""
    assert not wrong(2813)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters(seed: int):
    """The same over many more clusters."""
    assert not wrong(seed)
