"""What a Job makes of the pods that have ended, index by index."""

from __future__ import annotations

import msgspec
import pytest

from webhook.clusters.model.jobs import INDEX, JobProgress, identify_job_pod, intervals
from webhook.clusters.model.stateful_sets import identify_stateful_pod
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod, PodStatus


def pod(uid, phase="Running", *, index):
    return Pod(metadata=ObjectMeta(name=uid, uid=uid, labels={INDEX: str(index)}), status=PodStatus(phase=phase))


def test_what_a_status_counts_is_counted_once():
    """Pods that are there still and pods that are gone; and what ends after that is added."""
    spec = msgspec.convert({"completionMode": "Indexed", "completions": 6, "parallelism": 6}, WorkloadSpec)
    status = {"succeeded": 3, "failed": 1, "completedIndexes": "0,2-3,x"}
    progress, ended = JobProgress(), [pod("a", "Succeeded", index=0), pod("b", "Failed", index=1)]
    for pods in ([*ended, pod("c", index=4)], last := [*ended, pod("c", "Succeeded", index=4)]):
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
