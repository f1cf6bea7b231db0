"""Who is blamed when the room that a plan made is gone: an owner that put a pod back there, and nobody else."""

from dataclasses import dataclass

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, Setting, node, pod, preemptor
from tests.reconciler.device_settings import all_asked, begun
from webhook.kube.instants import rfc3339
from webhook.reconciler.plans.actions import End, Ending, Wait


@dataclass
class Came:
    """A pod that came to the node: how much it takes, of whom, and how many seconds after the eviction it was made."""

    cpu: str
    of: str = "web"
    made: float = 1.0


def owner_of(one: Came) -> dict:
    """The owner as `pod` takes it."""
    return {"owner": ("Job", one.of)} if one.of else {}


@table(
    "came, blamed",
    ("a pod in place of the one that went", [Came("4")], ["web"]),
    ("two in place of one", [Came("2"), Came("2")], ["web"]),
    ("one would have to go beside another owner's", [Came("3"), Came("3", of="other")], []),
    ("it took free room, another owner's pod the rest", [Came("2"), Came("4", of="other")], []),
    ("another victim's owner took free room", [Came("4"), Came("500m", of="log")], ["web"]),
    ("two owners of victims took it together", [Came("3"), Came("3", of="log")], ["log", "web"]),
    ("it was made before: a rolling update's pod that waited in front", [Came("4", made=-60.0)], []),
    ("so it was, and one in place of the victim is small", [Came("4", made=-60.0), Came("500m")], []),
    ("a bare pod", [Came("4", of="")], []),
)
@pytest.mark.parametrize("ahead", [0.0, 40.0, -40.0], ids=["", "its clock is ahead", "its clock is behind"])
async def test_an_owner_is_blamed_for_what_the_preemptor_lacks(came: list[Came], blamed: list[str], ahead: float):
    """Blame needs a pod that was made after the eviction and takes room without which the preemptor would fit.

    What was made after it the server's clock says, and what was seen before.
    """
    setting = Setting(node("n1", "8"))
    setting.clock.jump = ahead
    setting.add(pod("web-0", "4", node="n1", owner=("Job", "web")), pod("log-0", "2", node="n1", owner=("Job", "log")))
    coming = [
        pod(f"new-{number}", one.cpu, created=rfc3339(START + one.made), **owner_of(one))
        for number, one in enumerate(came)
    ]
    setting.add(*(made for made, one in zip(coming, came, strict=True) if one.made < 0))
    desk, plan = begun(setting, preemptor("p", "7"))
    all_asked(desk, plan)
    for name in ("web-0", "log-0"):
        setting.remove(f"default/{name}")
    for number, one in enumerate(came):
        setting.add(pod(f"new-{number}", one.cpu, node="n1", created=rfc3339(START + one.made), **owner_of(one)))
    manager = desk.reconciler.plan_manager
    action = manager.look(plan)
    assert isinstance(action, End)
    assert action.ending is Ending.SPACE_TAKEN
    manager.end(plan, action.ending, plan.member(action.member) if action.member else None)
    returning = desk.reconciler.evaluator.log.returning
    assert sorted(returning) == [f"Job/default/{owner}" for owner in blamed]


@table(
    "spec, why",
    ("cordoned", {"unschedulable": True}, "node(s) were unschedulable"),
    ("tainted", {"taints": [{"key": "gone", "effect": "NoSchedule"}]}, "node(s) had untolerated taint(s)"),
)
async def test_nobody_is_blamed_for_a_node_that_changed(spec: dict, why: str):
    """A rolling update's pod takes free room and the node is cordoned: the plan ends by that, without back-off."""
    setting = Setting(node("n1", "8"))
    setting.add(pod("web-0", "4", node="n1", owner=("Job", "web")))
    setting.add(pod("rest", "2", node="n1", annotations={}))
    desk, plan = begun(setting, preemptor("p", "4"))
    all_asked(desk, plan)
    setting.add(pod("web-1", "2", node="n1", owner=("Job", "web"), created=rfc3339(START + 1)))
    setting.remove("default/web-0")
    manager = desk.reconciler.plan_manager
    assert isinstance(manager.look(plan), Wait)
    changed = msgspec.convert(
        {"metadata": {"name": "n1"}, "spec": spec, "status": {"allocatable": {"cpu": "8"}}}, type(node("n1"))
    )
    setting.state.nodes.take("n1", changed)
    action = manager.look(plan)
    assert isinstance(action, End)
    assert (action.ending, why in action.note) == (Ending.NODE_CHANGED, True), action
    manager.end(plan, action.ending, plan.member(action.member) if action.member else None)
    assert not desk.reconciler.evaluator.log.returning
