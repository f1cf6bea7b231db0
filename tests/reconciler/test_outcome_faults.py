"""Faults that once emptied nodes for nothing: the mechanism keeps each away (docs/semantics.md E9), and only that."""

from typing import Any

import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.faults import apart, leaders, other_pods, planning, requests
from tests.reconciler.faults.fault import Fault
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import preemptor, victim
from tests.reconciler.harness.scenarios import later, lived, simulated
from webhook.policy.model.preemption import BudgetMode

Json = dict[str, Any]
FAULTS = planning.FAULTS | other_pods.FAULTS | leaders.FAULTS | requests.FAULTS | apart.FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stays_away(name: str):
    """Nobody goes for nothing, and the preemptor is bound if it can be."""
    fault = FAULTS[name]
    assert not fault.wrong_with(lived(fault.begin, fault.seconds)[0])


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

    def begin() -> Cluster:
        under = policy(budgets=BudgetMode.BEST_EFFORT)
        made = simulated(node("n1", "4"), node("n2", "4"), under=under, budgets=(guard,))
        made.add(victim("a", "n1"), victim("b", "n2", priority=20), preemptor())
        return made

    made, _ = lived(begin, 30.0)
    assert [line["message"] for line in made.told] == ["no preemption"]


def held_before_it_is_bound() -> Cluster:
    """kube-scheduler has chosen a node for a lower pod and holds it in PreBind: no object shows that for 20 seconds."""
    made = simulated(node("n1", "8"), node("n2", "8"))
    made.add(victim("a", "n1"), victim("b", "n2", "8", priority=20))
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
    made, _ = lived(held_before_it_is_bound, 200.0)
    assert not Fault(held_before_it_is_bound, 200.0, 2).wrong_with(made)
    assert made.evicted == ["a", "b"]
