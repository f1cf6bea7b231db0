"""The log of evictions: what it leaves of rates, how often it says that workloads were evicted, what it forgets."""

import random
from collections import Counter

import pytest

from tests.reconciler.builders import evicted, pod
from webhook.policy.model.limits import Limits, Rate, WorkloadLimit
from webhook.reconciler.evictions.log import (
    KEPT_SECONDS,
    MOST_EVICTIONS,
    MOST_WORKLOADS,
    EvictionLog,
    PodEviction,
    Remaining,
)

WEB, API = "Deployment/default/web", "Deployment/default/api"
HOURLY = Limits(per_cluster=Rate(9, 3600.0))


def left(owners, nodes, cluster, until, again=None):
    """What is left by the names of owners and nodes, and of the cluster by an empty one."""
    return Remaining({"perOwner": owners, "perNode": nodes, "perCluster": cluster}, until, again)


def test_what_the_rates_leave():
    """How many may go of owners, on nodes and in the cluster, and until when an eviction counts."""
    limits = Limits(per_owner=Rate(2, 60.0), per_node=Rate(3, 30.0), per_cluster=Rate(9, 90.0))
    log = EvictionLog()
    for workload, at, node in ((WEB, 0.0, "n1"), ("Pod/default/a", 0.0, "n1"), (WEB, 20.0, "n2")):
        evicted(log, workload, at, node=node)
    assert log.remaining(limits, 20.0) == left({WEB: 0}, {"n1": 1, "n2": 2}, {"": 6}, 30.0, 60.0)
    assert log.remaining(limits, 20.0).rates_used_up == "limits.perOwner"
    assert log.remaining(limits, 61.0) == left({WEB: 1}, {}, {"": 6}, 80.0)
    assert log.remaining(limits, 111.0) == left({}, {}, {}, None)
    assert log.remaining(Limits(), 20.0).until is None


@pytest.mark.parametrize(("at", "window"), [(46.2, 90.0), (3976.4, 120.0), (8172.3, 90.0)])
@pytest.mark.parametrize("rate", ["per_cluster", "per_workload"])
def test_there_is_room_when_it_was_said(rate: str, at: float, window: float):
    """At the very moment that a rate named for its next room there is room, whatever is lost in rounding."""
    limits = Limits(per_cluster=Rate(1, window))
    if rate == "per_workload":
        limits = Limits(per_workload=WorkloadLimit(1, window))
    log = EvictionLog()
    evicted(log, WEB, at)
    again = log.remaining(limits, at).again
    assert again is not None
    assert log.remaining(limits, again).rates_used_up == ""


GONE = PodEviction(WEB, "n1", "default", (), API)


def counted(log: EvictionLog, now: float = 10.0) -> tuple[int, int]:
    """How many count in the last hour, and how many of web have happened."""
    left = log.remaining(HOURLY, now).left["perCluster"].get("", 9)
    return 9 - left, log.counts(3600.0, now).get(WEB, 0)


@pytest.mark.parametrize(
    ("does", "counts"),
    [
        pytest.param([("intend", "p")], (1, 0), id="what is intended counts, and has not happened"),
        pytest.param([("intend", "p"), ("intend", "q")], (1, 0), id="a victim of two plans counts once"),
        pytest.param([("intend", "p"), ("intend", "q"), ("give_back", "p")], (1, 0), id="as long as one intends it"),
        pytest.param([("intend", "p"), ("give_back", "p")], (0, 0), id="a plan that was dropped gives it back"),
        pytest.param([("intend", "p"), ("asked", "p")], (1, 1), id="it went"),
        pytest.param([("intend", "p"), ("give_back", "p"), ("asked", "p")], (1, 1), id="it went after all"),
        pytest.param([("intend", "p"), ("asked", "p"), ("give_back", "p")], (1, 1), id="what went is not given back"),
        pytest.param([("asked", "p"), ("asked", "q")], (1, 1), id="it is told twice"),
        pytest.param([("asked", "p"), ("intend", "q")], (1, 1), id="a plan names what has gone"),
    ],
)
def test_a_pod_is_evicted_once(does: list[tuple[str, str]], counts: tuple[int, int]):
    """It is known by its uid, whatever plans intend it and whoever says that it went."""
    log = EvictionLog()
    for what, plan in does:
        if what == "intend":
            log.intend(plan, {"a": GONE})
        elif what == "give_back":
            log.give_back(plan, ["a"])
        else:
            log.asked("a", GONE, 5.0)
    assert counted(log) == counts


def test_what_was_intended_is_known_better():
    """A pod that has lost its node and its labels by the time it goes counts where it was."""
    log = EvictionLog()
    log.remember(HOURLY)
    log.intend("p", {"a": GONE})
    log.asked("a", log.eviction_of(pod("a")), 5.0)
    assert [row.eviction for row in log.past()] == [GONE]


def test_random_evictions_are_counted_as_a_plain_list_counts_them():
    """Counts in any window and the most evicted are those of a list of all that happened."""
    for seed in range(40):
        dice, log, happened, now = random.Random(seed), EvictionLog(), [], 1000.0
        window = dice.choice([10.0, 3600.0, 86_400.0])
        limits = Limits(per_owner=Rate(1000, window))
        log.remember(limits)
        for _ in range(dice.randint(0, 200)):
            now += dice.choice([1.0, 50.0, 3600.0])
            happened.append((f"Job/a/{dice.randrange(9)}", now))
            evicted(log, *happened[-1])
        every = Counter(workload for workload, at in happened if at > now - window)
        wanted = {workload: min(count, MOST_EVICTIONS) for workload, count in every.items()}
        assert log.counts(window, now) == wanted
        best = log.most_evicted(3, window, now)
        assert best == sorted(wanted.items(), key=lambda row: (-row[1], row[0]))[:3]
        left = log.remaining(limits, now).left["perOwner"]
        assert {name: 1000 - rest for name, rest in left.items()} == every


def test_memory_does_not_grow():
    """Beyond the longest window, an hour at least, only workloads count: 10 000, those that were evicted last."""
    log = EvictionLog()
    log.remember(Limits(per_owner=Rate(2, 60.0)))
    for second in range(MOST_WORKLOADS + 1):
        evicted(log, f"Job/batch/{second}", float(second), node=f"n{second}")
    assert (len(log._past["node"]), len(log._past["owner"]), len(log._recent)) == (3600, 3600, 3600)
    counts = log.counts(KEPT_SECONDS, 1e5)
    assert len(counts) == MOST_WORKLOADS
    assert "Job/batch/0" not in counts
    rows = list(log.past())
    assert [row.at for row in rows] == sorted((row.at for row in rows), reverse=True)
    assert {bool(row.eviction.node) for row in rows[3600:]} == {False}, "what no rate counts is not kept"


@pytest.mark.parametrize("owner", [("K" * 64, "db"), ("Job", "n" * 254)], ids=["kind", "name"])
def test_an_owner_that_no_object_can_be_is_no_workload(owner: tuple[str, str]):
    """The API server takes any owner reference; one of a megabyte would leave no room for others on the Lease."""
    log = EvictionLog()
    assert log.eviction_of(pod("a", owner=owner, node="n1")).is_bare
    assert not log.eviction_of(pod("b", owner=("Job", "n" * 253), node="n1")).is_bare
