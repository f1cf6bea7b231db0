"""Refused victims: excluded for longer each time, and forgotten in the end."""

from __future__ import annotations

from webhook.reconciler.evaluate.victim_exclusions import EvictionBackoff


def excluded_for(eviction_backoff: EvictionBackoff, now: float) -> float:
    end = eviction_backoff.next_end(now)
    return 0.0 if end is None else end - now


def test_excluded_for_longer_each_time():
    """The time doubles with every refusal, up to ten minutes."""
    eviction_backoff, now, times = EvictionBackoff(), 0.0, []
    for _ in range(8):
        eviction_backoff.note("default/a", now)
        times.append(excluded_for(eviction_backoff, now))
        now += times[-1]
        assert eviction_backoff.excluded(now) == []
    assert times == [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_forgotten():
    """Pods that were refused long ago are not remembered, so that weeks of refusals cost no memory."""
    eviction_backoff = EvictionBackoff()
    for number in range(10_000):
        eviction_backoff.note(f"default/{number}", number * 10.0)
    assert len(eviction_backoff) < 100
    eviction_backoff.note("default/0", 1e6)
    assert excluded_for(eviction_backoff, 1e6) == 15.0
