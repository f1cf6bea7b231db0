"""The last look at state before an eviction: what stops a plan, who is told and asked, and who may stay."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import table
from tests.reconciler import builders
from tests.reconciler.builders import START, Setting, asks, full, names, node, plan_for, pod, policy, preemptor, went
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.values import CAN_BE_PREEMPTED, NOTICE, READY
from webhook.policy.model.victims import Victims
from webhook.reconciler.plans.actions import End, Ending, Spare, Tries, Verb, Wait
from webhook.reconciler.plans.look import Look, PlanContext
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.state.annotations import NoticeRecord, PlanRecord, PlanVictim, encode

pytestmark = pytest.mark.skipped_waits


def beside(*more: Pod) -> Setting:
    """A victim on n1, and pods on n2 that may not go."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "6", node="n1", priority=10), *more)
    return setting


def under_nomination() -> Setting:
    """A victim on n1; a small pod is on n2, and another one is nominated there."""
    return beside(high("small", "2", "n2"), high("nominee", "4", nominated="n2"))


def planned(setting: Setting, cpu: str = "3") -> Plan:
    """A plan on n1 for a preemptor of so much CPU, its nomination written."""
    made = preemptor("p", cpu)
    outcome = setting.evaluate(made)
    setting.expect(made, outcome)
    victims = tuple(
        PlanVictim("default", name, f"uid-{name}", int(f"default/{name}" in outcome.groups)) for name in names(outcome)
    )
    return plan_for(PlanRecord(id="plan", node=outcome.node, victims=victims), nominated=True)


def high(name: str, cpu: str, on: str = "", **more: Any) -> Pod:
    """A pod that may not go."""
    return pod(name, cpu, node=on, priority=1000, **more)


GOES = "without preemption"


@table(
    "make, happens, why",
    ("nothing", full, lambda _: None, ""),
    ("a victim may not go", full, lambda s: s.add(pod("v3", node="n1", annotations={})), "may not go any more"),
    ("the preemptor is gone", full, lambda s: s.remove("default/p"), "deleted"),
    ("the preemptor is bound", full, lambda s: s.add(preemptor("p", node="n9")), "bound"),
    ("the node is gone", full, lambda s: s.state.nodes.take("n1", None), "node-gone"),
    ("a node came", full, lambda s: s.state.nodes.take("n2", node("n2")), GOES),
    ("a pod came to the node", full, lambda s: s.add(high("thief", "6", "n1")), "would not make room"),
    ("a pod shrinks", lambda: beside(high("big", "6", "n2")), lambda s: s.add(high("big", "2", "n2")), GOES),
    ("a nominee is gone", under_nomination, lambda s: s.remove("default/nominee"), GOES),
    ("it goes elsewhere", under_nomination, lambda s: s.add(high("nominee", "4", nominated="n3")), GOES),
    ("a pod ends beside a nominee", under_nomination, lambda s: s.remove("default/small"), GOES),
)
def test_objections(make, happens, why: str):
    """What happened between nomination and eviction stops the plan before anyone is asked to leave."""
    setting = make()
    plan = planned(setting)
    happens(setting)
    found = setting.look(plan)
    said = (found.note or found.ending.value) if isinstance(found, End) else ""
    assert why in said
    assert bool(why) == bool(said)


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
        high("other", "4", "n1"),
        high("small", "1", "n1"),
    )
    plan = planned(setting, "6")
    assert [victim.name for victim in plan.record.victims] == ["a", "b", "c"]
    for name in asked:
        went(plan, name)
        setting.add(leaving(name, sizes[name]))
    for name in happens:
        setting.remove(f"default/{name}")
    for _ in range(2):
        assert stay(setting, plan) == {f"uid-{name}" for name in staying}


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
    setting.add(high("other", "7", "n2"))
    if not needed:
        setting.add(high("own", "4", "n1"))
    plan = planned(setting, "5" if needed else "4")
    assert {victim.name for victim in plan.record.victims} == {"a", "b"}
    setting.remove("default/own")
    for name in asked:
        went(plan, name)
        setting.add(leaving(name, size, **group))
    plan.asking |= {f"uid-{name}": setting.state.pods.get(f"default/{name}") for name in asking}
    assert stay(setting, plan) == {f"uid-{name}" for name in staying}


NAMES = "abcd"


def test_a_victim_that_another_plan_has_asked_is_not_asked_again():
    """Also as long as no watch shows that it leaves; before, the earlier plan asks it."""
    setting = Setting(node("n1", "4"))
    setting.add(pod("v", "4", node="n1"))
    record = PlanRecord(id="x", node="n1", victims=(PlanVictim("default", "v", "uid-v"),))
    plans = [plan_for(record, "default/a"), plan_for(msgspec.structs.replace(record, id="y"), "default/b")]
    context = PlanContext(setting.evaluator, setting.policy_set, builders.under_way(*plans))
    assert [Look(plan, context, setting.at).left for plan in plans] == [list(record.victims), []]
    went(plans[1], "v")
    assert [Look(plan, context, setting.at).left for plan in plans] == [[], []]


@settings(max_examples=50)
@given(
    groups=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    until=st.lists(st.sampled_from([-5.0, 0.0, 5.0, 9.0]), min_size=4, max_size=4),
    ready=st.sets(st.sampled_from(NAMES)),
    devices=st.booleans(),
)
def test_who_may_be_asked(groups: list[int], until: list[float], ready: set[str], devices: bool):
    """Whoever waits holds back its group, and all of a plan with devices; the next look is at the first end."""
    setting, notice = Setting(node("n1")), encode(NoticeRecord(plan="p1", by=rfc3339(START), uid="u", priority=100))
    victims = tuple(
        PlanVictim("default", name, f"uid-{name}", group) for name, group in zip(NAMES, groups, strict=True)
    )
    held = (("d", "p", "x"),) if devices else ()
    plan = plan_for(PlanRecord(id="p1", node="n1", victims=victims, devices=held), nominated=True)
    for name, end in zip(NAMES, until, strict=True):
        answer = {READY: "true"} if name in ready else {}
        setting.add(pod(name, node="n1", annotations={CAN_BE_PREEMPTED: "true", NOTICE: notice, **answer}))
        plan.note_told(f"uid-{name}", end)
        plan.tried[f"uid-{name}"] = True
    setting.add(preemptor("p", "8"))
    pods = list(setting.state.pods.items().values())
    setting.count_on(plan.id, *pods[:4])
    step = setting.look(plan)
    waits = [name not in ready and end > 0 for name, end in zip(NAMES, until, strict=True)]
    expected = []
    for place, name in enumerate(NAMES):
        with_it = [
            other
            for other in range(4)
            if devices or other == place or (groups[other] == groups[place] and groups[place])
        ]
        expected += [] if any(waits[other] for other in with_it) else [name]
    later = min((end for end, waiting in zip(until, waits, strict=True) if waiting), default=float("inf"))
    assert asks(step) == {Verb.ASK: expected} if expected else step == Wait(later)


def told(plan: str = "p1", **more: Any) -> Pod:
    """Pod a with a notice of this plan."""
    notice = encode(NoticeRecord(plan=plan, by=rfc3339(START), uid="u", priority=100))
    return pod("a", node="n1", annotations={CAN_BE_PREEMPTED: "true", NOTICE: notice}, **more)


@table(
    "shown, becomes, stands",
    ("under way", told(), {}, True),
    ("not needed", told(), {"needed": set()}, False),
    ("over", told(), {"ended": Ending.OUTDATED, "needed": set()}, False),
    ("over, and being asked", told(), {"ended": Ending.OUTDATED}, True),
    ("over, and it was asked", told(), {"ended": Ending.OUTDATED, "needed": set(), "gone": {"uid-a"}}, False),
    ("over, and it leaves", told(deleted=rfc3339(START)), {"ended": Ending.OUTDATED, "needed": set()}, True),
    ("of no plan", told("p2"), {}, False),
)
def test_behind_which_notice_a_plan_stands(shown: Pod, becomes: dict[str, Any], stands: bool):
    """One that wants the pod to go, or that may still have it gone."""
    setting = Setting(node("n1"))
    manager = PlanManager(setting.evaluator, setting.policy_set)
    plan = plan_for(PlanRecord(id="p1", node="n1", victims=(PlanVictim("default", "a", "uid-a"),)))
    manager.index.put(plan)
    for field, value in becomes.items():
        setattr(plan, field, value)
    plan.note_told("uid-a", 5.0)
    assert manager.index.stands(shown) is stands


@pytest.mark.parametrize(
    ("given", "told"), [(30.0, {Verb.TELL: ["a", "b"]}), (0.0, {Verb.ASK: ["a", "b"]}), (90.0, None)]
)
def test_a_policy_that_gives_another_notice_by_now(given: float, told: dict[Verb, list[str]] | None):
    """Nobody is told any more if it gives none; if it gives a longer one, there is another decision with that."""
    setting, made = Setting(node("n1"), under=policy(victims=Victims(notice=60.0))), preemptor("p", "8")
    setting.add(pod("a", "4", node="n1"), pod("b", "4", node="n1"))
    manager = PlanManager(setting.evaluator, setting.policy_set)
    plan = manager.begin(made, setting.policy, setting.evaluate(made), 0)
    builders.are_nominated(plan)
    setting.policy_set.use(Policies(preemption=(policy(victims=Victims(notice=given)),)))
    plan.tried = dict.fromkeys(("uid-a", "uid-b"), True)
    step = manager.look(plan)
    assert isinstance(step, End) if told is None else asks(step) == told
