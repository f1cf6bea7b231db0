"""Nodes that kube-scheduler does not take are left out for a growing while, and what comes of that."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.reconciler.acting import PODS, managing, playing
from tests.reconciler.builders import Desk, Setting, node, pod, preemptor
from tests.workloads import eventually
from webhook.kube.instants import rfc3339
from webhook.policy.model import Limits
from webhook.reconciler.evaluate.evaluator import Evicts, Fits, Unschedulable
from webhook.reconciler.queue.queue import PATIENCE, UNSEEN_PATIENCE, NodeBackoff

pytestmark = pytest.mark.skipped_waits


def test_left_out_for_a_growing_while():
    """Each time in a row a node is left out twice as long, up to four hours; it comes back in between."""
    nodes, now, whiles = NodeBackoff(), 0.0, []
    for _ in range(12):
        until = nodes.timed_out("n1", 10.0, now).until
        assert [left.node for left in nodes.left_out(until - 0.1)] == ["n1"]
        assert nodes.left_out(until) == []
        whiles.append(until - now)
        now = until
    assert whiles[:4] == [60.0, 120.0, 240.0, 480.0]
    assert whiles[-1] == 14_400.0


def test_left_out_for_longer_than_the_plan_took():
    """The next plans have their time elsewhere before the node is tried again."""
    assert NodeBackoff().timed_out("n1", 300.0, 0.0).until == 600.0


def test_forgotten_after_as_long_again():
    """A node that is not refused again for as long as it was left out begins from the start."""
    nodes = NodeBackoff()
    nodes.timed_out("n1", 1.0, 0.0)
    assert nodes.timed_out("n1", 1.0, 119.0).times == 2
    assert nodes.timed_out("n1", 1.0, 1000.0).times == 1


@pytest.mark.slow
def test_memory_is_bounded():
    """However many nodes fit or are refused, what is remembered for one preemptor is not more."""
    nodes = NodeBackoff()
    for number in range(5000):
        nodes.timed_out(f"n{number}", 1.0, 0.0)
    nodes.fitting([f"m{number}" for number in range(5000)], None, 0.0)
    assert len(nodes) == 1100


@pytest.mark.parametrize(
    ("seen", "patience"),
    [
        pytest.param(1.0, PATIENCE, id="its scheduler is at work"),
        pytest.param(None, UNSEEN_PATIENCE, id="its scheduler was never seen"),
        pytest.param(0.0, UNSEEN_PATIENCE, id="its scheduler was not seen since"),
    ],
)
def test_fit_that_stands(seen: float | None, patience: float):
    """A node on which a pod fits without being bound is left out after a fair time."""
    nodes = NodeBackoff()
    assert nodes.fitting(["n1"], seen, 0.0) == ([], PATIENCE)
    left, due = nodes.fitting(["n1"], seen, patience - 0.1)
    assert (left, due) == ([], patience)
    left, due = nodes.fitting(["n1"], seen, patience)
    assert [one.node for one in left] == ["n1"]


def test_fit_that_ends_begins_again():
    """Only a fit that stands all along counts."""
    nodes = NodeBackoff()
    nodes.fitting(["n1", "n2"], 1.0, 0.0)
    nodes.fitting(["n2"], 1.0, 50.0)
    left, _ = nodes.fitting(["n1", "n2"], 100.0, 100.0)
    assert [one.node for one in left] == ["n2"]


@pytest.mark.parametrize("left_out", [(), ("n1",), ("n1", "n2")])
def test_decision_without_some_nodes(left_out: tuple[str, ...]):
    """Nodes that are left out neither end the decision by a fit nor are they emptied."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "8", node="n2"))
    outcome = setting.evaluate(preemptor(), left_out=left_out)
    expected: Any = {0: Fits, 1: Evicts, 2: Unschedulable}[len(left_out)]
    assert isinstance(outcome, expected)


@pytest.mark.parametrize("scheduler_at_work", [True, False])
async def test_fit_that_kube_scheduler_does_not_see_ends_no_decision_for_good(scheduler_at_work: bool):
    """Where a pod fits by our reckoning only, it is served on another node after a while, and it is said why."""
    setting = Setting(node("n1"), node("n2"))
    setting.add(pod("v", "8", node="n2"))
    desk = Desk(setting, dry_run=True)
    setting.add(preemptor())
    await desk.work(30.0)
    assert desk.told == []
    if scheduler_at_work:
        setting.add(pod("other", "1", priority=0))
        setting.add(pod("other", "1", priority=0, node="n1"))
    await desk.work(36_000.0)
    left_out, decision = desk.told[:2]
    assert (left_out["message"], left_out["node"]) == ("node left out", "n1")
    assert (decision["node"], list(decision["leftOut"])) == ("n2", ["n1"])
    assert desk.times[-1] == (PATIENCE if scheduler_at_work else UNSEEN_PATIENCE)


async def test_node_where_a_plan_timed_out_is_not_emptied_again():
    """The scheduler never takes the first node; its workload is hit once, then the other node is tried."""
    policies = managing(plan_timeout=1.0, limits=Limits(attempts_per_preemptor=5))
    async with playing(2, without=["scheduler"]) as play, play.reconciling(policies):
        await play.victim("a", "node-1", "8", terminationGracePeriodSeconds=0)
        await play.victim("b", "node-2", "8", terminationGracePeriodSeconds=0)
        await play.preemptor("p")
        since = rfc3339(time.time())
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
        await play.client.patch(f"{PODS}/p/status", {"status": {"conditions": [condition]}})
        decided = await eventually(lambda: play.lines("decision"))
        first = decided[0]["node"]
        victim = {"node-1": "a", "node-2": "b"}[first]
        await eventually(lambda: play.lines("plan ended"))
        await play.victim(f"{victim}-again", first, "8", terminationGracePeriodSeconds=0)
        await eventually(lambda: len(play.lines("decision")) > 1)
        second = play.lines("decision")[1]
        assert second["node"] != first
        assert list(second["leftOut"]) == [first]
