"""What plans ask of the API server: no request too many, evictions side by side, and nominations that are not kept.

While a cache takes in a list nobody is evicted, and nothing is learned of schedulers.
"""

import math
from collections import Counter
from typing import Any

import pytest

from tests.cases import table
from tests.preemption.building import HOST
from tests.reconciler import builders
from tests.reconciler.builders import Desk, Setting, node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim, written_on
from tests.reconciler.harness.scenarios import (
    answering,
    at,
    bound,
    clearing,
    crowded,
    does,
    ended,
    full,
    having,
    later,
    lived,
    on_request,
    scene,
)
from webhook.kube.errors import ApiError
from webhook.kube.lease import LeaderElector
from webhook.kube.objects.meta import Condition
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.victims import Victims
from webhook.reconciler.evict import executor
from webhook.reconciler.overview.overview import Surroundings, overview
from webhook.reconciler.plans import look
from webhook.reconciler.service import ReconcilerService

pytestmark = pytest.mark.usefixtures("no_errors")


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


@table(
    "seconds, waits",
    ("for the other plan", 500.0, True),
    ("not for long", 1.5, False),
)
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


def test_victims_chosen_together_are_judged_once(monkeypatch: pytest.MonkeyPatch):
    """Between the decision and the requests nothing has changed: nobody judges the three victims again."""
    judged: list[Any] = []
    judge = look.potential_victims
    monkeypatch.setattr(look, "potential_victims", lambda *given, **more: judged.append(given) or judge(*given, **more))
    made = lived(crowded(*(victim(name, "n1", "2") for name in "abc"), fixed("d", "n1", "2"), cpu="6"))
    assert (len(made.evicted), len(judged)) == (3, 0)


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

    in_doubt = (
        at(15.0, lambda _: doubt.append(True)),
        at(25.0, does("withdraw", "p")),
        at(28.0, lambda _: doubt.clear()),
    )
    pods = (victim("a", "n1", "8"), preemptor(cpu="8"))
    assert lived(scene("8", *pods, *in_doubt, victims=Victims(notice=20.0))).evicted == []


def test_a_plan_that_is_over_is_not_shown_as_under_way():
    """Its victim may be on its way out though the answer was lost, and the server does not say so either."""
    shown: list[int] = []

    def show(made: Cluster) -> None:
        service = made.process.service
        shown.extend(
            (len(service.reconciler.plan_manager.index.by_id), overview(service, 0, Surroundings()).plans_total)
        )

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


@pytest.mark.parametrize("listed", [True, False])
async def test_what_a_list_shows_of_a_pod_is_no_sign_of_its_scheduler(listed: bool):
    """A scheduler may have refused the pod long before: only a watch shows that it does so now."""
    setting = Setting(node("n1"))
    setting.add(builders.preemptor())
    desk, refused = Desk(setting), builders.preemptor()
    refused.status.conditions = [Condition(type="PodScheduled", status="False", message="another reason")]
    if listed:
        setting.state.pods.whole.clear()
    setting.add(refused)
    setting.state.pods.whole.set()
    had_its_chance = desk.reconciler.evaluator.schedulers.chance(refused, 0.0, 60.0) < math.inf
    assert had_its_chance is not listed
