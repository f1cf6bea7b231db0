"""Victims are told before they are asked to leave, keep their time whoever leads, and are told if they may stay."""

import math
from functools import partial

import msgspec
import pytest

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.notice_judge import NoticeJudge, say_ready
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.scenarios import faultless, lived, simulated, two_victims
from webhook.policy.model.values import NOTICE, READY
from webhook.policy.model.victims import Victims

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

SECONDS = 20.0
lived = partial(lived, judge=NoticeJudge, seconds=120.0)


def test_victims_are_told_and_asked_when_that_is_over():
    """Both have the whole time, then both go, and the preemptor is bound."""
    made, judge = lived(two_victims)
    assert faultless(made, judge)
    assert sorted(made.evicted) == ["a", "b"]
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert all(SECONDS <= at - judge.told[uid][0] < SECONDS + 3 for uid, at in judge.asked.items())


def test_who_is_ready_goes_at_once():
    """Each for itself: the other one keeps its time."""
    made, judge = lived(two_victims, at_5=lambda made: say_ready(made, "a"))
    assert faultless(made, judge)
    assert judge.asked["uid-a"] < 6.0
    assert judge.asked["uid-b"] >= SECONDS
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_what_was_said_before_the_notice_is_no_answer():
    """An annotation from before, such as one in a template, shortens nothing."""
    made, judge = lived(two_victims, at_0=lambda made: [say_ready(made, name) for name in ("a", "b")])
    assert faultless(made, judge)
    assert min(judge.asked.values()) >= SECONDS


def with_room_to_come() -> Cluster:
    """Two victims beside a pod whose room would do."""
    made = simulated(node("n1", "8"), under=policy(victims=Victims(notice=SECONDS)))
    made.add(victim("a", "n1", "2"), victim("b", "n1", "2"), victim("kept", "n1", "4", priority=200))
    made.put(preemptor(cpu="4"))
    return made


def with_a_budget() -> Cluster:
    """Two victims of a budget that lets both go."""
    made = two_victims()
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


KEPT = victim("kept", "n2", "8", priority=200)


@pytest.mark.parametrize(
    ("make", "happens", "on"),
    [
        pytest.param(partial(two_victims, KEPT, nodes=2), lambda made: made.leave("kept"), "n2", id="fits elsewhere"),
        pytest.param(with_room_to_come, lambda made: made.leave("kept"), "n1", id="it fits without them"),
        pytest.param(two_victims, lambda made: made.withdraw("p"), None, id="the preemptor is deleted"),
        pytest.param(two_victims, manage_another, "", id="its class is managed no more"),
        pytest.param(with_a_budget, use_up, "", id="a budget keeps one of them"),
    ],
)
def test_what_happens_while_a_notice_lasts(make, happens, on):
    """The plan ends before anybody is asked, and both notices are taken off."""
    made, judge = lived(make, at_8=happens)
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn, judge.asked) == ([], 2, {})
    assert on == (made.pods["p"]["spec"].get("nodeName", "") if "p" in made.pods else None)


def test_a_victim_is_deleted_by_somebody_else():
    """The plan goes on with the other one, which keeps its time."""
    made, judge = lived(two_victims, at_8=lambda made: made.leave("a"))
    assert faultless(made, judge)
    assert (made.evicted, list(judge.asked)) == (["b"], ["uid-b"])
    assert made.pods["p"]["spec"]["nodeName"] == "n1"


def test_a_notice_longer_than_a_plan_may_take():
    """The time of a plan does not run against the notice."""
    made, judge = lived(partial(two_victims, plan_timeout=5.0))
    assert faultless(made, judge)
    assert [line["ending"] for line in made.told if line["message"] == "plan ended"] == ["bound"]


def test_nothing_is_decided_in_the_meantime():
    """Neither the notices nor an answer from a pod that is to wait have anybody tried again."""
    made, _ = lived(two_victims, seconds=SECONDS - 5, at_3=lambda made: say_ready(made, "p"))
    said = [line["message"] for line in made.told]
    assert said == ["decision", "notice", "notice", "plan ended"], made.told  # the last one by the end of the test


@pytest.mark.parametrize("answers", [False, True], ids=["nobody answers", "one is ready"])
def test_killed_at_every_step(answers: bool):
    """Whichever step is the last of a process, the next one gives nobody the time twice, and asks nobody too early."""
    happens = {"at_5": lambda made: say_ready(made, "a")} if answers else {}
    steps = lived(two_victims, **happens)[0].steps
    assert steps >= 8
    for step in range(1, steps + 1):
        made, judge = lived(two_victims, killed_at=step, **happens)
        assert faultless(made, judge), step
        assert sorted(made.evicted) == ["a", "b"], step
        assert made.pods["p"]["spec"]["nodeName"] == "n1", step
        assert max(judge.asked.values()) < SECONDS + 4, f"step {step}: somebody had the time twice"


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


def test_killed_while_notices_are_taken_off():
    """Whichever step is the last of a process, nobody keeps a notice of a plan that is over."""
    gone = {"at_8": lambda made: made.withdraw("p")}
    for step in range(1, lived(two_victims, **gone)[0].steps + 1):
        made, judge = lived(two_victims, killed_at=step, **gone)
        assert faultless(made, judge), step
        assert made.evicted == [], step
        assert not any(NOTICE in pod["metadata"]["annotations"] for pod in made.pods.values()), step
        assert not any(READY in pod["metadata"]["annotations"] for pod in made.pods.values()), step
