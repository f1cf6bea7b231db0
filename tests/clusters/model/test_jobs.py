"""What a Job makes of the pods that have ended, index by index."""

from __future__ import annotations

import msgspec
import pytest

from webhook.clusters.model.jobs import INDEX, JobProgress, identify_job_pod, intervals
from webhook.clusters.model.stateful_sets import identify_stateful_pod
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod, PodStatus


def pod(uid, phase="Running", *, index=None, leaving=False):
    labels = {} if index is None else {INDEX: str(index)}
    meta = ObjectMeta(name=uid, uid=uid, labels=labels, deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None)
    return Pod(metadata=meta, status=PodStatus(phase=phase))


def job(**spec):
    return msgspec.convert(spec, WorkloadSpec)


def after(spec, *looks, status=None):
    """The next step after looks at these lists of pods."""
    progress = JobProgress()
    for pods in looks:
        progress.look(spec, pods, status or {})
    return progress, progress.step(spec, looks[-1])


@pytest.mark.parametrize(
    ("spec", "last", "failed"),
    [
        pytest.param({}, [pod("a", leaving=True)], 1, id="leaving"),
        pytest.param({}, [], 1, id="gone"),
        pytest.param({"podReplacementPolicy": "Failed"}, [pod("a", leaving=True)], 0, id="leaving, to be waited for"),
        pytest.param({"podReplacementPolicy": "Failed"}, [pod("a", "Failed", leaving=True)], 1, id="ended"),
        pytest.param({"podReplacementPolicy": "Failed"}, [], 1, id="gone, waited for"),
    ],
)
def test_a_pod_that_is_made_to_leave_has_failed(spec, last, failed):
    """At once, or once it has ended if only then it is replaced; it is counted once."""
    progress, _ = after(job(**spec), [pod("a")], last, last, [])
    assert progress.failed == max(failed, 1)
    progress, step = after(job(**spec), [pod("a")], last, last)
    assert progress.failed == failed
    assert len(step.create) == failed


def test_what_a_status_counts_is_counted_once():
    """Pods that are there still and pods that are gone; and what ends after that is added."""
    spec = job(completionMode="Indexed", completions=6, parallelism=6)
    status = {"succeeded": 3, "failed": 1, "completedIndexes": "0,2-3,x"}
    before = [pod("a", "Succeeded", index=0), pod("b", "Failed", index=1), pod("c", index=4)]
    progress, step = after(spec, before, [*before[:2], pod("c", "Succeeded", index=4)], status=status)
    assert (progress.succeeded, progress.failed, intervals(progress.completed)) == (4, 1, "0,2-4")
    assert step.create == [1, 5]


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
