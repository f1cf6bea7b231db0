"""A plan that has evicted ends with its preemptor bound, unless something outside changed (docs/semantics.md E9)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reconciler.random_clusters import lived, oddities, trouble, troubled
from tests.reconciler.random_devices import troubled_devices
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run

pytestmark = pytest.mark.slow

SETTLED = 300.0
"""Seconds: everybody who was away is back for a while."""
CLUSTERS = 200
WITH_DEVICES = 60


def in_vain(seed: int, cluster: Callable[[int], Simulation] = troubled) -> list[str]:
    """Plans of one random cluster that evicted in vain though nothing outside had changed."""
    found: list[str] = []

    async def live() -> None:
        made = cluster(seed)
        made.slow_writes = bool(seed % 2)
        await lived(made, SETTLED, trouble, *((oddities,) if seed % 3 == 2 else ()))
        found.extend(made.outcomes.in_vain + made.outcomes.unfinished(SETTLED / 2))

    run(live())
    return found


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the reconcilers logged as errors: a decision that fails is no decision."""
    caplog.set_level(logging.ERROR)
    said: list[str] = []
    yield said
    said += [record.getMessage() for record in caplog.records]
    assert not said


@pytest.mark.parametrize("first", range(0, CLUSTERS, 50))
def test_every_eviction_ends_in_a_bound_pod(first: int, errors: list[str]):
    """In clusters in which a good deal goes wrong, no plan that has evicted ends otherwise."""
    del errors
    found = {seed: said for seed in range(first, first + 50) if (said := in_vain(seed))}
    assert not found


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(12755, id="a pod in front comes to room that another left"),
        pytest.param(165586, id="a victim that an ended plan asked counts once for the rates"),
        pytest.param(790152571, id="the same with other leaders"),
        pytest.param(3248331, id="a nomination for room that a pod in front takes anyway"),
        pytest.param(200000522, id="a leader whose clock is ahead, and a pod that left before it led"),
        pytest.param(100001134, id="the scheduler has put off the first of two pods in front"),
    ],
)
def test_clusters_that_were_found_later(seed: int):
    """Clusters of longer runs in which a plan evicted in vain once."""
    assert not in_vain(seed)


@pytest.mark.parametrize("first", range(0, WITH_DEVICES, 30))
def test_every_eviction_for_devices_ends_in_a_bound_pod(first: int, errors: list[str]):
    """The same where pods hold devices and want some; what no nomination keeps from others is outside."""
    del errors
    found = {seed: said for seed in range(first, first + 30) if (said := in_vain(seed, troubled_devices))}
    assert not found


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10535, id="a pod in front takes devices from one that asks by an extended resource"),
        pytest.param(10844, id="what was emptied for a pod of lower priority is left to it"),
        pytest.param(10920, id="a claim that the victims' owner takes up again"),
        pytest.param(11039, id="a claim that may come free lets a pod in front come"),
    ],
)
def test_clusters_with_devices_that_were_found_later(seed: int):
    """Clusters in which a plan for devices evicted in vain once."""
    assert not in_vain(seed, troubled_devices)


@pytest.mark.soak
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters_with_devices(seed: int):
    """The same over many more clusters with devices."""
    assert not in_vain(seed, troubled_devices)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters(seed: int):
    """The same over many more clusters."""
    assert not in_vain(seed)
