"""Nodes that kube-scheduler does not take are left out for a growing while, and what comes of that."""

import math
from collections.abc import Callable

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import Desk, Setting, asks, node, pod, preemptor
from webhook.reconciler import preempting
from webhook.reconciler.plans.actions import Verb
from webhook.reconciler.queue import queue
from webhook.reconciler.queue.queue import MOST_FITTING, PATIENCE, NodeBackoff

pytestmark = pytest.mark.skipped_waits


def test_left_out_for_a_growing_while():
    """Each time in a row a node is left out twice as long, up to four hours; it comes back in between."""
    nodes, now, whiles = NodeBackoff(), 0.0, []
    for _ in range(12):
        until = nodes.leave_out("n1", "", 10.0, now).until
        assert [left.node for left in nodes.left_out(until - 0.1)] == ["n1"]
        assert nodes.left_out(until) == []
        whiles.append(until - now)
        now = until
    assert whiles[:4] == [60.0, 120.0, 240.0, 480.0]
    assert whiles[-1] == 14_400.0
    assert nodes.leave_out("n2", "", 300.0, 0.0).until == 600.0, "the next plans have their time elsewhere before"


def test_forgotten_after_as_long_again():
    """A node that is not refused again for as long as it was left out begins from the start."""
    nodes = NodeBackoff()
    nodes.leave_out("n1", "", 1.0, 0.0)
    assert nodes.leave_out("n1", "", 1.0, 119.0).times == 2
    assert nodes.leave_out("n1", "", 1.0, 1000.0).times == 1


def at_work(since: float, seconds: float) -> float:
    """A scheduler that always has its chance."""
    del seconds
    return since


@pytest.mark.slow
def test_memory_is_bounded():
    """However many nodes fit or are refused, what is remembered for one preemptor is not more."""
    nodes = NodeBackoff()
    for number in range(5000):
        nodes.leave_out(f"n{number}", "", 1.0, 0.0)
    nodes.fitting([f"m{number}" for number in range(5000)], at_work, 0.0)
    assert sum(map(len, msgspec.structs.astuple(nodes))) == 1100


BACK = 3600.0 + PATIENCE


@table(
    "scheduler, looks",
    ("at work", at_work, [(0.0, False, PATIENCE), (PATIENCE - 0.1, False, PATIENCE), (PATIENCE, True, None)]),
    ("away", lambda *_: math.inf, [(now, False, math.inf) for now in (0.0, 60.0, 36_000.0)]),
    ("comes back", lambda since, _: max(since, 3600.0), [(0.0, False, BACK), (3601.0, False, BACK)]),
)
def test_fit_that_stands(scheduler: Callable[[float, float], float], looks: list[tuple[float, bool, float | None]]):
    """A node on which a pod fits without being bound is left out when its scheduler has had a fair time, not before."""
    nodes = NodeBackoff()
    for now, left_out, due in looks:
        left, later = nodes.fitting(["n1"], scheduler, now)
        assert [one.node for one in left] == ["n1"] * left_out
        assert due is None or later == due


def test_fit_that_ends_begins_again():
    """Only a fit that stands all along counts."""
    nodes = NodeBackoff()
    nodes.fitting(["n1", "n2"], at_work, 0.0)
    nodes.fitting(["n2"], at_work, 50.0)
    left, _ = nodes.fitting(["n1", "n2"], at_work, 100.0)
    assert [one.node for one in left] == ["n2"]


async def rehearsed(nodes: int, *, bindings: int) -> tuple[Setting, Desk]:
    """A preemptor waits that fits on all nodes but the last, whose pod may go; its scheduler binds so many others."""
    setting = Setting(*(node(f"n{number}") for number in range(nodes)))
    setting.add(pod("v", "8", node=f"n{nodes - 1}"))
    desk = Desk(setting, dry_run=True)
    setting.add(preemptor())
    for number in range(bindings):
        await desk.work(10.0 + number * 20.0)
        setting.add(pod(f"other{number}", "1", priority=0))
        setting.add(pod(f"other{number}", "1", priority=0, node="n0"))
    return setting, desk


@pytest.mark.parametrize("scheduler_at_work", [True, False])
async def test_fit_that_kube_scheduler_does_not_see_ends_no_decision_for_good(scheduler_at_work: bool):
    """Where a pod fits by our reckoning only, it is served elsewhere once its scheduler had its chance, not before."""
    _, desk = await rehearsed(2, bindings=3 if scheduler_at_work else 0)
    assert desk.told == []
    await desk.work(36_000.0)
    if not scheduler_at_work:
        assert desk.told == []
        return
    left_out, decision = desk.told[:2]
    assert (left_out["message"], left_out["node"]) == ("node left out", "n0")
    assert (decision["node"], list(decision["leftOut"])) == ("n1", ["n0"])
    assert PATIENCE <= desk.times[-1] < 2 * PATIENCE


def test_a_pod_that_is_bound_nowhere_fits_nowhere_for_a_while():
    """However many nodes seem to fit: once a hundred of them were left out, a decision passes over all that fit."""
    nodes, backoff = [f"n{number}" for number in range(3000)], NodeBackoff()
    now = 0.0
    assert backoff.fitting(nodes, at_work, now)[0] == []
    now += PATIENCE
    left, _ = backoff.fitting(nodes, at_work, now)
    assert len(left) == 100
    assert len(backoff.left_out(now + 2 * PATIENCE - 1.0)) == MOST_FITTING
    assert backoff.left_out(now + 2 * PATIENCE) == []


async def test_a_pod_that_is_bound_nowhere_is_served_all_the_same(monkeypatch: pytest.MonkeyPatch):
    """More nodes seem to fit than are followed: it is helped elsewhere, and its plan is not ended because of them."""
    for module in (queue, preempting):
        monkeypatch.setattr(module, "MOST_FITTING", 2)
    setting, desk = await rehearsed(6, bindings=4)
    await desk.work(100.0)
    (decision,) = desk.lines("decision")
    assert decision["node"] == "n5"
    plan = desk.reconciler.plans["default/p"]
    assert plan.left_out == {f"n{number}" for number in range(5)}
    plan.rehearsed = False
    assert asks(setting.look(plan)) == {Verb.ASK: ["v"]}
