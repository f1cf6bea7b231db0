"""Victims are told before they are asked to leave, keep their time whoever leads, and are told if they may stay."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.judge import say_ready
from tests.reconciler.harness.pods import GANG, Json, preemptor, victim, written_on
from tests.reconciler.harness.random_clusters import manage_another
from tests.reconciler.harness.scenarios import (
    WHOLE,
    Happens,
    Scene,
    annotated,
    answering,
    at,
    bound,
    does,
    having,
    killed_at_each_step,
    led,
    lived,
    on_request,
    scene,
    two_victims,
)
from tests.reconciler.harness.virtual_time import later
from webhook.kube.errors import ApiError
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import NOTICE, READY
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SECONDS = 20.0
TOLD = Victims(notice=SECONDS)
TWO_OF_A_BUDGET = does("cover", "v", 2)
SMALL = (victim("a", "n1", "2"), victim("b", "n1", "2"), victim("kept", "n1", "4", priority=200))
WITH_ROOM_TO_COME = scene("8", *SMALL, preemptor(cpu="4"), victims=TOLD)
"""Two victims beside a pod whose room would do."""
WIDE = [victim(f"v{number}", f"n{number}", "8", grace=1, **{GANG: "wide"}) for number in (1, 2)]
WIDE_GROUP = partial(scene, "8", "8", *WIDE, preemptor(cpu="5"), victims=TOLD, groups=WHOLE)
"""A group that goes whole, on two nodes."""
SHARING = partial(scene, "8", victim("v", "n1", "8"), preemptor("p"), preemptor("q"), victims=TOLD)
"""Two preemptors that share the room of one victim."""
TOLD_TWICE = partial(
    scene, "8", victim("v", "n1", "8"), preemptor("q"), at(1.0, preemptor("p")), led(5.0), victims=TOLD
)
"""Two preemptors that share the room of one victim; for the next leader the plan of the other one comes first."""


def hearing(hear: Any) -> Happens:
    """Each request is heard when it arrives."""
    return lambda made: made.arriving.append(partial(hear, made))


def made_again(made: Cluster) -> None:
    """The preemptor's class has another value."""
    made.show(PRIORITY_CLASS, {"metadata": {"name": "high"}, "value": 7})


def gives(seconds: float) -> Happens:
    """The policy gives another notice from now on."""
    return lambda made: made.use(msgspec.structs.replace(made.policy, victims=Victims(notice=seconds)))


async def told_while_it_is_read(made: Cluster, verb: str, name: str, body: Json) -> None:
    """A victim changes as its notice is taken off, and is read for a second then; so long takes each notice."""
    notice = (body["metadata"].get("annotations") or {}).get(NOTICE, "") if verb == "patch" else ""
    if notice is None and not made.record.withdrawn and "changed" not in made.pods["v"]["metadata"]["annotations"]:
        annotated("v", {"changed": "yes"})(made)
    elif (verb, name) == ("get", "v") or notice:
        await asyncio.sleep(1.0)


def fails(_: Cluster) -> None:
    """A request, or the answer to it, comes to nothing."""
    raise ApiError(500, "", "trouble")


async def takes_a_second(_: Cluster) -> None:
    """A request is on its way for a second."""
    await asyncio.sleep(1.0)


def shown_at_once(made: Cluster) -> None:
    """The watch of pods is never late."""
    made.collection.lag = lambda: 0.0


def goes_as_an_answer_is_lost(made: Cluster) -> None:
    """The preemptor goes just after a victim was told, and the answer is lost."""
    later(0.05, P_GOES, made)
    raise ApiError(500, "", "the answer is lost")


def as_it_is_told(victim: str, what: Happens, *, done: bool = False) -> Happens:
    """It happens at the first request that writes a notice of the pod, or takes it off, or when that was done."""
    return on_request(what, "patch", of=victim, about=NOTICE, done=done)


def trouble(status: int, **which: Any) -> Happens:
    """The server answers writes of notices with an error."""
    return answering(ApiError(status, "", "trouble"), "patch", about=NOTICE, **which)


def changing(where: str, *parts: Any, **fields: Any) -> Scene:
    """Two victims; somebody counts in labels or annotations of pod a whenever a request for it arrives."""
    verbs = ("patch", "try", "evict", "delete", "get")
    count = lambda made: annotated("a", {"count": str(made.collection.version)}, where)(made)  # noqa: E731
    return two_victims(on_request(count, *verbs, of="a", times=1e6), *parts, **fields)


IN_TIME = (SECONDS, SECONDS + 3)
AT_ONCE = (5.0, 6.0)
KEPT = victim("kept", "n2", "8", priority=200)


def ready(*names: str) -> Happens:
    """These say that they need not be waited for."""
    return lambda made: [say_ready(made, name) for name in names]


class Case(NamedTuple):
    """A cluster; where p is in the end, and when who was asked: all of these go, nobody else."""

    make: Scene
    asked: Mapping[str, tuple[float, float]] = MappingProxyType({"a": IN_TIME, "b": IN_TIME})
    on: str | None = "n1"
    withdrawn: int = 0
    told: int = 1


def spared(make: Scene, happens: Happens, on: str | None) -> Case:
    """The plan ends before anybody is asked, and both notices are taken off."""
    return Case(make.but(at(8.0, happens)), {}, on, 2)


P_GOES, Q_GOES = does("withdraw", "p"), does("withdraw", "q")
NO_TIME = (SECONDS, 60.0)
CASES = {
    "nobody answers": Case(two_victims()),
    "one is ready": Case(two_victims(at(5.0, ready("a"))), {"a": AT_ONCE, "b": IN_TIME}),
    "they were ready before the notice, as in a template": Case(two_victims(at(0.0, ready("a", "b")))),
    "by delete": Case(two_victims(at(5.0, ready("b")), eviction=EvictionMode.DELETE), {"a": IN_TIME, "b": AT_ONCE}),
    "one is deleted by somebody else": Case(two_victims(at(8.0, does("leave", "a"))), {"b": IN_TIME}),
    "the notice is longer than a plan may take": Case(two_victims(plan_timeout=5.0)),
    **{f"the policy gives {by:g} s by then": Case(two_victims(at(8.0, gives(by)))) for by in (0.0, 5.0, 60.0)},
    "of a group on two nodes both are ready": Case(
        WIDE_GROUP(at(4.0, ready("v1")), at(9.0, ready("v2"))), dict.fromkeys(("v1", "v2"), (9.0, 11.0))
    ),
    "of a group on two nodes one is ready": Case(
        WIDE_GROUP(at(4.0, ready("v1"))), dict.fromkeys(("v1", "v2"), IN_TIME), "n2"
    ),
    "it fits elsewhere": spared(two_victims(KEPT, nodes=2), does("leave", "kept"), "n2"),
    "it fits without them": spared(WITH_ROOM_TO_COME, does("leave", "kept"), "n1"),
    "the preemptor is deleted": spared(two_victims(), P_GOES, None),
    "the preemptor is deleted as the answer to a notice is lost": Case(
        two_victims(shown_at_once, as_it_is_told("a", goes_as_an_answer_is_lost, done=True)), {}, None, 2
    ),
    "its class was made again": spared(two_victims(), made_again, ""),
    "its class is managed no more": spared(two_victims(), manage_another, ""),
    "a budget keeps one of them": spared(two_victims(TWO_OF_A_BUDGET), does("allow", "v", 1), ""),
    "notices cannot be taken off at first": spared(two_victims(at(7.9, trouble(500, times=12))), P_GOES, None),
    **{
        f"it is deleted, and {where} change all the time": spared(changing(where), P_GOES, None)
        for where in ("annotations", "labels")
    },
    **{
        f"writes of notices are answered with {status}, {'done' if done else 'not done'}": Case(
            two_victims(trouble(status, done=done, times=2 if done else 3)), dict.fromkeys("ab", (SECONDS, SECONDS + 8))
        )
        for status in (409, 500)
        for done in (False, True)
    },
    "nobody may be told for half a minute": Case(
        two_victims(trouble(403, until=30.0)), dict.fromkeys("ab", (30.0 + SECONDS, 300.0))
    ),
    "two plans need one pod": Case(SHARING(), {"v": IN_TIME}),
    "the first of two plans for one pod ends": Case(SHARING(at(8.0, P_GOES)), {"v": NO_TIME}, None, 1, 2),
    "the second of two plans for one pod tells it while the first one's notice is taken off": Case(
        SHARING(hearing(told_while_it_is_read), at(8.0, P_GOES)), {"v": NO_TIME}, None, 1, 2
    ),
    "the second of two plans tells it, without an answer, as the first one's notice stays": Case(
        SHARING(
            shown_at_once,
            *(at(7.9, as_it_is_told("v", fails)), at(8.0, P_GOES)),
            *(at(8.0001, does("hold_watch", 6.0)), at(8.001, as_it_is_told("v", fails, done=True))),
            at(8.05, as_it_is_told("v", takes_a_second)),
        ),
        {"v": (8.0 + SECONDS, 60.0)},
        *(None, 0, 2),
    ),
    "the second of two plans for one pod ends": Case(SHARING(at(8.0, Q_GOES)), {"v": IN_TIME}),
    "of two plans that told one pod, under one leader each, the later one ends": Case(
        TOLD_TWICE(at(22.0, P_GOES)), {"v": (22.0 + SECONDS, 60.0)}, None, 1, 3
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_notices(name: str):
    """Who goes is told once for each plan, and has the time that was promised; who stays has the notice taken off."""
    case = CASES[name]
    made = lived(case.make)
    asked = {uid.removeprefix("uid-"): at for uid, at in made.record.asked_at.items()}
    assert asked.keys() == set(made.evicted) == set(case.asked)
    assert [name for name, (earliest, latest) in case.asked.items() if not earliest <= asked[name] < latest] == []
    assert {len(times) for times in made.record.notices.values()} == {case.told}
    assert made.record.withdrawn == case.withdrawn
    assert (made.pods["p"]["spec"].get("nodeName", "") if "p" in made.pods else None) == case.on
    assert bound(made, "q") == [name for name in ("q",) if name in made.pods]
    assert made.remembered() == []


def test_nothing_is_decided_in_the_meantime():
    """Neither the notices nor an answer from a pod that is to wait have anybody tried again."""
    made = lived(two_victims(at(3.0, ready("p"))), SECONDS - 5)
    said = [line["message"] for line in made.told]
    assert said == ["decision", "notice", "notice", "plan ended"], made.told  # the last one by the end of the test


@table(
    "happens, gone",
    ("nobody answers", [], ["a", "b"]),
    ("one is ready", [at(5.0, ready("a"))], ["a", "b"]),
    ("notices are taken off", [at(8.0, P_GOES)], []),
)
def test_killed_at_every_step(happens: list[Happens], gone: list[str]):
    """Whichever step is the last of a process, the next one gives nobody the time twice, asks nobody too early.

    Nobody keeps a notice of a plan that is over.
    """
    for step, made in killed_at_each_step(two_victims(*happens)):
        assert (sorted(made.evicted), bound(made, "p")) == (gone, ["p"] if gone else []), step
        assert max(made.record.asked_at.values(), default=0.0) < SECONDS + 4, f"{step}: somebody had the time twice"
        assert not any({NOTICE, READY} & pod["metadata"]["annotations"].keys() for pod in made.pods.values()), step
        assert made.remembered() == []
    assert step >= 8


@pytest.mark.parametrize("ahead", [-6.0, 0.0, 6.0])
@pytest.mark.parametrize("end", [0.05, 0.2, 1.0, 5.0, 12.0, SECONDS - 0.1, SECONDS + 0.1, SECONDS + 2.0])
def test_another_leader_with_another_clock(end: float, ahead: float):
    """What a victim was told holds, as well as clocks agree; nobody has the whole time again."""
    made = lived(two_victims(led(end, gap=0.5, ahead=ahead)))
    assert (sorted(made.evicted), made.pods["p"]["spec"]["nodeName"]) == (["a", "b"], "n1")
    assert max(made.record.asked_at.values()) < SECONDS + abs(ahead) + 4


def test_a_victim_that_is_gone_before_the_watch_shows_it():
    """It is told once that it cannot be told, and the plan goes on with the other one."""
    writes = []
    count = hearing(lambda _, verb, name, __: writes.append(name) if verb == "patch" else None)
    leaves = on_request(lambda made: (made.hold_watch(3.0), made.leave("a")), "patch", of="p", done=True)
    assert lived(two_victims(having(ends_after={"a": 0.0}), count, leaves)).evicted == ["b"]
    assert writes.count("a") <= 1
    assert len(writes) < 12


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("budget", [[], [TWO_OF_A_BUDGET]], ids=["no budget", "budget"])
@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("notice", [0.0, SECONDS])
def test_a_victim_that_changes_all_the_time(notice: float, mode: EvictionMode, budget: list[Happens], where: str):
    """Whoever may change a pod cannot keep it by that: it is told, judged again a few times, and goes."""
    made = lived(changing(where, *budget, eviction=mode, notice=notice))
    assert (sorted(made.evicted), bound(made, "p"), made.remembered()) == (["a", "b"], ["p"], [])


def put_off(made: Cluster) -> None:
    """The victim writes a later end into its notice, and the answer is lost."""
    notice = written_on(made.pods["a"], NOTICE)
    assert notice is not None
    annotated("a", {NOTICE: json.dumps({**notice, "by": "2127-01-01T00:00:00Z"})})(made)
    raise ApiError(500, "", "the answer is lost")


NO_ROOM = trouble(422, of="a")
PUT_OFF = as_it_is_told("a", put_off, done=True)


@table(
    "happens",
    ("if the answer was lost the pod is read: what it says by then holds only if it is no later", PUT_OFF),
    ("without room for annotations the Event tells it: with a notice a plan of others would end", NO_ROOM),
)
def test_a_victim_makes_its_time_neither_longer_nor_shorter(happens: Happens):
    """Whatever it writes on itself, it has the same time as others."""
    made = lived(two_victims(happens), is_judged=False)
    assert (sorted(made.evicted), bound(made, "p")) == (["a", "b"], ["p"])
    assert min(made.record.asked_at.values()) >= SECONDS
    assert max(made.record.asked_at.values()) < SECONDS + 8
    assert sorted(line["victim"] for line in made.told if line["message"] == "notice") == ["default/a", "default/b"]
