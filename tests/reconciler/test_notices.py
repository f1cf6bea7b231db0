"""Victims are told before they are asked to leave, keep their time whoever leads, and are told if they may stay."""

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import plain_gang
from tests.reconciler.harness.notice_judge import NoticeJudge, say_ready
from tests.reconciler.harness.pods import GANG, Json, preemptor, victim
from tests.reconciler.harness.scenarios import bound, faultless, lived, simulated, two_victims
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import EvictionMode, GroupDisruption, Groups
from webhook.policy.model.values import NOTICE, READY
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SECONDS = 20.0
TOLD = Victims(notice=SECONDS)
lived = partial(lived, judge=NoticeJudge, seconds=120.0)


def with_room_to_come() -> Cluster:
    """Two victims beside a pod whose room would do."""
    made = simulated(node("n1", "8"), under=policy(victims=TOLD))
    made.add(victim("a", "n1", "2"), victim("b", "n1", "2"), victim("kept", "n1", "4", priority=200))
    made.put(preemptor(cpu="4"))
    return made


def with_a_budget(**fields: Any) -> Cluster:
    """Two victims of a budget that lets both go."""
    made = two_victims(**fields)
    made.budgets["b"] = budget("b", {"app": "v"}, 2)
    return made


def use_up(made: Cluster) -> None:
    """The budget lets only one of them go."""
    made.budgets["b"]["status"]["disruptionsAllowed"] = 1
    made.show_budget(made.budgets["b"])


def manage_another(made: Cluster) -> None:
    """The policy does not manage the preemptor's class any more."""
    preemptors = msgspec.structs.replace(made.policy.preemptors, priority_classes=("another",))
    made.use(msgspec.structs.replace(made.policy, preemptors=preemptors))


def give(seconds: float, made: Cluster) -> None:
    """The policy gives another notice from now on."""
    made.outcomes.outside("the policies were changed")
    made.use(msgspec.structs.replace(made.policy, victims=Victims(notice=seconds)))


def wide_group() -> Cluster:
    """A group that goes whole, on two nodes."""
    under = policy(victims=TOLD, groups=Groups(disruption=GroupDisruption.GROUP))
    made = simulated(node("n0", "8"), node("n1", "8"), under=under)
    for number in range(2):
        made.put(victim(f"v{number}", f"n{number}", "8", grace=1, **{GANG: "wide"}))
    made.put(preemptor(cpu="5"))
    return made


def sharing() -> Cluster:
    """Two preemptors that share the room of one victim."""
    made = simulated(node("n1", "8"), under=policy(victims=TOLD))
    made.add(victim("v", "n1", "8"), preemptor("p"), preemptor("q"))
    return made


class Trouble:
    """Answers of the server to writes of notices, so many `times`: an error, before the write is `done` or after."""

    def __init__(self, made: Cluster, error: ApiError, *, times: int, done: bool = False) -> None:
        self.left, self._error = times, error
        (made.answered if done else made.arriving).append(self._hear)

    def _hear(self, verb: str, _: str, body: Json) -> None:
        if verb == "patch" and self.left and NOTICE in (body["metadata"].get("annotations") or {}):
            self.left -= 1
            raise self._error


def in_trouble(status: int, **fields: Any) -> Cluster:
    """Two victims whose notices the server answers like that."""
    made = two_victims()
    made.trouble = Trouble(made, ApiError(status, "", "trouble"), **fields)
    return made


def cannot_be_taken_off(made: Cluster) -> None:
    """The preemptor goes, and the server is in trouble for a while."""
    made.withdraw("p")
    made.trouble.left = 12


def count(where: str, made: Cluster, name: str) -> None:
    """Somebody counts in a label or an annotation of a pod."""
    pod = copy.deepcopy(made.pods[name])
    pod["metadata"][where]["count"] = str(int(pod["metadata"][where].get("count", "0")) + 1)
    made.put(pod)


def changing(where: str, *, covered: bool = False, **fields: Any) -> Cluster:
    """Two victims, of which pod a changes in that way whenever a request for it arrives."""
    made = with_a_budget(**fields) if covered else two_victims(**fields)
    made.arriving.append(lambda _verb, name, _: count(where, made, "a") if name == "a" in made.pods else None)
    return made


IN_TIME = (SECONDS, SECONDS + 3)
AT_ONCE = (5.0, 6.0)
KEPT = victim("kept", "n2", "8", priority=200)


class Case(NamedTuple):
    """A cluster and what happens in it; where p is in the end, and when who was asked: all of these go, nobody else."""

    make: Callable[[], Cluster]
    happens: Mapping[str, Callable[[Cluster], object]] = MappingProxyType({})
    asked: Mapping[str, tuple[float, float]] = MappingProxyType({"a": IN_TIME, "b": IN_TIME})
    on: str | None = "n1"
    withdrawn: int = 0
    told: int = 1
    seconds: float = 120.0


def spared(make: Callable[[], Cluster], happens: Callable[[Cluster], object], on: str | None) -> Case:
    """The plan ends before anybody is asked, and both notices are taken off."""
    return Case(make, {"at_8": happens}, {}, on, 2)


CASES = {
    "nobody answers": Case(two_victims),
    "one is ready": Case(two_victims, {"at_5": lambda made: say_ready(made, "a")}, {"a": AT_ONCE, "b": IN_TIME}),
    "they were ready before the notice, as in a template": Case(
        two_victims, {"at_0": lambda made: [say_ready(made, name) for name in "ab"]}
    ),
    "by delete": Case(
        partial(two_victims, eviction=EvictionMode.DELETE),
        {"at_5": lambda made: say_ready(made, "b")},
        {"a": IN_TIME, "b": AT_ONCE},
    ),
    "one is deleted by somebody else": Case(two_victims, {"at_8": lambda made: made.leave("a")}, {"b": IN_TIME}),
    "the notice is longer than a plan may take": Case(partial(two_victims, plan_timeout=5.0)),
    **{f"the policy gives {at:g} s by then": Case(two_victims, {"at_8": partial(give, at)}) for at in (0.0, 5.0, 60.0)},
    "of a group on two nodes both are ready": Case(
        wide_group,
        {"at_4": lambda made: say_ready(made, "v0"), "at_9": lambda made: say_ready(made, "v1")},
        dict.fromkeys(("v0", "v1"), (9.0, 11.0)),
        "n0",
    ),
    "of a group on two nodes one is ready": Case(
        wide_group, {"at_4": lambda made: say_ready(made, "v0")}, dict.fromkeys(("v0", "v1"), IN_TIME)
    ),
    "it fits elsewhere": spared(partial(two_victims, KEPT, nodes=2), lambda made: made.leave("kept"), "n2"),
    "it fits without them": spared(with_room_to_come, lambda made: made.leave("kept"), "n1"),
    "the preemptor is deleted": spared(two_victims, lambda made: made.withdraw("p"), None),
    "its class is managed no more": spared(two_victims, manage_another, ""),
    "a budget keeps one of them": spared(with_a_budget, use_up, ""),
    "notices cannot be taken off at first": spared(partial(in_trouble, 500, times=0), cannot_be_taken_off, None),
    **{
        f"it is deleted, and {where} change all the time": spared(
            partial(changing, where), lambda made: made.withdraw("p"), None
        )
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
        seconds=300.0,
    ),
    "two plans need one pod": Case(sharing, {}, {"v": IN_TIME}),
    "the first of two plans for one pod ends": Case(
        sharing, {"at_8": lambda made: made.withdraw("p")}, {"v": (SECONDS, 60.0)}, None, 1, 2
    ),
    "the second of two plans for one pod ends": Case(
        sharing, {"at_8": lambda made: made.withdraw("q")}, {"v": IN_TIME}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_notices(name: str):
    """Who goes is told once for each plan, and has the time that was promised; who stays has the notice taken off."""
    case = CASES[name]
    made, judge = lived(case.make, seconds=case.seconds, **case.happens)
    assert faultless(made, judge)
    assert {uid.removeprefix("uid-") for uid in judge.asked} == set(made.evicted) == set(case.asked)
    for gone, (earliest, latest) in case.asked.items():
        assert earliest <= judge.asked[f"uid-{gone}"] < latest, gone
    assert {len(times) for times in judge.told.values()} == {case.told}
    assert judge.withdrawn == case.withdrawn
    assert (made.pods["p"]["spec"].get("nodeName", "") if "p" in made.pods else None) == case.on
    assert bound(made, "q") == [name for name in ("q",) if name in made.pods]
    assert not hasattr(made, "trouble") or made.trouble.left == 0


def test_nothing_is_decided_in_the_meantime():
    """Neither the notices nor an answer from a pod that is to wait have anybody tried again."""
    made, _ = lived(two_victims, seconds=SECONDS - 5, at_3=lambda made: say_ready(made, "p"))
    said = [line["message"] for line in made.told]
    assert said == ["decision", "notice", "notice", "plan ended"], made.told  # the last one by the end of the test


@pytest.mark.parametrize(
    ("happens", "gone"),
    [
        pytest.param({}, ["a", "b"], id="nobody answers"),
        pytest.param({"at_5": lambda made: say_ready(made, "a")}, ["a", "b"], id="one is ready"),
        pytest.param({"at_8": lambda made: made.withdraw("p")}, [], id="notices are taken off"),
    ],
)
def test_killed_at_every_step(happens: dict[str, Callable[[Cluster], object]], gone: list[str]):
    """Whichever step is the last of a process, the next one gives nobody the time twice, asks nobody too early.

    Nobody keeps a notice of a plan that is over.
    """
    steps = lived(two_victims, **happens)[0].steps
    assert steps >= 8
    for step in range(1, steps + 1):
        made, judge = lived(two_victims, killed_at=step, **happens)
        assert faultless(made, judge), step
        assert (sorted(made.evicted), bound(made, "p")) == (gone, ["p"] if gone else []), step
        assert max(judge.asked.values(), default=0.0) < SECONDS + 4, f"step {step}: somebody had the time twice"
        assert not any({NOTICE, READY} & pod["metadata"]["annotations"].keys() for pod in made.pods.values()), step


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_a_gang_killed_at_every_step(whole: bool):
    """Each victim of a gang's plans has its notice once, and all members are bound."""
    make = partial(plain_gang, whole=whole, victims=TOLD)
    for step in range(lived(make)[0].steps + 1):
        made, judge = lived(make, killed_at=step)
        assert faultless(made, judge), step
        assert len(made.evicted) == len(bound(made, "gang")) == 3, step
        assert max(judge.asked.values()) < SECONDS + 8, step


@pytest.mark.parametrize("ahead", [-6.0, 0.0, 6.0])
@pytest.mark.parametrize("at", [0.05, 0.2, 1.0, 5.0, 12.0, SECONDS - 0.1, SECONDS + 0.1, SECONDS + 2.0])
def test_another_leader_with_another_clock(at: float, ahead: float):
    """What a victim was told holds, as well as clocks agree; nobody has the whole time again."""

    def make() -> Cluster:
        made = two_victims()
        made.terms = [(0.0, at, 0.0), (at + 0.5, math.inf, ahead)]
        return made

    made, judge = lived(make)
    assert faultless(made, judge)
    assert (sorted(made.evicted), made.pods["p"]["spec"]["nodeName"]) == (["a", "b"], "n1")
    assert max(judge.asked.values()) < SECONDS + abs(ahead) + 4


def test_a_victim_that_is_gone_before_the_watch_shows_it():
    """It is told once that it cannot be told, and the plan goes on with the other one."""
    writes = []

    def make() -> Cluster:
        made = two_victims()
        made.ends_after["a"] = 0.0
        made.arriving.append(lambda verb, name, _: writes.append(name) if verb == "patch" else None)

        def leave(_: object, new: Json | None) -> None:
            if new is not None and new["metadata"]["name"] == "p" and new["status"].get("nominatedNodeName"):
                made.changes.remove(leave)
                made.hold_watch(3.0)
                made.leave("a")

        made.changes.append(leave)
        return made

    made, judge = lived(make)
    assert faultless(made, judge)
    assert made.evicted == ["b"]
    assert writes.count("a") <= 1
    assert len(writes) < 12


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("covered", [False, True], ids=["no budget", "budget"])
@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("notice", [0.0, SECONDS])
def test_a_victim_that_changes_all_the_time(notice: float, mode: EvictionMode, covered: bool, where: str):
    """Whoever may change a pod cannot keep it by that: it is told, judged again a few times, and goes."""
    made, judge = lived(partial(changing, where, covered=covered, eviction=mode, notice=notice))
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert not made.outcomes.in_vain
    if notice:
        assert faultless(made, judge)


def test_a_victim_whose_annotations_have_no_room():
    """The Event tells it, and it has the same time as others; with a notice a plan of others would end for it."""

    def full(verb: str, name: str, body: dict[str, Any]) -> None:
        if verb == "patch" and name == "a" and (body["metadata"].get("annotations") or {}).get(NOTICE):
            raise ApiError(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")

    def make() -> Cluster:
        made = two_victims()
        made.arriving.append(full)
        return made

    made, judge = lived(make)
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert min(judge.asked.values()) >= SECONDS
    assert [line["victim"] for line in made.told if line["message"] == "notice"] == ["default/a", "default/b"]
