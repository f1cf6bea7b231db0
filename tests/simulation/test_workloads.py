"""Workloads of a snapshot go on as their controllers would: revisions, claims, indexes, missing ReplicaSets."""

from __future__ import annotations

import json

import pytest

from tests.simulation.clusters import cluster_of, evicted, node, pod, replica_set, run, waits
from webhook.simulation.report.summary import summarize

GRACE = {"terminationGracePeriodSeconds": 1}
HASH = "controller-revision-hash"


def keys(result):
    """The names of the pods in the end."""
    return {one.metadata.name for one in result.tracker.all("Pod").values()}


def small(name, on, kind, owner, **more):
    """A pod of a workload on a node of 2 CPUs, which it fills."""
    return pod(name, "2", on=on, owner=(kind, owner), spec={**GRACE, **more.pop("spec", {})}, **more)


def stateful_set(replicas=2, **spec):
    body = replica_set("db", replicas, "2", **GRACE)
    body["spec"] |= {"serviceName": "db", **spec}
    return body


def deployment(replicas=2, cpu="1", **spec):
    body = replica_set("web", replicas, cpu)
    body["metadata"]["uid"] = "uid-deployment"
    body["spec"] |= spec
    return body


def of_set(name, on, digest, **more):
    """A pod of a ReplicaSet of Deployment web that is not in the file."""
    labels = {"app": "web", "pod-template-hash": digest}
    made = pod(name, "1", on=on, owner=("ReplicaSet", f"web-{digest}"), **more)
    made["metadata"]["labels"] = labels
    return made


WEB = [of_set("web-1-a", "a", "1"), of_set("web-1-b", "b", "1")]
NODES = [node("a", "2"), node("b", "2")]


@pytest.mark.parametrize(
    ("pods", "replicas", "paused", "step", "number"),
    [
        pytest.param(WEB, 2, False, [], 2, id="as it is"),
        pytest.param(WEB, 2, False, ["0s:scale default/web=3"], 3, id="scaled up"),
        pytest.param(WEB, 2, False, ["0s:scale default/web=1"], 1, id="scaled down"),
        pytest.param([], 2, False, [], 2, id="just made"),
        pytest.param([], 2, True, [], 0, id="just made and paused"),
        pytest.param(WEB[:1], 2, False, [], 2, id="a pod is missing"),
        pytest.param([WEB[0], of_set("web-2-b", "b", "2", ran=10)], 2, False, [], 2, id="in the midst of a rollout"),
    ],
)
def test_a_deployment_without_its_replica_sets_is_one_deployment(pods, replicas, paused, step, number):
    """Its ReplicaSets are known by their pods: none is made beside them, and all its replicas are counted once."""
    objects = cluster_of(NODES, pods, Deployment=[deployment(replicas, paused=paused)])
    result = run(objects, None, *step)
    assert len(keys(result)) == number
    assert not waits(result)


def test_a_rollout_of_a_deployment_without_its_replica_sets_begins_with_its_pods(tmp_path):
    """Another template takes the place of the pods that there are, one after the other."""
    changed = deployment(2, cpu="500m")
    (tmp_path / "web.json").write_text(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", **changed}))
    objects = cluster_of([node("a", "4"), node("b", "4")], WEB, Deployment=[deployment()])
    result = run(objects, None, f"1m:apply {tmp_path / 'web.json'}")
    assert len(keys(result)) == 2
    assert not keys(result) & {"web-1-a", "web-1-b"}


def test_a_paused_canary_stands():
    """Each evicted pod's own ReplicaSet replaces it, and the newest one does not go on."""
    pods = [of_set("web-1-a", "a", "1"), of_set("web-1-b", "b", "1"), of_set("web-2-a", "a", "2")]
    sets = []
    for digest, replicas in (("1", 2), ("2", 1)):
        made = replica_set(f"web-{digest}", replicas)
        owner = {"kind": "Deployment", "name": "web", "uid": "uid-deployment", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
        labels = {"app": "web", "pod-template-hash": digest}
        made["spec"] |= {"template": {**made["spec"]["template"], "metadata": {"labels": labels}}}
        sets.append(made)
    preemptor = pod("p", "2", "high", spec={"nodeSelector": {"kubernetes.io/hostname": "a"}})
    objects = cluster_of(NODES, [*pods, preemptor], ReplicaSet=sets, Deployment=[deployment(3, paused=True)])
    result = run(objects)
    assert {name for _, name, _ in evicted(result)} == {"web-1-a", "web-2-a"}
    assert keys(result) == {"p", "web-1-b", "web-1-s0001", "web-2-s0001"}


@pytest.mark.parametrize(("partition", "version"), [(2, "old"), (0, "new")], ids=["below it", "above it"])
def test_a_stateful_pod_below_the_partition_comes_back_as_it_was(partition, version):
    """Of its own revision, which the other pods of the snapshot have; above the partition of the newest one."""
    old = {"labels": {HASH: "db-old"}, "spec": {"priorityClassName": "mid", "priority": 50}}
    pods = [small("db-0", "a", "StatefulSet", "db", **old), small("db-1", "b", "StatefulSet", "db", **old)]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    body = {
        **stateful_set(updateStrategy=strategy),
        "status": {"updateRevision": "db-new", "currentRevision": "db-old"},
    }
    result = run(cluster_of(NODES, pods, StatefulSet=[body]), None, "0s:drain a", "1m:add-nodes 1xb")
    assert keys(result) == {"db-0", "db-1"}
    classes = {one.spec.priority_class_name for one in result.tracker.all("Pod").values()}
    assert classes == ({"mid"} if version == "old" else {"low"})


def test_a_stateful_pod_keeps_its_volume():
    """Its claim is bound to a volume of one node, so the pod in its place waits for that node."""
    pods = [small("db-0", "a", "StatefulSet", "db")]
    claim = {"metadata": {"name": "data-db-0", "namespace": "default", "uid": "c"}, "spec": {"volumeName": "v"}}
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}
    reference = {"namespace": "default", "name": "data-db-0", "uid": "c"}
    volume = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity, "claimRef": reference}}
    for one in (claim, volume):
        one["status"] = {"phase": "Bound"}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    body = stateful_set(1, volumeClaimTemplates=[{"metadata": {"name": "data"}}])
    more = {"PersistentVolumeClaim": [claim], "PersistentVolume": [volume], "StatefulSet": [body]}
    result = run(cluster_of(NODES, pods, **more), None, "0s:drain a")
    assert waits(result) == {"db-0"}
    assert "StatefulSet spec.volumeClaimTemplates" in summarize("x", result).not_played


@pytest.mark.parametrize("step", ["0s:without-node a", "0s:drain a"])
@pytest.mark.parametrize(("action", "number"), [("Ignore", 1), ("Count", 0)])
def test_a_pod_of_a_job_that_loses_its_node_has_been_disrupted(step, action, number):
    """A policy that ignores disruptions lets its Job go on, and the Job fails without one."""
    rules = [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    template = replica_set("once", 1, "2", **GRACE)["spec"]["template"]
    spec = {"template": template, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}}
    job = {"metadata": {"name": "once", "namespace": "default", "uid": "uid-once"}, "spec": spec}
    result = run(cluster_of(NODES, [small("once-x", "a", "Job", "once")], Job=[job]), None, step)
    assert len(keys(result)) == number


def test_a_template_may_name_its_node():
    """Nobody chooses a node for its pods."""
    objects = cluster_of(NODES, [], ReplicaSet=[replica_set("web", 1, nodeName="b")])
    result = run(objects, None, "0s:scale default/web=2")
    assert [one.spec.node_name for one in result.tracker.all("Pod").values()] == ["b", "b"]


def test_an_indexed_job_goes_on_with_the_indexes_that_are_missing():
    """Those that its status counts as done are not done again, and the evicted pod's index is."""
    index = "batch.kubernetes.io/job-completion-index"
    template = replica_set("many", 1, "2", **GRACE)["spec"]["template"]
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 2, "template": template, "backoffLimit": 0}
    job = {
        "metadata": {"name": "many", "namespace": "default", "uid": "uid-many"},
        "spec": {**spec, "podFailurePolicy": policy},
        "status": {"succeeded": 3, "completedIndexes": "0,2-3"},
    }
    pods = [
        small(f"many-{number}-x", on, "Job", "many", labels={index: number}) for number, on in (("1", "a"), ("4", "b"))
    ]
    result = run(cluster_of(NODES, [*pods, pod("p", "2", "high")], Job=[job]))
    assert len(evicted(result)) == 1
    labels = {one.metadata.labels.get(index) for one in result.tracker.all("Pod").values()} - {None}
    assert labels == {"1", "4"}
