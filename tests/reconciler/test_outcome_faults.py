"""Faults that once emptied nodes for nothing: the mechanism keeps each away (docs/semantics.md E9), and only that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.faults import apart, leaders, other_pods, planning, requests
from tests.reconciler.faults.fault import Fault, Patch, later, lived, preemptor, simulated, victim, wrong_with
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run
from webhook.policy.model.preemption import BudgetMode
from webhook.policy.model.values import PLAN

Json = dict[str, Any]
FAULTS = planning.FAULTS | other_pods.FAULTS | leaders.FAULTS | requests.FAULTS | apart.FAULTS


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


def held_before_it_is_bound() -> Simulation:
    """kube-scheduler has chosen a node for a lower pod and holds it in PreBind: no object shows that for 20 seconds."""
    made = simulated(node("n1", "8"), node("n2", "8"))
    made.put(victim("a", "n1"))
    made.put(victim("b", "n2", "8", priority=20))
    low = preemptor("low", priority=50, managed=False)
    made.scheduler.away_until = 20.0
    later(1.0, lambda: made.put(low))
    later(2.0, lambda: made.put(preemptor(cpu="8")))

    def bind() -> None:
        made.outcomes.outside("a pod was held there", "n1")
        made.put({**low, "spec": {**low["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})

    later(19.0, bind)
    return made


def test_a_pod_that_is_held_before_it_is_bound_costs_one_plan():
    """Nobody can know of it; when it is bound, its node is left out, and the preemptor is helped elsewhere."""
    fault = Fault(held_before_it_is_bound, 200.0, lambda _: None, 2)
    made = lived(fault)
    assert not wrong_with(fault, made)
    assert made.evicted == ["a", "b"]
