"""The history of evictions: what is counted, what is forgotten, and what a later leader reads of it."""

import random
from collections import Counter

import pytest

from tests.reconciler.builders import START, Setting, node, pod, policy, preemptor
from webhook.kube.pods import workload_of
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.policy.model.victims import EvictionCost, Victims
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter
from webhook.reconciler.evaluate.eviction_record import decode, encode, record_of
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable
from webhook.reconciler.evaluate.workload_history import (
    KEPT_SECONDS,
    MOST_EVICTIONS,
    MOST_WORKLOADS,
    PastEviction,
    WorkloadHistory,
)

WEB, API = "Deployment/default/web", "Deployment/default/api"
DAY = 86_400.0


def again(history, now, wall):
    """What a later leader makes of what this one wrote, its monotonic clock having begun elsewhere."""
    limiter, later = EvictionLimiter(), WorkloadHistory()
    limiter.history = history
    later.load(decode(encode(record_of(limiter, (), now, wall))).workloads, now + 5000.0, wall)
    return later


def test_random_evictions_are_counted_as_a_plain_list_counts_them():
    """Counts in any window and the most evicted are those of a list of all that happened, also once read."""
    for seed in range(40):
        dice, history, all_of_it = random.Random(seed), WorkloadHistory(), []
        now = 1000.0
        for _ in range(dice.randint(0, 200)):
            now += dice.choice([1.0, 50.0, 3600.0])
            workload, by = f"Job/a/{dice.randrange(9)}", f"Job/b/{dice.randrange(4)}"
            history.note(workload, now, by)
            all_of_it.append((workload, now, by))
        window = dice.choice([10.0, 3600.0, DAY])
        wanted = Counter(workload for workload, at, _ in all_of_it if at > now - window)
        wanted = {workload: min(count, MOST_EVICTIONS) for workload, count in wanted.items()}
        for known, at in ((history, now), (again(history, now, START), now + 5000.0)):
            assert known.counts(window, at) == wanted
            best = known.most_evicted(3, window, at)
            assert best == sorted(wanted.items(), key=lambda row: (-row[1], row[0]))[:3]


def test_it_is_bounded():
    """The 10 001st workload displaces the one that was not evicted for the longest time."""
    history = WorkloadHistory()
    for at in range(MOST_WORKLOADS + 1):
        history.note(f"Job/batch/{at}", float(at), API)
    counts = history.counts(KEPT_SECONDS, 1e5)
    assert len(counts) == MOST_WORKLOADS
    assert "Job/batch/0" not in counts


def test_what_is_old_or_from_a_clock_that_is_ahead():
    """What is older than 30 days is forgotten; what is from later than now counts as of now."""
    history = WorkloadHistory()
    history.note(WEB, 0.0, API)
    assert again(history, KEPT_SECONDS + 1.0, START).counts(KEPT_SECONDS, 1e9) == {}
    later = WorkloadHistory()
    later.load({WEB: [PastEviction(START + 50.0, API)]}, 7.0, START)
    assert [one.at for one in later.of(WEB, 7.0)] == [7.0]


def past(setting, workload, by, *ages):
    for age in ages:
        setting.evaluator.limiter.history.note(workload, setting.clock.monotonic() - age, by)


def workload_pod(name, kind_name, **more):
    return pod(name, "6", owner=("StatefulSet", kind_name), **more)


@pytest.mark.parametrize(
    ("ages", "goes"),
    [
        pytest.param([10.0, 20.0], True, id="fewer than the limit"),
        pytest.param([10.0, 20.0, 30.0], False, id="as many"),
        pytest.param([10.0, 20.0, 8 * DAY], True, id="one of them is out of the window"),
    ],
)
def test_a_workload_that_had_its_evictions_stays(ages, goes):
    """`perWorkload` keeps the pods of a workload that was evicted often; the reason and the time say so."""
    setting = Setting(node("n1"), under=policy(limits=Limits(per_workload=WorkloadLimit(3, 7 * DAY))))
    setting.clock.now = 30 * DAY
    setting.add(workload_pod("a", "db", node="n1"))
    past(setting, "StatefulSet/default/db", API, *sorted(ages, reverse=True))
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    if not goes:
        assert outcome.limited
        assert "limits.perWorkload" in outcome.change
        assert outcome.due == pytest.approx(30 * DAY - 30.0 + 7 * DAY)


def test_two_pods_of_one_workload_are_more_than_what_is_left():
    """A plan takes no more pods of a workload than `perWorkload` leaves; another node's are taken."""
    setting = Setting(node("n1"), node("n2"), under=policy(limits=Limits(per_workload=WorkloadLimit(1))))
    setting.add(*(pod(f"a{n}", "4", owner=("StatefulSet", "db"), node="n1") for n in range(2)))
    setting.add(*(pod(f"b{n}", "4", owner=("StatefulSet", f"q{n}"), node="n2", priority=90) for n in range(2)))
    outcome = setting.evaluate(preemptor(cpu="8"))
    assert outcome.node == "n2"


def test_recent_evictions_count_as_a_cost():
    """Of two equal pods the one whose workload was evicted less often within the window goes."""
    cost = EvictionCost(recent_evictions=3600.0)
    setting = Setting(node("n1"), node("n2"), under=policy(victims=Victims(cost=cost)))
    setting.add(workload_pod("a", "db", node="n1"), workload_pod("b", "cache", node="n2"))
    past(setting, "StatefulSet/default/db", API, 10.0)
    assert setting.evaluate(preemptor()).node == "n2"
    past(setting, "StatefulSet/default/cache", API, 10.0, 5.0)
    assert setting.evaluate(preemptor()).node == "n1"
    setting.clock.now += 3600.0
    assert setting.evaluate(preemptor()).selected.compared["recent evictions"] == "0"


@pytest.mark.parametrize("owner", [("K" * 64, "db"), ("Job", "n" * 254)], ids=["kind", "name"])
def test_an_owner_that_no_object_can_be_has_no_history(owner):
    """The API server takes any owner reference; one of a megabyte would leave no room for others on the Lease."""
    history = WorkloadHistory()
    history.note(workload_of(pod("a", owner=owner, node="n1")), 0.0, API)
    assert history.counts(1e9, 0.0) == {}
    history.note(workload_of(pod("b", owner=("Job", "n" * 253), node="n1")), 0.0, API)
    assert len(history.counts(1e9, 0.0)) == 1
