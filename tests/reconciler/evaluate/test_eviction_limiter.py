"""Rates per owner, node and cluster: what they leave, and until when."""

from __future__ import annotations

from webhook.policy.model import Limits, Rate
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction, Remaining

OWNER = Limits(per_owner=Rate(2, 60.0))


def test_remaining_evictions():
    """What the rates still allow owners, nodes and the cluster, and until when an eviction counts."""
    limiter, limits = (
        EvictionLimiter(),
        Limits(per_owner=Rate(2, 60.0), per_node=Rate(3, 30.0), per_cluster=Rate(9, 90.0)),
    )
    limiter.exhausted(limits, 0.0)
    limiter.note([PlannedEviction("web", "n1"), PlannedEviction("", "n1")], 0.0)
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    assert limiter.remaining(limits, 20.0) == Remaining({"web": 0}, {"n1": 1, "n2": 2}, 6, 30.0)
    assert limiter.remaining(limits, 61.0) == Remaining({"web": 1}, {}, 6, 80.0)
    assert limiter.remaining(limits, 111.0) == Remaining({}, {}, 9, None)
    assert limiter.remaining(Limits(), 20.0).until is None


def test_exhausted_says_until_when():
    """What is used up is named, with the time at which room comes up again."""
    limiter = EvictionLimiter()
    limiter.exhausted(OWNER, 0.0)
    limiter.note([PlannedEviction("web", "n1")], 10.0)
    assert limiter.exhausted(OWNER, 10.0).until is None
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    exhausted = limiter.exhausted(OWNER, 25.0)
    assert (exhausted.owners, exhausted.nodes, exhausted.cluster, exhausted.until) == ({"web"}, set(), False, 70.0)
    assert limiter.exhausted(OWNER, 70.1).owners == frozenset()


def test_evictions_that_did_not_happen_do_not_count():
    """A plan that was dropped gives its share of the rates back."""
    limiter = EvictionLimiter()
    limiter.exhausted(OWNER, 0.0)
    limiter.take_back(limiter.note([PlannedEviction("web", "n1")] * 2, 0.0))
    assert limiter.remaining(OWNER, 1.0).owners == {}


def test_memory_does_not_grow():
    """What is older than the longest window is forgotten."""
    limiter = EvictionLimiter()
    limiter.exhausted(OWNER, 0.0)
    for second in range(5000):
        limiter.note([PlannedEviction(f"owner-{second}", f"n{second}")], float(second))
    assert (len(limiter._owners), len(limiter._tickets)) == (180, 180), "three minutes at least are remembered"
