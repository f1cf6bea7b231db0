"""Carrying plans out: what happens between a decision and the end of its plan, and what is asked of the server."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pytest

from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import throttle_after_the_first
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim, written_on
from tests.reconciler.harness.scenarios import (
    Happens,
    annotated,
    answering,
    bound,
    changed,
    clearing,
    crowded,
    full,
    later,
    led,
    lived,
    on_decision,
    on_request,
    simulated,
)
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import EvictionMode, Preemptors
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import DECISION, RECONCILER_ANNOTATIONS

pytestmark = pytest.mark.usefixtures("no_errors")

LONG = 10_000.0
RESTLESS: Json = {"id": "x", "node": "n1", "policy": "test", "attempt": 1, "victims": [{"pod": "default/z"}]}
AWAY, BROKEN = ApiError(NO_ANSWER, "", "no answer within 12 s"), ApiError(500, "InternalError", "")
SOLID = partial(full, takes=10.0, spare=False)
"""Only pod a may go, and takes its time."""


def deleted_with_a_finalizer(made: Cluster) -> None:
    """The preemptor is deleted and stays for now."""
    meta = {**made.pods["p"]["metadata"], "deletionTimestamp": "2027-01-15T08:00:30Z"}
    made.put({**made.pods["p"], "metadata": meta})


def migrating(made: Cluster) -> Cluster:
    """Pod a is said to be on its way out."""
    made.migrating["a"] = LONG
    return made


def unmanaged(made: Cluster) -> Cluster:
    """The policy manages another class."""
    made.policy = msgspec.structs.replace(made.policy, preemptors=Preemptors(priority_classes=("another",)))
    return made


def replaced(made: Cluster) -> Cluster:
    """When pod a is asked a small pod of its name is in its place, and no watch shows that for 3 seconds."""
    other = fixed("a", "n1", "1")
    other["metadata"]["uid"] = "uid-of-another"

    def replace() -> None:
        made.hold_watch(3.0)
        made.remove("a", "uid-a")
        made.put(other)

    return on_request(made, replace, "evict", of="a")


def use(made: Cluster, **fields: object) -> None:
    """Other policies are taken into use."""
    made.use(policy(**fields))


def nobody_went(made: Cluster) -> None:
    """Nobody was evicted until now."""
    assert made.evicted == []


class Case(NamedTuple):
    """A cluster and what happens in it; where p is in the end, who was evicted, and how the plans for p ended."""

    make: Callable[[], Cluster]
    happens: Mapping[str, Happens] = MappingProxyType({})
    on: str = "n1"
    evicted: str = "a"
    endings: str = "bound"
    charged: int | None = None
    """How many evictions count for rates, if not as many as were evicted."""


def denied(error: ApiError) -> Case:
    """After one plan the preemptor gets its room on the other node."""
    return Case(lambda: answering(full(), error, "evict", of="a"), on="n2", evicted="b1 b2", endings="failed bound")


LEAVES_AT_30 = {"at_29": nobody_went, "at_30": lambda made: made.leave("a")}
CASES = {
    # What the server says of a victim
    "an eviction that gets no answer": denied(AWAY),
    "a webhook that answers 429": denied(ApiError(429, "TooManyRequests", "not today", details={"name": "a"})),
    "an eviction that is answered with 500": denied(BROKEN),
    "an eviction that is answered with 503": denied(ApiError(503, "ServiceUnavailable", "")),
    "a server that is away": Case(
        lambda: answering(full(), ApiError(NO_ANSWER, "Unreachable", ""), "evict", "get", "patch", of="a", until=8.0)
    ),
    "evictions that are answered with 500 for a while": Case(
        lambda: answering(full(spare=False), BROKEN, "evict", of="a", until=3.0)
    ),
    "nominations that are answered with 500 for a while": Case(
        lambda: answering(full(), BROKEN, "patch", of="p", until=8.0), endings="failed failed failed bound"
    ),
    "a storm of conflicts": Case(lambda: answering(full(), ApiError(409, "Conflict", ""), "patch", of="p", until=8.0)),
    "a pod in whose place is another one of its name": Case(lambda: replaced(full()), evicted=""),
    "a server that throttles": Case(full, {"at_0": lambda made: setattr(made, "throttled", (12.0, 1.0))}),
    "watches that lag and end": Case(full, {"at_1_9": lambda made: made.hold_watch(3.0)}),
    "a pod on its way out": Case(lambda: migrating(full()), LEAVES_AT_30, evicted="", charged=1),
    "a pod that says for too long that it is on its way": Case(
        lambda: migrating(full(plan_timeout=20.0)), on="n2", evicted="b1 b2", endings="timed-out bound"
    ),
    "the last one waits for a pod on its way out": Case(
        lambda: migrating(full(victim("last", "n1", "2"), cpu="8", spare=False)),
        LEAVES_AT_30,
        evicted="last",
        charged=2,
    ),
    # What becomes of nominations and room
    "a preemptor of higher priority takes the node": Case(
        partial(SOLID, cpu="6"),
        {"at_5": lambda made: made.put(preemptor("q", "6", priority=200))},
        on="",
        endings="space-taken",
    ),
    "the node is deleted": Case(
        partial(full, takes=40.0, spare=False), {"at_5": lambda made: made.drop_node("n1")}, on="", endings="node-gone"
    ),
    "the preemptor is deleted and stays for now": Case(
        partial(full, takes=40.0), {"at_5": deleted_with_a_finalizer}, on="", endings="deleted"
    ),
    "a victim that does not end in time": Case(
        partial(full, takes=LONG, grace=1, spare=False, plan_timeout=20.0),
        on="",
        endings="timed-out timed-out timed-out",
    ),
    "a victim that needs longer than a plan may take": Case(partial(full, takes=60.0, plan_timeout=20.0)),
    "attempts count over a change of leaders": Case(
        lambda: led(full(takes=LONG, grace=1, plan_timeout=20.0, limits=Limits(attempts_per_preemptor=1)), 5.0),
        on="",
        endings="timed-out timed-out timed-out",
    ),
    "a pod of higher priority is put into the room": Case(
        SOLID,
        {"at_5": lambda made: made.put(fixed("thief", "n1", "8", priority=1000))},
        on="",
        endings="space-taken",
    ),
    "somebody nominates it to a node without room": Case(
        SOLID,
        {"at_5": lambda made: changed(made, "p", nominatedNodeName="n2")},
        endings="nomination-lost bound",
    ),
    "the nomination is lost while a victim is asked": Case(
        lambda: on_request(made := SOLID(), lambda: changed(made, "p", nominatedNodeName="n2"), "evict", times=9),
        endings="nomination-lost bound",
    ),
    "somebody nominated it to a node where room comes up": Case(
        partial(SOLID, nominated="n1"),
        {"at_0": lambda made: made.leave("a")},
        evicted="",
        endings="",
    ),
    "a decision on a pod of no concern counts for no rate": Case(
        lambda: full(limits=Limits(per_cluster=Rate(1, 3600.0))),
        {"at_0": lambda made: made.pods["a"]["metadata"]["annotations"].update({DECISION: json.dumps(RESTLESS)})},
    ),
    "a class that becomes managed": Case(lambda: unmanaged(full()), {"at_20": nobody_went, "at_21": use}),
    "a scheduler that clears nominations": Case(lambda: clearing(SOLID())),
    "a pod of lower priority takes room that nothing keeps": Case(
        lambda: clearing(SOLID()),
        {"at_8": lambda made: made.put(victim("thief", "n1"))},
        evicted="a thief",
        endings="space-taken bound",
    ),
    "nominations that are cleared under two leaders": Case(lambda: led(clearing(SOLID()), 6.0)),
    # Room that comes up before somebody is asked
    "a pod of the node ends before anybody is asked": Case(
        lambda: on_decision(made := crowded(victim("v", "n1"), fixed("o", "n1"), cpu="3"), made.leave, "o"), evicted=""
    ),
    "a pod of the node begins to leave before anybody is asked": Case(
        lambda: on_decision(made := crowded(victim("v", "n1"), fixed("o", "n1", grace=9), cpu="3"), made.leave, "o"),
        evicted="",
    ),
    "a schedule that ends before anybody is asked": Case(
        lambda: on_decision(
            made := crowded(victim("v", "n1", "8"), cpu="3"),
            partial(use, made, schedule=Schedule(cron="0 20 * * *", duration=3600.0)),
        ),
        on="",
        evicted="",
        endings="outdated",
    ),
    "some of three victims stay": Case(
        lambda: on_decision(
            made := crowded(
                *(victim(name, "n1", "1") for name in "abc"), fixed("l", "n1", "3"), fixed("o", "n1", "2"), cpu="3"
            ),
            made.leave,
            "o",
        ),
        evicted="c",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_a_plan(name: str):
    """Nobody goes in vain, no rate counts who stays, and nothing is left of plans that are over."""
    case, counted = CASES[name], list[int]()

    def count(made: Cluster) -> None:
        counted.append(len(list(made.process.service.reconciler.evaluator.log.past(1e9))))

    made = lived(case.make, 200.0, is_judged=False, at_199=count, **case.happens)
    ended = [(line["preemptor"], line["ending"]) for line in made.told if line["message"] == "plan ended"]
    endings = [ending for preemptor, ending in ended if preemptor == "default/p" and ending != "deposed"]
    assert endings == case.endings.split()
    assert (made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)) == (case.on, sorted(case.evicted.split()))
    assert (written_on(made.pods["p"]), made.remembered()) == (None, [])
    assert counted == [len(made.evicted) if case.charged is None else case.charged]


def used_up(**fields: object) -> Cluster:
    """The budget of the only victim is used up before a watch could show it."""
    made = simulated("8", **fields)
    made.cover("v", 1)
    made.add(victim("v", "n1", "8"), preemptor())
    return on_decision(made, made.budgets["v"]["status"].update, {"disruptionsAllowed": 0})


def test_a_budget_that_refuses():
    """The nomination is taken off, nobody goes, and it is counted and told."""
    refusals = []

    def look(made: Cluster) -> None:
        refusals.append(made.process.registry.get_sample_value("giveway_budget_refusals_total"))

    made = lived(used_up, 20.0, at_19=look)
    assert "budget refused" in [line["message"] for line in made.told]
    assert next(line["ending"] for line in made.told if line["message"] == "plan ended") == "budget-refused"
    assert (made.evicted, refusals[0] >= 1) == ([], True)
    assert not made.pods["p"]["status"].get("nominatedNodeName")


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_room_that_comes_up_before_the_last_is_asked(wait: float):
    """The last one stays, also if the first one, whose room is counted on, takes longer than others are waited for."""

    def make() -> Cluster:
        made = simulated("8", wait_for_terminating=wait)
        made.cover("v", 9)
        made.add(victim("a", "n1", "3", grace=600), victim("b", "n1", "3", grace=600), fixed("o", "n1", "2"))
        made.ends_after |= {"a": 30.0, "b": 30.0}
        made.put(preemptor(cpu="5"))
        throttle_after_the_first(made)
        later(10.0, made.leave, "o")
        return made

    made = lived(make)
    assert (len(made.evicted), bound(made, "p")) == (1, ["p"])


@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("annotation", RECONCILER_ANNOTATIONS)
def test_what_the_reconciler_writes_on_a_victim(annotation: str, mode: EvictionMode):
    """It neither ends the plan nor has anybody tried again, whichever way the victim is asked to leave."""
    text = '{"id": "told", "plan": "told", "node": "n2", "victims": []}'

    def make() -> Cluster:
        made = crowded(victim("v", "n1", "8"), cpu="3", eviction=mode)
        return on_decision(made, annotated, made, "v", {annotation: text})

    told = lived(make, is_judged=False).told
    said = [(line["message"], line.get("ending")) for line in told if line["message"] != "notice withdrawn"]
    assert said == [("decision", None), ("plan ended", "bound")]


def test_delete_mode_marks_the_victim_first():
    """It carries DisruptionTarget when it is deleted, and budgets are not asked."""
    marks: list[Json] = []

    def make() -> Cluster:
        made = used_up(eviction=EvictionMode.DELETE)
        return on_request(made, lambda: marks.extend(made.pods["v"]["status"]["conditions"]), "delete")

    assert lived(make).evicted == ["v"]
    assert [(row["type"], row["status"], row["reason"]) for row in marks] == [
        ("DisruptionTarget", "True", "PreemptionByScheduler")
    ]
