"""The two promises over random clusters: no needless eviction, and no preemptor left behind."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.reconciler.random_clusters import lived, simulated
from tests.reconciler.virtual_time import run

pytestmark = pytest.mark.slow

SETTLED = 1500.0
"""Seconds after the last change of a cluster by others: rates, refusals and back-offs have had their time."""


def holds(seed: int, *, slow_writes: bool = False) -> None:
    """Both promises, in one random cluster."""

    async def check() -> None:
        made = simulated(seed)
        made.slow_writes = slow_writes
        await lived(made, SETTLED)
        assert not made.needless, made.needless
        assert not (stranded := made.stranded()), stranded
        assert len(set(made.evicted)) == len(made.evicted), "nobody is evicted twice"
        assert not (kept := made.remembered()), kept

    run(check())


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9), slow_writes=st.booleans())
@example(seed=34, slow_writes=False)  # a pod that ends between two waves
@example(seed=53, slow_writes=False)  # a plan larger than a rate
@example(seed=93, slow_writes=False)  # room that comes up under a lower nomination
@example(seed=62, slow_writes=False)  # room that comes up while a victim is said to be on its way out
@example(seed=6027, slow_writes=False)  # room that comes up while the first victims leave for long
@example(seed=6522, slow_writes=False)  # a budget that only the more important of its pods can use
@example(seed=22, slow_writes=True)  # a pod that leaves anyway, and that the policy would not let go
@example(seed=692, slow_writes=True)  # a pod that counts as gone by now, though nothing was seen to happen
@example(seed=489, slow_writes=True)  # room that comes up beside a nominated pod
@example(seed=200070, slow_writes=False)  # room for both beside a higher pod that is nominated there
@example(seed=100030, slow_writes=True)  # a pod whose time to leave ends between two tries to evict another
def test_no_needless_eviction_and_nobody_left_behind(seed: int, slow_writes: bool):
    """Nobody goes for a preemptor that fits without it; nobody waits while a plan within the rules exists."""
    holds(seed, slow_writes=slow_writes)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9), slow_writes=st.booleans())
def test_the_same_for_longer(seed: int, slow_writes: bool):
    """The same over many more clusters."""
    holds(seed, slow_writes=slow_writes)
