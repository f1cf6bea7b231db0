"""The history of evictions: what is counted, what is forgotten, and what a later leader reads of it."""

import base64
import random
import zlib
from collections import Counter

import pytest

from tests.reconciler.builders import START, Setting, node, pod, policy, preemptor
from webhook.policy.model.cost import EvictionCost
from webhook.policy.model.limits import Limits, WorkloadLimit
from webhook.policy.model.victims import Victims
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable
from webhook.reconciler.evaluate.workload_history import (
    KEPT_SECONDS,
    MOST_EVICTIONS,
    MOST_WORKLOADS,
    WorkloadHistory,
    read_history,
    written_text,
)

WEB, API = "Deployment/default/web", "Deployment/default/api"
DAY = 86_400.0


def again(history, now, wall):
    """What a later leader makes of what this one wrote, its monotonic clock having begun elsewhere."""
    later = WorkloadHistory()
    later.load(read_history(written_text(history.rows(now), now, wall)), now + 5000.0, wall)
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


def test_it_is_bounded_and_what_is_written_fits_on_a_lease():
    """Of 10 000 workloads with long names the latest are written, as many as fit; the 10 001st displaces the oldest."""
    dice, history = random.Random(1), WorkloadHistory()
    names = [f"Deployment/team-{n % 97}/{dice.getrandbits(60):x}-service-{n}" for n in range(MOST_WORKLOADS + 1)]
    for at, name in enumerate(names):
        history.note(name, float(at), names[at - 1])
    counts = history.counts(KEPT_SECONDS, float(len(names)))
    assert len(counts) == MOST_WORKLOADS
    assert names[0] not in counts
    now = float(len(names))
    text = written_text(history.rows(now), now, START)
    assert len(text) <= 192 * 1024
    written = read_history(text).workloads
    assert len(written) > 4000
    assert set(written) == set(names[-len(written) :])
    short = WorkloadHistory()
    for number in range(MOST_WORKLOADS):
        short.note(f"Job/batch/nightly-{number}", float(number), API)
    assert len(read_history(written_text(short.rows(1e5), 1e5, START)).workloads) == MOST_WORKLOADS


def test_what_is_old_or_from_a_clock_that_is_ahead():
    """What is older than 30 days is forgotten; what is from later than now counts as of now."""
    history = WorkloadHistory()
    history.note(WEB, 0.0, API)
    assert again(history, KEPT_SECONDS + 1.0, START).counts(KEPT_SECONDS, 1e9) == {}
    later = WorkloadHistory()
    later.load(read_history(written_text(history.rows(0.0), 0.0, START + 50.0)), 7.0, START)
    assert [one.at for one in later.of(WEB, 7.0)] == [7.0]


def packed(eviction):
    """The text of a history with one eviction."""
    text = f'{{"at":"2026-01-01T00:00:00Z","names":["Job/ns/j"],"rows":[[1,[{eviction}]]]}}'
    return base64.b64encode(zlib.compress(text.encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x", id="no base64"),
        pytest.param("eJw=", id="cut off"),
        pytest.param("e30=", id="not packed"),
        pytest.param("eJyrrgUAAXUA+Q==", id="empty"),
        pytest.param(packed("[" + "9" * 400 + ",0]"), id="no time"),
        pytest.param(packed("[-1,0]"), id="before all times"),
        pytest.param(packed("[1,7]"), id="for a workload that is not named"),
    ],
)
def test_text_that_no_leader_writes(text):
    """It is refused with what is wrong, and never read in part."""
    with pytest.raises(ValueError, match="history of evictions"):
        read_history(text)


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
    setting = Setting(node("n1"))
    setting.evaluator.note_past(pod("a", owner=owner, node="n1"), "default/p")
    assert setting.evaluator.limiter.history.counts(1e9, 0.0) == {}
    setting.evaluator.note_past(pod("b", owner=("Job", "n" * 253), node="n1"), "default/p")
    assert len(setting.evaluator.limiter.history.counts(1e9, 0.0)) == 1
