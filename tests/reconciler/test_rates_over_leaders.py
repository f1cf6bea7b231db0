"""What was evicted counts for the rates whichever step is the last of a leader, and whatever becomes of its record."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import (
    answering,
    killed_at_each_step,
    later,
    led,
    lived,
    on_request,
    simulated,
)
from webhook.kube.errors import ApiError
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.policy.model.victims import Victims

ONE = Limits(per_cluster=Rate(1, 3600.0))
RECORD = "evictions"
"""How the name of the Lease with the record ends."""


def two_nodes(limits: Limits = ONE, *, second_at: float = 40.0, **fields: Any) -> Cluster:
    """A victim on each of two nodes, a preemptor p now and a preemptor q later; the rate lets one go."""
    made = simulated("8", "8", limits=limits, **fields)
    made.add(victim("v1", "n1", "8", priority=5, team="x"), victim("v2", "n2", "8", priority=10, team="x"))
    made.ends_after |= {"v1": 0.0, "v2": 0.0}
    made.put(preemptor("p", "8"))
    later(second_at, made.put, preemptor("q", "8", since=second_at))
    return made


def gone_for_a_filler(made: Cluster) -> None:
    """The preemptor p is deleted, and a pod that may not go takes the room that was made for it."""
    made.withdraw("p")
    later(5.0, made.put, fixed("filler", "n1", "8"))


def slow(made: Cluster, *, done: bool) -> Cluster:
    """An eviction takes 4 s until it is done, or is done at once and answered so late."""
    return on_request(made, lambda: asyncio.sleep(4.0), "evict", times=math.inf, done=done)


def while_it_is_asked(ends: tuple[float, ...], *, done: bool) -> Cluster:
    """The preemptor goes while the server takes its time."""
    made = led(two_nodes(second_at=60.0), *ends, gap=1.0)
    on_request(made, lambda: later(2.0, gone_for_a_filler, made), "evict")
    return slow(made, done=done)


def answer_is_lost() -> Cluster:
    """The server evicts, its answer is an error, and the preemptor goes before the next try."""
    made = two_nodes()
    made.answers_lost = 1
    made.collection.lag = lambda: 0.0
    return on_request(made, lambda: gone_for_a_filler(made), "evict", done=True)


def answer_is_lost_late(*, reads_fail: bool) -> Cluster:
    """The plan has ended, and the watch may show by then that the pod is gone, or nobody can read it."""
    made = slow(two_nodes(), done=True)
    made.answers_lost = 1
    on_request(made, lambda: later(2.0, gone_for_a_filler, made), "evict", done=True)
    if reads_fail:
        later(0.5, made.hold_watch, 8.0)
        answering(made, ApiError(503, "ServiceUnavailable", "away"), "get", of="v1", until=20.0)
    return made


def stopped() -> Cluster:
    """The server evicts, and the process is stopped before the answer."""
    made = led(slow(two_nodes(), done=True), 3.0, gap=1.0)
    made.kills = False
    return made


@pytest.mark.parametrize(
    "make",
    [
        *(
            pytest.param(partial(while_it_is_asked, ends, done=done), id=f"{late} late, {1 + len(ends)} leaders")
            for ends in ((), (50.0,))
            for late, done in (("done", False), ("answered", True))
        ),
        pytest.param(answer_is_lost, id="the answer is lost"),
        pytest.param(partial(answer_is_lost_late, reads_fail=False), id="the answer is lost late"),
        pytest.param(partial(answer_is_lost_late, reads_fail=True), id="the answer is lost late, and reads fail"),
        pytest.param(stopped, id="the process is stopped"),
    ],
)
def test_an_eviction_whose_plan_ends_while_it_is_asked(make: Callable[[], Cluster]):
    """It counts, also for the next leader."""
    assert lived(make, 200.0, is_judged=False).evicted == ["v1"]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(ONE, id="perCluster"),
        pytest.param(Limits(per_namespace=Rate(1, 3600.0)), id="perNamespace"),
        pytest.param(Limits(per_label=LabelRate("team", 1, 3600.0)), id="perLabel"),
    ],
)
def test_whichever_step_is_the_last_of_a_process(limits: Limits):
    """A rate holds if the victim is gone before the record was written."""
    steps = killed_at_each_step(lambda: two_nodes(limits), 100.0)
    assert [(step, made.evicted) for step, made in steps if len(made.evicted) > 1] == []


def test_an_eviction_after_a_long_notice():
    """The next leader counts an eviction of a moment ago as that, however long its victim had been told before."""
    limits = Limits(per_cluster=Rate(1, 300.0))

    # q would wait for its own notice anyway: a policy without notice for q shows the gap
    def make() -> Cluster:
        made = two_nodes(limits, second_at=605.0, victims=Victims(notice=600.0))
        later(604.0, made.use, policy(limits=limits))
        return made

    for step, made in killed_at_each_step(make, 800.0, is_judged=False):
        at = made.notices.asked_at
        assert len(made.evicted) < 2 or at["uid-v2"] - at["uid-v1"] >= 295.0, step


def test_the_preemptor_goes_while_nobody_leads():
    """Neither the deletion of a preemptor nor a change of leader gives a rate back, nor do both together."""

    def make() -> Cluster:
        made = two_nodes()
        ends = made.api.free_the_lease
        made.api.free_the_lease = lambda: (gone_for_a_filler(made), ends())
        return made

    steps = killed_at_each_step(make, 100.0, is_judged=False)
    assert [(step, made.evicted) for step, made in steps if len(made.evicted) > 1] == []


def with_a_lease(uid: str, made: Cluster) -> None:
    """The Lease is another object of that name."""
    leases = made.api.collections[LEASE.path()]
    known = leases.objects.get("giveway-reconciler", {"spec": {}, "apiVersion": LEASE.api_version, "kind": LEASE.kind})
    leases.put("giveway-reconciler", {**known, "metadata": {"name": "giveway-reconciler", "uid": uid}})


def test_the_lease_is_deleted_and_made_again_while_a_plan_is_under_way():
    """What was evicted for it is counted by the next leader, and the plan goes on."""

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=Rate(2, 3600.0)), second_at=1000.0, plan_timeout=600.0)
        made.put(victim("w1", "n1", "0", priority=5))
        with_a_lease("one", made)
        made.ends_after |= {"v1": 250.0}
        later(50.0, with_a_lease, "two", made)
        made.scheduler.away_until = 400.0
        return led(made, 200.0, gap=1.0)

    made = lived(make, 500.0)
    ended = [(line["plan"], line["ending"]) for line in made.told if line["message"] == "plan ended"]
    plan = ended[0][0]
    assert (made.evicted, ended) == (["v1"], [(plan, "deposed"), (plan, "bound")])


def test_the_record_can_be_written_again_after_a_while():
    """The server was in trouble for a minute and is well: nobody is asked before that can be written."""

    def make() -> Cluster:
        made = simulated("8", "8", "8", limits=Limits(per_cluster=Rate(2, 3600.0)))
        for number in (1, 2, 3):
            made.put(victim(f"v{number}", f"n{number}", "8", priority=5 + number))
            made.ends_after[f"v{number}"] = 0.0
        made.put(preemptor("first", "8"))
        later(66.0, made.put, preemptor("p", "8", since=66.0))
        later(110.0, made.put, preemptor("q", "8", since=110.0))
        return led(answering(made, ApiError(503, "x", "not now"), "write", of=RECORD, until=65.0), 100.0, gap=1.0)

    asked = lived(make, 200.0).notices.asked_at
    assert list(asked) == ["uid-v1", "uid-v2"]
    assert asked["uid-v1"] > 65.0


def test_a_record_that_nobody_may_write():
    """Without the right to write it the next plan for a pod is not held up."""
    seen: list[float] = []

    def make() -> Cluster:
        made = answering(two_nodes(Limits(), second_at=1000.0), ApiError(403, "x", "not now"), "write", of=RECORD)
        made.ends_after["v1"] = 30.0

        def patched(verb: str, name: str, body: dict[str, Any]) -> None:
            if verb == "patch" and name == "p" and body["status"].get("nominatedNodeName"):
                seen.append(asyncio.get_running_loop().time())

        made.answered.append(patched)
        return on_request(made, lambda: later(1.0, made.drop_node, "n1"), "evict", done=True)

    lived(make, 100.0)
    assert len(seen) >= 2, seen
    assert seen[1] - seen[0] < 5.0, seen


def test_answers_about_the_record_that_take_as_long_as_a_renewal_may():
    """A leader whose server answers after six seconds begins to lead."""

    def make() -> Cluster:
        made = two_nodes(Limits(), second_at=1000.0)
        return on_request(made, lambda: asyncio.sleep(6.0), "read", of=RECORD, times=math.inf)

    assert lived(make).evicted == ["v1"]


@pytest.mark.parametrize("ahead", [60.0, 300.0, -300.0])
def test_a_rate_holds_whatever_the_next_leaders_clock_says(ahead: float):
    """The window of a rate is no shorter if the next leader's clock is ahead."""

    def make() -> Cluster:
        return led(two_nodes(Limits(per_cluster=Rate(1, 300.0)), second_at=20.0), 10.0, gap=1.0, ahead=ahead)

    at = lived(make, 700.0).notices.asked_at
    assert len(at) == 1 or at["uid-v2"] - at["uid-v1"] >= 299.0, at
