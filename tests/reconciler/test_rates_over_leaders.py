"""What was evicted counts for the rates whichever step is the last of a leader, and whatever becomes of its record."""

import asyncio
import math
from typing import Any

import pytest

from tests.cases import table
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import (
    Happens,
    Scene,
    answering,
    at,
    does,
    having,
    killed_at_each_step,
    later,
    led,
    lived,
    on_request,
    scene,
)
from webhook.kube.errors import ApiError
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.policy.model.victims import Victims

ONE, TWO = (Limits(per_cluster=Rate(count, 3600.0)) for count in (1, 2))
RECORD = "evictions"
"""How the name of the Lease with the record ends."""


def two_nodes(*parts: Any, limits: Limits = ONE, second_at: float = 40.0, **fields: Any) -> Scene:
    """A victim on each of two nodes, a preemptor p now and a preemptor q later; the rate lets one go."""
    victims = [victim(f"v{number}", f"n{number}", "8", priority=5 * number, team="x") for number in (1, 2)]
    later_one = at(second_at, preemptor("q", "8", since=second_at))
    pods = (*victims, having(ends_after={"v1": 0.0, "v2": 0.0}), preemptor("p", "8"), later_one)
    return scene("8", "8", *pods, *parts, limits=limits, **fields)


def gone_for_a_filler(made: Cluster) -> None:
    """The preemptor p is deleted, and a pod that may not go takes the room that was made for it."""
    made.withdraw("p")
    later(5.0, made.put, fixed("filler", "n1", "8"))


def slow(*, done: bool) -> Happens:
    """An eviction takes 4 s until it is done, or is done at once and answered so late."""
    return on_request(lambda _: asyncio.sleep(4.0), "evict", times=math.inf, done=done)


def while_it_is_asked(*ends: float, done: bool) -> Scene:
    """The preemptor goes while the server takes its time."""
    goes = on_request(at(2.0, gone_for_a_filler), "evict")
    return two_nodes(led(*ends, gap=1.0), goes, slow(done=done), second_at=60.0)


LOST = having(answers_lost=1)
LOST_AT_ONCE = two_nodes(
    LOST, lambda made: setattr(made.collection, "lag", lambda: 0.0), on_request(gone_for_a_filler, "evict", done=True)
)
LOST_LATE = two_nodes(slow(done=True), LOST, on_request(at(2.0, gone_for_a_filler), "evict", done=True))
"""The plan has ended by then, and the watch may show that the pod is gone."""
READS_FAIL = answering(ApiError(503, "ServiceUnavailable", "away"), "get", of="v1", until=20.0)


@table(
    "make",
    ("done late, 1 leader", while_it_is_asked(done=False)),
    ("answered late, 1 leader", while_it_is_asked(done=True)),
    ("done late, 2 leaders", while_it_is_asked(50.0, done=False)),
    ("answered late, 2 leaders", while_it_is_asked(50.0, done=True)),
    ("the server evicts and answers with an error, and p goes before the next try", LOST_AT_ONCE),
    ("the answer is lost late", LOST_LATE),
    ("the answer is lost late, and reads fail", LOST_LATE.but(at(0.5, does("hold_watch", 8.0)), READS_FAIL)),
    ("the process is stopped before the answer", two_nodes(slow(done=True), led(3.0, gap=1.0), having(kills=False))),
)
def test_an_eviction_whose_plan_ends_while_it_is_asked(make: Scene):
    """It counts, also for the next leader."""
    assert lived(make, 200.0, is_judged=False).evicted == ["v1"]


@table(
    "limits",
    ("perCluster", ONE),
    ("perNamespace", Limits(per_namespace=Rate(1, 3600.0))),
    ("perLabel", Limits(per_label=LabelRate("team", 1, 3600.0))),
)
def test_whichever_step_is_the_last_of_a_process(limits: Limits):
    """A rate holds if the victim is gone before the record was written."""
    steps = killed_at_each_step(two_nodes(limits=limits), 100.0)
    assert [(step, made.evicted) for step, made in steps if len(made.evicted) > 1] == []


def test_an_eviction_after_a_long_notice():
    """The next leader counts an eviction of a moment ago as that, however long its victim had been told before."""
    limits = Limits(per_cluster=Rate(1, 300.0))
    # q would wait for its own notice anyway: a policy without notice for q shows the gap
    hurries = at(604.0, does("use", policy(limits=limits)))
    make = two_nodes(hurries, limits=limits, second_at=605.0, victims=Victims(notice=600.0))
    for step, made in killed_at_each_step(make, 800.0, is_judged=False):
        asked = made.notices.asked_at
        assert len(made.evicted) < 2 or asked["uid-v2"] - asked["uid-v1"] >= 295.0, step


def test_the_preemptor_goes_while_nobody_leads():
    """Neither the deletion of a preemptor nor a change of leader gives a rate back, nor do both together."""

    def goes_then(made: Cluster) -> None:
        ends = made.api.free_the_lease
        made.api.free_the_lease = lambda: (gone_for_a_filler(made), ends())

    steps = killed_at_each_step(two_nodes(goes_then), 100.0, is_judged=False)
    assert [(step, made.evicted) for step, made in steps if len(made.evicted) > 1] == []


def with_a_lease(uid: str) -> Happens:
    """The Lease is another object of that name."""

    def put(made: Cluster) -> None:
        leases, name = made.api.collections[LEASE.path()], "giveway-reconciler"
        known = leases.objects.get(name, {"spec": {}, "apiVersion": LEASE.api_version, "kind": LEASE.kind})
        leases.put(name, {**known, "metadata": {"name": name, "uid": uid}})

    return put


def test_the_lease_is_deleted_and_made_again_while_a_plan_is_under_way():
    """What was evicted for it is counted by the next leader, and the plan goes on."""
    slow = having(ends_after={"v1": 250.0}, away_until=400.0)
    leases = (with_a_lease("one"), at(50.0, with_a_lease("two")), led(200.0, gap=1.0))
    pods = (victim("w1", "n1", "0", priority=5), slow, *leases)
    made = lived(two_nodes(*pods, limits=TWO, second_at=1000.0, plan_timeout=600.0), 500.0)
    over = [(line["plan"], line["ending"]) for line in made.told if line["message"] == "plan ended"]
    plan = over[0][0]
    assert (made.evicted, over) == (["v1"], [(plan, "deposed"), (plan, "bound")])


def test_the_record_can_be_written_again_after_a_while():
    """The server was in trouble for a minute and is well: nobody is asked before that can be written."""
    pods = [victim(f"v{number}", f"n{number}", "8", priority=5 + number) for number in (1, 2, 3)]
    comes = [
        at(since, preemptor(name, "8", since=since)) for name, since in (("first", 0.0), ("p", 66.0), ("q", 110.0))
    ]
    trouble = answering(ApiError(503, "x", "not now"), "write", of=RECORD, until=65.0)
    ends = having(ends_after=dict.fromkeys(("v1", "v2", "v3"), 0.0))
    asked = lived(scene(*"888", *pods, ends, *comes, trouble, led(100.0, gap=1.0), limits=TWO), 200.0).notices.asked_at
    assert list(asked) == ["uid-v1", "uid-v2"]
    assert asked["uid-v1"] > 65.0


def test_a_record_that_nobody_may_write():
    """Without the right to write it the next plan for a pod is not held up."""
    seen: list[float] = []

    def patched(verb: str, name: str, body: dict[str, Any]) -> None:
        if verb == "patch" and name == "p" and body["status"].get("nominatedNodeName"):
            seen.append(asyncio.get_running_loop().time())

    parts = (
        answering(ApiError(403, "x", "not now"), "write", of=RECORD),
        having(ends_after={"v1": 30.0}),
        lambda made: made.answered.append(patched),
        on_request(at(1.0, does("drop_node", "n1")), "evict", done=True),
    )
    lived(two_nodes(*parts, limits=Limits(), second_at=1000.0), 100.0)
    assert len(seen) >= 2, seen
    assert seen[1] - seen[0] < 5.0, seen


def test_answers_about_the_record_that_take_as_long_as_a_renewal_may():
    """A leader whose server answers after six seconds begins to lead."""
    late = on_request(lambda _: asyncio.sleep(6.0), "read", of=RECORD, times=math.inf)
    assert lived(two_nodes(late, limits=Limits(), second_at=1000.0)).evicted == ["v1"]


@pytest.mark.parametrize("ahead", [60.0, 300.0, -300.0])
def test_a_rate_holds_whatever_the_next_leaders_clock_says(ahead: float):
    """The window of a rate is no shorter if the next leader's clock is ahead."""
    limits = Limits(per_cluster=Rate(1, 300.0))
    asked = lived(two_nodes(led(10.0, gap=1.0, ahead=ahead), limits=limits, second_at=20.0), 700.0).notices.asked_at
    assert len(asked) == 1 or asked["uid-v2"] - asked["uid-v1"] >= 299.0, asked
