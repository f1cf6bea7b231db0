"""Which group a pod names, and what minimum its PodGroup says; who is counted in groups: `test_events`."""

import pytest

from tests.preemption.building import as_pod, outcome, pod, rules
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.snapshot.pod_groups import GROUP_SOURCES, group_of

WHOLE = rules(groups=GroupDisruption.GROUP)
NAMED = {
    "PodGroup": {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
    "coscheduling PodGroup": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "Volcano PodGroup": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "Kueue pod group": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
    "LeaderWorkerSet replica": {
        "labels": {"leaderworkerset.sigs.k8s.io/name": "g", "leaderworkerset.sigs.k8s.io/group-index": "3"}
    },
    "JobSet": {"labels": {"jobset.sigs.k8s.io/jobset-name": "g"}},
    "indexed Job": {"labels": {"batch.kubernetes.io/job-name": "g", "batch.kubernetes.io/job-completion-index": "0"}},
}


@pytest.mark.parametrize("source", [source.title for source in GROUP_SOURCES])
def test_who_names_a_group(source):
    """Each way in which pods name their group is read; another pod of that kind is in the same group."""
    made = {**NAMED[source]}
    data = {"metadata": {"name": "a", "namespace": "ns", **made}, "spec": made.pop("spec", {})}
    key = group_of(as_pod(data))
    assert (key.source, key.namespace, key.name[:1]) == (source, "ns", "g")


def test_pods_without_a_group_are_none_s():
    """A Job whose pods are not numbered is no group, and neither is a pod of a Deployment."""
    labels = {"batch.kubernetes.io/job-name": "g", "app": "web"}
    assert group_of(as_pod({"metadata": {"name": "a", "namespace": "ns", "labels": labels}})).name == ""


@pytest.mark.parametrize("of", ["coscheduling", "volcano"])
def test_minima_of_other_schedulers_count(of):
    """`minMember` of coscheduling's and of Volcano's PodGroups is a minimum, each for those that name it that way."""
    named = {
        "coscheduling": {"labels": {"scheduling.x-k8s.io/pod-group": "a"}},
        "volcano": {"annotations": {"scheduling.k8s.io/group-name": "a"}},
    }
    pods = [pod(f"a-{number}", on="n1", priority=10, cpu="2") for number in range(2)]
    for one in pods:
        one["metadata"] |= named[of]
    for kind, gone in (("coscheduling", 1), ("volcano", 1), ("", 2)):
        groups = [{"metadata": {"name": "a", "namespace": "default"}, "spec": {"minMember": 1}}]
        field = f"{kind}PodGroups" if kind else "podGroups"
        went, _ = outcome(pods, WHOLE, preemptor=pod("p", priority=100, cpu="2"), **{field: groups})
        assert len(went) == (gone if kind == of else 2)
