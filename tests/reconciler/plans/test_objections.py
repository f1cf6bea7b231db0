"""What happens between nomination and eviction stops a plan that no longer makes sense."""

import copy
import dataclasses

import msgspec
import pytest

from tests.reconciler.builders import START, Setting, node, pod, policy, preemptor, under_way
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.schedule import Schedule
from webhook.reconciler.evaluate.outcomes import Waits
from webhook.reconciler.plans.actions import Action, End
from webhook.reconciler.plans.next_action import next_action
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.recheck import PlanContext
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.plan_victims import PlanVictim


def full(*more, under=None) -> Setting:
    """One node of 8 CPU, full of four victims of 2 CPU."""
    setting = Setting(node("n1"), under=under)
    setting.add(*(pod(f"v{number}", node="n1", start=rfc3339(START - 4000 + number)) for number in range(4)), *more)
    return setting


def begun(setting: Setting) -> Plan:
    """The plan for a preemptor, its nomination written."""
    made = preemptor("p1")
    outcome = setting.evaluate(made)
    setting.expect(made, outcome)
    victims = tuple(PlanVictim("default", victim.metadata.name, victim.metadata.uid) for victim in outcome.victims)
    record = PlanRecord(id="plan", node=outcome.node, victims=victims)
    return Plan(record, "default/p1", "uid-p1", 100, 0.0, 300.0, nominated=True, displaced=True)


def action(setting: Setting, plan: Plan) -> Action:
    """What to do next for the plan."""
    return next_action(plan, PlanContext(setting.evaluator, setting.policy_set, under_way(plan)), setting.at)


def objection(setting: Setting, plan: Plan) -> str:
    """Why the plan must not go on; empty if it does."""
    found = action(setting, plan)
    return (found.note or found.ending.value) if isinstance(found, End) else ""


def test_looked_at_again_before_evicting():
    """Nothing happened: the plan goes on."""
    setting = full()
    assert objection(setting, begun(setting)) == ""


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        pytest.param(
            lambda s: s.add(pod("v3", node="n1", annotations={})),
            "may not go any more",
            id="a victim may not go any more",
        ),
        pytest.param(lambda s: s.remove("default/p1"), "deleted", id="the preemptor is gone"),
        pytest.param(lambda s: s.add(preemptor("p1", node="n9")), "bound", id="the preemptor is bound"),
        pytest.param(lambda s: s.state.nodes.take("n1", None), "node-gone", id="the node is gone"),
        pytest.param(lambda s: s.state.nodes.take("n2", node("n2")), "without preemption", id="a node came"),
    ],
)
def test_objections(happens, why: str):
    """What happened between nomination and eviction stops the plan before anyone is asked to leave."""
    setting = full()
    plan = begun(setting)
    happens(setting)
    assert why in objection(setting, plan)


def test_a_schedule_that_ends_is_seen_without_any_event():
    """What was judged a moment ago need not be judged again, but soon it is: time alone may end a plan's right."""
    an_hour = Schedule(cron="0 8 * * *", duration=3600)  # the clock of the tests begins at eight
    setting = full(under=policy(schedule=an_hour))
    plan = begun(setting)
    setting.clock.now = 3599.5
    plan.deadline = 7200.0
    assert objection(setting, plan) == ""
    setting.clock.now = 3601.0
    assert "evicts only by its schedule" in objection(setting, plan)


def test_objection_when_a_pod_has_shrunk():
    """Room that a pod gave back by a resize in place is seen."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "6", node="n1", priority=10), pod("big", "6", node="n2", priority=1000))
    plan = begun(setting)
    setting.add(pod("big", "2", node="n2", priority=1000))
    assert "without preemption" in objection(setting, plan)


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda s: s.remove("default/nominee"), id="its pod is gone"),
        pytest.param(lambda s: s.add(pod("nominee", "4", priority=1000, nominated="n3")), id="it goes elsewhere"),
        pytest.param(lambda s: s.remove("default/small"), id="a pod ends beside it"),
    ],
)
def test_objection_when_room_comes_up_under_a_nomination(happens):
    """Room on a node that a pod is nominated to counts, whether the nomination goes or it fits beside it."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "6", node="n1", priority=10), pod("small", "2", node="n2", priority=1000))
    setting.add(pod("nominee", "4", priority=1000, nominated="n2"))
    plan = begun(setting)
    happens(setting)
    assert "without preemption" in objection(setting, plan)


def test_objection_when_the_room_was_taken():
    """A pod that came to the node meanwhile is seen."""
    setting = full()
    plan = begun(setting)
    setting.add(pod("thief", "6", node="n1", priority=1000))
    plan.touch()
    assert "would not make room" in objection(setting, plan)


class NoClock:
    """Fails whoever asks it for the time."""

    def __getattr__(self, name: str) -> None:
        pytest.fail(f"{name}() is asked for the time")


@pytest.mark.parametrize("asked", [(), ("uid-n1-a",), ("uid-n1-a", "uid-n2-a")])
@pytest.mark.parametrize("nominated", [False, True])
def test_time_is_an_argument(nominated: bool, asked: tuple[str, ...]):
    """What to do next for a plan is worked out from what is given, the time included; the plan stays as it was."""
    under = policy(limits=Limits(per_node=Rate(3, 60.0)), wait_for_terminating=30.0)
    setting = Setting(node("n1"), node("n2"), under=under)
    for name in ("n1", "n2"):
        setting.add(pod(f"{name}-a", "4", node=name), pod(f"{name}-b", "3", node=name, priority=1000))
    setting.add(pod("leaving", "1", node="n1", deleted=rfc3339(START + 10)), preemptor("above", "6", priority=1000))
    plan, at = begun(setting), setting.at
    plan.nominated, plan.gone = nominated, set(asked)
    before = {field.name: copy.copy(getattr(plan, field.name)) for field in dataclasses.fields(Plan)}
    setting.evaluator.clock = NoClock()
    todo = next_action(plan, PlanContext(setting.evaluator, setting.policy_set, under_way(plan)), at)
    assert not isinstance(todo, End)
    assert {name: getattr(plan, name) for name in before} == before | {"judgement": plan.judgement}


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(("taken", "lost"), [("1", []), ("3", ["late"]), ("6", ["early", "late"])])
def test_the_later_one_of_two_equal_plans_loses_the_room(asked: bool, taken: str, lost: list[str]):
    """Another pod took room on a node that two plans of one priority count on: the earlier one keeps what is left."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "1", node="n1"), pod("thief", taken, node="n1", priority=1000))
    setting.add(*(preemptor(name, "3", nominated="n1") for name in ("early", "late")))
    setting.expect(preemptor("early"), Waits("n1", 1, (setting.state.pods.get("default/v"),)))
    record = PlanRecord(id="plan", node="n1", victims=(PlanVictim("default", "v", "uid-v"),))
    plans = [
        Plan(record, f"default/{name}", f"uid-{name}", 100, began, 300.0, nominated=True, displaced=True)
        for began, name in enumerate(("early", "late"))
    ]
    plans[1].record = msgspec.structs.replace(record, id="later", victims=())
    plans[0].gone = {"uid-v"} if asked else set()
    context = PlanContext(setting.evaluator, setting.policy_set, under_way(*plans))
    ended = [plan.key for plan in plans if isinstance(next_action(plan, context, setting.at), End)]
    assert ended == [f"default/{name}" for name in lost]
