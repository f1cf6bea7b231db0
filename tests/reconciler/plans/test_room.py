"""Devices that a plan holds, victims that end together, and whom lost room is blamed on (docs/reconciler.md)."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, Desk, Setting, are_nominated, asks, node, pod, preemptor
from tests.reconciler.device_settings import DRIVER, TEMPLATE, Devices, all_asked, begun, claim, holder, uses
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Unschedulable, Waits
from webhook.reconciler.plans.actions import End, Ending, Verb, Wait
from webhook.reconciler.plans.plan import Plan

JOB = ("Job", "j")


def all_gone(setting: Devices, desk: Desk, plan: Plan, *, deallocated: bool = True) -> None:
    """All victims have been asked and are gone; what their claims held may be taken back."""
    all_asked(desk, plan)
    for victim in plan.record.victims:
        setting.ends(victim.name)
        if deallocated:
            setting.deallocated(f"c-{victim.name}")


def ended(desk: Desk, plan: Plan) -> End:
    """How the plan ends now."""
    action = desk.reconciler.plan_manager.look(plan)
    assert isinstance(action, End)
    member = plan.members[action.member] if action.member else None
    assert desk.reconciler.plan_manager.end(plan, action.ending, member)
    return action


async def test_a_plan_counts_its_devices_as_taken():
    """The second preemptor gets the two devices that are left, the third one nothing; the plans name them."""
    setting = Devices(n1=4)
    made = [setting.wants(f"p{number}", 2) for number in range(3)]
    desk, first = begun(setting, made[0])
    outcome = setting.evaluate(made[1])
    assert isinstance(outcome, Evicts)
    assert not {victim.metadata.name for victim in outcome.victims} & {one.name for one in first.record.victims}
    second = desk.reconciler.plan_manager.begin(made[1], setting.policy, outcome, 0)
    assert set(first.devices) | set(second.devices) == {DeviceId(DRIVER, "n1", f"d{number}") for number in range(4)}
    assert isinstance(setting.evaluate(made[2]), Unschedulable)
    desk.reconciler.plan_manager.end(second, Ending.OUTDATED)
    assert isinstance(setting.evaluate(made[2]), Evicts | Waits)


async def test_between_the_end_of_the_victims_and_the_deallocation():
    """Nobody else is evicted meanwhile, for this plan or another, and its time does not run."""
    setting = Devices(n1=2, n2=2)
    made = setting.wants("p", 2)
    desk, plan = begun(setting, made)
    all_gone(setting, desk, plan, deallocated=False)
    manager = desk.reconciler.plan_manager
    setting.clock.now += 3600.0
    assert isinstance(manager.look(plan), Wait)
    assert setting.state.pending.awaited == {victim.uid for victim in plan.record.victims}
    assert plan.deadline == float("inf")
    assert isinstance(setting.evaluate(setting.wants("q", 2)), Evicts)
    setting.remove("default/q")
    for victim in plan.record.victims:
        setting.deallocated(f"c-{victim.name}")
    assert isinstance(manager.look(plan), Wait)
    assert plan.roomy == 3600.0


async def test_a_stranger_takes_the_devices():
    """The plan ends as `devices-taken` and names the claim; a device of the node that does as well is held instead."""
    setting = Devices(n1=3)
    made = setting.wants("p", 2)
    desk, plan = begun(setting, made)
    all_gone(setting, desk, plan)
    manager, held = desk.reconciler.plan_manager, {one.device for one in plan.devices}
    free = next(name for name in ("d0", "d1", "d2") if name not in held)
    setting.ends(f"n1-{free[1]}")
    setting.deallocated(f"c-n1-{free[1]}")
    setting.add(pod("stranger", "100m", node="n1", priority=1000, spec=uses("c-stranger")))
    taken = sorted(held)
    setting.claim(claim("c-stranger", held=(taken[0],), by=("stranger",)))
    assert isinstance(manager.look(plan), Wait)
    assert {one.device for one in plan.devices} == {free, taken[1]}
    setting.claim(claim("c-stranger", 2, held=(taken[0], free), by=("stranger",)))
    end = ended(desk, plan)
    assert end.ending is Ending.DEVICES_TAKEN
    assert f"default/c-stranger ({DRIVER}/n1/{free})" in end.note


async def test_an_owner_that_takes_the_devices_again_is_passed_over():
    """The scheduler allocates before it binds: the claim says so before the new pod is seen on the node."""
    setting = Devices(n1=1)
    setting.add(holder("n1-0", owner=JOB, spec=TEMPLATE))
    desk, plan = begun(setting, setting.wants("p", 1))
    all_gone(setting, desk, plan)
    setting.add(holder("n1-0-new", on="", owner=JOB, spec=TEMPLATE))
    setting.claim(claim("c-new", held=("d0",), by=("n1-0-new",)))
    assert ended(desk, plan).ending is Ending.DEVICES_TAKEN
    assert list(desk.reconciler.evaluator.log.returning) == ["Job/default/j"]


async def test_victims_end_together():
    """The longest grace is asked first; the others when as much is left, or at once if that one ends before.

    That one may take longer than a plan: its time does not run meanwhile.
    """
    setting = Devices(n1=2)
    for name, grace in (("n1-0", 400), ("n1-1", 10)):
        setting.add(holder(name, spec={**uses(f"c-{name}"), "terminationGracePeriodSeconds": grace}))
    desk, plan = begun(setting, setting.wants("p", 2))
    manager = desk.reconciler.plan_manager
    for victim in plan.record.victims:
        plan.tried[victim.uid] = True

    def asked() -> list[str] | float:
        step = manager.look(plan)
        return step.until if isinstance(step, Wait) else asks(step)[Verb.ASK]

    assert asked() == ["n1-0"]
    manager.asked(plan, setting.state.pods.get("default/n1-0"))
    setting.clock.now = 20.0
    assert asked() == 390.0
    setting.clock.now = 390.0
    assert asked() == ["n1-1"]
    setting.clock.now = 330.0
    setting.ends("n1-0")
    setting.deallocated("c-n1-0")
    assert asked() == ["n1-1"]


WAITING = pod("other", "100m", spec=uses("c-n1-0"))


@table(
    "pods, nodes, outcome",
    ("it can go", [holder("n1-0")], 1, Evicts),
    ("its controller puts another one in its place", [holder("n1-0", owner=JOB)], 1, Unschedulable),
    ("the other one gets a claim of its own", [holder("n1-0", owner=JOB, spec=TEMPLATE)], 1, Evicts),
    ("another pod waits for the same claim", [holder("n1-0"), WAITING], 1, Unschedulable),
    ("it leaves anyway", [holder("n1-0", deleted=rfc3339(START + 5))], 2, Waits),
    ("it is gone, and its claim is there", [], 2, Fits),
)
def test_devices_of_a_pod(pods: list[Pod], nodes: int, outcome: type):
    """Who names an allocated claim gets it as it is: nobody goes for its devices, nor if a pod leaves them anyway."""
    setting = Devices(**{f"n{number + 1}": 1 for number in range(nodes)})
    setting.ends("n1-0")
    setting.add(*pods)
    assert isinstance(setting.evaluate(setting.wants("p", 1)), outcome)
    if WAITING in pods:
        setting.remove("default/other")
        assert isinstance(setting.evaluate(setting.wants("p", 1)), Evicts)


def came(cpu: str, of: str = "web", made: float = 1.0) -> Pod:
    """A pod of this owner that takes so much, and was made so many seconds after the eviction."""
    owner = ("Job", of) if of else None
    return pod(f"new-{of}-{cpu}-{made}", cpu, node="n1", created=rfc3339(START + made), owner=owner)


@table(
    "coming, blamed",
    ("a pod in place of the one that went", [came("4")], ["web"]),
    ("two in place of one", [came("2"), came("2", made=2.0)], ["web"]),
    ("one would have to go beside another owner's", [came("3"), came("3", of="other")], []),
    ("it took free room, another owner's pod the rest", [came("2"), came("4", of="other")], []),
    ("another victim's owner took free room", [came("4"), came("500m", of="log")], ["web"]),
    ("two owners of victims took it together", [came("3"), came("3", of="log")], ["log", "web"]),
    ("each of two took what it lacks", [came("500m"), came("500m", made=2.0), came("1", of="log")], ["log", "web"]),
    ("it was made before: a rolling update's pod that waited in front", [came("4", made=-60.0)], []),
    ("so it was, and one in place of the victim is small", [came("4", made=-60.0), came("500m")], []),
    ("a bare pod", [came("4", of="")], []),
)
@pytest.mark.parametrize("ahead", [0.0, 40.0, -40.0], ids=["", "its clock is ahead", "its clock is behind"])
async def test_an_owner_is_blamed_for_what_the_preemptor_lacks(coming: list[Pod], blamed: list[str], ahead: float):
    """Blame needs a pod that was made after the eviction and takes room without which the preemptor would fit.

    What was made after it the server's clock says, and what was seen before.
    """
    setting = Setting(node("n1", "8"))
    setting.clock.jump = ahead
    setting.add(pod("web-0", "4", node="n1", owner=("Job", "web")), pod("log-0", "2", node="n1", owner=("Job", "log")))
    for made in coming:
        if made.metadata.creation_timestamp < rfc3339(START):
            waits = msgspec.structs.replace(made.spec, node_name="")
            setting.add(msgspec.structs.replace(made, spec=waits))
    desk, plan = begun(setting, preemptor("p", "7"))
    all_asked(desk, plan)
    for name in ("web-0", "log-0"):
        setting.remove(f"default/{name}")
    setting.add(*coming)
    assert ended(desk, plan).ending is Ending.SPACE_TAKEN
    assert sorted(desk.reconciler.evaluator.log.returning) == [f"Job/default/{owner}" for owner in blamed]


async def test_time_goes_on_from_the_last_room():
    """While another one that lost its own room is nominated beside it a plan is not over, however old it is."""
    setting = Setting(node("n1"))
    setting.add(pod("a", "5", node="n1"), pod("b", "3", node="n1"))
    manager = Desk(setting).reconciler.plan_manager
    for made in (preemptor("p", "4"), preemptor("q", "4")):
        plan = manager.begin(made, setting.policy, setting.evaluate(made), 0)
        are_nominated(plan)
        manager.asked(plan, setting.state.pods.get(plan.record.victims[0].key))
        setting.remove(plan.record.victims[0].key)
        setting.clock.now += 3600.0
        assert isinstance(manager.look(manager.plans["default/p"]), Wait)
    setting.add(pod("back", "3", node="n1"))
    assert isinstance(manager.look(manager.plans["default/p"]), Wait)
