"""Rates per owner, node and cluster: what they leave, and until when."""

import pytest

from webhook.policy.model.limits import Limits, Rate, WorkloadLimit
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction, Remaining

OWNER = Limits(per_owner=Rate(2, 60.0))


def left(owners, nodes, cluster, until, again=None):
    """What is left by the names of owners and nodes, and of the cluster by an empty one."""
    by = {"perOwner": ("owner", owners), "perNode": ("node", nodes), "perCluster": ("cluster", cluster)}
    named = {rate: {f"{kind} {name}": number for name, number in of.items()} for rate, (kind, of) in by.items()}
    return Remaining(named, until, again)


def test_remaining_evictions():
    """What the rates still allow owners, nodes and the cluster, and until when an eviction counts."""
    limiter, limits = (
        EvictionLimiter(),
        Limits(per_owner=Rate(2, 60.0), per_node=Rate(3, 30.0), per_cluster=Rate(9, 90.0)),
    )
    limiter.remember(limits)
    limiter.note([PlannedEviction("web", "n1"), PlannedEviction("", "n1")], 0.0)
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    assert limiter.remaining(limits, 20.0) == left({"web": 0}, {"n1": 1, "n2": 2}, {"": 6}, 30.0, 60.0)
    assert limiter.remaining(limits, 61.0) == left({"web": 1}, {}, {"": 6}, 80.0)
    assert limiter.remaining(limits, 111.0) == left({}, {}, {}, None)
    assert limiter.remaining(Limits(), 20.0).until is None


def test_exhausted_says_until_when():
    """What is used up is named, with the time at which room comes up again."""
    limiter = EvictionLimiter()
    limiter.remember(OWNER)
    limiter.note([PlannedEviction("web", "n1")], 10.0)
    assert limiter.remaining(OWNER, 10.0).again is None
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    remaining = limiter.remaining(OWNER, 25.0)
    assert (remaining.rates_used_up, remaining.used_up("perOwner"), remaining.again) == (
        "limits.perOwner",
        ["owner web"],
        70.0,
    )
    assert limiter.remaining(OWNER, 70.1).rates_used_up == ""


@pytest.mark.parametrize(("at", "window"), [(46.2, 90.0), (3976.4, 120.0), (8172.3, 90.0)])
@pytest.mark.parametrize("rate", ["per_cluster", "per_workload"])
def test_there_is_room_when_it_was_said(rate: str, at: float, window: float):
    """At the very moment that a rate named for its next room there is room, whatever is lost in rounding."""
    limits = Limits(per_cluster=Rate(1, window))
    if rate == "per_workload":
        limits = Limits(per_workload=WorkloadLimit(1, window))
    limiter = EvictionLimiter()
    limiter.note([PlannedEviction("web", "n1")], at)
    limiter.history.note("web", at, "other")
    again = limiter.remaining(limits, at).again
    assert again is not None
    assert limiter.remaining(limits, again).rates_used_up == ""


def test_evictions_that_did_not_happen_do_not_count():
    """A plan that was dropped gives its share of the rates back."""
    limiter = EvictionLimiter()
    limiter.remember(OWNER)
    limiter.take_back(limiter.note([PlannedEviction("web", "n1")] * 2, 0.0))
    assert limiter.remaining(OWNER, 1.0).left["perOwner"] == {}


def test_memory_does_not_grow():
    """What is older than the longest window is forgotten."""
    limiter = EvictionLimiter()
    limiter.remember(OWNER)
    for second in range(8000):
        limiter.note([PlannedEviction(f"owner-{second}", f"n{second}")], float(second))
    assert (len(limiter._counters["owner"]), len(limiter._tickets)) == (3600, 3600), "an hour at least is remembered"
