"""Faults of leaders that come and go, and whose clocks are wrong."""

import math

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import Fault
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.scenarios import later, simulated


def names_its_node_under_many_leaders() -> Cluster:
    """Only the pods of a controller that puts them back are in the way, and each leader leads for a few seconds."""
    made = simulated(node("n1", "4"))
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", owner="agents"), preemptor())
    made.terms = [(0.0, 10.0, 0.0), (12.0, 20.0, 30.0), (22.0, 30.0, -30.0), (32.0, math.inf, 0.0)]
    return made


def leader_after_an_outage() -> Cluster:
    """Neither a leader nor the scheduler is there for longer than a plan may take, while its room is ready."""
    made = simulated(node("n1", "8"), node("n2", "8"))
    made.add(victim("v1", "n1", "8"), victim("v2", "n2", "8", priority=20), preemptor(cpu="8"))
    made.terms = [(0.0, 5.0, 0.0), (400.0, math.inf, -20.0)]
    made.scheduler.away_until = 430.0
    return made


def replaced_while_nobody_leads() -> Cluster:
    """The victim's controller puts the next pod on the same node while one leader follows another."""
    made = simulated(*(node(f"n{number}", "4") for number in range(3)))
    made.replacing["agents"] = "here"
    made.add(victim("agent0", "n0", owner="agents"), victim("agent1", "n1", owner="agents"))
    made.put(victim("web", "n2", priority=20))
    made.ends_after |= {"agent0": 6.0, "agent1": 6.0}
    made.put(preemptor())
    made.terms = [(0.0, 5.0, 0.0), (7.0, math.inf, -20.0)]
    return made


def leader_whose_clock_is_ahead() -> Cluster:
    """A new leader's clock says that the victim's time is long over."""
    made = simulated(node("n1", "4"), node("n2", "4"), under=policy(plan_timeout=20.0))
    made.add(victim("a", "n1", grace=60), victim("b", "n2", priority=20))
    made.ends_after["a"] = 60.0
    later(2.0, lambda: made.put(preemptor()))
    made.terms = [(0.0, 7.0, 0.0), (8.0, math.inf, 59.0)]
    return made


FAULTS = {
    "replacements that name their node, known to the leader before": Fault(
        names_its_node_under_many_leaders, 50.0, 1, bound=False
    ),
    "nobody leads for a while": Fault(leader_after_an_outage, 600.0, 1),
    "replacements while nobody leads": Fault(replaced_while_nobody_leads, 300.0, 2),
    "a clock that is ahead": Fault(leader_whose_clock_is_ahead, 300.0, 1),
}
