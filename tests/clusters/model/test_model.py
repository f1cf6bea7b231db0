"""What controllers do next, case by case."""

from __future__ import annotations

import msgspec
import pytest

from tests.cases import cases
from webhook.clusters.model.disruption import budget_status, written
from webhook.clusters.model.jobs import INDEX, JobProgress, identify_job_pod, intervals
from webhook.clusters.model.pods import by_deletion_order, template_hash
from webhook.clusters.model.stateful_sets import identify_stateful_pod
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodSpec, PodStatus


def pod(
    name: str, node: str = "n", *, ready: str = "", cost: str = "", phase: str = "Running", index: int | None = None
) -> Pod:
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else None
    conditions = [Condition(type="Ready", status="True", last_transition_time=ready)] if ready else None
    return Pod(
        metadata=ObjectMeta(name=name, uid=name, annotations=annotations, labels={INDEX: f"{index}"}),
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


@pytest.mark.parametrize(
    ("spec", "succeeded", "failed", "expected"),
    cases(
        ("no more than are left", {"parallelism": 3, "completions": 5}, 3, 6, (2, "")),
        ("seven failures are too many", {"parallelism": 3, "completions": 5}, 3, 7, (0, "BackoffLimitExceeded")),
        ("a work queue is done when one has ended well", {"parallelism": 3}, 1, 0, (0, "CompletionsReached")),
    ),
)
def test_a_job_without_pods_makes_what_it_still_needs(spec, succeeded, failed, expected):
    """By completions and failures."""
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


def test_what_a_status_counts_is_counted_once():
    """Pods that are there still and pods that are gone; and what ends after that is added."""
    spec = msgspec.convert({"completionMode": "Indexed", "completions": 6, "parallelism": 6}, WorkloadSpec)
    status = {"succeeded": 3, "failed": 1, "completedIndexes": "0,2-3,x"}
    progress, ended = JobProgress(), [pod("a", phase="Succeeded", index=0), pod("b", phase="Failed", index=1)]
    for pods in ([*ended, pod("c", index=4)], last := [*ended, pod("c", phase="Succeeded", index=4)]):
        progress.look(spec, pods, status)
    assert (progress.succeeded, progress.failed, intervals(progress.completed)) == (4, 1, "0,2-4")
    assert progress.step(spec, last).create == [1, 5]


@pytest.mark.parametrize(("indexes", "text"), [([], ""), ([0, 1], "0,1"), ([3, 1, 2, 5], "1-3,5")])
def test_indexes_are_written_as_kubernetes_writes_them(indexes, text):
    """Neighbours as a range, two of them one by one."""
    assert intervals(indexes) == text


def test_pods_with_an_index_or_an_ordinal_say_it():
    """By name, labels and annotation."""
    made = {"metadata": {"labels": {"app": "x"}}, "spec": {}}
    labels = {"app": "x", INDEX: "7"}
    named = {"generateName": "x-7-", "labels": labels, "annotations": {INDEX: "7"}}
    assert identify_job_pod(made, "x", 7) == {"metadata": named, "spec": {}}
    labels = {"app": "x", "statefulset.kubernetes.io/pod-name": "db-5", "apps.kubernetes.io/pod-index": "5"}
    assert identify_stateful_pod(made, "db", 5) == {"metadata": {"name": "db-5", "labels": labels}, "spec": {}}
