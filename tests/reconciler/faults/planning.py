"""Faults of choosing victims, and of judging a plan before its victims are asked."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import (
    Fault,
    Patch,
    later,
    preemptor,
    simulated,
    throttle_after_the_first,
    victim,
)
from tests.reconciler.gang_clusters import group
from tests.reconciler.outcome_judge import GANG
from tests.reconciler.simulation import Simulation
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import BudgetMode
from webhook.reconciler.evaluate.scheduler_activity import SchedulerActivity
from webhook.reconciler.plans import next_action as actions
from webhook.reconciler.plans import objections, plan_manager
from webhook.reconciler.plans.siblings import Siblings
from webhook.reconciler.queue.node_backoff import LeftOut, NodeBackoff


def names_its_node() -> Simulation:
    """The best victim's controller puts the next pod on the same node by itself; another node would do."""
    made = simulated(node("n1", "4"), node("n2", "4"))
    made.replacing["agents"] = "here"
    made.put(victim("agent", "n1", owner="agents"))
    made.put(victim("web", "n2", priority=20))
    made.put(preemptor())
    return made


def learn_nothing(patch: Patch) -> None:
    patch.setattr(NodeBackoff, "plan_failed", lambda *_, **__: LeftOut("n", "", 1, 0.0))
    patch.setattr("webhook.reconciler.evaluate.victim_exclusions.EvictionBackoff.returned", lambda *_: None)


def names_its_node_under_a_gang() -> Simulation:
    """Of the victims for two members of a gang one is put back while the server has no time for the other one."""
    made = simulated(node("n1", "4"), budgets=(budget("b", {"app": "v"}, 5),))
    made.groups = [group("g", 2)]
    made.replacing["agents"] = "here"
    made.put(victim("agent", "n1", "2", priority=20, owner="agents"))
    made.put(victim("web", "n1", "2", owner="webs"))
    for name in ("p", "q"):
        member = preemptor(name, "2")
        member["metadata"]["labels"][GANG] = "g"
        made.put(member)
    throttle_after_the_first(made)
    return made


def blame_who_asked(patch: Patch) -> None:
    patch.setattr(Siblings, "have_evicted", lambda _, plan: bool(plan.gone))


def room_elsewhere() -> Simulation:
    """While the server has no time for the second victim somebody deletes a pod on another node."""
    made = simulated(node("n1", "4"), node("n2", "4"), budgets=(budget("b", {"app": "v"}, 5),))
    made.put(victim("a", "n1", "2", priority=20))
    made.put(victim("b", "n1", "2"))
    made.put(victim("other", "n2", priority=80))
    later(2.0, lambda: made.put(preemptor()))
    throttle_after_the_first(made)
    later(10.0, made.leave, "other")
    made.scheduler.away_until = 40.0
    return made


def give_up_where_it_fits(patch: Patch) -> None:
    patch.setattr(plan_manager, "fits_elsewhere", lambda *_: False)


def one_is_kept() -> Simulation:
    """An admission policy denies one victim of each node."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    for name in ("n1", "n2"):
        made.put(victim(f"{name}-kept", name, "2", priority=20))
        made.put(victim(f"{name}-a", name, "2"))
        made.put(victim(f"{name}-b", name, "2"))
        made.kept.add(f"{name}-kept")
    made.put(preemptor(cpu="6"))
    return made


def spent_budget() -> Simulation:
    """Under `best-effort` the plan needs a pod whose budget is used up."""
    made = simulated(
        node("n1", "6"), under=policy(budgets=BudgetMode.BEST_EFFORT), budgets=(budget("b", {"app": "kept"}, 0),)
    )
    made.put(victim("kept", "n1", "2", priority=20, app="kept"))
    made.put(victim("a", "n1", "2"))
    made.put(victim("b", "n1", "2"))
    made.put(preemptor(cpu="6"))
    return made


def ask_without_trying(patch: Patch) -> None:
    patch.setattr(actions, "is_doubtful", lambda *_: False)
    patch.setattr(actions, "has_budget", lambda *_: False)
    patch.setattr(objections, "beyond_budget", lambda *_: "")
    nothing = lambda found: np.zeros(len(found.nodes), np.int8)  # noqa: E731
    patch.setattr("webhook.reconciler.evaluate.evaluator.within_budgets", nothing)


def scheduler_is_away() -> Simulation:
    """kube-scheduler is away for an hour, and every node is full."""
    made = simulated(*(node(f"n{number}", "8") for number in range(3)))
    for number in range(3):
        made.put(victim(f"v{number}", f"n{number}", "8"))
    made.put(preemptor(cpu="8"))
    made.scheduler.away_until = 3600.0
    return made


def blame_the_node(patch: Patch) -> None:
    patch.setattr(SchedulerActivity, "chance", lambda _self, _pod, since, _seconds: since)


def labels_change() -> Simulation:
    """A victim writes its progress while two others are migrated."""
    made = simulated(node("n1", "6"))
    made.put(victim("vm", "n1", "2", priority=30))
    made.migrating["vm"] = 20.0
    made.put(victim("web", "n1", "2", priority=20))
    made.migrating["web"] = 3.0
    made.put(victim("job", "n1", "2"))
    made.put(preemptor(cpu="6"))

    def write(count: int = 1) -> None:
        if "job" in made.pods and "deletionTimestamp" not in made.pods["job"]["metadata"]:
            pod = msgspec.json.decode(msgspec.json.encode(made.pods["job"]))
            pod["metadata"]["annotations"]["example.com/progress"] = str(count)
            made.put(pod)
            later(5.0, write, count + 1)

    later(5.0, write)
    return made


def judge_by_labels(patch: Patch) -> None:
    seen: dict[str, Any] = {}
    judge = actions.objection

    def compare(plan: Any, evaluator: Any, policy_set: Any, under: Any, left: Any, *, asking: Any) -> Any:
        for one in left:
            meta = evaluator.state.pods.get(one.key).metadata
            if seen.setdefault(one.uid, meta.annotations) != meta.annotations:
                return objections.Objection(actions.Ending.OUTDATED, "it has changed")
        return judge(plan, evaluator, policy_set, under, left, asking=asking)

    patch.setattr(actions, "objection", compare)


def asked_in_vain() -> Simulation:
    """A pod that a plan asked does not leave, and is still being asked when its preemptor is another pod."""
    limits = Limits(per_owner=Rate(1, 60.0))
    made = simulated(node("n1", "8"), under=policy(limits=limits, plan_timeout=20.0, wait_for_terminating=0.0))
    made.put(victim("vm", "n1", "3", priority=80, owner="vms"))
    made.migrating["vm"] = 120.0
    made.put(victim("db", "n1", "2", priority=85))
    made.put(victim("job", "n1", "3", priority=20))
    made.put(preemptor(cpu="4"))
    again = preemptor(cpu="4")
    again["metadata"]["uid"] = "uid-p-again"
    later(10.0, lambda: (made.withdraw("p"), made.put(again)))
    return made


def count_on_whoever_is_asked(patch: Patch) -> None:
    patch.setattr(actions, "_not_answered_for", lambda *_: set())


FAULTS = {
    "room elsewhere when the first victim has gone": Fault(room_elsewhere, 100.0, give_up_where_it_fits, 1),
    "replacements that name their node, under a gang": Fault(
        names_its_node_under_a_gang, 50.0, blame_who_asked, 1, bound=False
    ),
    "replacements that name their node": Fault(names_its_node, 300.0, learn_nothing, 2),
    "one victim is denied": Fault(one_is_kept, 300.0, ask_without_trying, 0, bound=False),
    "one victim's budget is used up": Fault(spent_budget, 300.0, ask_without_trying, 0, bound=False),
    "kube-scheduler is away": Fault(scheduler_is_away, 3700.0, blame_the_node, 1),
    "a pod that was asked in vain": Fault(asked_in_vain, 100.0, count_on_whoever_is_asked, 2),
    "annotations that no rule reads": Fault(labels_change, 300.0, judge_by_labels, 3),
}
