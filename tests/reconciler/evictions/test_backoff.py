"""What evicting did not help: excluded for longer each time, and forgotten in the end."""

import pytest

from tests.reconciler.builders import pod
from webhook.reconciler.evictions.backoff import EvictionBackoff


def excluded_for(eviction_backoff: EvictionBackoff, now: float) -> float:
    end = eviction_backoff.next_end(now)
    return 0.0 if end is None else end - now


def test_remembered_by_owner():
    """Another pod of the owner is excluded for longer when it is refused, too."""
    eviction_backoff = EvictionBackoff()
    first, second = (pod(name, owner=("Job", "j")) for name in ("j-1", "j-2"))
    eviction_backoff.refused(first, 0.0)
    assert eviction_backoff.excluded(0.0) == (["default/j-1"], [])
    eviction_backoff.refused(second, 0.0)
    assert eviction_backoff.excluded(29.0) == (["default/j-2"], [])


@pytest.mark.parametrize(
    ("fails", "excluded", "first", "last"),
    [
        pytest.param(
            lambda backoff, now: backoff.refused(pod("a"), now),
            (["default/a"], []),
            [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0],
            600.0,
            id="a pod that is refused: up to ten minutes",
        ),
        pytest.param(
            lambda backoff, now: backoff.returned("Job/default/j", now),
            ([], ["Job/default/j"]),
            [60.0, 120.0, 240.0],
            14_400.0,
            id="all pods of an owner that puts them back: up to four hours",
        ),
    ],
)
def test_excluded_for_longer_each_time(fails, excluded, first: list[float], last: float):
    """The time doubles with every failure, up to a bound."""
    eviction_backoff, now, times = EvictionBackoff(), 0.0, []
    for _ in range(10):
        fails(eviction_backoff, now)
        assert eviction_backoff.excluded(now) == excluded
        times.append(excluded_for(eviction_backoff, now))
        now += times[-1]
        assert eviction_backoff.excluded(now) == ([], [])
    assert (times[: len(first)], times[-1]) == (first, last)


def test_forgotten():
    """Pods that were refused long ago are not remembered, so that weeks of refusals cost no memory."""
    eviction_backoff = EvictionBackoff()
    for number in range(10_000):
        eviction_backoff.refused(pod(str(number)), number * 10.0)
    assert len(eviction_backoff) < 100
    assert len(eviction_backoff._times) < 100
    eviction_backoff.refused(pod("0"), 1e6)
    assert excluded_for(eviction_backoff, 1e6) == 15.0
