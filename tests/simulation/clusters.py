"""Clusters of any size for the simulation, full of pods that may go; runs of small ones, and what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.preemption import building
from tests.preemption.building import NOW
from webhook.clusters.simulated.objects import BY_KIND, ClusterObjects
from webhook.kube.instants import rfc3339
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, MANAGED, MARK, PLAN, PROTECTION_DURATION
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS
from webhook.simulation.cluster_file.format import FORMAT, VERSION, Header, cluster_file
from webhook.simulation.simulation import Options, Running, Step, simulate
from webhook.simulation.whatif import timed

Json = dict[str, Any]
REPLICAS = 25


def loaded(*texts: str) -> Policies:
    """Policies of these texts."""
    found = load_texts([(f"{number}.yaml", text) for number, text in enumerate(texts)])
    assert not found.errors, found.errors
    return found.policies


def policy_text(**spec: Any) -> str:
    """A PreemptionPolicy for class `high` with further fields in its spec, as JSON, which is YAML."""
    body = {"preemptors": {"priorityClasses": ["high"]}, "victims": {"mode": "opt-in"}, **spec}
    whole = {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "PreemptionPolicy",
        "metadata": {"name": "high"},
        "spec": body,
    }
    return msgspec.json.encode(whole).decode()


POLICY = policy_text()


def _class(name: str, value: int, policy: str = "Never", **annotations: str) -> Json:
    return {**building.priority_class(name, value, **annotations), "preemptionPolicy": policy}


CLASSES = [
    _class("low", 10, **{CAN_BE_PREEMPTED: "true"}),
    _class("mid", 50, **{CAN_BE_PREEMPTED: "true"}),
    _class("high", 100),
    _class("plain", 100, "PreemptLowerPriority"),
]


def node(name: str, cpu: str, zone: str = "z1", kind: str = "m") -> Json:
    labels = {"topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": kind}
    return building.node(name, cpu, labels=labels, pods="250")


def pod(
    name: str,
    cpu: str,
    class_name: str = "low",
    *,
    on: str = "",
    owner: tuple[str, str] | None = None,
    ran: float = 3600,
    spec: Json | None = None,
    **metadata: Any,
) -> Json:
    """A pod; on a node it is ready and has run for an hour, else it is unschedulable."""
    value = next(one["value"] for one in CLASSES if one["metadata"]["name"] == class_name)
    labels = {"app": owner[1] if owner else name, **({MARK: MANAGED} if class_name == "high" else {})}
    meta: Json = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": rfc3339(NOW - 3600),
        **metadata,
        "labels": labels | metadata.get("labels", {}),
    }
    if owner:
        meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}]
    body = {
        "priority": value,
        "priorityClassName": class_name,
        "preemptionPolicy": "PreemptLowerPriority" if class_name == "plain" else "Never",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
        **({"nodeName": on} if on else {}),
        **(spec or {}),
    }
    if on:
        ready = {"type": "Ready", "status": "True"}
        status: Json = {"phase": "Running", "startTime": rfc3339(NOW - ran), "conditions": [ready]}
    else:
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"phase": "Pending", "conditions": [{**waits, "lastTransitionTime": rfc3339(NOW - 60)}]}
    return {"metadata": meta, "spec": body, "status": status}


def replica_set(name: str, replicas: int, cpu: str = "1", class_name: str = "low", **template: Any) -> Json:
    spec = {
        "priorityClassName": class_name,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
        **template,
    }
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def added(objects: ClusterObjects, kind: str, *bodies: Json) -> ClusterObjects:
    """The same objects with these."""
    for body in bodies:
        objects.add(BY_KIND[kind], msgspec.convert(body, BY_KIND[kind].type))
    return objects


def cluster_of(nodes: list[Json], pods: list[Json], **more: list[Json]) -> ClusterObjects:
    """A cluster of these nodes and pods, the classes of CLASSES, and further objects by kind."""
    made = ClusterObjects(NOW)
    added(made, "Namespace", {"metadata": {"name": "default"}})
    added(made, "PriorityClass", *CLASSES)
    added(made, "Node", *nodes)
    for kind, bodies in more.items():
        added(made, kind, *bodies)
    return added(made, "Pod", *pods)


def large(nodes: int, pods: int, preemptors: int, *, grace: int = 30) -> Iterator[tuple[str, Json]]:
    """Objects by kind: full nodes of ReplicaSets' pods, 2 CPUs each; preemptors that take the place of two of them.

    As many empty nodes as the replacements of all victims need stand by, tainted for preemptors.
    """
    each = pods // nodes
    yield "Namespace", {"metadata": {"name": "default"}}
    for one in CLASSES:
        yield "PriorityClass", one
    cpu = str(each * 2)
    for number in range(nodes):
        yield "Node", node(f"n{number:05d}", cpu, f"z{number % 3}")
    for number in range(2 * preemptors // each + 1):
        spare = node(f"s{number:05d}", str(each * 2 + 2), f"z{number % 3}", "spare")
        spare["spec"] = {"taints": [{"key": "spare", "effect": "NoSchedule"}]}
        yield "Node", spare
    tolerates = {"tolerations": [{"key": "spare", "operator": "Exists"}]}
    template = {"terminationGracePeriodSeconds": grace, **tolerates}
    for number in range(-(-pods // REPLICAS)):
        replicas = min(REPLICAS, pods - number * REPLICAS)
        yield "ReplicaSet", replica_set(f"w{number:05d}", replicas, "2", **template)
    for number in range(pods):
        owner = f"w{number // REPLICAS:05d}"
        spec = {"terminationGracePeriodSeconds": grace, **tolerates}
        on = f"n{number % nodes:05d}"
        yield "Pod", pod(f"{owner}-{number % REPLICAS:03d}", "2", on=on, owner=("ReplicaSet", owner), spec=spec)
    for number in range(preemptors):
        yield "Pod", pod(f"p{number:05d}", "4", "high")


def write(path: Path, objects: Iterator[tuple[str, Json]]) -> None:
    """Write a cluster file."""
    keys = sorted(KEPT_ANNOTATIONS | {PLAN, DECISION, PROTECTION_DURATION})
    header = Header(format=FORMAT, version=VERSION, taken_at=rfc3339(NOW), annotations=keys)
    with path.open("wb") as stream, cluster_file(stream, header) as add:
        for kind, body in objects:
            add(BY_KIND[kind], msgspec.convert(body, BY_KIND[kind].type))


OWNER = ("ReplicaSet", "web")


def full(count: int = 2, **more: Any) -> ClusterObjects:
    """Nodes a, b, ... of 2 CPUs, each full of two pods of ReplicaSet web, and a small spare node for replacements."""
    nodes = [node(name, "2", f"zone-{name}") for name in "abcdef"[:count]]
    pods = [pod(f"web-{on}{n}", "1", on=on, owner=OWNER) for on in "abcdef"[:count] for n in range(2)]
    return cluster_of(nodes, [*pods, *more.pop("pods", [])], ReplicaSet=[replica_set("web", len(pods))], **more)


def run(objects: ClusterObjects, policies: Policies | None = None, *steps: str | Step, **options: Any) -> Running:
    made = [timed(step) if isinstance(step, str) else step for step in steps]
    found = simulate(objects, policies or loaded(POLICY), made, Options(**options))
    assert not found.errors, found.errors
    return found


def waits(result: Running) -> set[str]:
    return {key.partition("/")[2] for key in result.reasons}


def placed(result: Running) -> dict[str, float]:
    return {row.pod.metadata.name: row.placed for row in result.history.pods.values() if row.placed is not None}
