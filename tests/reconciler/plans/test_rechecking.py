"""Room that comes up between the decision and an eviction costs nobody their place, on the plan's own node too."""

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, node, pod, policy, preemptor, under_way
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.reconciler.evaluate import known_room
from webhook.reconciler.plans.actions import Spare
from webhook.reconciler.plans.next_action import unasked
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.recheck import PlanContext, Situation, recheck
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.plan_victims import PlanVictim

pytestmark = pytest.mark.skipped_waits


def planned(setting: Setting, cpu: str) -> Plan:
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
    return Plan(record, "default/p", "uid-p", 100, 0.0, 300.0)


def stay(setting: Setting, plan: Plan, wait: float = 0.0, asking: Collection[str] = ()) -> set[str]:
    """The victims, by uid, that need not go any more."""
    context = PlanContext(setting.evaluator, setting.policy_set, under_way(plan))
    left = unasked(plan, context, asking)
    situation = Situation(plan, context, setting.state.pods.get(plan.key), setting.at, asking, left)
    found = recheck(situation, msgspec.structs.replace(setting.policy, wait_for_terminating=wait))
    return set(found.uids) if isinstance(found, Spare) else set()


def leaving(name: str, cpu: str, **more: Any) -> Pod:
    """A pod on n1 whose grace period ends in ten minutes."""
    return pod(name, cpu, node="n1", deleted=rfc3339(START + 600), **more)


@pytest.mark.parametrize(
    ("asked", "happens", "staying"),
    [
        pytest.param([], [], [], id="nothing happens"),
        pytest.param([], ["other"], ["a", "b"], id="a pod ends: the more important victims stay"),
        pytest.param(["c"], ["other"], ["a", "b"], id="a pod ends while the first victim leaves for long"),
        pytest.param(["a"], ["other"], ["b", "c"], id="what was asked goes, whoever it is"),
        pytest.param(["a", "b"], [], [], id="only those that were asked leave"),
        pytest.param(["a", "b"], ["other"], ["c"], id="the last one stays"),
        pytest.param([], ["small"], [], id="a pod ends that makes too little room"),
    ],
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
        plan.note_asked(f"uid-{name}", 0.0, 0, ServerTime(START))
        setting.add(leaving(name, sizes[name]))
    for name in happens:
        setting.remove(f"default/{name}")
    for _ in range(2):
        assert stay(setting, plan) == {f"uid-{name}" for name in staying}


@pytest.mark.parametrize(
    ("wait", "unneeded_victims"), [pytest.param(30.0, 1, id="in time"), pytest.param(1.0, 0, id="too late")]
)
def test_leaving_pods_that_may_not_be_victims_are_counted_on(wait: float, unneeded_victims: int):
    """Room that a pod of higher priority leaves soon spares a victim, though the decision did not count on it."""
    setting = Setting(node("n1"))
    setting.add(pod("other", "2", node="n1", priority=1000, deleted=rfc3339(START + 5)))
    setting.add(*(pod(name, "3", node="n1") for name in ("a", "b")))
    plan = planned(setting, "5")
    assert len(plan.record.victims) == 2
    assert len(stay(setting, plan, wait)) == unneeded_victims


def test_a_new_pod_of_a_victims_name_is_not_counted_on():
    """What a controller makes under the name of a victim that was asked stays, so the other victim has to go."""
    setting = Setting(node("n1"))
    setting.add(*(pod(name, "3", node="n1") for name in ("a", "b")), pod("other", "2", node="n1", priority=1000))
    plan = planned(setting, "5")
    plan.note_asked("uid-a", 0.0, 0, ServerTime(START))
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
        plan = Plan(record, f"default/p{number}", waiting.metadata.uid, 100, 0.0, 300.0, nominated=True)
        reconciler.plan_manager.index.add(plan)

    def slow(looking):
        def look(*arguments, **options):
            looks.append(arguments)
            return looking(*arguments, **options)

        return look

    monkeypatch.setattr(known_room, "fits_on", slow(known_room.fits_on))
    setting.clock.now = 60.0
    longest = 0.0
    for _ in range(100):
        before = len(looks)
        reconciler.turn()
        longest = max(longest, 0.015 * (len(looks) - before))
    assert longest < 0.05
    assert len(looks) >= 20
    assert len(reconciler.plans) == 20


@pytest.mark.parametrize(
    ("asked", "staying"),
    [
        pytest.param([], set(), id="nobody was asked: the group is needed whole"),
        pytest.param(["a"], set(), id="one was asked: the one on the other node goes, too"),
    ],
)
def test_a_group_goes_whole_or_stays(asked: list[str], staying: set[str]):
    """Members on other nodes are victims of the plan, and none of them is found to be unneeded."""
    setting = Setting(node("n1"), node("n2"), under=policy(groups=Groups(disruption=GroupDisruption.GROUP)))
    group = {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}
    setting.add(pod("a", "6", node="n1", **group), pod("b", "1", node="n2", **group))
    setting.add(pod("other", "7", node="n2", priority=1000))
    plan = planned(setting, "5")
    assert {victim.name for victim in plan.record.victims} == {"a", "b"}
    for name in asked:
        plan.note_asked(f"uid-{name}", 0.0, 0, ServerTime(START))
        setting.add(leaving(name, "6", **group))
    assert stay(setting, plan) == staying


@pytest.mark.parametrize(
    ("asking", "others", "staying"),
    [
        pytest.param([], [], {"uid-a", "uid-b"}, id="nobody is asked"),
        pytest.param(["a"], [], {"uid-a", "uid-b"}, id="the one at hand is to be asked once more"),
        pytest.param(["a", "b"], ["b"], set(), id="another one is being asked"),
    ],
)
def test_a_group_that_is_not_needed_stays_whole(asking: list[str], others: list[str], staying: set[str]):
    """If the preemptor fits by now, nobody of the group goes, on no node, until one of them is asked."""
    setting = Setting(node("n1"), node("n2"), under=policy(groups=Groups(disruption=GroupDisruption.GROUP)))
    group = {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}
    setting.add(pod("a", "4", node="n1", **group), pod("b", "1", node="n2", **group))
    setting.add(pod("own", "4", node="n1", priority=1000), pod("other", "7", node="n2", priority=1000))
    plan = planned(setting, "4")
    assert {victim.name for victim in plan.record.victims} == {"a", "b"}
    setting.remove("default/own")
    for name in asking:
        plan.asking.add(f"uid-{name}")
    asked = frozenset(f"uid-{name}" for name in others)
    assert stay(setting, plan, asking=asked) == staying
