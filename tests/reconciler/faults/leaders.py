"""Faults of leaders that come and go, and whose clocks are wrong."""

from __future__ import annotations

import math
from typing import Any

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import Fault, Patch, later, preemptor, simulated, victim
from tests.reconciler.simulation import Simulation
from webhook.kube.instants import epoch_or
from webhook.reconciler.evaluate.victim_exclusions import EvictionBackoff
from webhook.reconciler.plans import plan_manager, plan_times


def names_its_node_under_many_leaders() -> Simulation:
    """Only the pods of a controller that puts them back are in the way, and each leader leads for a few seconds."""
    made = simulated(node("n1", "4"))
    made.replacing["agents"] = "here"
    made.put(victim("agent", "n1", owner="agents"))
    made.put(preemptor())
    made.terms = [(0.0, 10.0, 0.0), (12.0, 20.0, 30.0), (22.0, 30.0, -30.0), (32.0, math.inf, 0.0)]
    return made


def forget_owners(patch: Patch) -> None:
    patch.setattr(EvictionBackoff, "recall", lambda *_: None)


def leader_after_an_outage() -> Simulation:
    """Neither a leader nor the scheduler is there for longer than a plan may take, while its room is ready."""
    made = simulated(node("n1", "8"), node("n2", "8"))
    made.put(victim("v1", "n1", "8"))
    made.put(victim("v2", "n2", "8", priority=20))
    made.put(preemptor(cpu="8"))
    made.terms = [(0.0, 5.0, 0.0), (400.0, math.inf, -20.0)]
    made.scheduler.away_until = 430.0
    return made


def believe_the_deadline(patch: Patch) -> None:
    def written(plan: Any, context: Any, timeout: float) -> float:
        del timeout
        clock = context.evaluator.clock
        return clock.monotonic() + epoch_or(plan.record.deadline, 0.0) - clock.wall()

    patch.setattr(plan_manager, "time_limit", written)


def replaced_while_nobody_leads() -> Simulation:
    """The victim's controller puts the next pod on the same node while one leader follows another."""
    made = simulated(*(node(f"n{number}", "4") for number in range(3)))
    made.replacing["agents"] = "here"
    made.put(victim("agent0", "n0", owner="agents"))
    made.put(victim("agent1", "n1", owner="agents"))
    made.put(victim("web", "n2", priority=20))
    made.ends_after |= {"agent0": 6.0, "agent1": 6.0}
    made.put(preemptor())
    made.terms = [(0.0, 5.0, 0.0), (7.0, math.inf, -20.0)]
    return made


def see_nobody_come(patch: Patch) -> None:
    patch.setattr(plan_manager, "returning_owners", lambda *_: set())


def leader_whose_clock_is_ahead() -> Simulation:
    """A new leader's clock says that the victim's time is long over."""
    made = simulated(node("n1", "4"), node("n2", "4"), under=policy(plan_timeout=20.0))
    made.put(victim("a", "n1", grace=60))
    made.put(victim("b", "n2", priority=20))
    made.ends_after["a"] = 60.0
    later(2.0, lambda: made.put(preemptor()))
    made.terms = [(0.0, 7.0, 0.0), (8.0, math.inf, 59.0)]
    return made


def believe_the_clock(patch: Patch) -> None:
    patch.setattr(plan_times, "_end_by_own_clock", lambda *_: -math.inf)


FAULTS = {
    "replacements that name their node, known to the leader before": Fault(
        names_its_node_under_many_leaders, 50.0, forget_owners, 1, bound=False
    ),
    "nobody leads for a while": Fault(leader_after_an_outage, 600.0, believe_the_deadline, 1),
    "replacements while nobody leads": Fault(replaced_while_nobody_leads, 300.0, see_nobody_come, 2),
    "a clock that is ahead": Fault(leader_whose_clock_is_ahead, 300.0, believe_the_clock, 1),
}
