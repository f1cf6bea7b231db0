"""Carrying plans out: what happens between a decision and the end of its plan, and what is asked of the server.

No request is too many, evictions go side by side, and while a cache takes in a list nobody is evicted.
"""

import json
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.cases import table
from tests.preemption.building import HOST
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim, written_on
from tests.reconciler.harness.scenarios import (
    Scene,
    annotated,
    answering,
    at,
    bound,
    changed,
    clearing,
    crowded,
    does,
    ended,
    full,
    having,
    later,
    led,
    lived,
    on_decision,
    on_request,
    scene,
    throttle_after_the_first,
)
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.lease import LeaderElector
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import EvictionMode, Preemptors
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import DECISION, RECONCILER_ANNOTATIONS
from webhook.policy.model.victims import Victims
from webhook.reconciler.evict import executor
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.service import ReconcilerService

pytestmark = pytest.mark.usefixtures("no_errors")

LONG = 10_000.0
RESTLESS = json.dumps({"id": "x", "node": "n1", "policy": "test", "attempt": 1, "victims": [{"pod": "default/z"}]})
AWAY, BROKEN = ApiError(NO_ANSWER, "", "no answer within 12 s"), ApiError(500, "InternalError", "")
SOLID = partial(full, takes=10.0, spare=False)
"""Only pod a may go, and takes its time."""
MIGRATING = having(migrating={"a": LONG})
"""Pod a is said to be on its way out."""
OTHER = fixed("a", "n1", "1")
OTHER["metadata"]["uid"] = "uid-of-another"


def finalized(made: Cluster) -> None:
    """The preemptor is deleted and stays for now."""
    made.edit("p", lambda pod: pod["metadata"].update(deletionTimestamp="2027-01-15T08:00:30Z"))


def replaced(made: Cluster) -> None:
    """A small pod of the name of pod a is in its place, and no watch shows that for 3 seconds."""
    made.hold_watch(3.0)
    made.remove("a", "uid-a")
    made.put(OTHER)


def use(**fields: Any) -> Any:
    """Other policies are taken into use."""
    return lambda made: made.use(policy(**fields))


def nobody_went(made: Cluster) -> None:
    """Nobody was evicted until now."""
    assert made.evicted == []


class Case(NamedTuple):
    """A cluster and what comes of it: where p is in the end, who was evicted, and how the plans for p ended."""

    make: Scene
    on: str = "n1"
    evicted: str = "a"
    endings: str = "bound"
    charged: int | None = None
    """How many evictions count for rates, if not as many as were evicted."""


def denied(error: ApiError) -> Case:
    """After one plan the preemptor gets its room on the other node."""
    return Case(full(answering(error, "evict", of="a")), on="n2", evicted="b1 b2", endings="failed bound")


LEAVES_AT_30 = (at(29.0, nobody_went), at(30.0, does("leave", "a")))
ELSEWHERE = changed("p", nominatedNodeName="n2")
UNMANAGED = Preemptors(priority_classes=("another",))
V, OTHER_LEAVES = victim("v", "n1"), on_decision(does("leave", "o"))
ENDS = use(schedule=Schedule(cron="0 20 * * *", duration=3600.0))
THREE = (*(victim(name, "n1", "1") for name in "abc"), fixed("l", "n1", "3"), fixed("o", "n1", "2"))
TIMED_OUT = "timed-out timed-out timed-out"
CASES = {
    # What the server says of a victim
    "an eviction that gets no answer": denied(AWAY),
    "a webhook that answers 429": denied(ApiError(429, "TooManyRequests", "not today", details={"name": "a"})),
    "an eviction that is answered with 500": denied(BROKEN),
    "an eviction that is answered with 503": denied(ApiError(503, "ServiceUnavailable", "")),
    "a server that is away": Case(
        full(answering(ApiError(NO_ANSWER, "Unreachable", ""), "evict", "get", "patch", of="a", until=8.0))
    ),
    "evictions that are answered with 500 for a while": Case(
        full(answering(BROKEN, "evict", of="a", until=3.0), spare=False)
    ),
    "nominations that are answered with 500 for a while": Case(
        full(answering(BROKEN, "patch", of="p", until=8.0)), endings="failed failed failed bound"
    ),
    "a storm of conflicts": Case(full(answering(ApiError(409, "Conflict", ""), "patch", of="p", until=8.0))),
    "a pod in whose place is another one of its name": Case(full(on_request(replaced, "evict", of="a")), evicted=""),
    "a server that throttles": Case(full(having(throttled=(12.0, 1.0)))),
    "watches that lag and end": Case(full(at(1.9, does("hold_watch", 3.0)))),
    "a pod on its way out": Case(full(MIGRATING, *LEAVES_AT_30), evicted="", charged=1),
    "a pod that says for too long that it is on its way": Case(
        full(MIGRATING, plan_timeout=20.0), on="n2", evicted="b1 b2", endings="timed-out bound"
    ),
    "the last one waits for a pod on its way out": Case(
        full(MIGRATING, *LEAVES_AT_30, victim("last", "n1", "2"), cpu="8", spare=False), evicted="last", charged=2
    ),
    # What becomes of nominations and room
    "a preemptor of higher priority takes the node": Case(
        SOLID(at(5.0, preemptor("q", "6", priority=200)), cpu="6"), on="", endings="space-taken"
    ),
    "the node is deleted": Case(
        full(at(5.0, does("drop_node", "n1")), takes=40.0, spare=False), on="", endings="node-gone"
    ),
    "the preemptor is deleted and stays for now": Case(full(at(5.0, finalized), takes=40.0), on="", endings="deleted"),
    "a victim that does not end in time": Case(
        full(takes=LONG, grace=1, spare=False, plan_timeout=20.0), on="", endings=TIMED_OUT
    ),
    "a victim that needs longer than a plan may take": Case(full(takes=60.0, plan_timeout=20.0)),
    "attempts count over a change of leaders": Case(
        full(led(5.0), takes=LONG, grace=1, plan_timeout=20.0, limits=Limits(attempts_per_preemptor=1)),
        on="",
        endings=TIMED_OUT,
    ),
    "a pod of higher priority is put into the room": Case(
        SOLID(at(5.0, fixed("thief", "n1", "8", priority=1000))), on="", endings="space-taken"
    ),
    "somebody nominates it to a node without room": Case(SOLID(at(5.0, ELSEWHERE)), endings="nomination-lost bound"),
    "the nomination is lost while a victim is asked": Case(
        SOLID(on_request(ELSEWHERE, "evict", times=9)), endings="nomination-lost bound"
    ),
    "somebody nominated it to a node where room comes up": Case(
        SOLID(at(0.0, does("leave", "a")), nominated="n1"), evicted="", endings=""
    ),
    "a decision on a pod of no concern counts for no rate": Case(
        full(at(0.0, annotated("a", {DECISION: RESTLESS})), limits=Limits(per_cluster=Rate(1, 3600.0)))
    ),
    "a class that becomes managed": Case(full(at(20.0, nobody_went), at(21.0, use()), preemptors=UNMANAGED)),
    "a scheduler that clears nominations": Case(SOLID(clearing())),
    "a pod of lower priority takes room that nothing keeps": Case(
        SOLID(clearing(), at(8.0, victim("thief", "n1"))), evicted="a thief", endings="space-taken bound"
    ),
    "nominations that are cleared under two leaders": Case(SOLID(clearing(), led(6.0))),
    # Room that comes up before somebody is asked
    "a pod of the node ends before anybody is asked": Case(
        crowded(V, fixed("o", "n1"), OTHER_LEAVES, cpu="3"), evicted=""
    ),
    "a pod of the node begins to leave before anybody is asked": Case(
        crowded(V, fixed("o", "n1", grace=9), OTHER_LEAVES, cpu="3"), evicted=""
    ),
    "a schedule that ends before anybody is asked": Case(
        crowded(victim("v", "n1", "8"), on_decision(ENDS), cpu="3"), on="", evicted="", endings="outdated"
    ),
    "some of three victims stay": Case(crowded(*THREE, OTHER_LEAVES, cpu="3"), evicted="c"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_a_plan(name: str):
    """Nobody goes in vain, no rate counts who stays, and nothing is left of plans that are over."""
    case, counted = CASES[name], list[int]()

    def count(made: Cluster) -> None:
        counted.append(len(made.process.service.reconciler.evaluator.log.past))

    made = lived(case.make, 200.0, is_judged=False, at_199=count)
    assert ended(made, "/p") == case.endings.split()
    assert (made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)) == (case.on, sorted(case.evicted.split()))
    assert (written_on(made.pods["p"]), made.remembered()) == (None, [])
    assert counted == [len(made.evicted) if case.charged is None else case.charged]


USE_UP = on_decision(lambda made: made.budgets["v"]["status"].update(disruptionsAllowed=0))
USED_UP = scene("8", does("cover", "v", 1), victim("v", "n1", "8"), preemptor(), USE_UP)
"""The budget of the only victim is used up before a watch could show it."""


def test_a_budget_that_refuses():
    """The nomination is taken off, nobody goes, and it is counted and told."""
    refusals = []

    def look(made: Cluster) -> None:
        refusals.append(made.process.registry.get_sample_value("giveway_budget_refusals_total"))

    made = lived(USED_UP, 20.0, at_19=look)
    assert "budget refused" in [line["message"] for line in made.told]
    assert ended(made)[0] == "budget-refused"
    assert (made.evicted, refusals[0] >= 1) == ([], True)
    assert not made.pods["p"]["status"].get("nominatedNodeName")


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_room_that_comes_up_before_the_last_is_asked(wait: float):
    """The last one stays, also if the first one, whose room is counted on, takes longer than others are waited for."""
    pods = (victim("a", "n1", "3", grace=600), victim("b", "n1", "3", grace=600), fixed("o", "n1", "2"))
    happens = (throttle_after_the_first, at(10.0, does("leave", "o")), having(ends_after={"a": 30.0, "b": 30.0}))
    kept = does("cover", "v", 9)
    made = lived(scene("8", kept, *pods, preemptor(cpu="5"), *happens, wait_for_terminating=wait))
    assert (len(made.evicted), bound(made, "p")) == (1, ["p"])


@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("annotation", RECONCILER_ANNOTATIONS)
def test_what_the_reconciler_writes_on_a_victim(annotation: str, mode: EvictionMode):
    """It neither ends the plan nor has anybody tried again, whichever way the victim is asked to leave."""
    text = '{"id": "told", "plan": "told", "node": "n2", "victims": []}'
    write = on_decision(annotated("v", {annotation: text}))
    told = lived(crowded(victim("v", "n1", "8"), write, cpu="3", eviction=mode), is_judged=False).told
    said = [(line["message"], line.get("ending")) for line in told if line["message"] != "notice withdrawn"]
    assert said == [("decision", None), ("plan ended", "bound")]


def test_delete_mode_marks_the_victim_first():
    """It carries DisruptionTarget when it is deleted, and budgets are not asked."""
    marks: list[Json] = []
    look = on_request(lambda made: marks.extend(made.pods["v"]["status"]["conditions"]), "delete")
    assert lived(USED_UP.but(look, eviction=EvictionMode.DELETE)).evicted == ["v"]
    said = [(row["type"], row["status"], row["reason"]) for row in marks]
    assert said == [("DisruptionTarget", "True", "PreemptionByScheduler")]


def test_a_nomination_whose_node_went_is_replaced_in_one_patch():
    """With another node at hand the pod is never without a nomination, so no autoscaler adds a node for it."""
    written: list[str | None] = []

    def hear(verb: str, name: str, body: Json) -> None:
        if (verb, name) == ("patch", "p"):
            written.append(body["status"]["nominatedNodeName"])

    slow = having(ends_after={"b1": 40.0, "b2": 40.0})
    goes = at(10.0, does("drop_node", "n1"))
    lived(full(slow, goes, lambda made: made.arriving.append(hear), takes=40.0))
    assert list(dict.fromkeys(written)) == ["n1", "n2", None]


@pytest.mark.parametrize(("said", "times"), [("no node", 1), ("no node. preemption: not eligible", 0)])
def test_a_scheduler_that_clears_nominations_is_told_of_once(said: str, times: int):
    """Not for each of its pods, nor if it preempts by itself, and nobody else is evicted for them."""
    ends = having(ends_after={"v1": 10.0, "v2": 10.0})
    victims = [victim(f"v{number}", f"n{number}", "8", grace=10) for number in (1, 2)]
    waiting = [preemptor(f"p{number}", "8") for number in (1, 2)]
    for number, waits in enumerate(waiting, 1):
        waits["spec"]["nodeSelector"] = {HOST: f"n{number}"}
    made = lived(scene("8", "8", clearing(said), ends, *victims, *waiting))
    told = Counter(line["message"] for line in made.told)
    assert told == Counter({"decision": 2, "nominations are not kept": times, "plan ended": 2})
    assert bound(made, "p") == ["p1", "p2"]


def test_a_nomination_of_no_concern_stays():
    """Whoever set it, on a pod that no policy manages."""
    other = preemptor("other", "9", managed=False)
    other["status"]["nominatedNodeName"] = "n9"
    made = lived(full(other))
    assert made.pods["other"]["status"]["nominatedNodeName"] == "n9"


@table("seconds, waits", ("for the other plan", 500.0, True), ("not for long", 1.5, False))
def test_plan_of_a_bound_pod_is_taken_off_when_the_others_have_ended(monkeypatch, seconds: float, waits: bool):
    """While another plan is under way it stays, since each write makes that one wait; but only for some seconds."""
    monkeypatch.setattr(executor, "_LONGEST_PAUSE", seconds)
    planned: list[bool] = []
    pods = (victim("v1", "n1", "8"), victim("v2", "n2", "8", priority=20, grace=100), having(ends_after={"v2": 100.0}))
    look = at(60.0, lambda made: planned.append(written_on(made.pods["p1"]) is not None))
    made = lived(scene("8", "8", *pods, preemptor("p1", "8"), preemptor("p2", "8"), look))
    assert planned == [waits]
    assert bound(made, "p") == ["p1", "p2"]
    assert [written_on(made.pods[name]) for name in ("p1", "p2")] == [None, None]


@table(
    "covered, waves",
    ("nobody can keep one: all side by side", "", ["a", "ab", "abc", "abcd"]),
    ("those that a budget may keep go first", "bd", ["b", "bd", "a", "ac"]),
    ("a budget covers all: the last one waits for the others", "abcd", ["a", "ab", "abc", "d"]),
)
def test_what_a_plan_asks_of_the_server(covered: str, waves: list[str]):
    """A patch nominates, each victim is tried and then evicted, and a patch takes the plan off: no request too many."""
    requests: Counter[str] = Counter()
    under_way: set[str] = set()
    seen: list[str] = []

    def arrives(verb: str, name: str, _: Json) -> None:
        requests[verb] += verb not in ("read", "write")
        if verb == "evict":
            under_way.add(name)
            seen.append("".join(sorted(under_way)))

    def listen(made: Cluster) -> None:
        made.arriving.append(arrives)
        made.answered.append(lambda _, name, __: under_way.discard(name))

    pods = [victim(name, "n1", "2", app="covered" if name in covered else name) for name in "abcd"]
    lived(crowded(*pods, listen, cpu="8", covered="covered"))
    assert +requests == Counter({"patch": 2, "try": 4, "evict": 4, "get": len(covered)})
    assert seen == waves


def test_a_preemptor_that_goes_while_the_lease_is_in_doubt(monkeypatch: pytest.MonkeyPatch):
    """Its victim, whose notice is over by then, is not asked once it is sure again who leads."""
    doubt: list[bool] = []
    monkeypatch.setattr(ReconcilerService, "time_to_write", lambda _: 0.0 if doubt else 100.0)
    monkeypatch.setattr(LeaderElector, "is_in_doubt", lambda _: bool(doubt))
    begins, ends = at(15.0, lambda _: doubt.append(True)), at(28.0, lambda _: doubt.clear())
    parts = (victim("a", "n1", "8"), preemptor(cpu="8"), begins, at(25.0, does("withdraw", "p")), ends)
    assert lived(scene("8", *parts, victims=Victims(notice=20.0))).evicted == []


def test_a_plan_that_is_over_is_not_shown_as_under_way():
    """Its victim may be on its way out though the answer was lost, and the server does not say so either."""
    shown: list[int] = []

    def show(made: Cluster) -> None:
        service = made.process.service
        shown.append(len(service.reconciler.plan_manager.index.by_id))
        shown.append(overview(service, 0, Surroundings()).plans_total)

    broken = answering(ApiError(500, "InternalError", ""), "evict", "get", of="a")
    lived(full(broken, at(2.2, does("withdraw", "p")), at(5.0, show), spare=False), 10.0)
    assert shown == [1, 0]


@pytest.mark.parametrize("mode", EvictionMode)
def test_nobody_is_evicted_on_half_a_list(mode: EvictionMode):
    """A plan that is under way waits with its next eviction, and then looks at what has become of its node."""

    def list_again(made: Cluster) -> None:
        whole = made.process.service.state.pods.whole
        whole.clear()
        later(1.0, made.put, fixed("newer", "n1", "8", priority=200))
        later(3.0, whole.set)

    again = on_request(list_again, "patch", of="p", done=True)
    made = lived(scene("8", victim("low", "n1", "8"), preemptor(cpu="8"), again, eviction=mode))
    assert made.evicted == [], "somebody else has the room by then"
    assert ended(made) == ["outdated"]
