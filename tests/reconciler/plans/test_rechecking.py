"""Room that comes up between the decision and an eviction costs nobody their place, on the plan's own node too."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.reconciler.acting import PODS, Play, managing, playing
from tests.reconciler.builders import START, Setting, node, pod, policy, preemptor
from tests.workloads import eventually
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.policy.model.schedule import Schedule
from webhook.reconciler.evaluate import known_room
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.plans.plan import Plan, PlanLook
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.unneeded import unneeded
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.service import ReconcilerService
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.plan_victims import PlanVictim

pytestmark = pytest.mark.skipped_waits


class Interlude:
    """Something that happens, and is seen by the reconciler, when a plan has come to a step."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, step: str) -> None:
        if step == self.step:
            self.reached.set()
            await self.over.wait()

    async def delete(self, play: Play, service: ReconcilerService, name: str, grace: int) -> None:
        """Delete a pod at that step, and go on when the reconciler has seen it gone, or leaving."""
        await asyncio.wait_for(self.reached.wait(), 10)
        await play.client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": grace})

        def seen() -> bool:
            pod = service.state.pods.get(f"default/{name}")
            return pod is None or bool(grace and pod.metadata.deletion_timestamp)

        await eventually(seen)
        self.over.set()


@pytest.mark.parametrize("grace", [0, 1], ids=["ends at once", "begins to leave"])
async def test_room_on_the_own_node_before_anyone_is_asked(grace: int):
    """If a pod of the plan's node ends, or begins to, after the decision, the preemptor fits and the victim stays."""
    interlude = Interlude("nominated")
    async with playing(termination_seconds=1.0) as play, play.reconciling(checkpoint=interlude) as service:
        await play.victim("victim", "node-1", "4", terminationGracePeriodSeconds=1)
        await play.victim("other", "node-1", "4", schedulerName="other", terminationGracePeriodSeconds=1)
        await play.preemptor("p", "3")
        await interlude.delete(play, service, "other", grace)
        assert await play.bound("p") == "node-1"
        assert await play.here() == {"victim", "p"}
        await play.nominated("p", "")
        assert [line["ending"] for line in play.lines("plan ended")] == ["bound"]


async def test_a_schedule_that_has_ended_before_anyone_is_asked():
    """A plan that began within the schedule of its policy asks nobody after it, and its preemptor waits."""
    interlude, hour = Interlude("nominated"), (datetime.now(UTC).hour + 12) % 24
    async with playing(termination_seconds=1.0) as play, play.reconciling(checkpoint=interlude) as service:
        await play.victim("victim", "node-1", "8")
        await play.preemptor("p", "3")
        await asyncio.wait_for(interlude.reached.wait(), 10)
        ended = Schedule(cron=f"0 {hour} * * *", duration=3600.0)
        service.reconciler.policy_set.use(managing(schedule=ended))
        interlude.over.set()
        await play.nominated("p", "")
        assert await play.here() == {"victim", "p"}
        assert [line["ending"] for line in play.lines("plan ended")] == ["outdated"]
        assert f"from {hour:02}:00 UTC" in service.reconciler.queue.get("default/p").reason


async def test_room_on_the_own_node_before_the_last_is_asked():
    """If room comes up while the first victims leave, the last one stays, and no rate counts it."""
    interlude = Interlude("all-but-last")
    async with playing(termination_seconds=1.0) as play, play.reconciling(checkpoint=interlude) as service:
        for name in ("a", "b"):
            await play.victim(name, "node-1", "3")
        await play.victim("other", "node-1", "2", schedulerName="other")
        await play.covered("a")
        await play.preemptor("p", "5")
        await interlude.delete(play, service, "other", 0)
        assert await play.bound("p") == "node-1"
        here = await play.here()
        assert len(here & {"a", "b"}) == 1
        await play.nominated("p", "")
        assert len(service.state.expectations) == 0
        assert len(list(service.reconciler.evaluator.limiter.recent(service.clock.monotonic()))) == 1


async def test_own_victims_are_waited_for():
    """The room of a victim that was asked counts, even if it takes longer to end than the policy waits for others."""
    interlude = Interlude("all-but-last")
    policies = managing(wait_for_terminating=0.0)
    async with playing(termination_seconds=1.0) as play, play.reconciling(policies, checkpoint=interlude) as service:
        for name in ("a", "b"):
            await play.victim(name, "node-1", "3", terminationGracePeriodSeconds=600)
        await play.covered("a")
        await play.victim("other", "node-1", "2", schedulerName="other")
        await play.preemptor("p", "5")
        await interlude.delete(play, service, "other", 0)
        assert await play.bound("p") == "node-1"
        assert len(await play.here() & {"a", "b"}) == 1


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
    return Plan(
        record,
        "default/p",
        "uid-p",
        100,
        0.0,
        300.0,
        look=PlanLook(setting.state.snapshot.version),
    )


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
        found = unneeded(setting.evaluator, plan, setting.rules, 0.0, at=setting.at)
        assert found.uids == {f"uid-{name}" for name in staying}


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
    assert len(unneeded(setting.evaluator, plan, setting.rules, wait, at=setting.at).uids) == unneeded_victims


def test_a_new_pod_of_a_victims_name_is_not_counted_on():
    """What a controller makes under the name of a victim that was asked stays, so the other victim has to go."""
    setting = Setting(node("n1"))
    setting.add(*(pod(name, "3", node="n1") for name in ("a", "b")), pod("other", "2", node="n1", priority=1000))
    plan = planned(setting, "5")
    plan.note_asked("uid-a", 0.0, 0, ServerTime(START))
    setting.remove("default/a")
    setting.add(pod("a", "3", node="n1", uid="another"))
    setting.remove("default/other")
    assert unneeded(setting.evaluator, plan, setting.rules, 0.0, at=setting.at).uids == set()


async def test_some_victims_stay():
    """If room comes up before anyone was asked, those go that are still needed, and no rate counts the others."""
    interlude = Interlude("nominated")
    async with playing(termination_seconds=1.0) as play, play.reconciling(checkpoint=interlude) as service:
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "1")
        await play.victim("large", "node-1", "3", schedulerName="other")
        await play.victim("other", "node-1", "2", schedulerName="other")
        await play.preemptor("p", "3")
        await interlude.delete(play, service, "other", 0)
        assert await play.bound("p") == "node-1"
        assert len(await play.here() & {"a", "b", "c"}) == 2
        await play.nominated("p", "")
        assert len(service.state.expectations) == 0
        assert len(list(service.reconciler.evaluator.limiter.recent(service.clock.monotonic()))) == 1


async def test_victims_chosen_together_are_judged_once(monkeypatch: pytest.MonkeyPatch):
    """Between the look that chose three victims and the requests nothing has changed: nobody looks three times more."""
    looks = []
    look = PlanManager.next_action

    def counted(manager: PlanManager, plan: Plan, asking: Any = ()) -> Any:
        looks.append(asking)
        return look(manager, plan, asking)

    monkeypatch.setattr(PlanManager, "next_action", counted)
    async with playing() as play, play.reconciling(leader_elect=False):
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "2")
        await play.preemptor("p", "6")
        assert await play.bound("p") == "node-1"
    assert looks
    assert not any(looks), "a look while others were being asked"


def test_patrol_gives_way(monkeypatch: pytest.MonkeyPatch):
    """However many plans wait and however long a look at one takes, looking goes on for a moment at a time."""
    setting = Setting(node("n1"))
    reporter = Reporter(ReconcilerMetrics(CollectorRegistry()), lambda _: None, None)
    reconciler = Reconciler(None, setting.state, setting.policy_set, reporter, setting.clock, fence=lambda: 0.0)  # type: ignore[arg-type]
    looks = []
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
    assert unneeded(setting.evaluator, plan, setting.rules, 0.0, at=setting.at).uids == staying


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
        plan.begin_asking(f"uid-{name}", ServerTime(START))
    asked = frozenset(f"uid-{name}" for name in others)
    assert unneeded(setting.evaluator, plan, setting.rules, 0.0, at=setting.at, asking=asked).uids == staying
