"""A group that goes whole goes whole though its plan is interrupted, and nobody is left of it."""

import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, preemptor, victim
from tests.reconciler.harness.scenarios import lived, simulated
from webhook.policy.model.preemption import GroupDisruption, Groups
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PlanRecord
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.plan_victims import PlanVictim

pytestmark = pytest.mark.slow

NODES = 4


def wide_group() -> Cluster:
    """One group on four full nodes, and a preemptor that needs the room on one."""
    under = policy(groups=Groups(disruption=GroupDisruption.GROUP))
    made = simulated(*(node(f"n{number}", "8") for number in range(NODES)), under=under)
    for number in range(NODES):
        made.put(victim(f"v-{number}", f"n{number}", "8", **{GANG: "wide"}))
        made.ends_after[f"v-{number}"] = 0.0
    made.put(preemptor(cpu="5"))
    return made


def test_nobody_is_left_of_a_group():
    """Whichever step is the last of a process, all members go."""
    for step in range(lived(wide_group, 120.0)[0].steps + 1):
        made, _ = lived(wide_group, 120.0, killed_at=step)
        assert made.pods["p"]["spec"].get("nodeName"), step
        assert len(made.evicted) == NODES, f"step {step}: {made.evicted}"


def test_who_goes_with_whom():
    """Of a group of which one was asked all are bound to go; single victims and other groups are not."""
    victims = tuple(
        PlanVictim("default", name, name, group) for name, group in (("a", 1), ("b", 1), ("c", 2), ("d", 0))
    )
    plan = Plan(PlanRecord(id="x", node="n1", victims=victims), "default/p", "p", 100, 0.0, 10.0)
    assert plan.bound_to_go(()) == frozenset()
    plan.note_asked("d", 0.0, 0, ServerTime(0.0))
    assert plan.bound_to_go(()) == frozenset()
    plan.note_asked("a", 0.0, 0, ServerTime(0.0))
    assert plan.bound_to_go(()) == {"a", "b"}
