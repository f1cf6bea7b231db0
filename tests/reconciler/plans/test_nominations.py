"""Whose nomination a plan takes, and what it costs those who lose theirs."""

import itertools
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.reconciler.acting import PODS, playing
from tests.reconciler.builders import Desk, Setting, node, pod, preemptor
from tests.workloads import eventually
from webhook.kube.resources import NODE
from webhook.reconciler.metrics import ReconcilerMetrics
from webhook.reconciler.plans.actions import Ask, Displace
from webhook.reconciler.plans.endings import ENDINGS, Ending
from webhook.reconciler.plans.plan import Plan, to_displace
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import PlanRecord

pytestmark = pytest.mark.skipped_waits


async def test_pod_that_fits_beside_keeps_its_nomination():
    """Two preemptors that fit beside each other in what one victim leaves both get in; neither plan is given up."""
    async with playing(termination_seconds=1.0) as play, play.reconciling():
        await play.victim("a", "node-1", "8")
        await play.preemptor("low-one", "3")
        await play.nominated("low-one", "node-1")
        await play.preemptor("high-one", "3", "higher")
        assert {await play.bound("low-one"), await play.bound("high-one")} == {"node-1"}
        await play.nominated("low-one", "")
        await play.nominated("high-one", "")
        assert [line["ending"] for line in play.lines("plan ended")] == ["bound", "bound"]


async def test_nomination_by_another_scheduler_stays():
    """A pod of another scheduler that is nominated to the node keeps its nomination: that is the scheduler's affair."""
    async with playing(termination_seconds=0.5) as play, play.reconciling():
        await play.victim("a", "node-1", "6")
        await play.preemptor("foreign", "6", schedulerName="other")
        await play.client.patch(f"{PODS}/foreign/status", {"status": {"nominatedNodeName": "node-1"}})
        await play.preemptor("p", "6", "higher")
        assert await play.bound("p") == "node-1"
        assert (await play.get("foreign")).status.nominated_node_name == "node-1"


async def test_a_nomination_whose_node_went_is_replaced_in_one_patch(monkeypatch):
    """With another node at hand the pod is never without a nomination, so no autoscaler adds a node for it."""
    async with playing(2, termination_seconds=30.0) as play, play.reconciling() as service:
        await play.victim("a", "node-1", "6", terminationGracePeriodSeconds=40)
        await play.victim("b", "node-2", "8", terminationGracePeriodSeconds=40)
        await play.preemptor("p")
        await eventually(lambda: len(service.reconciler.plans))
        [plan] = service.reconciler.plans.values()
        await play.nominated("p", plan.record.node)
        other = {"node-1": "node-2", "node-2": "node-1"}[plan.record.node]
        writer, writes = service.reconciler.executor._writer, []
        patch_status = writer.patch_status

        async def recorded(what, pod, body):
            writes.append(what)
            return await patch_status(what, pod, body)

        monkeypatch.setattr(writer, "patch_status", recorded)
        await play.client.delete(NODE.path(name=plan.record.node))
        await play.nominated("p", other)
        await eventually(lambda: not service.reconciler.executor.clearing)
        assert writes.count("nominate") == 1
        assert "clear" not in writes
        assert service.reconciler.state.expectations.cleared == {}


@pytest.mark.parametrize(
    ("requests", "displaced"),
    [
        pytest.param((("a", "2", 90), ("b", "3", 80)), [], id="both fit beside it"),
        pytest.param((("a", "3", 90), ("b", "3", 80)), ["b"], id="the more important one fits"),
        pytest.param((("a", "6", 90), ("b", "3", 80)), ["a"], id="the less important one fits"),
        pytest.param((("a", "6", 90), ("b", "6", 80)), ["a", "b"], id="neither fits"),
    ],
)
def test_who_is_displaced(requests, displaced: list[str]):
    """Beside a preemptor of 3 CPU on a node of 8, the more important pods keep their place first."""
    setting = Setting(node("n1"))
    setting.add(*(preemptor(name, cpu, priority=priority, nominated="n1") for name, cpu, priority in requests))
    setting.add(preemptor("p", "3", nominated="n1"))
    plan = Plan(PlanRecord(id="x", node="n1"), "default/p", "uid-p", 100, 0.0, 300.0)
    assert [pod.metadata.name for pod in to_displace(setting.state, plan)] == displaced


async def test_lower_nominations_are_cleared_before_anybody_goes():
    """Once, if there are any: one that could not be cleared does not hold the plan up."""
    setting = Setting(node("n1"))
    setting.add(pod("v", "8", node="n1"), preemptor("low", "8", priority=90, nominated="n1"))
    made, desk = preemptor("p", "8"), Desk(setting)
    manager = desk.reconciler.plan_manager
    plan = manager.begin(made, setting.policy, setting.evaluate(made), 0, ())
    plan.note_written()
    action = manager.next_action(plan)
    assert isinstance(action, Displace)
    assert [one.metadata.name for one in action.pods] == ["low"]
    plan.note_displaced()
    assert isinstance(manager.next_action(plan), Ask)
    await desk.reconciler.stop()


_NO_ATTEMPT = {
    Ending.DISPLACED,
    Ending.GANG,
    Ending.LOST,
    Ending.NODE_CHANGED,
    Ending.NODE_GONE,
    # Nothing is tried again after these
    Ending.BOUND,
    Ending.RESIZED,
    Ending.DELETED,
    Ending.DEPOSED,
}


@pytest.mark.parametrize("ending", Ending)
async def test_attempts_that_count(ending: Ending):
    """A plan that evicted in vain counts, unless it was displaced, or its nomination or its node was taken away."""
    setting = Setting(node("n1"))
    reporter = Reporter(ReconcilerMetrics(CollectorRegistry()), lambda _: None, None)
    reconciler = Reconciler(None, setting.state, setting.policy_set, reporter, setting.clock, fence=lambda: 0.0)  # type: ignore[arg-type]
    entry = reconciler.queue.offer("default/p", uid="uid-p", priority=100, created=0.0, now=0.0)
    plan = Plan(PlanRecord(id="x", node="n1"), "default/p", "uid-p", 100, 0.0, 300.0, gone={"uid-v"})
    reconciler.plan_manager.index.add(plan)
    reconciler._end(plan, ending)
    assert entry.attempts == int(ending not in _NO_ATTEMPT)


def test_every_ending_has_a_row_and_is_told_to_people():
    """What an ending means is said in the code, and what happened in the table of the page for operators."""
    assert list(ENDINGS) == list(Ending)
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    _, _, table = page.partition("| ending | what happened |\n|---|---|\n")
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines())
    assert sorted(row.split("`")[1] for row in rows) == sorted(Ending)


async def test_a_clearing_that_never_began():
    """If the lease is lost just when a plan has ended, a later term takes the plan off."""
    setting = Setting(node("n1"))
    desk = Desk(setting)
    reconciler = desk.reconciler
    setting.add(preemptor())
    plan = Plan(PlanRecord(id="x", node="n1"), "default/p", "uid-p", 100, 0.0, 300.0)
    reconciler.plan_manager.index.add(plan)
    reconciler._end(plan, Ending.TIMED_OUT)
    assert reconciler.executor.clearing == {"x"}
    await reconciler.stop()
    assert not reconciler.executor.clearing
