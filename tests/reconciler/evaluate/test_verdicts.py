"""One verdict for all preemptors of one shape: who shares it, how long it holds, and what thousands of them cost."""

from __future__ import annotations

import pytest

from tests.reconciler.builders import Desk, Setting, node, pod, policy, preemptor
from webhook.policy.model import Limits
from webhook.reconciler.evaluate.outcomes import Fits, Unschedulable
from webhook.reconciler.evaluate.verdicts import Moment, Verdicts, shape_of

TOKEN = {"volumes": [{"name": "kube-api-access-x", "projected": {}}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}
EPHEMERAL = {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(preemptor("a"), preemptor("b"), True, id="only the name differs"),
        pytest.param(preemptor("a"), preemptor("b", spec=TOKEN), True, id="its token's volume"),
        pytest.param(preemptor("a"), preemptor("b", spec=CLAIM), False, id="a claim"),
        pytest.param(preemptor("a", spec=CLAIM), preemptor("b", spec=CLAIM), True, id="the same claim"),
        pytest.param(preemptor("a", spec=EPHEMERAL), preemptor("b", spec=EPHEMERAL), False, id="claims of their own"),
        pytest.param(preemptor("a"), preemptor("b", "4"), False, id="other amounts"),
        pytest.param(preemptor("a"), preemptor("b", priority=101), False, id="another priority"),
        pytest.param(preemptor("a"), preemptor("b", namespace="other"), False, id="another namespace"),
        pytest.param(preemptor("a"), preemptor("b", labels={"app": "x"}), False, id="other labels"),
    ],
)
def test_who_is_of_one_shape(one, other, same: bool):
    """What a decision reads decides: not the name, but all that the pod asks for."""
    assert (shape_of(one) == shape_of(other)) is same


def verdict(verdicts: Verdicts, outcome, now: float, events: int, back_off: float = 4.0):
    """What is said, and whether it was decided again."""
    moment = Moment(now, events, back_off)
    known = verdicts.find(("p", b"shape"), moment)
    if known is None:
        verdicts.note(("p", b"shape"), moment, outcome)
    return known or outcome, known is None


def test_how_long_a_verdict_holds():
    """As long as nothing happens that could help, and then for the back-off of who was tried; never beyond its time."""
    verdicts, hopeless = Verdicts(), Unschedulable("nothing helps")
    assert verdict(verdicts, hopeless, 100.0, 1) == (hopeless, True)
    assert verdict(verdicts, hopeless, 129.0, 1) == (hopeless, False)
    said, again = verdict(verdicts, hopeless, 102.0, 2, back_off=0.25)
    assert (said.due, again) == (104.0, False), "it is looked again at the end of the back-off"
    assert verdict(verdicts, hopeless, 104.0, 2) == (hopeless, True)
    assert verdict(verdicts, hopeless, 134.0, 2)[1], "not for longer than a preemptor waits without an event"
    soon = Unschedulable("a window ends", due=140.0)
    verdict(verdicts, soon, 138.0, 3)
    assert not verdict(verdicts, soon, 139.0, 3)[1]
    assert verdict(verdicts, soon, 140.0, 3)[1]


def test_only_that_nothing_helps_is_shared():
    """What fits, or is evicted for, is worked out for each."""
    verdicts = Verdicts()
    assert verdict(verdicts, Fits(("n1",)), 1.0, 1)[1]
    assert verdict(verdicts, Fits(("n1",)), 1.0, 1)[1]
    assert len(verdicts) == 0


def counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For whom it is really decided."""
    decided, evaluate = [], desk.reconciler.evaluator.evaluate

    def counting(one, *args, **more):
        decided.append(one.metadata.name)
        return evaluate(one, *args, **more)

    monkeypatch.setattr(desk.reconciler.evaluator, "evaluate", counting)
    return decided


async def test_a_thousand_alike_cost_one_decision(monkeypatch: pytest.MonkeyPatch):
    """Each is told why it waits; an event that could help costs one decision more, and who can be helped is helped."""
    setting = Setting(node("n1", "8"))
    setting.add(pod("high", "8", node="n1", priority=200))
    desk = Desk(setting)
    decided = counted(desk, monkeypatch)
    setting.add(*(preemptor(f"p{number}", "8") for number in range(1000)))
    for _ in range(200):
        desk.reconciler.turn()
    assert len(decided) == 1
    assert len({line["preemptor"] for line in desk.lines("no preemption")}) == 1000
    setting.add(pod("low", "1", node="n1", priority=10))
    setting.remove("default/low")
    await desk.work(20.0)
    assert len(decided) == 2
    setting.remove("default/high")
    setting.add(pod("low", "8", node="n1"))
    await desk.work(40.0)
    assert {line["node"] for line in desk.lines("decision")} == {"n1"}
    await desk.reconciler.stop()


async def test_attempts_are_each_ones_own(monkeypatch: pytest.MonkeyPatch):
    """That a preemptor has had its attempts says nothing of another of its shape."""
    setting = Setting(node("n1", "8"), under=policy(limits=Limits(attempts_per_preemptor=1)))
    setting.add(pod("low", "8", node="n1"), preemptor("a", "8"), preemptor("b", "8"))
    desk = Desk(setting)
    setting.add(preemptor("a", "8"), preemptor("b", "8"))
    desk.reconciler._look_at_all()
    desk.reconciler.queue.get("default/a").attempt_failed(setting.clock.monotonic())
    await desk.work(1.0)
    assert [line["preemptor"] for line in desk.lines("decision")] == ["default/b"]
    await desk.reconciler.stop()


async def test_the_hopeless_do_not_hold_up_the_young(monkeypatch: pytest.MonkeyPatch):
    """However many of other shapes are older and tried again and again: who was never tried is tried next."""
    setting = Setting(node("n1", "8"))
    setting.add(pod("low", "4", node="n1"), pod("high", "4", node="n1", priority=200))
    desk = Desk(setting)
    ticks = iter(range(10**6))
    monkeypatch.setattr(setting.clock, "stopwatch", lambda: next(ticks) / 100)  # a few decisions a turn
    setting.add(*(preemptor(f"p{number}", f"{8000 + number}m") for number in range(1, 200)))
    for _ in range(400):
        desk.reconciler.turn()
    setting.clock.now += 60.0
    desk.reconciler.queue.wake(setting.clock.monotonic())
    young = preemptor("young", "4")
    young.status.conditions[0].last_transition_time = "2030-01-01T00:00:00Z"
    setting.add(young)
    for _ in range(3):
        desk.reconciler.turn()
    assert "default/young" in desk.reconciler.plans
    await desk.reconciler.stop()
