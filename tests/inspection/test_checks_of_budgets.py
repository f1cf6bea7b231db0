"""What the checks of disruption budgets say."""

import pytest

from tests.admission.builders import manage
from tests.inspection.observing import LOW, PREEMPTIBLE, assert_finds, covering, finds, observed, summary
from webhook.inspection.checks import budgets
from webhook.kube.objects.meta import Condition

BATCH = {"app": "batch"}
MAY_GO = {"labels": BATCH, "annotations": {PREEMPTIBLE: "true"}}


def test_budgets():
    """A budget that covers nothing, and a pod that two budgets cover."""
    cluster = observed(summary("a", labels=BATCH), summary("b", labels=BATCH), covering("one", BATCH))
    for check in (budgets.covering_nothing, budgets.covering_twice):
        assert_finds(check, cluster, "")
    cluster.budgets += [covering("two", BATCH), covering("gone", {"app": "old"})]
    assert_finds(budgets.covering_nothing, cluster, "warning: PodDisruptionBudget team-a/gone covers no running pod.")
    twice = "warning: 2 pods in team-a covered by 2 budgets, team-a/one, team-a/two: a, b."
    assert_finds(budgets.covering_twice, cluster, twice)


SYNC_FAILED = Condition(type="DisruptionAllowed", reason="SyncFailed", message="jobs.batch has none")
ALL_OF_THREE = {"desired_healthy": 3, "expected_pods": 3}
TWO_OF_THREE = {"desired_healthy": 2, "expected_pods": 3}


def one_budget(spec, status):
    pods = summary("a", **MAY_GO), summary("b", labels=BATCH)
    return observed(LOW, *pods, covering("one", BATCH, status, **spec), manage("giveway-*"))


test_budgets_that_never_allow = finds(
    "A budget that lets no preemptible pod go even when all are healthy is told with its reason; others are not.",
    budgets.never_allowing,
    ("none unavailable", {"max_unavailable": 0}, {}, "its maxUnavailable is 0"),
    ("in percent", {"max_unavailable": "0%"}, {}, "its maxUnavailable is 0%"),
    ("all available", {"min_available": "100%"}, {}, "its minAvailable is 100%"),
    ("as many", {"min_available": 3}, ALL_OF_THREE, "it wants 3 of 3 pods healthy"),
    ("rounded up", {"min_available": "95%"}, ALL_OF_THREE, "it wants 3 of 3 pods healthy"),
    (
        "not counted",
        {"max_unavailable": 1},
        {"conditions": [SYNC_FAILED]},
        "its pods cannot be counted (jobs.batch has none)",
    ),
    (
        "no controllers",
        {"max_unavailable": 1},
        {"current_healthy": 2},
        "none of its pods has a controller, by whose*",
    ),
    ("one may go", {"min_available": 2}, TWO_OF_THREE, ""),
    ("not counted yet", {"min_available": 3}, {}, ""),
    ("not now", {"max_unavailable": 1}, {**TWO_OF_THREE, "disruptions_allowed": 0}, ""),
    given=one_budget,
    said="warning: PodDisruptionBudget team-a/one never lets any of its 1 preemptible pod go, because {}: a.",
)


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        ("ReplicaSet", "(maxUnavailable: 1)"),
        ("Job", "(minAvailable: 1, a number, because Kubernetes counts nothing else for pods without a scale: Job)"),
        ("", "pods without a scale: pod without a controller)"),
    ],
)
def test_the_fix_for_a_closed_budget_opens_it(kind, fix):
    """A number of minAvailable if the pods' controllers have no scale: maxUnavailable would allow nothing."""
    pods = [summary(name, owner=("batch/v1", kind), **MAY_GO) for name in "ab"]
    cluster = observed(LOW, *pods, covering("one", BATCH, max_unavailable=0), manage("giveway-*"))
    [finding] = budgets.never_allowing(cluster)
    assert fix in finding.fix
