"""Victims are told before they are asked to leave, keep their time whoever leads, and are told if they may stay."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import plain_gang
from tests.reconciler.harness.notice_judge import say_ready
from tests.reconciler.harness.pods import GANG, Json, preemptor, victim
from tests.reconciler.harness.random_clusters import manage_another
from tests.reconciler.harness.scenarios import (
    Happens,
    annotated,
    bound,
    killed_at_each_step,
    led,
    lived,
    on_request,
    simulated,
    two_victims,
)
from webhook.kube.errors import ApiError
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.preemption import EvictionMode, GroupDisruption, Groups
from webhook.policy.model.values import NOTICE, READY
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SECONDS = 20.0
TOLD = Victims(notice=SECONDS)


def with_room_to_come() -> Cluster:
    """Two victims beside a pod whose room would do."""
    made = simulated("8", victims=TOLD)
    made.add(victim("a", "n1", "2"), victim("b", "n1", "2"), victim("kept", "n1", "4", priority=200))
    made.put(preemptor(cpu="4"))
    return made


def with_a_budget(**fields: Any) -> Cluster:
    """Two victims of a budget that lets both go."""
    made = two_victims(**fields)
    made.cover("v", 2)
    return made


def make_again(made: Cluster) -> None:
    """The preemptor's class has another value."""
    made.show(PRIORITY_CLASS, {"metadata": {"name": "high"}, "value": 7})


def give(seconds: float, made: Cluster) -> None:
    """The policy gives another notice from now on."""
    made.outcomes.outside("the policies were changed")
    made.use(msgspec.structs.replace(made.policy, victims=Victims(notice=seconds)))


def wide_group() -> Cluster:
    """A group that goes whole, on two nodes."""
    made = simulated("8", "8", victims=TOLD, groups=Groups(disruption=GroupDisruption.GROUP))
    made.add(*(victim(f"v{number}", f"n{number}", "8", grace=1, **{GANG: "wide"}) for number in (1, 2)))
    made.put(preemptor(cpu="5"))
    return made


def sharing() -> Cluster:
    """Two preemptors that share the room of one victim."""
    made = simulated("8", victims=TOLD)
    made.add(victim("v", "n1", "8"), preemptor("p"), preemptor("q"))
    return made


def told_while_it_is_read() -> Cluster:
    """Two preemptors that share one victim; this changes as its notice is taken off, and is read for a second then."""
    made, calls = sharing(), list[tuple[str, str]]()

    async def hear(verb: str, name: str, body: Json) -> None:
        notice = (body.get("metadata", {}).get("annotations") or {}).get(NOTICE, "") if verb == "patch" else ""
        calls.append((verb, name))
        if notice is None and not made.notices.withdrawn and ("get", "v") not in calls:
            annotated(made, "v", {"changed": "yes"})
        elif (verb, name) == ("get", "v") or notice:
            await asyncio.sleep(1.0)

    made.arriving.append(hear)
    return made


class Trouble:
    """Answers of the server to writes of notices, so many `times`: an error, before the write is `done` or after."""

    def __init__(self, made: Cluster, status: int, *, times: int, done: bool = False) -> None:
        self.left, self._error = times, ApiError(status, "", "trouble")
        (made.answered if done else made.arriving).append(self._hear)

    def _hear(self, verb: str, _: str, body: Json) -> None:
        if verb == "patch" and self.left and NOTICE in (body["metadata"].get("annotations") or {}):
            self.left -= 1
            raise self._error


def in_trouble(status: int, **fields: Any) -> Cluster:
    """Two victims whose notices the server answers like that."""
    made = two_victims()
    made.trouble = Trouble(made, status, **fields)
    return made


def cannot_be_taken_off(made: Cluster) -> None:
    """The preemptor goes, and the server is in trouble for a while."""
    made.withdraw("p")
    made.trouble.left = 12


def changing(where: str, *, covered: bool = False, **fields: Any) -> Cluster:
    """Two victims; somebody counts in labels or annotations of pod a whenever a request for it arrives."""
    made = with_a_budget(**fields) if covered else two_victims(**fields)
    verbs = ("patch", "try", "evict", "delete", "get")
    count = iter(range(1, 10**6))
    return on_request(made, lambda: annotated(made, "a", {"count": str(next(count))}, where), *verbs, of="a", times=1e6)


IN_TIME = (SECONDS, SECONDS + 3)
AT_ONCE = (5.0, 6.0)
KEPT = victim("kept", "n2", "8", priority=200)


def ready(*names: str) -> Happens:
    """These say that they need not be waited for."""
    return lambda made: [say_ready(made, name) for name in names]


def leaves(name: str) -> Happens:
    """Somebody deletes a pod that runs."""
    return lambda made: made.leave(name)


def withdrawn(name: str) -> Happens:
    """Somebody deletes a pod that waits."""
    return lambda made: made.withdraw(name)


class Case(NamedTuple):
    """A cluster and what happens in it; where p is in the end, and when who was asked: all of these go, nobody else."""

    make: Callable[[], Cluster]
    happens: Mapping[str, Happens] = MappingProxyType({})
    asked: Mapping[str, tuple[float, float]] = MappingProxyType({"a": IN_TIME, "b": IN_TIME})
    on: str | None = "n1"
    withdrawn: int = 0
    told: int = 1


def spared(make: Callable[[], Cluster], happens: Happens, on: str | None) -> Case:
    """The plan ends before anybody is asked, and both notices are taken off."""
    return Case(make, {"at_8": happens}, {}, on, 2)


CASES = {
    "nobody answers": Case(two_victims),
    "one is ready": Case(two_victims, {"at_5": ready("a")}, {"a": AT_ONCE, "b": IN_TIME}),
    "they were ready before the notice, as in a template": Case(two_victims, {"at_0": ready("a", "b")}),
    "by delete": Case(
        partial(two_victims, eviction=EvictionMode.DELETE),
        {"at_5": ready("b")},
        {"a": IN_TIME, "b": AT_ONCE},
    ),
    "one is deleted by somebody else": Case(two_victims, {"at_8": leaves("a")}, {"b": IN_TIME}),
    "the notice is longer than a plan may take": Case(partial(two_victims, plan_timeout=5.0)),
    **{f"the policy gives {at:g} s by then": Case(two_victims, {"at_8": partial(give, at)}) for at in (0.0, 5.0, 60.0)},
    "of a group on two nodes both are ready": Case(
        wide_group,
        {"at_4": ready("v1"), "at_9": ready("v2")},
        dict.fromkeys(("v1", "v2"), (9.0, 11.0)),
    ),
    "of a group on two nodes one is ready": Case(
        wide_group, {"at_4": ready("v1")}, dict.fromkeys(("v1", "v2"), IN_TIME), "n2"
    ),
    "it fits elsewhere": spared(partial(two_victims, KEPT, nodes=2), leaves("kept"), "n2"),
    "it fits without them": spared(with_room_to_come, leaves("kept"), "n1"),
    "the preemptor is deleted": spared(two_victims, withdrawn("p"), None),
    "its class was made again": spared(two_victims, make_again, ""),
    "its class is managed no more": spared(two_victims, manage_another, ""),
    "a budget keeps one of them": spared(with_a_budget, lambda made: made.allow("v", 1), ""),
    "notices cannot be taken off at first": spared(partial(in_trouble, 500, times=0), cannot_be_taken_off, None),
    **{
        f"it is deleted, and {where} change all the time": spared(partial(changing, where), withdrawn("p"), None)
        for where in ("annotations", "labels")
    },
    **{
        f"writes of notices are answered with {status}, {'done' if done else 'not done'}": Case(
            partial(in_trouble, status, done=done, times=2 if done else 3),
            asked=dict.fromkeys("ab", (SECONDS, SECONDS + 8)),
        )
        for status in (409, 500)
        for done in (False, True)
    },
    "nobody may be told for half a minute": Case(
        partial(in_trouble, 403, times=10**6),
        {"at_30": lambda made: setattr(made.trouble, "left", 0)},
        dict.fromkeys("ab", (30.0 + SECONDS, 300.0)),
    ),
    "two plans need one pod": Case(sharing, {}, {"v": IN_TIME}),
    "the first of two plans for one pod ends": Case(
        sharing, {"at_8": withdrawn("p")}, {"v": (SECONDS, 60.0)}, None, 1, 2
    ),
    "the second of two plans for one pod tells it while the first one's notice is taken off": Case(
        told_while_it_is_read, {"at_8": withdrawn("p")}, {"v": (SECONDS, 60.0)}, None, 1, 2
    ),
    "the second of two plans for one pod ends": Case(sharing, {"at_8": withdrawn("q")}, {"v": IN_TIME}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_notices(name: str):
    """Who goes is told once for each plan, and has the time that was promised; who stays has the notice taken off."""
    case = CASES[name]
    made = lived(case.make, **case.happens)
    asked = {uid.removeprefix("uid-"): at for uid, at in made.notices.asked_at.items()}
    assert asked.keys() == set(made.evicted) == set(case.asked)
    assert [name for name, (earliest, latest) in case.asked.items() if not earliest <= asked[name] < latest] == []
    assert {len(times) for times in made.notices.times.values()} == {case.told}
    assert made.notices.withdrawn == case.withdrawn
    assert (made.pods["p"]["spec"].get("nodeName", "") if "p" in made.pods else None) == case.on
    assert bound(made, "q") == [name for name in ("q",) if name in made.pods]
    assert not hasattr(made, "trouble") or made.trouble.left == 0
    assert made.remembered() == []


def test_nothing_is_decided_in_the_meantime():
    """Neither the notices nor an answer from a pod that is to wait have anybody tried again."""
    made = lived(two_victims, SECONDS - 5, at_3=ready("p"))
    said = [line["message"] for line in made.told]
    assert said == ["decision", "notice", "notice", "plan ended"], made.told  # the last one by the end of the test


@pytest.mark.parametrize(
    ("happens", "gone"),
    [
        pytest.param({}, ["a", "b"], id="nobody answers"),
        pytest.param({"at_5": ready("a")}, ["a", "b"], id="one is ready"),
        pytest.param({"at_8": withdrawn("p")}, [], id="notices are taken off"),
    ],
)
def test_killed_at_every_step(happens: dict[str, Happens], gone: list[str]):
    """Whichever step is the last of a process, the next one gives nobody the time twice, asks nobody too early.

    Nobody keeps a notice of a plan that is over.
    """
    for step, made in killed_at_each_step(two_victims, **happens):
        assert (sorted(made.evicted), bound(made, "p")) == (gone, ["p"] if gone else []), step
        assert max(made.notices.asked_at.values(), default=0.0) < SECONDS + 4, f"{step}: somebody had the time twice"
        assert not any({NOTICE, READY} & pod["metadata"]["annotations"].keys() for pod in made.pods.values()), step
        assert made.remembered() == []
    assert step >= 8


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_a_gang_killed_at_every_step(whole: bool):
    """Each victim of a gang's plans has its notice once, and all members are bound."""
    for step, made in killed_at_each_step(partial(plain_gang, whole=whole, victims=TOLD)):
        assert len(made.evicted) == len(bound(made, "gang")) == 3, step
        assert max(made.notices.asked_at.values()) < SECONDS + 8, step


@pytest.mark.parametrize("ahead", [-6.0, 0.0, 6.0])
@pytest.mark.parametrize("at", [0.05, 0.2, 1.0, 5.0, 12.0, SECONDS - 0.1, SECONDS + 0.1, SECONDS + 2.0])
def test_another_leader_with_another_clock(at: float, ahead: float):
    """What a victim was told holds, as well as clocks agree; nobody has the whole time again."""
    made = lived(lambda: led(two_victims(), at, gap=0.5, ahead=ahead))
    assert (sorted(made.evicted), made.pods["p"]["spec"]["nodeName"]) == (["a", "b"], "n1")
    assert max(made.notices.asked_at.values()) < SECONDS + abs(ahead) + 4


def test_a_victim_that_is_gone_before_the_watch_shows_it():
    """It is told once that it cannot be told, and the plan goes on with the other one."""
    writes = []

    def make() -> Cluster:
        made = two_victims()
        made.ends_after["a"] = 0.0
        made.arriving.append(lambda verb, name, _: writes.append(name) if verb == "patch" else None)

        def leave() -> None:
            made.hold_watch(3.0)
            made.leave("a")

        return on_request(made, leave, "patch", of="p", done=True)

    assert lived(make).evicted == ["b"]
    assert writes.count("a") <= 1
    assert len(writes) < 12


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("covered", [False, True], ids=["no budget", "budget"])
@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("notice", [0.0, SECONDS])
def test_a_victim_that_changes_all_the_time(notice: float, mode: EvictionMode, covered: bool, where: str):
    """Whoever may change a pod cannot keep it by that: it is told, judged again a few times, and goes."""
    made = lived(partial(changing, where, covered=covered, eviction=mode, notice=notice))
    assert (sorted(made.evicted), bound(made, "p"), made.remembered()) == (["a", "b"], ["p"], [])


def test_a_victim_makes_its_time_no_longer():
    """If the answer to a notice was lost the pod is read, and what it says by then holds only if it is no later."""

    def make() -> Cluster:
        made, answers = two_victims(), iter([True])

        def put_off(verb: str, name: str, body: dict[str, Any]) -> None:
            text = (body["metadata"].get("annotations") or {}).get(NOTICE) if verb == "patch" and name == "a" else None
            if text and next(answers, False):
                later = msgspec.json.encode({**msgspec.json.decode(text), "by": "2127-01-01T00:00:00Z"}).decode()
                annotated(made, "a", {NOTICE: later})
                raise ApiError(500, "", "the answer is lost")

        made.answered.append(put_off)
        return made

    made = lived(make, is_judged=False)
    assert (sorted(made.evicted), bound(made, "p")) == (["a", "b"], ["p"])
    assert max(made.notices.asked_at.values()) < SECONDS + 8


def test_a_victim_whose_annotations_have_no_room():
    """The Event tells it, and it has the same time as others; with a notice a plan of others would end for it."""

    def full(verb: str, name: str, body: dict[str, Any]) -> None:
        if verb == "patch" and name == "a" and (body["metadata"].get("annotations") or {}).get(NOTICE):
            raise ApiError(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")

    def make() -> Cluster:
        made = two_victims()
        made.arriving.append(full)
        return made

    made = lived(make, is_judged=False)
    assert (sorted(made.evicted), bound(made, "p")) == (["a", "b"], ["p"])
    assert min(made.notices.asked_at.values()) >= SECONDS
    assert [line["victim"] for line in made.told if line["message"] == "notice"] == ["default/a", "default/b"]
