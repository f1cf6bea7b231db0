"""What plans ask of the API server: no request too many, evictions side by side, and nominations that are not kept."""

from collections import Counter
from typing import Any

import pytest

from tests.preemption.building import HOST
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim, written_on
from tests.reconciler.harness.scenarios import answering, bound, clearing, crowded, full, later, lived, simulated
from webhook.kube.errors import ApiError
from webhook.kube.lease import LeaderElector
from webhook.policy.model.victims import Victims
from webhook.reconciler.evict import executor
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.plans import look
from webhook.reconciler.service import ReconcilerService

pytestmark = pytest.mark.usefixtures("no_errors")


def test_a_nomination_whose_node_went_is_replaced_in_one_patch():
    """With another node at hand the pod is never without a nomination, so no autoscaler adds a node for it."""
    written: list[str | None] = []

    def make() -> Cluster:
        made = full(takes=40.0)
        made.ends_after |= {"b1": 40.0, "b2": 40.0}

        def hear(verb: str, name: str, body: Json) -> None:
            if (verb, name) == ("patch", "p"):
                written.append(body["status"]["nominatedNodeName"])

        made.arriving.append(hear)
        return made

    lived(make, at_10=lambda made: made.drop_node("n1"))
    assert list(dict.fromkeys(written)) == ["n1", "n2", None]


@pytest.mark.parametrize(("said", "times"), [("no node", 1), ("no node. preemption: not eligible", 0)])
def test_a_scheduler_that_clears_nominations_is_told_of_once(said: str, times: int):
    """Not for each of its pods, nor if it preempts by itself, and nobody else is evicted for them."""

    def make() -> Cluster:
        made = clearing(simulated("8", "8"), said)
        for number in (1, 2):
            waits = preemptor(f"p{number}", "8")
            waits["spec"]["nodeSelector"] = {HOST: f"n{number}"}
            made.add(victim(f"v{number}", f"n{number}", "8", grace=10), waits)
            made.ends_after[f"v{number}"] = 10.0
        return made

    made = lived(make)
    told = Counter(line["message"] for line in made.told)
    assert told == Counter({"decision": 2, "nominations are not kept": times, "plan ended": 2})
    assert bound(made, "p") == ["p1", "p2"]


def test_a_nomination_of_no_concern_stays():
    """Whoever set it, on a pod that no policy manages."""
    other = preemptor("other", "9", managed=False)
    other["status"]["nominatedNodeName"] = "n9"
    made = lived(lambda: full(other))
    assert made.pods["other"]["status"]["nominatedNodeName"] == "n9"


@pytest.mark.parametrize(("looks", "waits"), [(1000, True), (3, False)], ids=["for the other plan", "not for long"])
def test_plan_of_a_bound_pod_is_taken_off_when_the_others_have_ended(monkeypatch, looks: int, waits: bool):
    """While another plan is under way it stays, since each write makes that one wait; but only for some seconds."""
    monkeypatch.setattr(executor, "_CLEAR_LOOKS", looks)
    planned: list[bool] = []

    def make() -> Cluster:
        made = simulated("8", "8")
        made.add(victim("v1", "n1", "8"), victim("v2", "n2", "8", priority=20, grace=100))
        made.ends_after["v2"] = 100.0
        made.add(preemptor("p1", "8"), preemptor("p2", "8"))
        return made

    made = lived(make, at_60=lambda made: planned.append(written_on(made.pods["p1"]) is not None))
    assert planned == [waits]
    assert bound(made, "p") == ["p1", "p2"]
    assert [written_on(made.pods[name]) for name in ("p1", "p2")] == [None, None]


def test_victims_chosen_together_are_judged_once(monkeypatch: pytest.MonkeyPatch):
    """Between the decision and the requests nothing has changed: nobody judges the three victims again."""
    judged: list[Any] = []
    judge = look.potential_victims
    monkeypatch.setattr(look, "potential_victims", lambda *given, **more: judged.append(given) or judge(*given, **more))
    made = lived(lambda: crowded(*(victim(name, "n1", "2") for name in "abc"), fixed("d", "n1", "2"), cpu="6"))
    assert (len(made.evicted), len(judged)) == (3, 0)


@pytest.mark.parametrize(
    ("covered", "waves"),
    [
        pytest.param("", ["a", "ab", "abc", "abcd"], id="nobody can keep one: all side by side"),
        pytest.param("bd", ["b", "bd", "a", "ac"], id="those that a budget may keep go first"),
        pytest.param("abcd", ["a", "ab", "abc", "d"], id="a budget covers all: the last one waits for the others"),
    ],
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

    def make() -> Cluster:
        pods = (victim(name, "n1", "2", app="covered" if name in covered else name) for name in "abcd")
        made = crowded(*pods, cpu="8", covered="covered")
        made.arriving.append(arrives)
        made.answered.append(lambda _, name, __: under_way.discard(name))
        return made

    lived(make)
    assert +requests == Counter({"patch": 2, "try": 4, "evict": 4, "get": len(covered)})
    assert seen == waves


def test_a_preemptor_that_goes_while_the_lease_is_in_doubt(monkeypatch: pytest.MonkeyPatch):
    """Its victim, whose notice is over by then, is not asked once it is sure again who leads."""
    doubt: list[bool] = []
    monkeypatch.setattr(ReconcilerService, "time_to_write", lambda _: 0.0 if doubt else 100.0)
    monkeypatch.setattr(LeaderElector, "is_in_doubt", lambda _: bool(doubt))

    def make() -> Cluster:
        made = simulated("8", victims=Victims(notice=20.0))
        made.add(victim("a", "n1", "8"), preemptor(cpu="8"))
        later(15.0, doubt.append, True)
        later(25.0, made.withdraw, "p")
        later(28.0, doubt.clear)
        return made

    made = lived(make)
    assert made.evicted == []


def test_a_plan_that_is_over_is_not_shown_as_under_way():
    """Its victim may be on its way out though the answer was lost, and the server does not say so either."""
    shown: list[int] = []

    def make() -> Cluster:
        made = answering(full(spare=False), ApiError(500, "InternalError", ""), "evict", "get", of="a")
        later(2.2, made.withdraw, "p")
        return made

    def show(made: Cluster) -> None:
        service = made.process.service
        shown.extend(
            (len(service.reconciler.plan_manager.index.by_id), overview(service, 0, Surroundings()).plans_total)
        )

    lived(make, 10.0, at_5=show)
    assert shown == [1, 0]
