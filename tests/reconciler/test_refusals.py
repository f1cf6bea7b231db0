"""Refused victims: spared for longer each time, and forgotten in the end."""

from __future__ import annotations

from webhook.reconciler.refusals import Refusals


def spared_for(refusals: Refusals, now: float) -> float:
    end = refusals.next_end(now)
    return 0.0 if end is None else end - now


def test_spared_for_longer_each_time():
    """The time doubles with every refusal, up to ten minutes."""
    refusals, now, times = Refusals(), 0.0, []
    for _ in range(8):
        refusals.note("default/a", now)
        times.append(spared_for(refusals, now))
        now += times[-1]
        assert refusals.spared(now) == []
    assert times == [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_forgotten():
    """Pods that were refused long ago are not remembered, so that weeks of refusals cost no memory."""
    refusals = Refusals()
    for number in range(10_000):
        refusals.note(f"default/{number}", number * 10.0)
    assert len(refusals) < 100
    refusals.note("default/0", 1e6)
    assert spared_for(refusals, 1e6) == 15.0
