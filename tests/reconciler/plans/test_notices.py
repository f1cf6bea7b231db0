"""Who may be asked, by the notices of a plan: a table beside an oracle that goes through all victims one by one."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import table
from tests.reconciler.builders import START, Setting, are_nominated, asks, node, plan_for, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, NOTICE, READY
from webhook.policy.model.victims import Victims
from webhook.reconciler.plans.actions import End, Ending, Verb, Wait
from webhook.reconciler.plans.look import askable
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.state.annotations import NoticeRecord, PlanDevice, PlanRecord, PlanVictim, encode
from webhook.reconciler.state.state import ServerTime

NAMES = "abcd"


def notice(plan: str = "p1") -> str:
    return encode(NoticeRecord(plan=plan, by=rfc3339(START), uid="u", priority=100))


def plan_of(groups: tuple[int, ...], *, devices: bool = False) -> Plan:
    """A plan of victims a, b and so on with these groups."""
    victims = tuple(
        PlanVictim("default", name, f"uid-{name}", group) for name, group in zip(NAMES, groups, strict=False)
    )
    held = (PlanDevice("d", "p", "x"),) if devices else ()
    return plan_for(PlanRecord(id="p1", node="n1", victims=victims, devices=held))


def said_ready(setting: Setting, names: str) -> None:
    for name in NAMES:
        answer = {READY: "true"} if name in names else {}
        setting.add(pod(name, node="n1", annotations={CAN_BE_PREEMPTED: "true", NOTICE: notice(), **answer}))


@settings(max_examples=100)
@given(
    groups=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    until=st.lists(st.sampled_from([-5.0, 0.0, 5.0, 9.0]), min_size=4, max_size=4),
    ready=st.sets(st.sampled_from(NAMES)),
    devices=st.booleans(),
)
def test_who_may_be_asked(groups: list[int], until: list[float], ready: set[str], devices: bool):
    """Whoever waits holds back its group, and all of a plan with devices; the next look is at the first end."""
    setting, plan = Setting(node("n1")), plan_of(tuple(groups), devices=devices)
    said_ready(setting, "".join(ready))
    for victim, end in zip(plan.record.victims, until, strict=True):
        plan.note_told(victim.uid, end)
    asked, later = askable(setting.state, plan, plan.record.victims, 0.0)
    waits = [name not in ready and end > 0 for name, end in zip(NAMES, until, strict=True)]
    expected = ""
    for place, name in enumerate(NAMES):
        with_it = [
            other
            for other in range(4)
            if devices or other == place or (groups[other] == groups[place] and groups[place])
        ]
        expected += "" if any(waits[other] for other in with_it) else name
    assert "".join(one.name for one in asked) == expected
    assert later == min((end for end, waiting in zip(until, waits, strict=True) if waiting), default=float("inf"))


@table(
    "is_so, stands",
    ("under way", "", True),
    ("not needed", "unneeded", False),
    ("over", "ended", False),
    ("over, and being asked", "ended asking", True),
    ("over, and it leaves", "ended leaving", True),
    ("of no plan", "other", False),
)
def test_behind_which_notice_a_plan_stands(is_so: str, stands: bool):
    """One that wants the pod to go, or that may still have it gone."""
    manager, made = managing(plan_of((0,)))
    made.note_told("uid-a", 5.0)
    if "unneeded" in is_so:
        made.unneeded = {"uid-a"}
    if "asking" in is_so:
        made.asking, made.busy = {"uid-a": pod("a", node="n1")}, True
    if "ended" in is_so:
        manager.end(made, Ending.OUTDATED)
    told = pod("a", node="n1", annotations={NOTICE: notice("p2" if is_so == "other" else "p1")})
    told.metadata.deletion_timestamp = rfc3339(START) if "leaving" in is_so else None
    assert manager.stands(told) is stands
    manager.noticed.clear()
    manager.notice_seen("default/a", told)
    assert ("default/a" in manager.noticed) is not stands


def test_who_leaves_by_itself():
    """A victim that was told and leaves before it is asked; not one that was asked, or that only changed."""
    manager, made = managing(plan_of((0,)))
    made.note_told("uid-a", 5.0)
    told = pod("a", node="n1", annotations={NOTICE: notice()})
    leaves = [None, pod("a", node="n1", deleted=rfc3339(START)), pod("a", node="n1", phase="Succeeded")]
    for new in leaves:
        assert manager.victim_left(Change("modified", "default/a", told, new)) == (made, told)
    assert manager.victim_left(Change("modified", "default/a", told, told)) is None
    made.note_asked("uid-a", 0.0, ServerTime(START))
    assert manager.victim_left(Change("deleted", "default/a", told, None)) is None


def managing(plan: Plan) -> tuple[PlanManager, Plan]:
    """A manager with just this plan under way."""
    setting = Setting(node("n1"))
    manager = PlanManager(setting.evaluator, setting.policy_set)
    manager.index.add(plan)
    return manager, plan


def manager_with(seconds: float) -> tuple[Setting, PlanManager, Plan]:
    """A plan of two victims under a policy with such a notice."""
    setting = Setting(node("n1"), under=policy(victims=Victims(notice=seconds)))
    for name in "ab":
        setting.add(pod(name, "4", node="n1"))
    one = preemptor("p", "8")
    outcome = setting.evaluate(one)
    manager = PlanManager(setting.evaluator, setting.policy_set)
    return setting, manager, manager.begin(one, setting.policy, outcome, 0)


def test_what_is_done_for_a_notice():
    """Both are told, then waited for; they are asked when the notices are over. Who was not told is told first.

    Before, it is tried whether the server lets them go, and again when the notices are over.
    """
    setting, manager, plan = manager_with(60.0)
    victims = ["a", "b"]
    assert asks(manager.look(plan)) == {Verb.NOMINATE: ["p"], Verb.TRY: victims}
    are_nominated(plan)
    for _ in range(2):
        assert asks(manager.look(plan)) == {Verb.TRY: victims}
        plan.tried = dict.fromkeys(("uid-a", "uid-b"), True)
        assert asks(manager.look(plan)) == {Verb.TELL: victims}
        for victim in plan.record.victims:
            plan.note_told(victim.uid, setting.clock.now + 60.0)
        assert manager.look(plan) == Wait(setting.clock.now + 60.0)
        assert plan.deadline >= setting.clock.now + 60.0 + plan.timeout
        setting.clock.now += 60.0
        assert asks(manager.look(plan)) == {Verb.TRY: victims}
        plan.notices.clear()


@pytest.mark.parametrize(
    ("given", "told"), [(30.0, {Verb.TELL: ["a", "b"]}), (0.0, {Verb.ASK: ["a", "b"]}), (90.0, None)]
)
def test_a_policy_that_gives_another_notice_by_now(given: float, told: dict[Verb, list[str]] | None):
    """Nobody is told any more if it gives none; if it gives a longer one, there is another decision with that."""
    setting, manager, plan = manager_with(60.0)
    are_nominated(plan)
    setting.policy_set.use(Policies(preemption=(policy(victims=Victims(notice=given)),)))
    plan.tried = dict.fromkeys(("uid-a", "uid-b"), True)
    step = manager.look(plan)
    assert isinstance(step, End) if told is None else asks(step) == told


def test_later_decisions_know_when_the_room_comes():
    """Victims count as leaving, with an end after their notice and their grace period."""
    setting, _, _ = manager_with(60.0)
    pods = setting.state.snapshot.pods
    rows = pods.leaving()
    ends = {round(float(end) - START) for end in pods.gone_at[rows]}
    assert ends == {90}
    assert list(itertools.chain(setting.evaluator.leaving_within(60.0, setting.at))) == []
