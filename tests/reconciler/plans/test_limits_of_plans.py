"""Rates hold whoever writes on pods, leads or refuses, and whichever step is the last of a leader.

What was evicted counts whatever becomes of its record. Plans whose victims are on several nodes are killed at each
step, too.
"""

import asyncio
import json
import math
from typing import Any

import pytest

from tests.cases import table
from tests.preemption.building import apart_from, node, spread
from tests.reconciler.builders import START, policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim
from tests.reconciler.harness.scenarios import (
    Happens,
    Scene,
    answering,
    at,
    bound,
    does,
    ended,
    having,
    killed_at_each_step,
    later,
    led,
    lived,
    on_request,
    plain_gang,
    scene,
)
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.policy.model.values import PLAN
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow

ONE, TWO = (Limits(per_cluster=Rate(count, 3600.0)) for count in (1, 2))
NO_LIMITS = Limits()
RECORD = "evictions"
"""How the name of the Lease with the record ends."""


def forged(*names: str) -> Json:
    """A preemptor on which somebody has written a plan for node n2 with these victims."""
    victims = [{"namespace": "default", "name": name, "uid": f"uid-{name}"} for name in names]
    plan = {"id": "forged", "node": "n2", "policy": "test", "attempt": 1, "version": 1, "victims": victims}
    plan["deadline"] = rfc3339(START + 300)
    made = preemptor(cpu="4", since=5.0)
    made["metadata"]["annotations"] = {PLAN: json.dumps(plan)}
    made["status"]["nominatedNodeName"] = "n2"
    return made


@table("names", ("a pod", ["b"]), ("one that is not there, too", ["b", "ghost"]))
@pytest.mark.parametrize("used_up", [False, True])
@table("comes", ("soon after a change of leader", 5.0), ("later", 40.0))
def test_a_plan_that_somebody_else_wrote_chooses_nobody(comes: float, used_up: bool, names: list[str]):
    """Whoever may write annotations neither chooses a victim by that, nor uses a rate that is used up."""
    pods = (victim("a", "n1", "8"), victim("b", "n2", "8", priority=50), victim("c", "n3", "8", priority=5))
    limits = ONE if used_up else NO_LIMITS
    made = lived(scene(*"888", *pods, preemptor("first", "8"), at(comes, forged(*names)), limits=limits), 120.0)
    assert made.evicted == (["c"] if used_up else ["c", "a"])


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_gang_of_which_one_plan_cannot_be_begun(broken: int):
    """It is decided for again, all are bound in the end, and nobody goes for a part of it."""
    decisions = list[Json]()

    def fail(line: Json) -> None:
        decisions.extend([line] if line["message"] == "decision" else [])
        if decisions[-1:] == [line] and len(decisions) == broken:
            raise RuntimeError("whoever takes the log is broken")

    made = lived(plain_gang(lambda made: made.heard.append(fail)), 600.0)
    assert bound(made, "gang") == ["gang-0", "gang-1", "gang-2"]
    assert (len(made.evicted), made.faults(300.0)) == (3, [])


ZONE = "zone"
NODES = [node(name, "4", labels={ZONE: name[0]}) for name in ("a1", "a2", "b1")]
APART, SPREAD = apart_from(ZONE, app="x"), spread(ZONE, app="x")


def zone_for_two(
    *parts: Happens, near: object = victim, owner: str = "", notice: float = 0.0, **wants: object
) -> Scene:
    """A zone whose two nodes have a pod each that keeps the preemptor off; only on one of them is there room."""
    waits = preemptor(cpu="3")
    waits["spec"] |= wants or APART
    pods = ((near, "near", "a1"), (victim, "far", "a2"))
    blockers = (make(name, on, "1", app="x", owner=owner) for make, name, on in pods)
    full = (fixed("full-a", "a2", "3"), fixed("full-b", "b1"), waits)
    told = Victims(across_nodes=True, notice=notice)
    return scene(*NODES, does("cover", "x", 9), *blockers, *full, *parts, victims=told)


def outcome(made: Cluster) -> tuple[str, list[str]]:
    """Where the preemptor is, and who was evicted."""
    return made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)


@table(
    "make, gone",
    ("anti-affinity", zone_for_two(), ["far", "near"]),
    ("spread, and the near pod stays", zone_for_two(near=fixed, **SPREAD), ["far"]),
)
def test_killed_at_every_step(make: Scene, gone: list[str]):
    """Whichever step is the last of a process, exactly those go who stand in the way, and the preemptor is bound."""
    for step, made in killed_at_each_step(make):
        assert outcome(made) == ("a1", gone), step
        assert (step > 0 or "to make room in zone a" in str(made.told), made.faults(60.0)) == (True, [])


FAR_GRACE = does("edit", "far", lambda pod: pod["spec"].update(terminationGracePeriodSeconds=30))
FAR_IS_SLOW = zone_for_two(FAR_GRACE, having(ends_after={"far": 30.0})).but(plan_timeout=20.0)
LATE = victim("late", "a2", "0", priority=1000, app="x")
FAR_ENDS = at(5.0, lambda made: made.end(made.pods["far"], evicted=False))


@table(
    "make, expected",
    ("one would stay", zone_for_two(having(kept={"far"})), ("", [])),
    ("a budget lets one go", zone_for_two(does("cover", "x", 1)), ("", [])),
    ("one comes that stays, while the victims have notice", zone_for_two(at(5.0, LATE), notice=20.0), ("", [])),
    ("the far one leaves by itself meanwhile", zone_for_two(FAR_ENDS, notice=20.0), ("a1", ["near"])),
)
def test_who_goes(make: Scene, expected: tuple[str, list[str]]):
    """If one of them would stay, nobody goes; what happens in the zone counts until the victims are asked."""
    assert outcome(lived(make)) == expected


def test_a_victim_on_another_node_takes_longer_than_a_plan():
    """Its plan waits for it as for those on its own node."""
    made = lived(FAR_IS_SLOW)
    assert (outcome(made), ended(made)) == (("a1", ["far", "near"]), ["bound"])


def test_owners_that_put_their_pods_back():
    """A controller that puts its pods back into the zone is left alone: two evictions in a round, few rounds."""
    assert len(lived(zone_for_two(having(replacing={"o": "anywhere"}), owner="o"), 600.0).evicted) <= 8


def two_nodes(*parts: Any, limits: Limits = ONE, second_at: float = 40.0, **fields: Any) -> Scene:
    """A victim on each of two nodes, a preemptor p now and a preemptor q later; the rate lets one go."""
    named = {"owner": "job", "team": "x"}
    victims = [victim(f"v{number}", f"n{number}", "8", priority=5 * number, **named) for number in (1, 2)]
    later_one = at(second_at, preemptor("q", "8", since=second_at))
    pods = (*victims, having(ends_after={"v1": 0.0, "v2": 0.0}), preemptor("p", "8"), later_one)
    return scene("8", "8", *pods, *parts, limits=limits, **fields)


def gone_for_a_filler(made: Cluster) -> None:
    """The preemptor p is deleted, and a pod that may not go takes the room that was made for it."""
    made.withdraw("p")
    later(5.0, made.put, fixed("filler", "n1", "8"))


def slow(*verbs: str, seconds: float = 4.0, **which: Any) -> Happens:
    """Such requests take so long until they are done, or are done at once and answered so late."""
    return on_request(lambda _: asyncio.sleep(seconds), *verbs, times=math.inf, **which)


def while_it_is_asked(*ends: float, done: bool) -> Scene:
    """The preemptor goes while the server takes its time."""
    goes = on_request(at(2.0, gone_for_a_filler), "evict")
    return two_nodes(led(*ends, gap=1.0), goes, slow("evict", done=done), second_at=60.0)


LOST = having(answers_lost=1)
LOST_AT_ONCE = two_nodes(
    LOST, lambda made: setattr(made.collection, "lag", lambda: 0.0), on_request(gone_for_a_filler, "evict", done=True)
)
LATE_ANSWER = slow("evict", done=True)
LOST_LATE = two_nodes(LATE_ANSWER, LOST, on_request(at(2.0, gone_for_a_filler), "evict", done=True))
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
    ("the process is stopped before the answer", two_nodes(LATE_ANSWER, led(3.0, gap=1.0), having(kills=False))),
    (
        "answers about the record take as long as a renewal may",
        two_nodes(slow("read", seconds=6.0, of=RECORD), limits=NO_LIMITS, second_at=1000.0),
    ),
)
def test_an_eviction_of_which_is_heard_late(make: Scene):
    """It counts, also if its plan has ended by then, and for the next leader."""
    assert lived(make, 200.0, is_judged=False).evicted == ["v1"]


def goes_while_nobody_leads(made: Cluster) -> None:
    """The preemptor goes between two leaders."""
    ends = made.api.free_the_lease
    made.api.free_the_lease = lambda: (gone_for_a_filler(made), ends())


@table(
    "make",
    ("perCluster", two_nodes()),
    ("perNamespace", two_nodes(limits=Limits(per_namespace=Rate(1, 3600.0)))),
    ("perLabel", two_nodes(limits=Limits(per_label=LabelRate("team", 1, 3600.0)))),
    ("the preemptor goes while nobody leads", two_nodes(goes_while_nobody_leads)),
)
def test_whichever_step_is_the_last_of_a_process(make: Scene):
    """A rate holds if the victim is gone before the record was written; neither a deletion nor a new leader ends it."""
    steps = killed_at_each_step(make, 100.0)
    assert [(step, made.evicted) for step, made in steps if len(made.evicted) > 1] == []


def gap(made: Cluster) -> float:
    """Seconds between the two evictions; infinite if only one was asked."""
    asked = made.record.asked_at
    return asked["uid-v2"] - asked["uid-v1"] if len(asked) > 1 else math.inf


@pytest.mark.parametrize("field", ["per_owner", "per_cluster"])
@table("ends", ("one leader", []), ("two leaders", [20.0]))
def test_the_next_ones_go_when_a_window_has_passed(ends: list[float], field: str):
    """At most so many go within it, also if leaders change in it, and all are bound in the end."""
    limits = Limits(**{field: Rate(1, 60.0)})
    made = lived(two_nodes(led(*ends, gap=1.0), limits=limits, second_at=0.0), 200.0)
    assert (gap(made) >= 55.0, bound(made, "p", "q")) == (True, ["p", "q"])


def test_an_eviction_after_a_long_notice():
    """The next leader counts an eviction of a moment ago as that, however long its victim had been told before."""
    limits = Limits(per_cluster=Rate(1, 300.0))
    # q would wait for its own notice anyway: a policy without notice for q shows the gap
    hurries = at(604.0, does("use", policy(limits=limits)))
    make = two_nodes(hurries, limits=limits, second_at=605.0, victims=Victims(notice=600.0))
    for step, made in killed_at_each_step(make, 800.0, is_judged=False):
        assert gap(made) >= 295.0, step


@pytest.mark.parametrize("ahead", [60.0, 300.0, -300.0])
def test_a_rate_holds_whatever_the_next_leaders_clock_says(ahead: float):
    """The window of a rate is no shorter if the next leader's clock is ahead."""
    limits = Limits(per_cluster=Rate(1, 300.0))
    assert gap(lived(two_nodes(led(10.0, gap=1.0, ahead=ahead), limits=limits, second_at=20.0), 700.0)) >= 299.0


def with_a_lease(uid: str) -> Happens:
    """The Lease is another object of that name."""

    def put(made: Cluster) -> None:
        leases, name = made.api.collections[LEASE.path()], "giveway-reconciler"
        known = leases.objects.get(name, {"spec": {}, "apiVersion": LEASE.api_version, "kind": LEASE.kind})
        leases.put(name, {**known, "metadata": {"name": name, "uid": uid}})

    return put


def test_the_lease_is_deleted_and_made_again_while_a_plan_is_under_way():
    """What was evicted for it is counted by the next leader, and the plan goes on."""
    parts = (victim("w1", "n1", "0", priority=5), having(ends_after={"v1": 250.0}, away_until=400.0))
    leases = (with_a_lease("one"), at(50.0, with_a_lease("two")), led(200.0, gap=1.0))
    made = lived(two_nodes(*parts, *leases, limits=TWO, second_at=1000.0, plan_timeout=600.0), 500.0)
    over = [(line["plan"], line["ending"]) for line in made.told if line["message"] == "plan ended"]
    plan = over[0][0]
    assert (made.evicted, over) == (["v1"], [(plan, "deposed"), (plan, "bound")])


def test_the_record_can_be_written_again_after_a_while():
    """The server was in trouble for a minute and is well: nobody is asked before that can be written."""
    trouble = answering(ApiError(503, "x", "not now"), "write", of=RECORD, until=65.0)
    third = (victim("v3", "n3", "8", priority=15), having(ends_after={"v3": 0.0}))
    comes = at(66.0, preemptor("later", "8", since=66.0))
    make = two_nodes("8", *third, comes, trouble, led(100.0, gap=1.0), limits=TWO, second_at=110.0)
    asked = lived(make, 200.0).record.asked_at
    assert list(asked) == ["uid-v1", "uid-v2"]
    assert asked["uid-v1"] > 65.0


def test_a_record_that_nobody_may_write():
    """Without the right to write it the next plan for a pod is not held up."""
    seen: list[float] = []

    def patched(verb: str, name: str, body: dict[str, Any]) -> None:
        if (verb, name) == ("patch", "p") and body["status"].get("nominatedNodeName"):
            seen.append(asyncio.get_running_loop().time())

    forbidden = answering(ApiError(403, "x", "not now"), "write", of=RECORD)
    drops = on_request(at(1.0, does("drop_node", "n1")), "evict", done=True)
    parts = (forbidden, having(ends_after={"v1": 30.0}), lambda made: made.answered.append(patched), drops)
    lived(two_nodes(*parts, limits=NO_LIMITS, second_at=1000.0), 100.0)
    assert seen[1] - seen[0] < 5.0, seen
