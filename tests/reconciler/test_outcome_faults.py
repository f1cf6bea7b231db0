"""Faults that once emptied nodes for nothing, each with the mechanism that keeps it away, and without (E9)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.outcome_faults import Fault, Patch, later, lived, preemptor, simulated, slow, victim, wrong_with
from tests.reconciler.simulation import Simulation, run
from webhook.policy.model import PLAN, BudgetMode, Limits, Rate
from webhook.reconciler.evaluate.pods_ahead import PodsAhead
from webhook.reconciler.evaluate.scheduler_activity import SchedulerActivity
from webhook.reconciler.evaluate.victim_exclusions import EvictionBackoff
from webhook.reconciler.plans import adoption, objections, plan_manager
from webhook.reconciler.plans import next_action as actions
from webhook.reconciler.preemptors import instant
from webhook.reconciler.queue.node_backoff import LeftOut, NodeBackoff
from webhook.reconciler.state.state import State


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
        return clock.monotonic() + instant(plan.record.deadline) - clock.wall()

    patch.setattr(plan_manager, "time_limit", written)


def pods_in_front() -> Simulation:
    """Pods of higher priority that nobody preempts for take whatever is emptied."""
    made = simulated(*(node(f"n{number}", "4") for number in range(5)))
    for number in range(5):
        made.put(victim(f"v{number}", f"n{number}"))
    for number in range(4):
        made.put(preemptor(f"front{number}", priority=1000, managed=False))
    made.put(preemptor())
    return made


def fits_and_waits() -> Simulation:
    """A pod of higher priority fits and is not placed yet; the preemptor would need its room, too."""
    made = simulated(node("n0", "8"))
    kept = victim("stays", "n0", "1")
    kept["metadata"]["annotations"] = {}
    made.put(kept)
    made.put(victim("v0", "n0", "3"))
    later(1.0, lambda: (made.put(preemptor("front", "3", priority=110)), made.put(preemptor("p", "6"))))
    made.scheduler.away_until = 6.0
    return made


def leaves_later() -> Simulation:
    """A pod in front would fit once a pod that is leaving is gone, too, and that is before the preemptor is bound."""
    made = simulated(node("n1", "8"))
    kept = victim("stays", "n1", "1")
    kept["metadata"]["annotations"] = {}
    made.put(kept)
    made.put(victim("v", "n1", "2"))
    made.put(victim("leaving", "n1", "2", grace=90))
    made.ends_after["leaving"] = 30.0
    made.leave("leaving")
    made.put(preemptor("front", "7", priority=1000, managed=False))
    made.put(preemptor("p", "5"))
    made.scheduler.away_until = 40.0
    return made


def believe_that_nobody_leaves(patch: Patch) -> None:
    patch.setattr(PodsAhead, "_leaving_beside", lambda *_: np.zeros(0, np.intp))


def place_nobody_first(patch: Patch) -> None:
    patch.setattr(PodsAhead, "_codes", lambda _, candidates, __: np.zeros(len(candidates.nodes), np.int8))


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
    patch.setattr(adoption, "_came_since", lambda *_: set())


def asked_in_vain() -> Simulation:
    """A pod that a plan asked does not leave in that plan's time, and is still being asked when the next one begins."""
    limits = Limits(per_owner=Rate(1, 60.0))
    made = simulated(node("n1", "8"), under=policy(limits=limits, plan_timeout=20.0, wait_for_terminating=0.0))
    made.put(victim("vm", "n1", "3", priority=80, owner="vms"))
    made.migrating["vm"] = 120.0
    made.put(victim("db", "n1", "2", priority=85))
    made.put(victim("job", "n1", "3", priority=20))
    made.put(preemptor(cpu="4"))
    return made


def count_on_whoever_is_asked(patch: Patch) -> None:
    patch.setattr(actions, "_not_answered_for", lambda *_: set())


def nominated_for_a_moment() -> Simulation:
    """Another pod is nominated to a plan's node, and that is over before a watch shows it."""
    made = slow(simulated(node("n1", "8")))
    made.put(victim("a", "n1"))
    made.put(victim("kept", "n1", priority=20))
    made.kept.add("kept")
    made.ends_after["a"] = 20.0
    made.put(preemptor())
    later(2.0, lambda: made.put(preemptor("q")))
    return made


def believe_the_watch(patch: Patch) -> None:
    patch.setattr(State, "expect_cleared", lambda *_: None)


def one_of_two_plans_is_refused() -> Simulation:
    """Two plans need a pod that is kept; one of them needs another one, too."""
    made = slow(simulated(node("n1", "8")))
    fixed = victim("fixed", "n1", "2")
    fixed["metadata"]["annotations"] = {}
    made.put(fixed)
    made.put(victim("kept", "n1", "4", priority=10))
    made.kept.add("kept")
    made.put(victim("v", "n1", "2", priority=20))
    made.put(preemptor("a", "3"))
    made.put(preemptor("p", "3"))
    return made


def leave_it_to_the_other(patch: Patch) -> None:
    patch.setattr(actions, "_shared", lambda *_: [])


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
    def left(manager: Any, one: Any, _: Any) -> float:
        clock = manager.clock
        return clock.monotonic() + max(0.0, instant(one.metadata.deletion_timestamp) - clock.wall())

    patch.setattr(adoption, "_ends", left)


def nominated_elsewhere() -> Simulation:
    """Of two pods in front, the first has a node of its own to wait for: the second one comes."""
    made = simulated(node("n1", "4"), node("n2", "4"))
    made.put(victim("leaving", "n2", grace=90))
    made.ends_after["leaving"] = 10.0
    made.leave("leaving")
    made.put(victim("v", "n1"))
    made.ends_after["v"] = 20.0
    first = preemptor("first", "3", priority=300, managed=False)
    first["status"]["nominatedNodeName"] = "n2"
    made.put(first)
    made.put(preemptor("second", "4", priority=200, managed=False))
    later(2.0, lambda: made.put(preemptor(cpu="1")))
    return made


def send_them_all(patch: Patch) -> None:
    patch.setattr("webhook.reconciler.evaluate.pods_ahead._not_nominated_elsewhere", lambda *given: given[-1])


def contested(how: str) -> Simulation:
    """When a plan's victim is gone and the scheduler away, another preemptor is nominated beside its own."""
    made = simulated(node("n1", "8"), under=policy(plan_timeout=20.0))
    made.put(victim("a", "n1"))
    made.put(victim("slow", "n1", priority=20, grace=30 if how == "it takes long" else 0))
    made.ends_after["slow"] = 30.0
    if how == "it is migrated":
        made.ends_after["slow"] = 0.0
        made.migrating["slow"] = 40.0
    later(2.0, lambda: made.put(preemptor()))
    made.scheduler.away_until = 48.0
    later(30.0, lambda: made.put(preemptor("q")))
    return made


def another_clock_is_ahead() -> Simulation:
    """The same, with a leader whose clock says that the other one's victim has had its time."""
    made = contested("it takes long")
    made.terms = [(0.0, math.inf, 29.0)]
    return made


def believe_what_is_written(patch: Patch) -> None:
    beside = plan_manager.PlanManager._plans_for
    patch.setattr(plan_manager.PlanManager, "_plans_for", lambda self, node: beside(self, node)[:0])


def count_from_the_beginning(patch: Patch) -> None:
    believe_what_is_written(patch)
    patch.setattr(actions, "_room_comes", lambda *_: -math.inf)
    limit = plan_manager.time_limit

    def as_if_nothing_came(plan: Any, context: Any, timeout: float) -> float:
        plan.contested = -math.inf
        return limit(plan, context, timeout)

    patch.setattr(plan_manager, "time_limit", as_if_nothing_came)


Json = dict[str, Any]
FAULTS = {
    "replacements that name their node": Fault(names_its_node, 300.0, learn_nothing, 2),
    "replacements that name their node, known to the leader before": Fault(
        names_its_node_under_many_leaders, 50.0, forget_owners, 1, bound=False
    ),
    "one victim is denied": Fault(one_is_kept, 300.0, ask_without_trying, 0, bound=False),
    "one victim's budget is used up": Fault(spent_budget, 300.0, ask_without_trying, 0, bound=False),
    "kube-scheduler is away": Fault(scheduler_is_away, 3700.0, blame_the_node, 1),
    "nobody leads for a while": Fault(leader_after_an_outage, 600.0, believe_the_deadline, 1),
    "pods in front": Fault(pods_in_front, 600.0, place_nobody_first, 0, bound=False),
    "a pod in front that fits": Fault(fits_and_waits, 60.0, place_nobody_first, 0, bound=False),
    "a pod in front that fits later": Fault(leaves_later, 100.0, believe_that_nobody_leaves, 0),
    "replacements while nobody leads": Fault(replaced_while_nobody_leads, 300.0, see_nobody_come, 2),
    "a pod that was asked in vain": Fault(asked_in_vain, 100.0, count_on_whoever_is_asked, 2),
    "a nomination that is over": Fault(nominated_for_a_moment, 100.0, believe_the_watch, 1),
    "a victim of two plans": Fault(one_of_two_plans_is_refused, 10.0, leave_it_to_the_other, 0, bound=False),
    "a clock that is ahead": Fault(leader_whose_clock_is_ahead, 300.0, believe_the_clock, 1),
    "a pod in front that goes elsewhere": Fault(nominated_elsewhere, 100.0, send_them_all, 0),
    "a nomination beside the preemptor's whose victim takes long": Fault(
        partial(contested, "it takes long"), 100.0, count_from_the_beginning, 2
    ),
    "a nomination beside the preemptor's whose victim is migrated": Fault(
        partial(contested, "it is migrated"), 100.0, count_from_the_beginning, 2
    ),
    "the same by a clock that is ahead": Fault(another_clock_is_ahead, 100.0, believe_what_is_written, 2),
    "annotations that no rule reads": Fault(labels_change, 300.0, judge_by_labels, 3),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stays_away(name: str):
    """Nobody goes for nothing, and the preemptor is bound if it can be."""
    assert not wrong_with(FAULTS[name], lived(FAULTS[name]))


@pytest.mark.parametrize("name", FAULTS)
def test_fault_comes_back_without_its_mechanism(name: str, monkeypatch: Patch):
    """With the mechanism taken back the outcome is wrong, and the judge says so."""
    FAULTS[name].take_back(monkeypatch)
    assert wrong_with(FAULTS[name], lived(FAULTS[name]))


@pytest.mark.parametrize("bound", [True, False])
def test_a_pod_that_two_plans_name_is_judged_once(bound: bool):
    """It went in vain only if neither of them ended with its preemptor bound."""
    found: list[str] = []

    async def live() -> None:
        made = simulated(node("n1", "8"))
        plans = {name: f'{{"id":"{name}","node":"n1","victims":[{{"uid":"uid-v"}}]}}' for name in ("a", "b")}
        for name, plan in plans.items():
            pod = preemptor(name)
            pod["metadata"]["annotations"] = {PLAN: plan}
            made.put(pod)
        made.outcomes.evicted("uid-v")
        made.put({**made.pods["a"], "metadata": {**made.pods["a"]["metadata"], "annotations": {}}})
        assert not made.outcomes.in_vain, "it may have gone for the other one"
        ended = preemptor("b")
        if bound:
            ended["spec"]["nodeName"] = "n1"
        made.put(ended)
        found.extend(made.outcomes.in_vain)

    run(live())
    assert bool(found) is not bound


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"selector": {"matchLabels": {"app": "v"}}}, {"disruptionsAllowed": 1}, id="older than its spec"),
        pytest.param({"selector": {}}, {"observedGeneration": 1, "disruptionsAllowed": 0}, id="for every pod"),
    ],
)
def test_no_plan_is_made_that_the_eviction_api_would_refuse(spec: Json, status: Json):
    """Under best-effort, too, what is certain to be refused is seen by the decision, not by one plan after another."""
    guard = {"metadata": {"name": "b", "namespace": "default", "generation": 1}, "spec": spec, "status": status}

    def begin() -> Simulation:
        under = policy(budgets=BudgetMode.BEST_EFFORT)
        made = simulated(node("n1", "4"), node("n2", "4"), under=under, budgets=(guard,))
        made.put(victim("a", "n1"))
        made.put(victim("b", "n2", priority=20))
        made.put(preemptor())
        return made

    told = lived(Fault(begin, 30.0, lambda _: None, 0, bound=False)).told
    assert [line["message"] for line in told] == ["no preemption"]
