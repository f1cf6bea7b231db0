"""Faults of choosing victims, and of judging a plan before its victims are asked."""

import msgspec

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import Fault, throttle_after_the_first
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import GANG, group, preemptor, victim
from tests.reconciler.harness.scenarios import later, simulated
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import BudgetMode


def names_its_node() -> Cluster:
    """The best victim's controller puts the next pod on the same node by itself; another node would do."""
    made = simulated(node("n1", "4"), node("n2", "4"))
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", owner="agents"), victim("web", "n2", priority=20), preemptor())
    return made


def names_its_node_under_a_gang() -> Cluster:
    """Of the victims for two members of a gang one is put back while the server has no time for the other one."""
    made = simulated(node("n1", "4"), budgets=(budget("b", {"app": "v"}, 5),))
    made.groups = [group("g", 2)]
    made.replacing["agents"] = "here"
    made.add(victim("agent", "n1", "2", priority=20, owner="agents"), victim("web", "n1", "2", owner="webs"))
    for name in ("p", "q"):
        member = preemptor(name, "2")
        member["metadata"]["labels"][GANG] = "g"
        made.put(member)
    throttle_after_the_first(made)
    return made


def room_elsewhere() -> Cluster:
    """While the server has no time for the second victim somebody deletes a pod on another node."""
    made = simulated(node("n1", "4"), node("n2", "4"), budgets=(budget("b", {"app": "v"}, 5),))
    made.add(victim("a", "n1", "2", priority=20), victim("b", "n1", "2"), victim("other", "n2", priority=80))
    later(2.0, lambda: made.put(preemptor()))
    throttle_after_the_first(made)
    later(10.0, made.leave, "other")
    made.scheduler.away_until = 40.0
    return made


def one_is_kept() -> Cluster:
    """An admission policy denies one victim of each node."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    for name in ("n1", "n2"):
        made.add(victim(f"{name}-kept", name, "2", priority=20), victim(f"{name}-a", name, "2"))
        made.put(victim(f"{name}-b", name, "2"))
        made.kept.add(f"{name}-kept")
    made.put(preemptor(cpu="6"))
    return made


def spent_budget() -> Cluster:
    """Under `best-effort` the plan needs a pod whose budget is used up."""
    made = simulated(
        node("n1", "6"), under=policy(budgets=BudgetMode.BEST_EFFORT), budgets=(budget("b", {"app": "kept"}, 0),)
    )
    made.add(victim("kept", "n1", "2", priority=20, app="kept"), victim("a", "n1", "2"), victim("b", "n1", "2"))
    made.put(preemptor(cpu="6"))
    return made


def scheduler_is_away() -> Cluster:
    """kube-scheduler is away for an hour, and every node is full."""
    made = simulated(*(node(f"n{number}", "8") for number in range(3)))
    for number in range(3):
        made.put(victim(f"v{number}", f"n{number}", "8"))
    made.put(preemptor(cpu="8"))
    made.scheduler.away_until = 3600.0
    return made


def labels_change() -> Cluster:
    """A victim writes its progress while two others are migrated."""
    made = simulated(node("n1", "6"))
    made.put(victim("vm", "n1", "2", priority=30))
    made.migrating["vm"] = 20.0
    made.put(victim("web", "n1", "2", priority=20))
    made.migrating["web"] = 3.0
    made.add(victim("job", "n1", "2"), preemptor(cpu="6"))

    def write(count: int = 1) -> None:
        if "job" in made.pods and "deletionTimestamp" not in made.pods["job"]["metadata"]:
            pod = msgspec.json.decode(msgspec.json.encode(made.pods["job"]))
            pod["metadata"]["annotations"]["example.com/progress"] = str(count)
            made.put(pod)
            later(5.0, write, count + 1)

    later(5.0, write)
    return made


def asked_in_vain() -> Cluster:
    """A pod that a plan asked does not leave, and is still being asked when its preemptor is another pod."""
    limits = Limits(per_owner=Rate(1, 60.0))
    made = simulated(node("n1", "8"), under=policy(limits=limits, plan_timeout=20.0, wait_for_terminating=0.0))
    made.put(victim("vm", "n1", "3", priority=80, owner="vms"))
    made.migrating["vm"] = 120.0
    made.add(victim("db", "n1", "2", priority=85), victim("job", "n1", "3", priority=20), preemptor(cpu="4"))
    again = preemptor(cpu="4")
    again["metadata"]["uid"] = "uid-p-again"
    later(10.0, lambda: (made.withdraw("p"), made.put(again)))
    return made


FAULTS = {
    "room elsewhere when the first victim has gone": Fault(room_elsewhere, 100.0, 1),
    "replacements that name their node, under a gang": Fault(names_its_node_under_a_gang, 50.0, 1, bound=False),
    "replacements that name their node": Fault(names_its_node, 300.0, 2),
    "one victim is denied": Fault(one_is_kept, 300.0, 0, bound=False),
    "one victim's budget is used up": Fault(spent_budget, 300.0, 0, bound=False),
    "kube-scheduler is away": Fault(scheduler_is_away, 3700.0, 1),
    "a pod that was asked in vain": Fault(asked_in_vain, 100.0, 2),
    "annotations that no rule reads": Fault(labels_change, 300.0, 3),
}
