"""Notices of victims that go together, of plans that share one, and of plans that meet trouble."""

from functools import partial

import msgspec
import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.gangs import plain_gang
from tests.reconciler.harness.notice_judge import NOTICE, NoticeJudge, say_ready
from tests.reconciler.harness.pods import GANG, Json, preemptor, victim
from tests.reconciler.harness.scenarios import bound, faultless, lived, simulated, two_victims
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import EvictionMode, GroupDisruption, Groups
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SECONDS = 20.0
TOLD = Victims(notice=SECONDS)
lived = partial(lived, judge=NoticeJudge, seconds=120.0)


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_a_gang_killed_at_every_step(whole: bool):
    """Each victim of a gang's plans has its notice once, and all members are bound."""
    make = partial(plain_gang, whole=whole, victims=TOLD)
    for step in range(lived(make)[0].steps + 1):
        made, judge = lived(make, killed_at=step)
        assert faultless(made, judge), step
        assert len(made.evicted) == len(bound(made, "gang")) == 3, step
        assert max(judge.asked.values()) < SECONDS + 8, step


def test_a_group_on_several_nodes_goes_when_all_of_it_is_ready():
    """One that is ready waits for the others of its group, wherever they are; then all go at once."""

    def make() -> Cluster:
        under = policy(victims=TOLD, groups=Groups(disruption=GroupDisruption.GROUP))
        made = simulated(node("n0", "8"), node("n1", "8"), under=under)
        for number in range(2):
            made.put(victim(f"v{number}", f"n{number}", "8", grace=1, **{GANG: "wide"}))
        made.put(preemptor(cpu="5"))
        return made

    made, judge = lived(make, at_4=lambda made: say_ready(made, "v0"), at_9=lambda made: say_ready(made, "v1"))
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["v0", "v1"]
    assert all(9.0 <= at < 11.0 for at in judge.asked.values())
    made, judge = lived(make, at_4=lambda made: say_ready(made, "v0"))
    assert faultless(made, judge)
    assert min(judge.asked.values()) >= SECONDS


def test_by_delete():
    """It is the same where victims are deleted."""
    made, judge = lived(partial(two_victims, eviction=EvictionMode.DELETE), at_5=lambda made: say_ready(made, "b"))
    assert faultless(made, judge)
    assert judge.asked["uid-b"] < 6.0 < SECONDS <= judge.asked["uid-a"]
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_two_plans_that_need_one_pod():
    """The second preemptor shares the room of the first one's victims; the first is deleted, the second goes on."""

    def make() -> Cluster:
        made = simulated(node("n1", "8"), under=policy(victims=TOLD))
        for pod in (victim("v", "n1", "8"), preemptor("p"), preemptor("q")):
            made.put(pod)
        return made

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

    def change(made: Cluster) -> None:
        made.outcomes.outside("the policies were changed")
        made.use(msgspec.structs.replace(made.policy, victims=Victims(notice=seconds)))

    made, judge = lived(two_victims, at_8=change)
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["a", "b"]
    assert all(SECONDS <= at < SECONDS + 3 for at in judge.asked.values())


class Trouble:
    """Answers of the server to writes of notices, so many `times`: an error, before the write is `done` or after."""

    def __init__(self, made: Cluster, error: ApiError, *, times: int, done: bool = False) -> None:
        self.left, self._error = times, error
        (made.answered if done else made.arriving).append(self._hear)

    def _hear(self, verb: str, _: str, body: Json) -> None:
        if verb == "patch" and self.left and NOTICE in (body["metadata"].get("annotations") or {}):
            self.left -= 1
            raise self._error


def in_trouble(error: ApiError, **fields: object) -> Cluster:
    """Two victims whose notices the server answers like that."""
    made = two_victims()
    made.trouble = Trouble(made, error, **fields)
    return made


@pytest.mark.parametrize("done", [False, True], ids=["lost before", "lost after"])
@pytest.mark.parametrize("status", [409, 500])
def test_writes_of_notices_that_get_no_answer(status: int, done: bool):
    """They are written again, or found to be there; nobody is told twice, and nobody is asked too early."""
    made, judge = lived(partial(in_trouble, ApiError(status, "", "trouble"), done=done, times=3))
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["a", "b"]
    assert [len(times) for times in judge.told.values()] == [1, 1]


def test_a_server_that_lets_nobody_be_told():
    """Without a notice nobody is asked: the plan fails, and is tried again."""
    make = partial(in_trouble, ApiError(403, "Forbidden", "an admission policy"), times=10**6)
    made, judge = lived(make, seconds=300.0, at_30=lambda made: setattr(made.trouble, "left", 0))
    assert faultless(made, judge)
    assert min(judge.asked.values()) >= 30.0 + SECONDS
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_notices_that_cannot_be_taken_off_at_first():
    """It is tried until it works."""

    def delete(made: Cluster) -> None:
        made.withdraw("p")
        made.trouble.left = 12

    made, judge = lived(partial(in_trouble, ApiError(500, "", "trouble"), times=0), at_8=delete)
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn, made.trouble.left) == ([], 2, 0)


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
