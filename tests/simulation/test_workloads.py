"""Workloads of a snapshot, and those that are applied, go on as their controllers would; a row each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.clusters import OWNER, Json, cluster_of, full, node, pod, replica_set
from tests.simulation.futures import NODES, Future, P, apply, budget, counted, outcome
from webhook.clusters.simulated.objects import ClusterObjects

GRACE = {"terminationGracePeriodSeconds": 1}
LARGE = [node("a", "4"), node("b", "4")]
INDEX = "batch.kubernetes.io/job-completion-index"


def filling(name: str, on: str, kind: str, owner: str, **more: Any) -> Json:
    """A pod of a workload on a node of 2 CPUs, which it fills."""
    return pod(name, "2", on=on, owner=(kind, owner), spec={**GRACE, **more.pop("spec", {})}, **more)


def workload(name: str, replicas: int | None, cpu: str = "2", uid: str = "", **spec: Any) -> Json:
    """A workload with that spec beside its template."""
    made = replica_set(name, replicas or 0, cpu, **GRACE)
    made["metadata"]["uid"] = uid or f"uid-{name}"
    made["spec"] |= spec
    if replicas is None:
        del made["spec"]["replicas"]
    return made


def deployment(replicas: int, *, cpu: str = "1", **spec: Any) -> Json:
    return workload("web", replicas, cpu, "uid-deployment", **spec)


def of_set(name: str, on: str, digest: str, **more: Any) -> Json:
    """A pod of a ReplicaSet of Deployment web."""
    made = pod(name, "1", on=on, owner=("ReplicaSet", f"web-{digest}"), **more)
    made["metadata"]["labels"] = {"app": "web", "pod-template-hash": digest}
    return made


def partitioned(partition: int) -> ClusterObjects:
    """A StatefulSet whose pods are of an earlier revision; its rollout goes down to that partition."""
    old = {"labels": {"controller-revision-hash": "db-old"}, "spec": {"priorityClassName": "mid", "priority": 50}}
    pods = [filling(f"db-{number}", on, "StatefulSet", "db", **old) for number, on in enumerate("ab")]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    body = workload("db", 2, serviceName="db", updateStrategy=strategy)
    body["status"] = {"updateRevision": "db-new", "currentRevision": "db-old"}
    return cluster_of(NODES, pods, StatefulSet=[body])


def with_volume() -> ClusterObjects:
    """A StatefulSet's pod whose claim is bound to a volume of its node."""
    claim = {"metadata": {"name": "data-db-0", "namespace": "default", "uid": "c"}, "spec": {"volumeName": "v"}}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}
    reference = {"namespace": "default", "name": "data-db-0", "uid": "c"}
    volume = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity, "claimRef": reference}}
    body = workload("db", 1, serviceName="db", volumeClaimTemplates=[{"metadata": {"name": "data"}}])
    more = {"PersistentVolumeClaim": [claim], "PersistentVolume": [volume], "StatefulSet": [body]}
    for one in (claim, volume):
        one["status"] = {"phase": "Bound"}
    return cluster_of(NODES, [filling("db-0", "a", "StatefulSet", "db")], **more)


def disrupted(action: str) -> ClusterObjects:
    """A pod of a Job that may not fail, under a rule about disruptions."""
    rules = [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    body = workload("once", None, backoffLimit=0, podFailurePolicy={"rules": rules})
    return cluster_of(NODES, [filling("once-x", "a", "Job", "once")], Job=[body])


def indexed() -> ClusterObjects:
    """A Job three of whose five indexes are done and two under way, and a preemptor."""
    ignores = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 2, "backoffLimit": 0}
    body = workload("many", None, podFailurePolicy={"rules": [ignores]}, **spec)
    body["status"] = {"succeeded": 3, "completedIndexes": "0,2-3"}
    pods = [filling(f"many-{n}-x", on, "Job", "many", labels={INDEX: n}) for n, on in (("1", "a"), ("4", "b"))]
    return cluster_of(NODES, [*pods, P], Job=[body])


WEB = [of_set("web-1-a", "a", "1"), of_set("web-1-b", "b", "1")]


def closed(name: str, cpu: str) -> Json:
    """A node that takes nobody."""
    return {**node(name, cpu), "spec": {"unschedulable": True}}


WORKLOADS = {
    **{
        f"a Deployment whose ReplicaSets are not in the file is one Deployment: {name}": Future(
            cluster_of(NODES, pods, Deployment=[deployment(2, paused=paused)]), {"pods": left, "waits": set()}, steps
        )
        for name, pods, paused, steps, left in (
            ("as it is", WEB, False, (), {"web-1-a", "web-1-b"}),
            ("scaled up", WEB, False, ("0s:scale default/web=3",), {"web-1-a", "web-1-b", "web-1-s0001"}),
            ("scaled down", WEB, False, ("0s:scale default/web=1",), {"web-1-b"}),
            ("just made and paused", [], True, (), set()),
            ("a pod is missing", WEB[:1], False, (), {"web-1-a", "web-1-s0001"}),
            ("in a rollout", [WEB[0], of_set("web-2-b", "b", "2", ran=10)], False, (), {"web-2-b", "web-2-s0001"}),
        )
    },
    **{
        f"a stateful pod {where} the partition comes back of the {revision} revision": Future(
            partitioned(partition), {"pods": {"db-0", "db-1"}, "classes": {name}}, ("0s:drain a", "1m:add-nodes 1xb")
        )
        for where, revision, partition, name in (("below", "earlier", 2, "mid"), ("above", "newest", 0, "low"))
    },
    "a stateful pod keeps its volume and waits for its node": Future(
        with_volume(), {"waits": {"db-0"}}, ("0s:drain a",)
    ),
    **{
        f"a pod of a Job that loses its node is disrupted: {action}": Future(
            disrupted(action), {"pods": left}, ("0s:without-node a",)
        )
        for action, left in (("Ignore", {"once-s0001"}), ("Count", set()))
    },
    "an indexed Job goes on with the indexes that are missing": Future(
        indexed(), {"evicted": {"many-1-x": 0}, "pods": {"many-1-s0001", "many-4-x", "p"}}
    ),
    "a template may name its node": Future(
        cluster_of(NODES, [], ReplicaSet=[replica_set("web", 1, nodeName="b")]),
        {"nodes": {"web-s0001": "b", "web-s0002": "b"}},
        ("0s:scale default/web=2",),
    ),
    "a bare pod does not come back, and of what is not in the file who was under its controller does": Future(
        cluster_of(
            [node("a", "4"), closed("b", "4")],
            [
                pod("p", "4", "high"),
                pod("bare", "1", on="a"),
                *(
                    pod(f"{kind}-0".lower(), "1", on="a", owner=(kind, kind.lower()))
                    for kind in ("Rollout", "Job", "DaemonSet")
                ),
            ],
        ),
        {"placed": {"p": 30, "rollout-0": 120, "job-s0001": 120}, "waits": {"daemonset-s0001"}},
        ("2m:add-nodes 1xa",),
    ),
}
FAILED = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "x has no scale"}]
BUDGETS = {
    f"a budget over pods of an operator goes on as it was counted: {name}": Future(
        cluster_of(
            NODES,
            [*(pod(f"x-{on}", "2", on=on, owner=(kind, "x")) for on in "ab"), P],
            PodDisruptionBudget=[budget("x", 1, status, app="x")],
        ),
        {"evicted": dict.fromkeys(gone, 0), "budgets": {"x": (allowed, expected)}},
        ("5m:add-nodes 1xa",),
    )
    for name, kind, status, gone, allowed, expected in (
        ("counted", "Rollout", counted(2), ["x-a"], 1, 2),
        ("not counted", "Shard", {"conditions": FAILED}, [], 0, 0),
        ("not any more", "Shard", {**counted(2, 0), "conditions": FAILED}, [], 0, 2),
        ("counted before its pods came from a Job", "Job", counted(2), ["x-a"], 0, 2),
    )
} | {
    "a budget whose amount cannot be read lets nobody go, and others are counted": Future(
        cluster_of(
            [node("a", "2"), node("b", "1")],
            [pod("web-1", "1", on="a", owner=OWNER), pod("bare", "1", on="b"), P],
            ReplicaSet=[replica_set("web", 1)],
            PodDisruptionBudget=[
                budget("broken", "x%", counted(1), app="bare"),
                budget("web", 1, counted(1), app="web"),
            ],
        ),
        {"budgets": {"broken": (0, 1), "web": (0, 2)}},
        ("1m:scale default/web=2",),
    )
}
LIMITS = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]}
LIMIT_RANGE = {"metadata": {"name": "lr", "namespace": "default"}, "spec": LIMITS}
RUNTIME_CLASS = {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "1900m"}}}
NEW_PODS = {
    f"a pod in the place of another asks for as much: {name}": Future(
        cluster_of(
            NODES,
            [*(pod(f"web-{on}", "2", on=on, owner=OWNER) for on in "ab"), pod("p", "1", "high")],
            ReplicaSet=[replica_set("web", 2, containers=[{"name": "c", "resources": resources}], **spec)],
            **more,
        ),
        {"evicted": {"web-a": 0}, "waits": {"web-s0001"}},
    )
    for name, resources, spec, more in (
        ("limits alone", {"limits": {"cpu": "2"}}, {}, {}),
        ("a LimitRange", {}, {}, {"LimitRange": [LIMIT_RANGE]}),
        ("overhead", {"requests": {"cpu": "100m"}}, {"runtimeClassName": "kata"}, {"RuntimeClass": [RUNTIME_CLASS]}),
    )
}
APPLIED = {
    "what is applied is marked by admission, and preempts": Future(
        full(),
        {"evicted": {"web-a1": 60}, "by": {"giveway"}},
        (apply(60, "Deployment", replica_set("big", 1, "1", "high")),),
    ),
    "a pod whose class is not there is refused": Future(
        full(),
        {"pods": {"web-a0", "web-a1", "web-b0", "web-b1"}, "refused": {"ReplicaSet/default/odd"}},
        (apply(60, "ReplicaSet", replica_set("odd", 1, "1", "nobody")),),
    ),
    "a rollout of a Deployment whose ReplicaSets are not in the file begins with its pods": Future(
        cluster_of(LARGE, WEB, Deployment=[deployment(2)]),
        {"pods": {"web-1d68612772-s0001", "web-1d68612772-s0002"}, "evicted": {}},
        (apply(60, "Deployment", deployment(2, cpu="500m")),),
    ),
}


@pytest.mark.parametrize("future", (futures := WORKLOADS | BUDGETS | NEW_PODS | APPLIED).values(), ids=futures.keys())
def test_the_future(future):
    """A cluster with the row's workloads ends as the row says."""
    assert outcome(future) == future.ends
