"""Budgets over pods of an operator: whether its kind has a scale is known by what the disruption controller counted."""

from __future__ import annotations

import pytest

from tests.simulation.clusters import cluster_of, evicted, node, pod, run

FAILED = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "x has no scale"}]
COUNTED = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}


@pytest.mark.parametrize(
    ("kind", "status", "gone", "allowed"),
    [
        pytest.param("Rollout", COUNTED, 1, 1, id="counted"),
        pytest.param("Shard", {"conditions": FAILED}, 0, 0, id="not counted"),
        pytest.param("Shard", {**COUNTED, "disruptionsAllowed": 0, "conditions": FAILED}, 0, 0, id="not any more"),
        pytest.param("Job", COUNTED, 1, 0, id="counted before its pods came from a Job"),
    ],
)
def test_a_budget_over_pods_of_an_operator_goes_on_as_it_was_counted(kind, status, gone, allowed):
    """Once the pod in the place runs, another one may go if the budget was counted; if it was not, nobody ever may."""
    pods = [pod(f"x-{on}", "2", on=on, owner=(kind, "x")) for on in "ab"]
    spec = {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1}
    budget = {"metadata": {"name": "x", "namespace": "default"}, "spec": spec, "status": status}
    objects = cluster_of([node("a", "2"), node("b", "2")], [*pods, pod("p", "2", "high")], PodDisruptionBudget=[budget])
    result = run(objects, None, "5m:add-nodes 1xa")
    assert len(evicted(result)) == gone
    assert result.tracker.get("PodDisruptionBudget", "default/x").status.disruptions_allowed == allowed
