"""Faults of pods in front of the preemptor and beside it, and of leaders that come and go, whose clocks are wrong."""

import math
from functools import partial

from tests.reconciler.faults.fault import fault
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, fixed, group, preemptor, victim
from tests.reconciler.harness.scenarios import later
from webhook.policy.model.preemption import GroupDisruption, Groups

in_front = partial(preemptor, managed=False)
"""A pod of higher priority for which nobody preempts."""


@fault("8", evicted=1, seconds=60.0)
def two_that_fit_beside_each_other(made: Cluster) -> None:
    """Two preemptors have room in what one victim leaves."""
    made.add(victim("a", "n1", "8"), preemptor("q"), preemptor())


@fault(*"44444", bound=False, seconds=600.0)
def pods_in_front(made: Cluster) -> None:
    """They take whatever is emptied."""
    made.add(*(victim(f"v{number}", f"n{number}") for number in range(1, 6)))
    made.add(*(in_front(f"front{number}", priority=1000) for number in range(4)), preemptor())


@fault("8", bound=False, seconds=60.0)
def a_pod_in_front_that_fits(made: Cluster) -> None:
    """It is not placed yet; the preemptor would need its room, too."""
    made.add(fixed("stays", "n1", "1"), victim("v0", "n1", "3"))
    later(1.0, made.add, preemptor("front", "3", priority=110), preemptor("p", "6"))
    made.scheduler.away_until = 6.0


@fault("8")
def a_pod_in_front_that_fits_later(made: Cluster) -> None:
    """It would once a pod that is leaving is gone, too, and that is before the preemptor is bound."""
    made.add(fixed("stays", "n1", "1"), victim("v", "n1", "2"), victim("leaving", "n1", "2", grace=90))
    made.ends_after["leaving"] = 30.0
    made.leave("leaving")
    made.add(in_front("front", "7", priority=1000), preemptor("p", "5"))
    made.scheduler.away_until = 40.0


@fault("8", evicted=1, is_slow=True)
def a_nomination_that_is_over(made: Cluster) -> None:
    """Another pod is nominated to a plan's node, and that is over before a watch shows it."""
    made.add(victim("a", "n1"), victim("kept", "n1", priority=20))
    made.kept.add("kept")
    made.ends_after["a"] = 20.0
    made.put(preemptor())
    later(2.0, made.put, preemptor("q"))


@fault("8", bound=False, seconds=10.0, is_slow=True)
def a_victim_of_two_plans(made: Cluster) -> None:
    """Two plans need a pod that is kept; one of them needs another one, too."""
    made.add(fixed("fixed", "n1", "2"), victim("kept", "n1", "4", priority=10))
    made.kept.add("kept")
    made.add(victim("v", "n1", "2", priority=20), preemptor("a", "3"), preemptor("p", "3"))


@fault("8", evicted=2, seconds=60.0)
def a_plan_that_fails_beside_another_one(made: Cluster) -> None:
    """While room is ready for one pod, the victim of another one's plan for that node is put back."""
    made.replacing["agents"] = "here"
    made.add(victim("a", "n1"), victim("agent", "n1", priority=20, owner="agents"))
    later(2.0, made.put, preemptor())
    later(8.0, made.put, preemptor("q"))
    made.scheduler.away_until = 20.0


@fault("8", "8", evicted=2, is_slow=True, groups=Groups(disruption=GroupDisruption.GROUP))
def a_victim_of_a_plan_for_another_node(made: Cluster) -> None:
    """A group has a pod on two nodes. One is needed for a plan there, and is kept; on the other node it stays, too."""
    made.slow_writes = True
    made.groups = [group("g", 2)]
    made.add(fixed("fixed", "n1", "5"), victim("here", "n1", "3", priority=80, **{GANG: "g"}))
    made.put(victim("there", "n2", "3", priority=80, **{GANG: "g"}))
    made.kept.add("there")
    made.add(victim("a", "n2", "2"), victim("b", "n2", "3"), preemptor(cpu="5", priority=120))
    made.put(preemptor("q", "3", priority=110))


@fault("4", "4")
def a_pod_in_front_that_goes_elsewhere(made: Cluster) -> None:
    """Of three pods in front, the first has a node of its own to wait for: the two others come together."""
    made.put(victim("leaving", "n2", grace=90))
    made.ends_after |= {"leaving": 10.0, "v": 20.0}
    made.leave("leaving")
    made.put(victim("v", "n1"))
    first = in_front("first", "3", priority=300)
    first["status"]["nominatedNodeName"] = "n2"
    made.add(first, in_front("second", "2", priority=200), in_front("third", "2", priority=190))
    later(2.0, made.put, preemptor(cpu="1"))


@fault("4", bound=False)
def a_pod_in_front_that_is_put_off(made: Cluster) -> None:
    """Of two pods in front, the scheduler has put off the first for a while: the second one comes."""
    made.scheduler.backs_off = True
    made.add(victim("v", "n1"), in_front("first", "3", priority=300))
    later(9.0, made.add, in_front("second", "4", priority=200), preemptor(cpu="1"))


@fault("8", evicted=2, plan_timeout=20.0)
def a_nomination_beside_the_preemptors_whose_victim_takes_long(made: Cluster) -> None:
    """When a plan's victim is gone and the scheduler away, another preemptor is nominated beside its own."""
    made.ends_after.setdefault("slow", 30.0)
    made.add(victim("a", "n1"), victim("slow", "n1", priority=20, grace=int(made.ends_after["slow"])))
    later(2.0, made.put, preemptor())
    made.scheduler.away_until = 48.0
    later(30.0, made.put, preemptor("q"))


@fault("8", evicted=2, plan_timeout=20.0)
def a_nomination_beside_the_preemptors_whose_victim_is_migrated(made: Cluster) -> None:
    """The same, with a victim that is on its way out until then."""
    made.ends_after["slow"], made.migrating["slow"] = 0.0, 40.0
    a_nomination_beside_the_preemptors_whose_victim_takes_long(made)


@fault("8", evicted=2, plan_timeout=20.0)
def the_same_by_a_clock_that_is_ahead(made: Cluster) -> None:
    """The same, with a leader whose clock says that the other one's victim has had its time."""
    a_nomination_beside_the_preemptors_whose_victim_takes_long(made)
    made.terms = [(0.0, math.inf, 29.0)]


@fault("4", evicted=1, bound=False, seconds=50.0)
def replacements_known_to_the_leader_before(made: Cluster) -> None:
    """Only the pods of a controller that puts them back are in the way, and each leader leads for a few seconds."""
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", owner="agents"), preemptor())
    made.terms = [(0.0, 10.0, 0.0), (12.0, 20.0, 30.0), (22.0, 30.0, -30.0), (32.0, math.inf, 0.0)]


@fault("8", "8", evicted=1, seconds=600.0)
def nobody_leads_for_a_while(made: Cluster) -> None:
    """Neither a leader nor the scheduler is there for longer than a plan may take, while its room is ready."""
    made.add(victim("v1", "n1", "8"), victim("v2", "n2", "8", priority=20), preemptor(cpu="8"))
    made.terms = [(0.0, 5.0, 0.0), (400.0, math.inf, -20.0)]
    made.scheduler.away_until = 430.0


@fault("4", "4", "4", evicted=2, seconds=300.0)
def replacements_while_nobody_leads(made: Cluster) -> None:
    """The victim's controller puts the next pod on the same node while one leader follows another."""
    made.replacing["agents"] = "here"
    made.add(victim("agent0", "n1", owner="agents"), victim("agent1", "n2", owner="agents"))
    made.put(victim("web", "n3", priority=20))
    made.ends_after |= {"agent0": 6.0, "agent1": 6.0}
    made.put(preemptor())
    made.terms = [(0.0, 5.0, 0.0), (7.0, math.inf, -20.0)]


@fault("4", "4", evicted=1, seconds=300.0, plan_timeout=20.0)
def a_clock_that_is_ahead(made: Cluster) -> None:
    """A new leader's clock says that the victim's time is long over."""
    made.add(victim("a", "n1", grace=60), victim("b", "n2", priority=20))
    made.ends_after["a"] = 60.0
    later(2.0, made.put, preemptor())
    made.terms = [(0.0, 7.0, 0.0), (8.0, math.inf, 59.0)]


@fault("8", "8", evicted=2, seconds=200.0)
def a_pod_that_is_held_before_it_is_bound(made: Cluster) -> None:
    """kube-scheduler has chosen a node for a lower pod and holds it in PreBind: no object shows that for 20 seconds.

    It costs one plan; then its node is left out, and the preemptor is helped elsewhere.
    """
    made.add(victim("a", "n1"), victim("b", "n2", "8", priority=20))
    low = in_front("low", priority=50)
    made.scheduler.away_until = 20.0
    later(1.0, made.put, low)
    later(2.0, made.put, preemptor(cpu="8"))

    def bind() -> None:
        made.outcomes.outside("a pod was held there", "n1")
        made.put({**low, "spec": {**low["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})

    later(19.0, bind)
