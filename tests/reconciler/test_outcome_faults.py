"""Faults that once emptied nodes for nothing: the mechanism keeps each away (docs/semantics.md E9), and only that."""

import pytest

from tests.reconciler.faults import others, planning, requests
from tests.reconciler.faults.fault import FAULTS
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, preemptor, victim
from tests.reconciler.harness.scenarios import lived, simulated
from webhook.policy.model.preemption import BudgetMode

MODULES = (planning, others, requests)
"""They fill `FAULTS`."""


@pytest.mark.parametrize("name", FAULTS)
def test_fault_stays_away(name: str):
    """Nobody goes for nothing, and the preemptor is bound if it can be."""
    fault = FAULTS[name]
    made = lived(fault.begin, fault.seconds)
    assert len(made.evicted) <= fault.evicted, made.evicted
    assert bool(made.pods["p"]["spec"].get("nodeName")) == fault.bound


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
        made = simulated("4", "4", budgets=BudgetMode.BEST_EFFORT)
        made.budgets["v"] = guard
        made.add(victim("a", "n1"), victim("b", "n2", priority=20), preemptor())
        return made

    assert [line["message"] for line in lived(begin, 30.0).told] == ["no preemption"]
