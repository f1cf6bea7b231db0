"""What controllers do next, case by case."""

from __future__ import annotations

import msgspec
import pytest

from webhook.clusters.model.disruption import budget_status, written
from webhook.clusters.model.jobs import JobProgress
from webhook.clusters.model.pods import by_deletion_order, template_hash
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodSpec, PodStatus


def pod(name: str, node: str = "n", *, ready: str = "", cost: str = "", phase: str = "Running") -> Pod:
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else None
    conditions = [Condition(type="Ready", status="True", last_transition_time=ready)] if ready else None
    return Pod(
        metadata=ObjectMeta(name=name, annotations=annotations),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def test_pods_go_in_the_order_of_kubernetes():
    """Unassigned, waiting, unready, cheap, doubled up, ready for the shortest time."""
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = [
        pod("old", "b", ready=early),
        pod("doubled", "a", ready=early),
        pod("dear", "a", ready=late, cost="5"),
        pod("young", "c", ready=late),
        pod("cheap", "d", ready=early, cost="-1"),
        pod("unready", "e"),
        pod("starting", "f", phase="Pending"),
        pod("waiting", "", phase="Pending"),
    ]
    order = ["waiting", "starting", "unready", "cheap", "doubled", "young", "old", "dear"]
    assert [one.metadata.name for one in by_deletion_order(pods)] == order


@pytest.mark.parametrize(
    "cost", ["much", "-", "+1", " 1", "1 ", "1_0", "01", "1.0", "2147483648", "-2147483649", "\u0661"]
)
def test_an_unreadable_deletion_cost_counts_as_none(cost):
    """As kube-controller-manager takes it: cheaper than 1, dearer than -1."""
    pods = [pod("a", cost="1"), pod("b", cost=cost), pod("c", cost="-1")]
    assert [one.metadata.name for one in by_deletion_order(pods)] == ["c", "b", "a"]


def test_a_template_is_known_by_what_it_says():
    """The order of its labels does not matter; a change of one does."""
    first, second, third = ({"labels": labels} for labels in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1"}))
    assert template_hash(first) == template_hash(second) != template_hash(third)


MANY, DONE = "BackoffLimitExceeded", "CompletionsReached"


@pytest.mark.parametrize(
    ("spec", "succeeded", "failed", "expected"),
    [
        pytest.param({}, 0, 0, (1, ""), id="one pod by default"),
        pytest.param({}, 1, 0, (0, DONE), id="one is enough by default"),
        pytest.param({"parallelism": 3, "completions": 5}, 3, 0, (2, ""), id="no more than are left"),
        pytest.param(
            {"parallelism": 3, "completions": 5}, 3, 7, (0, "BackoffLimitExceeded"), id="seven failures are too many"
        ),
        pytest.param({"completions": 5, "backoffLimit": 0}, 0, 1, (0, MANY), id="one is, if none may fail"),
        pytest.param({"parallelism": 3}, 1, 0, (0, DONE), id="a work queue is done when one has ended well"),
        pytest.param({"parallelism": 3, "completions": 5, "suspend": True}, 0, 0, (0, ""), id="suspended"),
    ],
)
def test_a_job_without_pods_makes_what_it_still_needs(spec, succeeded, failed, expected):
    """By completions, failures and whether it is suspended."""
    progress = JobProgress(succeeded=succeeded, failed=failed)
    step = progress.step(msgspec.convert(spec, WorkloadSpec), [])
    assert (len(step.create), step.ended) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"minAvailable": 3}, (3, 4, "SufficientPods"), id="min number"),
        pytest.param({"minAvailable": "50%"}, (4, 3, "SufficientPods"), id="min percent rounds up"),
        pytest.param({"maxUnavailable": 2}, (5, 2, "SufficientPods"), id="max number"),
        pytest.param({"maxUnavailable": "25%"}, (5, 2, "SufficientPods"), id="max percent rounds up"),
        pytest.param({"maxUnavailable": 0}, (7, 0, "InsufficientPods"), id="max none"),
        pytest.param({"maxUnavailable": "100%"}, (0, 7, "SufficientPods"), id="max all"),
        pytest.param({"minAvailable": 9}, (9, 0, "InsufficientPods"), id="min more than there are"),
    ],
)
def test_numbers_of_a_budget_follow_its_spec(spec, expected):
    """Desired healthy pods come from the scale of the controllers, percentages rounded up; seven are healthy."""
    counted = budget_status(msgspec.convert({"spec": spec}, PodDisruptionBudget), 7, 7, lambda: 7, {})
    [condition] = written(counted, "")["conditions"]
    assert (counted.desired_healthy, counted.disruptions_allowed, condition["reason"]) == expected
