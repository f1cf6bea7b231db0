"""The log of evictions: what it leaves of rates, how often workloads were evicted, what was in vain."""

import math

import pytest

from tests.cases import table
from tests.reconciler.builders import evicted, pod
from webhook.policy.model.limits import Cycles, Limits, Rate, WorkloadLimit
from webhook.reconciler.evictions.log import KEPT_SECONDS, MOST_KEPT, EvictionLog, PodEviction, Remaining

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
@pytest.mark.parametrize(("field", "of"), [("per_cluster", Rate), ("per_workload", WorkloadLimit)])
def test_there_is_room_when_it_was_said(field: str, of: type, at: float, window: float):
    """At the very moment that a rate named for its next room there is room, whatever is lost in rounding."""
    log, limits = EvictionLog(), Limits(**{field: of(1, window)})
    evicted(log, WEB, at)
    again = log.remaining(limits, at).again
    assert again is not None
    assert log.remaining(limits, again).rates_used_up == ""


GONE = PodEviction(math.inf, WEB, "n1", "default", (), API)


def counted(log: EvictionLog, now: float = 10.0) -> tuple[int, int]:
    """How many count in the last hour, and how many of web have happened."""
    left = log.remaining(HOURLY, now).left["perCluster"].get("", 9)
    return 9 - left, log.counts(3600.0, now).get(WEB, 0)


@table(
    "does, counts",
    ("what is intended counts, and has not happened", [("intend", "p")], (1, 0)),
    ("a victim of two plans counts once", [("intend", "p"), ("intend", "q")], (1, 0)),
    ("as long as one intends it", [("intend", "p"), ("intend", "q"), ("give_back", "p")], (1, 0)),
    ("a plan that was dropped gives it back", [("intend", "p"), ("give_back", "p")], (0, 0)),
    ("it went", [("intend", "p"), ("asked", "p")], (1, 1)),
    ("it went after all", [("intend", "p"), ("give_back", "p"), ("asked", "p")], (1, 1)),
    ("what went is not given back", [("intend", "p"), ("asked", "p"), ("give_back", "p")], (1, 1)),
    ("it is told twice", [("asked", "p"), ("asked", "q")], (1, 1)),
    ("a plan names what has gone", [("asked", "p"), ("intend", "q")], (1, 1)),
)
def test_a_pod_is_evicted_once(does: list[tuple[str, str]], counts: tuple[int, int]):
    """It is known by its uid, whatever plans intend it and whoever says that it went."""
    log = EvictionLog()
    for what, plan in does:
        if what == "intend":
            log.intend(plan, {"a": GONE})
        elif what == "give_back":
            log.give_back(plan, "a")
        else:
            log.asked("a", GONE, 5.0)
    assert counted(log) == counts


def test_of_several_plans_the_first_one_is_the_evictor():
    """A victim that two plans count on goes for the one that named it first, which asks it."""
    log = EvictionLog()
    log.intend("p", {"a": GONE})
    log.intend("q", {"a": GONE._replace(preemptor=WEB)})
    assert log.intended() == {"a": GONE}
    log.asked("a", GONE._replace(preemptor=WEB), 5.0)
    assert [gone.preemptor for gone in log.past] == [API]


@table(
    "limits, kept",
    ("the latest", Limits(per_owner=Rate(2, 60.0), cycles=Cycles(window=60.0)), MOST_KEPT),
    ("all that a rate counts", Limits(per_workload=WorkloadLimit(2, 20_000.0)), MOST_KEPT + 999),
)
def test_memory_does_not_grow(limits: Limits, kept: int):
    """Beyond what the limits ask for the latest 16 000 evictions are remembered."""
    log = EvictionLog()
    log.remember([limits])
    for second in range(MOST_KEPT + 999):
        evicted(log, f"Job/batch/{second}", float(second), node=f"n{second}")
    counts = log.counts(KEPT_SECONDS, 20_000.0)
    assert (len(counts), "Job/batch/0" in counts) == (kept, kept > MOST_KEPT)
    assert len(log._of["node"]) == kept, "what no rate counts is not kept"


@pytest.mark.parametrize("owner", [("K" * 64, "db"), ("Job", "n" * 254)], ids=["kind", "name"])
def test_an_owner_that_no_object_can_be_is_no_workload(owner: tuple[str, str]):
    """The API server takes any owner reference; one of a megabyte would leave no room for others on the Lease."""
    log = EvictionLog()
    assert "owner" not in log.eviction_of(pod("a", owner=owner, node="n1")).names
    assert "owner" in log.eviction_of(pod("b", owner=("Job", "n" * 253), node="n1")).names


@table(
    "fails, excluded, times",
    (
        "a pod that is refused: up to ten minutes",
        lambda log, now: log.refused(pod("a"), now),
        (["default/a"], []),
        [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0, 600.0],
    ),
    (
        "all pods of an owner that puts them back: up to four hours",
        lambda log, now: log.returned("Job/default/j", now),
        ([], ["Job/default/j"]),
        [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0, 7680.0, 14_400.0, 14_400.0],
    ),
)
def test_excluded_for_longer_each_time(fails, excluded, times: list[float]):
    """The time doubles with every failure, up to a bound."""
    log, now = EvictionLog(), 0.0
    for seconds in times:
        fails(log, now)
        assert log.excluded(now) == (*excluded, now + seconds)
        now += seconds
        assert log.excluded(now) == ([], [], None)


def test_refusals_are_forgotten():
    """Pods that were refused long ago are not remembered, so that weeks of refusals cost no memory."""
    log = EvictionLog()
    for number in range(10_000):
        log.refused(pod(str(number)), number * 10.0)
    assert len(log._refused) + len(log._refusing) < 100
    log.refused(pod("0"), 1e6)
    assert log.excluded(1e6)[2] == 1e6 + 15.0
