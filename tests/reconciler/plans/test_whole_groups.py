"""A group that goes whole goes whole though its plan is interrupted, and nobody is left of it."""

from __future__ import annotations

import random

import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.gang_clusters import victim
from tests.reconciler.random_clusters import waiting
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.plan_victims import PlanVictim

pytestmark = pytest.mark.slow

NODES = 4


def wide_group(step: int) -> Simulation:
    """One group on four full nodes, and a preemptor that needs the room on one; the process is killed at a step."""
    under = policy(groups=Groups(disruption=GroupDisruption.GROUP))
    made = Simulation(under, [node(f"n{number}", "8") for number in range(NODES)], [], random.Random(step))
    for number in range(NODES):
        made.put(victim(f"v-{number}", f"n{number}", 8, of="wide"))
        made.ends_after[f"v-{number}"] = 0.0
    one = waiting("p", random.Random(1), 0.0)
    one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    made.put(one)
    made.killed_at = frozenset({step})
    return made


def test_nobody_is_left_of_a_group():
    """Whichever step is the last of a process, all members go, or none has."""
    for step in range(1, 9):

        async def live(step: int = step) -> None:
            made = wide_group(step)
            await made.live(120.0)
            assert made.pods["p"]["spec"].get("nodeName"), step
            assert len(made.evicted) == NODES, f"step {step}: {made.evicted}"

        run(live())


def test_who_goes_with_whom():
    """Of a group of which one was asked all are bound to go; single victims and other groups are not."""
    victims = tuple(
        PlanVictim("default", name, name, group) for name, group in (("a", 1), ("b", 1), ("c", 2), ("d", 0))
    )
    plan = Plan(PlanRecord(id="x", node="n1", victims=victims), "default/p", "p", 100, 0.0, 10.0)
    assert plan.bound_to_go(()) == frozenset()
    plan.note_asked("d", 0.0, 0, 0.0)
    assert plan.bound_to_go(()) == frozenset()
    plan.note_asked("a", 0.0, 0, 0.0)
    assert plan.bound_to_go(()) == {"a", "b"}
