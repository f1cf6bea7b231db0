"""Notices of victims that go together, of plans that share one, and of plans that meet trouble."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import preemptor, victim
from tests.reconciler.gang_clusters import group, members
from tests.reconciler.gang_clusters import victim as member_of
from tests.reconciler.notice_judge import NOTICE, NoticeJudge, say_ready
from tests.reconciler.simulated_api import SimulatedApi
from tests.reconciler.simulation import Simulation
from tests.reconciler.test_notices import SECONDS, faultless, lived, two_victims
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import EvictionMode, GroupDisruption, Groups
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

TOLD = Victims(notice=SECONDS)


def gang(*, whole: bool) -> tuple[Simulation, NoticeJudge]:
    """Three full nodes with two victims each, and a gang of three that needs one of each; in groups if `whole`."""
    under = policy(victims=TOLD, groups=Groups(disruption=GroupDisruption.GROUP if whole else GroupDisruption.POD))
    made = Simulation(under, [node(f"n{number}", "8") for number in range(3)], [], random.Random(1))
    made.groups = [group("gang", 3)]
    for number in range(3):
        for half in "ab":
            made.put(member_of(f"v{number}{half}", f"n{number}", 4, of=half if whole else ""))
    for one in members("gang", 3, 4):
        made.put(one)
    return made, NoticeJudge(made, SECONDS)


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_a_gang_killed_at_every_step(whole: bool):
    """Each victim of a gang's plans has its notice once, and all members are bound."""
    steps = lived(lambda: gang(whole=whole))[0].steps
    for step in range(steps + 1):

        def make(step: int = step):
            made, judge = gang(whole=whole)
            made.killed_at = frozenset({step})
            return made, judge

        made, judge = lived(make)
        assert faultless(made, judge), step
        assert len(made.evicted) == 3, step
        assert all(made.pods[f"gang-{number}"]["spec"].get("nodeName") for number in range(3)), step
        assert max(judge.asked.values()) < SECONDS + 8, step


def test_a_group_on_several_nodes_goes_when_all_of_it_is_ready():
    """One that is ready waits for the others of its group, wherever they are; then all go at once."""

    def make() -> tuple[Simulation, NoticeJudge]:
        under = policy(victims=TOLD, groups=Groups(disruption=GroupDisruption.GROUP))
        made = Simulation(under, [node(f"n{number}", "8") for number in range(2)], [], random.Random(1))
        for number in range(2):
            made.put(member_of(f"v{number}", f"n{number}", 8, of="wide"))
        made.put(preemptor(cpu="5"))
        return made, NoticeJudge(made, SECONDS)

    made, judge = lived(make, at_4=lambda made: say_ready(made, "v0"), at_9=lambda made: say_ready(made, "v1"))
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["v0", "v1"]
    assert all(9.0 <= at < 11.0 for at in judge.asked.values())
    made, judge = lived(make, at_4=lambda made: say_ready(made, "v0"))
    assert faultless(made, judge)
    assert min(judge.asked.values()) >= SECONDS


def test_by_delete():
    """It is the same where victims are deleted."""
    made, judge = lived(lambda: two_victims(eviction=EvictionMode.DELETE), at_5=lambda made: say_ready(made, "b"))
    assert faultless(made, judge)
    assert judge.asked["uid-b"] < 6.0 < SECONDS <= judge.asked["uid-a"]
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_two_plans_that_need_one_pod():
    """The second preemptor shares the room of the first one's victims; the first is deleted, the second goes on."""

    def make() -> tuple[Simulation, NoticeJudge]:
        under = policy(victims=TOLD)
        made = Simulation(under, [node("n1", "8")], [], random.Random(1))
        made.put(victim("v", "n1", "8"))
        for name in ("p", "q"):
            made.put(preemptor(name, cpu="4"))
        return made, NoticeJudge(made, SECONDS)

    made, judge = lived(make)
    assert faultless(made, judge)
    assert (made.evicted, len(judge.told["uid-v"])) == (["v"], 1)
    assert {made.pods[name]["spec"]["nodeName"] for name in ("p", "q")} == {"n1"}
    for first in ("p", "q"):
        made, judge = lived(make, at_8=lambda made, first=first: made.withdraw(first))
        assert faultless(made, judge), first
        left = {"p": "q", "q": "p"}[first]
        assert made.pods[left]["spec"]["nodeName"] == "n1"
        assert made.evicted == ["v"]


@pytest.mark.parametrize("seconds", [0.0, 5.0, 60.0])
def test_a_policy_that_changes_keeps_what_was_promised(seconds: float):
    """Whatever the policy says by then, who was told goes when it was told."""

    def change(made: Simulation) -> None:
        made.outcomes.outside("the policies were changed")
        made.use(msgspec.structs.replace(made.policy, victims=Victims(notice=seconds)))

    made, judge = lived(at_8=change)
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["a", "b"]
    assert all(SECONDS <= at < SECONDS + 3 for at in judge.asked.values())


def test_a_policy_that_manages_the_class_no_more():
    """The plan ends, and both notices are taken off."""

    def change(made: Simulation) -> None:
        preemptors = msgspec.structs.replace(made.policy.preemptors, priority_classes=("another",))
        made.use(msgspec.structs.replace(made.policy, preemptors=preemptors))

    made, judge = lived(at_8=change)
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn) == ([], 2)


def test_a_budget_that_is_used_up_meanwhile():
    """A victim is kept by then: the plan ends before anybody is asked, and both notices are taken off."""

    def make() -> tuple[Simulation, NoticeJudge]:
        made, judge = two_victims()
        made.budgets["b"] = budget("b", {"app": "v"}, 2)
        return made, judge

    def use_up(made: Simulation) -> None:
        made.budgets["b"]["status"]["disruptionsAllowed"] = 1
        made.show_budget(made.budgets["b"])

    made, judge = lived(make, at_8=use_up)
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn) == ([], 2)


class Trouble:
    """Answers of the server to writes of notices, so many `times`: an error, before the write is `done` or after."""

    def __init__(self, patch: pytest.MonkeyPatch, error: ApiError, *, times: int, done: bool = False) -> None:
        self.left = times
        write = SimulatedApi.patch

        async def answer(api: SimulatedApi, path: str, body: dict, **more):
            told = NOTICE in (body["metadata"].get("annotations") or {})
            if not told or not self.left:
                return await write(api, path, body, **more)
            self.left -= 1
            if done:
                await write(api, path, body, **more)
            raise error

        patch.setattr(SimulatedApi, "patch", answer)


@pytest.mark.parametrize("done", [False, True], ids=["lost before", "lost after"])
@pytest.mark.parametrize("status", [409, 500])
def test_writes_of_notices_that_get_no_answer(status: int, done: bool, monkeypatch: pytest.MonkeyPatch):
    """They are written again, or found to be there; nobody is told twice, and nobody is asked too early."""
    Trouble(monkeypatch, ApiError(status, "", "trouble"), done=done, times=3)
    made, judge = lived()
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["a", "b"]
    assert [len(times) for times in judge.told.values()] == [1, 1]


def test_a_server_that_lets_nobody_be_told(monkeypatch: pytest.MonkeyPatch):
    """Without a notice nobody is asked: the plan fails, and is tried again."""
    trouble = Trouble(monkeypatch, ApiError(403, "Forbidden", "an admission policy"), times=10**6)
    made, judge = lived(seconds=300.0, at_30=lambda _: setattr(trouble, "left", 0))
    assert faultless(made, judge)
    assert min(judge.asked.values()) >= 30.0 + SECONDS
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_notices_that_cannot_be_taken_off_at_first(monkeypatch: pytest.MonkeyPatch):
    """It is tried until it works."""
    trouble = Trouble(monkeypatch, ApiError(500, "", "trouble"), times=0)

    def delete(made: Simulation) -> None:
        made.withdraw("p")
        trouble.left = 12

    made, judge = lived(at_8=delete)
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn, trouble.left) == ([], 2, 0)


def test_a_victim_that_is_gone_before_the_watch_shows_it(monkeypatch: pytest.MonkeyPatch):
    """It is told once that it cannot be told, and the plan goes on with the other one."""
    writes = []
    write = SimulatedApi.patch

    async def count(api: SimulatedApi, path: str, body: dict, **more):
        writes.append(path)
        return await write(api, path, body, **more)

    monkeypatch.setattr(SimulatedApi, "patch", count)

    def make() -> tuple[Simulation, NoticeJudge]:
        made, judge = two_victims()
        made.ends_after["a"] = 0.0

        def leave(_: object, new: dict | None) -> None:
            if new is not None and new["metadata"]["name"] == "p" and new["status"].get("nominatedNodeName"):
                made.changes.remove(leave)
                made.hold_watch(3.0)
                made.leave("a")

        made.changes.append(leave)
        return made, judge

    made, judge = lived(make)
    assert faultless(made, judge)
    assert made.evicted == ["b"]
    assert len([path for path in writes if "/a/" in path]) <= 1
    assert len(writes) < 12
