"""Faults of pods in front of the preemptor, of nominations beside its own, and of plans that share a victim."""

import math
from functools import partial

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import Fault
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, fixed, group, preemptor, victim
from tests.reconciler.harness.scenarios import later, simulated, slow
from webhook.policy.model.preemption import GroupDisruption, Groups


def pods_in_front() -> Cluster:
    """Pods of higher priority that nobody preempts for take whatever is emptied."""
    made = simulated(*(node(f"n{number}", "4") for number in range(5)))
    for number in range(5):
        made.put(victim(f"v{number}", f"n{number}"))
    for number in range(4):
        made.put(preemptor(f"front{number}", priority=1000, managed=False))
    made.put(preemptor())
    return made


def fits_and_waits() -> Cluster:
    """A pod of higher priority fits and is not placed yet; the preemptor would need its room, too."""
    made = simulated(node("n0", "8"))
    made.add(fixed("stays", "n0", "1"), victim("v0", "n0", "3"))
    later(1.0, lambda: (made.put(preemptor("front", "3", priority=110)), made.put(preemptor("p", "6"))))
    made.scheduler.away_until = 6.0
    return made


def leaves_later() -> Cluster:
    """A pod in front would fit once a pod that is leaving is gone, too, and that is before the preemptor is bound."""
    made = simulated(node("n1", "8"))
    made.add(fixed("stays", "n1", "1"), victim("v", "n1", "2"), victim("leaving", "n1", "2", grace=90))
    made.ends_after["leaving"] = 30.0
    made.leave("leaving")
    made.add(preemptor("front", "7", priority=1000, managed=False), preemptor("p", "5"))
    made.scheduler.away_until = 40.0
    return made


def nominated_for_a_moment() -> Cluster:
    """Another pod is nominated to a plan's node, and that is over before a watch shows it."""
    made = slow(simulated(node("n1", "8")))
    made.add(victim("a", "n1"), victim("kept", "n1", priority=20))
    made.kept.add("kept")
    made.ends_after["a"] = 20.0
    made.put(preemptor())
    later(2.0, lambda: made.put(preemptor("q")))
    return made


def one_of_two_plans_is_refused() -> Cluster:
    """Two plans need a pod that is kept; one of them needs another one, too."""
    made = slow(simulated(node("n1", "8")))
    made.add(fixed("fixed", "n1", "2"), victim("kept", "n1", "4", priority=10))
    made.kept.add("kept")
    made.add(victim("v", "n1", "2", priority=20), preemptor("a", "3"), preemptor("p", "3"))
    return made


def beside_a_plan_that_fails() -> Cluster:
    """While room is ready for one pod, the victim of another one's plan for that node is put back."""
    made = simulated(node("n1", "8"))
    made.replacing["agents"] = "here"
    made.add(victim("a", "n1"), victim("agent", "n1", priority=20, owner="agents"))
    later(2.0, lambda: made.put(preemptor()))
    later(8.0, lambda: made.put(preemptor("q")))
    made.scheduler.away_until = 20.0
    return made


def expected_by_a_plan_elsewhere() -> Cluster:
    """A group has a pod on two nodes. One is needed for a plan there, and is kept; on the other node it stays, too."""
    under = policy(groups=Groups(disruption=GroupDisruption.GROUP))
    made = slow(simulated(node("n1", "8"), node("n2", "8"), under=under))
    made.slow_writes = True
    made.groups = [group("g", 2)]
    made.add(fixed("fixed", "n1", "5"), victim("here", "n1", "3", priority=80, **{GANG: "g"}))
    made.put(victim("there", "n2", "3", priority=80, **{GANG: "g"}))
    made.kept.add("there")
    made.add(victim("a", "n2", "2"), victim("b", "n2", "3"), preemptor(cpu="5", priority=120))
    made.put(preemptor("q", "3", priority=110))
    return made


def beside_each_other() -> Cluster:
    """Two preemptors have room in what one victim leaves."""
    made = simulated(node("n1", "8"))
    for pod in (victim("a", "n1", "8"), preemptor("q"), preemptor()):
        made.put(pod)
    return made


def nominated_elsewhere() -> Cluster:
    """Of three pods in front, the first has a node of its own to wait for: the two others come together."""
    made = simulated(node("n1", "4"), node("n2", "4"))
    made.put(victim("leaving", "n2", grace=90))
    made.ends_after["leaving"] = 10.0
    made.leave("leaving")
    made.put(victim("v", "n1"))
    made.ends_after["v"] = 20.0
    first = preemptor("first", "3", priority=300, managed=False)
    first["status"]["nominatedNodeName"] = "n2"
    made.add(first, preemptor("second", "2", priority=200, managed=False))
    made.put(preemptor("third", "2", priority=190, managed=False))
    later(2.0, lambda: made.put(preemptor(cpu="1")))
    return made


def put_off() -> Cluster:
    """Of two pods in front, the scheduler has put off the first for a while: the second one comes."""
    made = simulated(node("n1", "4"))
    made.scheduler.backs_off = True
    made.add(victim("v", "n1"), preemptor("first", "3", priority=300, managed=False))
    later(9.0, lambda: made.put(preemptor("second", "4", priority=200, managed=False)))
    later(9.0, lambda: made.put(preemptor(cpu="1")))
    return made


def contested(how: str) -> Cluster:
    """When a plan's victim is gone and the scheduler away, another preemptor is nominated beside its own."""
    made = simulated(node("n1", "8"), under=policy(plan_timeout=20.0))
    made.add(victim("a", "n1"), victim("slow", "n1", priority=20, grace=30 if how == "it takes long" else 0))
    made.ends_after["slow"] = 30.0
    if how == "it is migrated":
        made.ends_after["slow"] = 0.0
        made.migrating["slow"] = 40.0
    later(2.0, lambda: made.put(preemptor()))
    made.scheduler.away_until = 48.0
    later(30.0, lambda: made.put(preemptor("q")))
    return made


def another_clock_is_ahead() -> Cluster:
    """The same, with a leader whose clock says that the other one's victim has had its time."""
    made = contested("it takes long")
    made.terms = [(0.0, math.inf, 29.0)]
    return made


FAULTS = {
    "two that fit beside each other": Fault(beside_each_other, 60.0, 1),
    "pods in front": Fault(pods_in_front, 600.0, 0, bound=False),
    "a pod in front that fits": Fault(fits_and_waits, 60.0, 0, bound=False),
    "a pod in front that fits later": Fault(leaves_later, 100.0, 0),
    "a nomination that is over": Fault(nominated_for_a_moment, 100.0, 1),
    "a victim of two plans": Fault(one_of_two_plans_is_refused, 10.0, 0, bound=False),
    "a plan that fails beside another one": Fault(beside_a_plan_that_fails, 60.0, 2),
    "a victim of a plan for another node": Fault(expected_by_a_plan_elsewhere, 100.0, 2),
    "a pod in front that is put off": Fault(put_off, 100.0, 0, bound=False),
    "a pod in front that goes elsewhere": Fault(nominated_elsewhere, 100.0, 0),
    "a nomination beside the preemptor's whose victim takes long": Fault(partial(contested, "it takes long"), 100.0, 2),
    "a nomination beside the preemptor's whose victim is migrated": Fault(
        partial(contested, "it is migrated"), 100.0, 2
    ),
    "the same by a clock that is ahead": Fault(another_clock_is_ahead, 100.0, 2),
}
