"""What the checks of disruption budgets say."""

import pytest

from tests.admission.builders import manage
from tests.inspection.observing import (
    LOW,
    covering,
    found,
    observed,
    summary,
)
from webhook.inspection.checks import budgets
from webhook.kube.objects.meta import Condition


def test_budgets():
    """A budget that covers nothing, and a pod that two budgets cover."""
    shared = {"app": "web"}
    cluster = observed(summary("a", labels=shared), summary("b", labels=shared), covering("one", app="web"))
    assert found(budgets.covering_nothing, cluster) == found(budgets.covering_twice, cluster) == []
    cluster.budgets += [covering("two", app="web"), covering("gone", app="old")]
    [(severity, what)] = found(budgets.covering_nothing, cluster)
    assert (severity, what) == ("warning", "PodDisruptionBudget team-a/gone covers no running pod.")
    [(_, what)] = found(budgets.covering_twice, cluster)
    assert what == "2 pods in team-a covered by 2 budgets, team-a/one, team-a/two: a, b."


def closed(budget, *, status=None, **spec):
    """The budget with these members of its spec and status."""
    for name, value in spec.items():
        setattr(budget.spec, name, value)
    for name, value in (status or {}).items():
        setattr(budget.status, name, value)
    return budget


@pytest.mark.parametrize(
    ("spec", "status", "why"),
    [
        pytest.param({"max_unavailable": 0}, {}, "its maxUnavailable is 0", id="none unavailable"),
        pytest.param({"max_unavailable": "0%"}, {}, "its maxUnavailable is 0%", id="in percent"),
        pytest.param({"min_available": "100%"}, {}, "its minAvailable is 100%", id="all available"),
        pytest.param(
            {"min_available": 3},
            {"desired_healthy": 3, "expected_pods": 3},
            "it wants 3 of 3 pods healthy",
            id="as many",
        ),
        pytest.param(
            {"min_available": "95%"}, {"desired_healthy": 3, "expected_pods": 3}, "it wants 3 of 3", id="rounded up"
        ),
        pytest.param(
            {"max_unavailable": 1},
            {"conditions": [Condition(type="DisruptionAllowed", reason="SyncFailed", message="jobs.batch has none")]},
            "its pods cannot be counted (jobs.batch has none)",
            id="not counted",
        ),
        pytest.param(
            {"max_unavailable": 1}, {"current_healthy": 2}, "none of its pods has a controller", id="no controllers"
        ),
        pytest.param({"min_available": 2}, {"desired_healthy": 2, "expected_pods": 3}, "", id="one may go"),
        pytest.param({"min_available": 3}, {}, "", id="not counted yet"),
        pytest.param(
            {"max_unavailable": 1},
            {"desired_healthy": 2, "expected_pods": 3, "disruptions_allowed": 0},
            "",
            id="not now",
        ),
    ],
)
def test_budgets_that_never_allow(spec, status, why):
    """A budget that lets no preemptible pod go even when all are healthy is told with its reason; others are not."""
    shared = {"app": "batch"}
    yes = {"godel.bytedance.com/can-be-preempted": "true"}
    cluster = observed(
        LOW,
        summary("a", labels=shared, annotations=yes),
        summary("b", labels=shared),
        closed(covering("one", app="batch"), status=status, **spec),
        manage("giveway-*"),
    )
    texts = [what for _, what in found(budgets.never_allowing, cluster)]
    if not why:
        assert texts == []
        return
    (text,) = texts
    assert text.startswith("PodDisruptionBudget team-a/one never lets any of its 1 preemptible pod go, because")
    assert why in text
    assert text.endswith(": a.")


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        pytest.param("ReplicaSet", "(maxUnavailable: 1)", id="ReplicaSet"),
        pytest.param(
            "Job",
            "(minAvailable: 1, a number, because Kubernetes counts nothing else for pods without a scale: Job)",
            id="Job",
        ),
        pytest.param("", "pods without a scale: pod without a controller)", id="bare"),
    ],
)
def test_the_fix_for_a_closed_budget_opens_it(kind, fix):
    """A number of minAvailable if the pods' controllers have no scale: maxUnavailable would allow nothing."""
    fields = {"labels": {"app": "batch"}, "annotations": {"godel.bytedance.com/can-be-preempted": "true"}}
    pods = [summary(name, owner=("batch/v1", kind), **fields) for name in "ab"]
    cluster = observed(LOW, *pods, closed(covering("one", app="batch"), max_unavailable=0), manage("giveway-*"))
    [finding] = budgets.never_allowing(cluster)
    assert fix in finding.fix
