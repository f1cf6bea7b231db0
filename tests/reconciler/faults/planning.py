"""Faults of choosing victims, and of judging a plan before its victims are asked."""

import msgspec

from tests.preemption.building import ZONE
from tests.reconciler.faults.fault import fault, throttle_after_the_first
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, Json, group, preemptor, victim
from tests.reconciler.harness.scenarios import later
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import BudgetMode
from webhook.policy.model.values import CAN_BE_PREEMPTED


@fault("4", "4", evicted=2, seconds=300.0)
def replacements_that_name_their_node(made: Cluster) -> None:
    """The best victim's controller puts the next pod on the same node by itself; another node would do."""
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", owner="agents"), victim("web", "n2", priority=20), preemptor())


@fault("4", evicted=1, bound=False, seconds=50.0)
def replacements_that_name_their_node_under_a_gang(made: Cluster) -> None:
    """Of the victims for two members of a gang one is put back while the server has no time for the other one."""
    made.cover("v", 5)
    made.groups = [group("g", 2)]
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", "2", priority=20, owner="agents"), victim("web", "n1", "2", owner="webs"))
    made.add(preemptor("p", "2", **{GANG: "g"}), preemptor("q", "2", **{GANG: "g"}))
    throttle_after_the_first(made)


@fault("4", "4", evicted=1)
def room_elsewhere_when_the_first_victim_has_gone(made: Cluster) -> None:
    """While the server has no time for the second victim somebody deletes a pod on another node."""
    made.cover("v", 5)
    made.add(victim("a", "n1", "2", priority=20), victim("b", "n1", "2"), victim("other", "n2", priority=80))
    later(2.0, made.put, preemptor())
    throttle_after_the_first(made)
    later(10.0, made.leave, "other")
    made.scheduler.away_until = 40.0


@fault("6", "6", bound=False, seconds=300.0)
def one_victim_is_denied(made: Cluster) -> None:
    """An admission policy denies one victim of each node."""
    for name in ("n1", "n2"):
        made.add(victim(f"{name}-kept", name, "2", priority=20), victim(f"{name}-a", name, "2"))
        made.put(victim(f"{name}-b", name, "2"))
        made.kept.add(f"{name}-kept")
    made.put(preemptor(cpu="6"))


@fault("6", bound=False, seconds=300.0, budgets=BudgetMode.BEST_EFFORT)
def one_victims_budget_is_used_up(made: Cluster) -> None:
    """Under `best-effort` the plan needs a pod whose budget is used up."""
    made.cover("kept", 0)
    made.add(victim("kept", "n1", "2", priority=20, app="kept"), victim("a", "n1", "2"), victim("b", "n1", "2"))
    made.put(preemptor(cpu="6"))


@fault("8", "8", "8", evicted=1, seconds=3700.0)
def kube_scheduler_is_away(made: Cluster) -> None:
    """It is away for an hour, and every node is full."""
    made.add(*(victim(f"v{number}", f"n{number}", "8") for number in (1, 2, 3)), preemptor(cpu="8"))
    made.scheduler.away_until = 3600.0


@fault("6", evicted=3, seconds=300.0)
def annotations_that_no_rule_reads(made: Cluster) -> None:
    """A victim writes its progress while two others are migrated."""
    made.add(victim("vm", "n1", "2", priority=30), victim("web", "n1", "2", priority=20))
    made.migrating |= {"vm": 20.0, "web": 3.0}
    made.add(victim("job", "n1", "2"), preemptor(cpu="6"))

    def write(count: int = 1) -> None:
        if "job" in made.pods and "deletionTimestamp" not in made.pods["job"]["metadata"]:
            pod = msgspec.json.decode(msgspec.json.encode(made.pods["job"]))
            pod["metadata"]["annotations"]["example.com/progress"] = str(count)
            made.put(pod)
            later(5.0, write, count + 1)

    later(5.0, write)


@fault("8", evicted=2, limits=Limits(per_owner=Rate(1, 60.0)), plan_timeout=20.0, wait_for_terminating=0.0)
def a_pod_that_was_asked_in_vain(made: Cluster) -> None:
    """It does not leave, and is still being asked when the preemptor of its plan is another pod."""
    made.put(victim("vm", "n1", "3", priority=80, owner="vms"))
    made.migrating["vm"] = 120.0
    made.add(victim("db", "n1", "2", priority=85), victim("job", "n1", "3", priority=20), preemptor(cpu="4"))
    again = preemptor(cpu="4")
    again["metadata"]["uid"] = "uid-p-again"
    later(10.0, lambda: (made.withdraw("p"), made.put(again)))


# Preemptors that may not be together in a zone, or are spread over zones, are nominated side by side.

ALIKE = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": ZONE}
ANTI_AFFINITY = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALIKE]}}}
SPREAD = {"topologySpreadConstraints": [{**ALIKE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


def in_zones(made: Cluster, *zones: str, grace: int = 0) -> None:
    """The nodes are in these zones, each full of three pods, which may go but in zone `kept`; they take so long."""
    for number, zone in enumerate(zones):
        made.nodes[number]["metadata"]["labels"][ZONE] = zone
        for place in range(3):
            pod = victim(f"v{number}-{place}", f"n{number + 1}", "2", grace=grace)
            pod["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "false" if zone == "kept" else "true"}
            made.ends_after[pod["metadata"]["name"]] = grace
            made.put(pod)


def coming(made: Cluster, spec: Json, *names: str) -> None:
    """Preemptors that need a node each come at once, with that in their specs."""
    for name in names:
        pod = preemptor(name, "6", app="apart")
        pod["spec"] |= spec
        made.put(pod)


@fault("6", "6", evicted=3, seconds=120.0)
def apart_in_one_zone(made: Cluster) -> None:
    """One of two has to wait."""
    in_zones(made, "a", "a")
    coming(made, ANTI_AFFINITY, "p", "q")


@fault(*"666666", evicted=9, seconds=120.0)
def apart_in_three_zones(made: Cluster) -> None:
    """Two of five have to wait."""
    in_zones(made, *"aabbcc")
    coming(made, ANTI_AFFINITY, *"pqrst")


@fault("6", "6", evicted=3, seconds=120.0)
def apart_from_one_that_does_not_care(made: Cluster) -> None:
    """The first one has anti-affinity, the second one only the label that it is against."""
    in_zones(made, "a", "a", grace=10)
    coming(made, ANTI_AFFINITY, "p")
    later(2.0, coming, made, {}, "q")


@fault("6", "6", "6", evicted=3, seconds=120.0)
def spread_over_two_zones(made: Cluster) -> None:
    """In one of them nobody may go."""
    in_zones(made, "a", "a", "kept")
    coming(made, SPREAD, "p", "q")
