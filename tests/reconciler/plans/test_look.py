"""The newest state before an eviction: what stops a plan, and room that comes up costs nobody their place."""

import copy
import dataclasses
from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, Desk, Setting, node, plan_for, pod, policy, preemptor, under_way
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.schedule import Schedule
from webhook.reconciler.evaluate import evaluator
from webhook.reconciler.evaluate.outcomes import Waits
from webhook.reconciler.plans.actions import End, Spare, Tries
from webhook.reconciler.plans.look import PlanContext, look
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim
from webhook.reconciler.state.state import ServerTime

pytestmark = pytest.mark.skipped_waits


def full(*, under=None) -> Setting:
    """One node of 8 CPU, full of four victims of 2 CPU."""
    setting = Setting(node("n1"), under=under)
    setting.add(*(pod(f"v{number}", node="n1", start=rfc3339(START - 4000 + number)) for number in range(4)))
    return setting


def beside(*more: Pod) -> Setting:
    """A victim on n1, and pods on n2 that may not go."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "6", node="n1", priority=10), *more)
    return setting


def under_nomination() -> Setting:
    """A victim on n1; a small pod is on n2, and another one is nominated there."""
    nominee = pod("nominee", "4", priority=1000, nominated="n2")
    return beside(pod("small", "2", node="n2", priority=1000), nominee)


def planned(setting: Setting, cpu: str = "3") -> Plan:
    """A plan on n1 for a preemptor of so much CPU, its nomination written."""
    made = preemptor("p", cpu)
    outcome = setting.evaluate(made)
    setting.expect(made, outcome)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(outcome.groups.values()), 1)}
    of = {key: numbers[group] for key, group in outcome.groups.items()}
    victims = tuple(
        PlanVictim("default", victim.metadata.name, victim.metadata.uid, of.get(key_of(victim), 0))
        for victim in outcome.victims
    )
    record = PlanRecord(id="plan", node=outcome.node, victims=victims)
    return plan_for(record, nominated=True)


def objection(setting: Setting, plan: Plan) -> str:
    """Why the plan must not go on; empty if it does."""
    found = setting.look(plan)
    return (found.note or found.ending.value) if isinstance(found, End) else ""


BIG = pod("big", "6", node="n2", priority=1000)


@table(
    "make, happens, why",
    ("nothing", full, lambda _: None, ""),
    ("a victim may not go", full, lambda s: s.add(pod("v3", node="n1", annotations={})), "may not go any more"),
    ("the preemptor is gone", full, lambda s: s.remove("default/p"), "deleted"),
    ("the preemptor is bound", full, lambda s: s.add(preemptor("p", node="n9")), "bound"),
    ("the node is gone", full, lambda s: s.state.nodes.take("n1", None), "node-gone"),
    ("a node came", full, lambda s: s.state.nodes.take("n2", node("n2")), "without preemption"),
    (
        "a pod came to the node",
        full,
        lambda s: s.add(pod("thief", "6", node="n1", priority=1000)),
        "would not make room",
    ),
    (
        "a pod has shrunk in place",
        lambda: beside(BIG),
        lambda s: s.add(pod("big", "2", node="n2", priority=1000)),
        "without preemption",
    ),
    ("a nominee is gone", under_nomination, lambda s: s.remove("default/nominee"), "without preemption"),
    (
        "a nominee goes elsewhere",
        under_nomination,
        lambda s: s.add(pod("nominee", "4", priority=1000, nominated="n3")),
        "without preemption",
    ),
    ("a pod ends beside a nominee", under_nomination, lambda s: s.remove("default/small"), "without preemption"),
)
def test_objections(make, happens, why: str):
    """What happened between nomination and eviction stops the plan before anyone is asked to leave."""
    setting = make()
    plan = planned(setting)
    happens(setting)
    found = objection(setting, plan)
    assert why in found
    assert bool(why) == bool(found)


def test_a_schedule_that_ends_is_seen_without_any_event():
    """What was judged a moment ago need not be judged again, but soon it is: time alone may end a plan's right."""
    an_hour = Schedule(cron="0 8 * * *", duration=3600)  # the clock of the tests begins at eight
    setting = full(under=policy(schedule=an_hour))
    plan = planned(setting)
    setting.clock.now = 3599.5
    plan.deadline = 7200.0
    assert objection(setting, plan) == ""
    setting.clock.now = 3601.0
    assert "evicts only by its schedule" in objection(setting, plan)


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
    plan, at = planned(setting), setting.at
    plan.members[0].nominated, plan.gone = nominated, set(asked)
    before = {field.name: copy.copy(getattr(plan, field.name)) for field in dataclasses.fields(Plan)}
    setting.evaluator.clock = NoClock()
    step = look(plan, PlanContext(setting.evaluator, setting.policy_set, under_way(plan)), at)
    assert not isinstance(step, End)
    assert {name: getattr(plan, name) for name in before} == before | {
        "approved": plan.approved,
        "approved_at": plan.approved_at,
    }


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
        plan_for(record, f"default/{name}", uid=f"uid-{name}", started=began, nominated=True)
        for began, name in enumerate(("early", "late"))
    ]
    plans[1].record = msgspec.structs.replace(record, id="later", victims=())
    plans[0].gone = {"uid-v"} if asked else set()
    context = PlanContext(setting.evaluator, setting.policy_set, under_way(*plans))
    ended = [plan.key for plan in plans if isinstance(look(plan, context, setting.at), End)]
    assert ended == [f"default/{name}" for name in lost]


def stay(setting: Setting, plan: Plan, wait: float = 0.0) -> set[str]:
    """The victims, by uid, that need not go any more."""
    waits = msgspec.structs.replace(setting.policy, wait_for_terminating=wait)
    setting.policy_set.use(Policies(preemption=(waits,)))
    found = setting.look(plan)
    return set(found.uids) if isinstance(found, Spare) else set()


def leaving(name: str, cpu: str, **more: Any) -> Pod:
    """A pod on n1 whose grace period ends in ten minutes."""
    return pod(name, cpu, node="n1", deleted=rfc3339(START + 600), **more)


@table(
    "asked, happens, staying",
    ("nothing happens", [], [], []),
    ("a pod ends: the more important victims stay", [], ["other"], ["a", "b"]),
    ("a pod ends while the first victim leaves for long", ["c"], ["other"], ["a", "b"]),
    ("what was asked goes, whoever it is", ["a"], ["other"], ["b", "c"]),
    ("only those that were asked leave", ["a", "b"], [], []),
    ("the last one stays", ["a", "b"], ["other"], ["c"]),
    ("a pod ends that makes too little room", [], ["small"], []),
)
def test_victims_that_are_not_needed_any_more(asked: list[str], happens: list[str], staying: list[str]):
    """Each victim is asked only if the preemptor would not fit without it, once those that were asked are gone.

    A second look at the same state says the same: the first one may have been for something else.
    """
    setting = Setting(node("n1", "11"))
    sizes = {"a": "2", "b": "2", "c": "2"}
    setting.add(
        *(pod(name, cpu, node="n1", priority=30 - place) for place, (name, cpu) in enumerate(sizes.items())),
        pod("other", "4", node="n1", priority=1000),
        pod("small", "1", node="n1", priority=1000),
    )
    plan = planned(setting, "6")
    assert [victim.name for victim in plan.record.victims] == ["a", "b", "c"]
    for name in asked:
        plan.note_asked(f"uid-{name}", 0.0, ServerTime(START))
        setting.add(leaving(name, sizes[name]))
    for name in happens:
        setting.remove(f"default/{name}")
    for _ in range(2):
        assert stay(setting, plan) == {f"uid-{name}" for name in staying}


@table("wait, unneeded_victims", ("in time", 30.0, 1), ("too late", 1.0, 0))
def test_leaving_pods_that_may_not_be_victims_are_counted_on(wait: float, unneeded_victims: int):
    """Room that a pod of higher priority leaves soon spares a victim, though the decision did not count on it."""
    setting = Setting(node("n1"))
    setting.add(pod("other", "2", node="n1", priority=1000, deleted=rfc3339(START + 5)))
    setting.add(*(pod(name, "3", node="n1") for name in ("a", "b")))
    plan = planned(setting, "5")
    assert len(plan.record.victims) == 2
    assert len(stay(setting, plan, wait)) == unneeded_victims


def test_a_victim_on_its_way_out_is_not_asked_again_if_it_is_not_needed():
    """Others end, and the preemptor has room; while no answer says whether a victim goes it is counted on."""
    setting = Setting(node("n1"))
    setting.add(pod("a", "8", node="n1"))
    plan = planned(setting)
    plan.asking["uid-a"] = setting.state.pods.get("default/a")
    plan.tries["uid-a"] = Tries(begun=True)
    assert stay(setting, plan) == set()
    setting.state.nodes.take("n1", node("n1", "16"))
    assert stay(setting, plan) == {"uid-a"}
    plan.tries["uid-a"].unclear = True
    assert stay(setting, plan) == set()


def test_a_new_pod_of_a_victims_name_is_not_counted_on():
    """What a controller makes under the name of a victim that was asked stays, so the other victim has to go."""
    setting = Setting(node("n1"))
    setting.add(*(pod(name, "3", node="n1") for name in ("a", "b")), pod("other", "2", node="n1", priority=1000))
    plan = planned(setting, "5")
    plan.note_asked("uid-a", 0.0, ServerTime(START))
    setting.remove("default/a")
    setting.add(pod("a", "3", node="n1", uid="another"))
    setting.remove("default/other")
    assert stay(setting, plan) == set()


def test_patrol_gives_way(monkeypatch: pytest.MonkeyPatch):
    """However many plans wait and however long a look at one takes, looking goes on for a moment at a time."""
    setting = Setting(node("n1"))
    reconciler, looks = Desk(setting).reconciler, []
    monkeypatch.setattr(setting.clock, "stopwatch", lambda: 0.015 * len(looks))
    for number in range(20):
        waiting = preemptor(f"p{number}", "1m")
        setting.add(waiting)
        record = PlanRecord(id=f"x{number}", node="n1")
        plan = plan_for(record, f"default/p{number}", uid=waiting.metadata.uid, nominated=True)
        reconciler.plan_manager.index.add(plan)

    def slow(looking):
        def look(*arguments, **options):
            looks.append(arguments)
            return looking(*arguments, **options)

        return look

    monkeypatch.setattr(evaluator, "fits_on", slow(evaluator.fits_on))
    setting.clock.now = 60.0
    longest = 0.0
    for _ in range(100):
        before = len(looks)
        reconciler.turn()
        longest = max(longest, 0.015 * (len(looks) - before))
    assert longest < 0.05
    assert len(looks) >= 20
    assert len(reconciler.plans) == 20


@table(
    "needed, asked, asking, staying",
    ("it is needed, and nobody was asked", True, "", "", ""),
    ("it is needed, and one was asked: the one elsewhere goes, too", True, "a", "", ""),
    ("it is not needed, and nobody is asked", False, "", "", "ab"),
    ("it is not needed, and one may be on its way out", False, "", "b", ""),
)
def test_a_group_goes_whole_or_stays(needed: bool, asked: str, asking: str, staying: str):
    """Members on other nodes are victims of the plan; if it fits by now all stay until one of them is asked."""
    setting = Setting(node("n1"), node("n2"), under=policy(groups=Groups(disruption=GroupDisruption.GROUP)))
    group, size = {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}, "6" if needed else "4"
    setting.add(pod("a", size, node="n1", **group), pod("b", "1", node="n2", **group))
    setting.add(pod("other", "7", node="n2", priority=1000))
    if not needed:
        setting.add(pod("own", "4", node="n1", priority=1000))
    plan = planned(setting, "5" if needed else "4")
    assert {victim.name for victim in plan.record.victims} == {"a", "b"}
    setting.remove("default/own")
    for name in asked:
        plan.note_asked(f"uid-{name}", 0.0, ServerTime(START))
        setting.add(leaving(name, size, **group))
    plan.asking |= {f"uid-{name}": setting.state.pods.get(f"default/{name}") for name in asking}
    assert stay(setting, plan) == {f"uid-{name}" for name in staying}
