"""Faults that once emptied nodes for nothing: the mechanism keeps each away (docs/semantics.md E9), and only that."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.cases import table
from tests.preemption.building import ZONE, apart_from, node, spread
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, Json, fixed, group, preemptor, victim
from tests.reconciler.harness.scenarios import (
    WHOLE,
    Happens,
    Scene,
    annotated,
    at,
    changed,
    does,
    having,
    later,
    lived,
    on_decision,
    on_request,
    scene,
    slow,
    throttle_after_the_first,
)
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import BudgetMode, EvictionMode
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.policy.model.victims import Victims


class Fault(NamedTuple):
    """A cluster in which the fault showed, how many pods go at most, and whether the preemptor p is bound."""

    scene: Scene
    evicted: int
    bound: bool
    seconds: float


def fault(*, evicted: int = 0, bound: bool = True, seconds: float = 100.0) -> Callable[..., Fault]:
    """A fault in the cluster of what is given then: its parts, and the fields of its policy."""
    return lambda *parts, **fields: Fault(scene(*parts, **fields), evicted, bound, seconds)


in_front = partial(preemptor, managed=False)
"""A pod of higher priority for which nobody preempts."""
AGENTS_RETURN = having(replacing={"agents": "here"})
"""A controller puts the next pod on the node of the one that is gone, by itself."""
SLOW_WRITES = having(slow_writes=True)
UNSEEN = at(2.3, does("hold_watch", 30.0))
IN_GANG = {GANG: "g"}


def nominated(made: Json, node: str) -> Json:
    """The pod, which kube-scheduler has nominated to this node."""
    return {**made, "status": {**made["status"], "nominatedNodeName": node}}


def put_on_n1(made: Json) -> Json:
    """The pod as it is once it is bound there."""
    return {**made, "spec": {**made["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}}


def unready(name: str, on: str, said: str, priority: int = 10) -> Json:
    """A victim of the app db whose condition Ready says so."""
    made = victim(name, on, priority=priority, app="db")
    made["status"]["conditions"] = [{"type": "Ready", "status": said}]
    return made


def one_comes_that_stays(made: Cluster) -> None:
    """For some time nobody may go by the budget, and the group has a member that may not go at all."""
    made.put(fixed("v3", "n2", **IN_GANG))
    made.allow("v", 0)
    later(3.0, made.allow, "v", 1)


def over_and_over(what: Any, every: float) -> Happens:
    """Something happens again and again, each time with its number, while its pod is there."""

    def happens(made: Cluster, count: int = 1) -> None:
        what(count)(made)
        later(every, happens, made, count + 1)

    return happens


LOW = in_front("low", priority=50)
SECOND_LOW = nominated(in_front("low", "2", priority=50), "n1")
AGAIN = preemptor(cpu="4")
AGAIN["metadata"]["uid"] = "uid-p-again"


def bound_after_prebind(made: Cluster) -> None:
    """kube-scheduler binds a lower pod that it has held on node n1, which no object showed."""
    made.outcomes.outside("a pod was held there", "n1")
    made.put(put_on_n1(LOW))


def bound_unseen(made: Cluster) -> None:
    """The lower pod is bound, and no watch shows that for a while."""
    made.hold_watch(3.0)
    made.put(put_on_n1(SECOND_LOW))


def nominate_elsewhere(made: Cluster) -> None:
    """Another component nominates the preemptor elsewhere whenever it is nominated."""
    if made.pods.get("p", {"status": {}})["status"].get("nominatedNodeName", "n20") != "n20":
        made.outcomes.outside("somebody else nominated it", "uid-p")
        changed("p", nominatedNodeName="n20")(made)
    later(0.5, nominate_elsewhere, made)


def beside_a_slow_victim(*parts: Any, takes: float = 30.0) -> Fault:
    """When a plan's victim is gone and the scheduler away, another preemptor is nominated beside its own."""
    pods = (victim("a", "n1"), victim("slow", "n1", priority=20, grace=int(takes)))
    comes = (at(2.0, preemptor()), having(ends_after={"slow": takes}, away_until=48.0), at(30.0, preemptor("q")))
    return fault(evicted=2)("8", *pods, *comes, *parts, plan_timeout=20.0)


def opted_out_a_moment_ago(*parts: Happens, **fields: Any) -> Fault:
    """Somebody says that a victim may not go, just before a watch could show that to whoever asks for it."""
    opts_out = at(2.15, annotated("a", {CAN_BE_PREEMPTED: ""}))
    return fault(bound=False)("4", slow, victim("a", "n1"), at(2.0, preemptor()), opts_out, *parts, **fields)


ANTI_AFFINITY, SPREAD = apart_from(ZONE, app="apart"), spread(ZONE, app="apart")


def in_zones(zones: str, *parts: Any, grace: int = 0, evicted: int = 3) -> Fault:
    """A node in each of these zones, full of three pods, which may go but in zone `k`; they take so long."""
    nodes = [node(f"n{number}", "6", labels={ZONE: zone}) for number, zone in enumerate(zones)]
    pods = [
        (fixed if zone == "k" else victim)(f"v{number}-{place}", f"n{number}", "2", grace=grace)
        for number, zone in enumerate(zones)
        for place in range(3)
    ]
    ends = having(ends_after={pod["metadata"]["name"]: grace for pod in pods})
    return fault(evicted=evicted, seconds=120.0)(*nodes, ends, *pods, *parts)


def coming(spec: Json, *names: str) -> tuple[Json, ...]:
    """Preemptors that need a node each, with that in their specs."""
    made = [preemptor(name, "6", app="apart") for name in names]
    return tuple({**pod, "spec": {**pod["spec"], **spec}} for pod in made)


def apart(name: str, app: str, **more: Any) -> Json:
    """A preemptor that cannot be in one zone with pods of this app."""
    made = preemptor(name, **more)
    return {**made, "spec": {**made["spec"], **apart_from(ZONE, app=app)}}


FAULTS = {
    # Choosing victims, and judging a plan before they are asked.
    "replacements that name their node; another node would do": fault(evicted=2, seconds=300.0)(
        *("4", "4", AGENTS_RETURN, victim("agent", "n1", owner="agents"), victim("web", "n2", priority=20)),
        preemptor(),
    ),
    "of a gang's victims one is put back, one not asked yet": fault(evicted=1, bound=False, seconds=50.0)(
        *("4", does("cover", "v", 5), group("g", 2), AGENTS_RETURN),
        *(victim("agent", "n1", "2", priority=20, owner="agents"), victim("web", "n1", "2", owner="webs")),
        *(preemptor("p", "2", **IN_GANG), preemptor("q", "2", **IN_GANG), throttle_after_the_first),
    ),
    "room elsewhere while the server has no time for the second victim": fault(evicted=1)(
        *("4", "4", does("cover", "v", 5), victim("a", "n1", "2", priority=20), victim("b", "n1", "2")),
        *(victim("other", "n2", priority=80), at(2.0, preemptor()), throttle_after_the_first),
        *(at(10.0, does("leave", "other")), having(away_until=40.0)),
    ),
    "an admission policy denies one victim of each node": fault(bound=False, seconds=300.0)(
        *("6", "6"),
        *(victim(f"{on}-kept", on, "2", priority=20) for on in ("n1", "n2")),
        *(victim(f"{on}-{name}", on, "2") for on in ("n1", "n2") for name in "ab"),
        *(having(kept={"n1-kept", "n2-kept"}), preemptor(cpu="6")),
    ),
    "under best-effort one victim's budget is used up": fault(bound=False, seconds=300.0)(
        *("6", does("cover", "kept", 0), victim("kept", "n1", "2", priority=20, app="kept")),
        *(victim("a", "n1", "2"), victim("b", "n1", "2"), preemptor(cpu="6")),
        budgets=BudgetMode.BEST_EFFORT,
    ),
    "kube-scheduler is away for an hour, and every node is full": fault(evicted=1, seconds=3700.0)(
        *("8", "8", "8", *(victim(f"v{number}", f"n{number}", "8") for number in (1, 2, 3)), preemptor(cpu="8")),
        having(away_until=3600.0),
    ),
    "a victim writes annotations that no rule reads while two others are migrated": fault(evicted=3, seconds=300.0)(
        *("6", victim("vm", "n1", "2", priority=30), victim("web", "n1", "2", priority=20), victim("job", "n1", "2")),
        *(having(migrating={"vm": 20.0, "web": 3.0}), preemptor(cpu="6")),
        at(5.0, over_and_over(lambda count: annotated("job", {"example.com/progress": str(count)}), 5.0)),
    ),
    "a pod that was asked in vain is still being asked when the preemptor is another pod": fault(evicted=2)(
        *("8", victim("vm", "n1", "3", priority=80, owner="vms"), having(migrating={"vm": 120.0})),
        *(victim("db", "n1", "2", priority=85), victim("job", "n1", "3", priority=20), preemptor(cpu="4")),
        at(10.0, does("withdraw", "p"), AGAIN),
        limits=Limits(per_owner=Rate(1, 60.0)),
        plan_timeout=20.0,
        wait_for_terminating=0.0,
    ),
    # Preemptors that may not be together in a zone, or are spread over zones, are nominated side by side.
    "apart in one zone: one of two has to wait": in_zones("aa", *coming(ANTI_AFFINITY, *"pq")),
    "apart in three zones: two of five have to wait": in_zones("aabbcc", *coming(ANTI_AFFINITY, *"pqrst"), evicted=9),
    "apart from one that does not care": in_zones(
        "aa", *coming(ANTI_AFFINITY, "p"), at(2.0, *coming({}, "q")), grace=10
    ),
    "spread over two zones, in one of which nobody may go": in_zones("aak", *coming(SPREAD, *"pq")),
    # Pods in front of the preemptor and beside it, and leaders that come and go, whose clocks are wrong.
    "two fit beside each other in what one victim leaves": fault(evicted=1, seconds=60.0)(
        "8", victim("a", "n1", "8"), preemptor("q"), preemptor()
    ),
    "pods in front take whatever is emptied": fault(bound=False, seconds=600.0)(
        *(*"44444", *(victim(f"v{number}", f"n{number}") for number in range(1, 6))),
        *(in_front(f"front{number}", priority=1000) for number in range(4)),
        preemptor(),
    ),
    "a pod in front fits and is not placed yet": fault(bound=False, seconds=60.0)(
        *("8", fixed("stays", "n1", "1"), victim("v0", "n1", "3"), having(away_until=6.0)),
        at(1.0, preemptor("front", "3", priority=110), preemptor("p", "6")),
    ),
    "a pod in front fits later, once a pod is gone that is leaving": fault()(
        *("8", fixed("stays", "n1", "1"), victim("v", "n1", "2"), victim("leaving", "n1", "2", grace=90)),
        *(having(ends_after={"leaving": 30.0}, away_until=40.0), does("leave", "leaving")),
        *(in_front("front", "7", priority=1000), preemptor("p", "5")),
    ),
    "another pod's nomination to the node is over before a watch shows it": fault(evicted=1)(
        *("8", slow, victim("a", "n1"), victim("kept", "n1", priority=20)),
        *(having(kept={"kept"}, ends_after={"a": 20.0}), preemptor(), at(2.0, preemptor("q"))),
    ),
    "two plans need a pod that is kept; one of them needs another one, too": fault(bound=False, seconds=10.0)(
        *("8", slow, fixed("fixed", "n1", "2"), victim("kept", "n1", "4", priority=10), having(kept={"kept"})),
        *(victim("v", "n1", "2", priority=20), preemptor("a", "3"), preemptor("p", "3")),
    ),
    "two plans need a pod that the first one does not come to ask; the second one needs another one, too": fault(
        bound=False, evicted=1, seconds=60.0
    )(
        *("10", fixed("fixed", "n1", "2"), having(migrating={"vm": 200.0}), victim("b", "n1", "2")),
        *(victim("vm", "n1", "2", **IN_GANG), victim("c", "n1", "1", grace=90, **IN_GANG)),
        *(victim("v", "n1", "3", priority=20), preemptor("q", "5"), at(2.0, preemptor(cpu="3"))),
        groups=WHOLE,
        plan_timeout=20.0,
    ),
    "two plans of one moment need one pod, and the second one another one that the first does not come to ask": fault(
        bound=False, seconds=15.0
    )(
        *(node(name, "4", labels={ZONE: "a"}) for name in ("n1", "n2")),
        *(having(migrating={"vm": 200.0}), victim("vm", "n1", "2"), victim("x", "n1", "2", priority=20, app="x")),
        *(victim("y", "n2", "1", app="y"), fixed("fixed", "n2", "1")),
        *(apart("p", "x", cpu="3"), apart("q", "y", priority=120), having(terms=[(1.0, math.inf, 0.0)])),
        victims=Victims(across_nodes=True),
    ),
    "while room is ready for one pod the victim of another plan there is put back": fault(evicted=2, seconds=60.0)(
        *("8", AGENTS_RETURN, victim("a", "n1"), victim("agent", "n1", priority=20, owner="agents")),
        *(at(2.0, preemptor()), at(8.0, preemptor("q")), having(away_until=20.0)),
    ),
    "a member that comes to a group of which one has gone, and stays": fault(evicted=2)(
        *("8", "4", does("cover", "v", 2), preemptor(cpu="8")),
        *(victim(name, "n1", app="v", **IN_GANG) for name in ("v1", "v2")),
        on_request(one_comes_that_stays, "evict", done=True),
        groups=WHOLE,
    ),
    "of a group on two nodes one pod is needed for a plan, and is kept": fault(evicted=2)(
        *("8", "8", slow, SLOW_WRITES, group("g", 2), fixed("fixed", "n1", "5"), having(kept={"there"})),
        *(victim("here", "n1", "3", priority=80, **IN_GANG), victim("there", "n2", "3", priority=80, **IN_GANG)),
        *(victim("a", "n2", "2"), victim("b", "n2", "3")),
        *(preemptor(cpu="5", priority=120), preemptor("q", "3", priority=110)),
        groups=WHOLE,
    ),
    "the first of three pods in front waits for its own node: the others come together": fault()(
        *("4", "4", victim("leaving", "n2", grace=90), having(ends_after={"leaving": 10.0, "v": 20.0})),
        *(does("leave", "leaving"), victim("v", "n1"), nominated(in_front("first", "3", priority=300), "n2")),
        *(in_front("second", "2", priority=200), in_front("third", "2", priority=190), at(2.0, preemptor(cpu="1"))),
    ),
    "the scheduler has put off the first of two pods in front: the second one comes": fault(bound=False)(
        *("4", having(backs_off=True), victim("v", "n1"), in_front("first", "3", priority=300)),
        at(9.0, in_front("second", "4", priority=200), preemptor(cpu="1")),
    ),
    "another one is nominated beside a plan whose victim takes long": beside_a_slow_victim(),
    "another one is nominated beside a plan whose victim is migrated": beside_a_slow_victim(
        having(migrating={"slow": 40.0}), takes=0.0
    ),
    "the same by a clock that says that the other one's victim has had its time": beside_a_slow_victim(
        having(terms=[(0.0, math.inf, 29.0)])
    ),
    "only pods that are put back are in the way, and each leader leads for a few seconds": fault(
        evicted=1, bound=False, seconds=50.0
    )(
        *("4", AGENTS_RETURN, victim("agent", "n1", owner="agents"), preemptor()),
        having(terms=[(0.0, 10.0, 0.0), (12.0, 20.0, 30.0), (22.0, 30.0, -30.0), (32.0, math.inf, 0.0)]),
    ),
    "a victim is put back when its eviction is not answered yet, and leaders' clocks are ahead": fault(
        evicted=1, bound=False, seconds=50.0
    )(
        *("4", AGENTS_RETURN, victim("agent", "n1", owner="agents"), at(2.0, preemptor()), at(9.0, preemptor("q"))),
        having(terms=[(0.0, math.inf, 30.0)], killed_at=frozenset({4})),
    ),
    "neither a leader nor the scheduler is there while room is ready": fault(evicted=1, seconds=600.0)(
        *("8", "8", victim("v1", "n1", "8"), victim("v2", "n2", "8", priority=20), preemptor(cpu="8")),
        having(terms=[(0.0, 5.0, 0.0), (400.0, math.inf, -20.0)], away_until=430.0),
    ),
    "victims are put back while one leader follows another": fault(evicted=2, seconds=300.0)(
        *("4", "4", "4", AGENTS_RETURN, *(victim(f"agent{n}", f"n{n + 1}", owner="agents") for n in range(2))),
        *(victim("web", "n3", priority=20), having(ends_after={"agent0": 6.0, "agent1": 6.0}), preemptor()),
        having(terms=[(0.0, 5.0, 0.0), (7.0, math.inf, -20.0)]),
    ),
    "a new leader's clock says that the victim's time is long over": fault(evicted=1, seconds=300.0)(
        *("4", "4", victim("a", "n1", grace=60), victim("b", "n2", priority=20), at(2.0, preemptor())),
        having(ends_after={"a": 60.0}, terms=[(0.0, 7.0, 0.0), (8.0, math.inf, 59.0)]),
        plan_timeout=20.0,
    ),
    "a pod is held in PreBind for 20 s, which no object shows: that costs one plan": fault(evicted=2, seconds=200.0)(
        *("8", "8", victim("a", "n1"), victim("b", "n2", "8", priority=20), having(away_until=20.0)),
        *(at(1.0, LOW), at(2.0, preemptor(cpu="8")), at(19.0, bound_after_prebind)),
    ),
    # Asking the API server, and waiting for what it shows.
    "the server throttles once the first of three victims has gone": fault(evicted=3)(
        *("6", "6", does("cover", "first", 1), victim("first", "n1", "2", app="first")),
        *(victim(name, "n1", "2") for name in "ab"),
        *(victim(name, "n2", "2", priority=20) for name in "cde"),
        *(at(2.0, preemptor(cpu="6")), throttle_after_the_first),
    ),
    "a lower pod is bound before it is displaced, and no watch shows that yet": fault(bound=False)(
        *("6", slow, SLOW_WRITES, victim("a", "n1", "2"), victim("b", "n1", "2"), SECOND_LOW),
        *(having(away_until=5.0), at(2.0, preemptor(cpu="6")), on_decision(bound_unseen)),
    ),
    "a list is applied bit by bit by a busy machine": fault(bound=False, seconds=60.0)(
        *("8", victim("v", "n1"), fixed("old", "n1"), *(fixed(f"small{n}", "n1", "0") for n in range(40))),
        *(preemptor(cpu="8"), at(5.0, does("hold_watch", 4.0, 0.05)), at(5.1, fixed("new", "n1"))),
        at(5.1, *(does("remove", name, f"uid-{name}") for name in ("old", *(f"small{n}" for n in range(40))))),
    ),
    "a victim that is not ready spends nothing of its budget, and a finalizer keeps it": fault(evicted=2)(
        *("4", "4", does("cover", "db", 1, currentHealthy=2, desiredHealthy=1, expectedPods=3)),
        *(unready("broken", "n1", "False"), unready("good", "n2", "True", 20), preemptor("q"), at(5.0, preemptor())),
        having(ends_after={"broken": 10_000.0}),
    ),
    "a preemptor counts on victims that a lower one's plan has yet to ask": fault(evicted=4)(
        *("6", "6", victim("vm", "n1", "2", priority=30), having(migrating={"vm": 20.0})),
        *(victim("a", "n1", "2", priority=20), victim("b", "n1", "2"), victim("c", "n2", "6", priority=40)),
        *(preemptor("low", "6"), at(3.0, preemptor(cpu="6", priority=200))),
    ),
    "an hour of grace ends after a second, and kube-scheduler does not take the node": fault(evicted=2, seconds=300.0)(
        *("4", "4", victim("v1", "n1", grace=3600), victim("v2", "n2", priority=20), preemptor()),
        having(ends_after={"v1": 1.0}, shunned={"n1"}),
        plan_timeout=60.0,
    ),
    "a victim was opted out a moment ago": opted_out_a_moment_ago(),
    "the same, and no watch shows it for long": opted_out_a_moment_ago(UNSEEN),
    "the same, by requests that ask no budget": opted_out_a_moment_ago(UNSEEN, eviction=EvictionMode.DELETE),
    "while the mark on a victim is written a higher pod comes that needs the whole node": fault(evicted=2, bound=False)(
        *("6", slow, SLOW_WRITES, victim("a", "n1", "3"), victim("b", "n1", "3", priority=20)),
        *(at(2.0, preemptor(cpu="3")), at(2.8, preemptor("higher", "6", priority=200))),
        eviction=EvictionMode.DELETE,
    ),
    "the status of a victim under a budget has changed unseen": fault(evicted=1, seconds=30.0)(
        *("4", slow, does("cover", "db", 1), victim("a", "n1", app="db"), at(2.0, preemptor()), at(2.15, changed("a"))),
    ),
    "a victim's status changes faster than anybody can read it": fault(evicted=1, seconds=30.0)(
        *("4", victim("a", "n1"), at(2.0, preemptor()), at(1.9, over_and_over(lambda _: changed("a"), 0.001))),
    ),
    "an eviction is done and answered with 500, and so are the next two": fault(evicted=3)(
        *("6", "6", *(victim(name, "n1", "2", grace=10) for name in "abc"), victim("d", "n2", "6", priority=20)),
        *(having(answers_lost=3), at(2.0, preemptor(cpu="6"))),
    ),
    "another component nominates the preemptor elsewhere, and no victim ends soon": fault(
        evicted=6, bound=False, seconds=1800.0
    )(
        *(["4"] * 20),
        *(victim(f"v{number}", f"n{number}", grace=3600) for number in range(1, 20)),
        having(ends_after={f"v{number}": 3600.0 for number in range(1, 20)}),
        *(fixed("fixed", "n20"), at(2.0, preemptor()), nominate_elsewhere),
        wait_for_terminating=0.0,
        plan_timeout=20.0,
        limits=Limits(attempts_per_preemptor=3),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stays_away(name: str):
    """Nobody goes for nothing, and the preemptor is bound if it can be."""
    fault = FAULTS[name]
    made = lived(fault.scene, fault.seconds)
    assert len(made.evicted) <= fault.evicted, made.evicted
    assert bool(made.pods["p"]["spec"].get("nodeName")) == fault.bound


@table(
    "spec, status",
    ("older than its spec", {"selector": {"matchLabels": {"app": "v"}}}, {"disruptionsAllowed": 1}),
    ("for every pod", {"selector": {}}, {"observedGeneration": 1, "disruptionsAllowed": 0}),
)
def test_no_plan_is_made_that_the_eviction_api_would_refuse(spec: Json, status: Json):
    """Under best-effort, too, what is certain to be refused is seen by the decision, not by one plan after another."""
    guard = {"metadata": {"name": "b", "namespace": "default", "generation": 1}, "spec": spec, "status": status}
    pods = (victim("a", "n1"), victim("b", "n2", priority=20), preemptor())
    begin = scene("4", "4", having(budgets={"v": guard}), *pods, budgets=BudgetMode.BEST_EFFORT)
    assert [line["message"] for line in lived(begin, 30.0).told] == ["no preemption"]
