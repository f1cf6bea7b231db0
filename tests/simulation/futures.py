"""What comes of a small cluster as one row: what is done to it, and how that ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.clusters import Json, cluster_of, loaded, node, placed, pod, policy_text, run, waits
from webhook.clusters.model.pods import is_ready
from webhook.clusters.simulated.objects import BY_KIND, ClusterObjects
from webhook.policy.model.values import CAN_BE_PREEMPTED, NOTICE
from webhook.simulation.report.summary import summarize
from webhook.simulation.simulation import Running, Step
from webhook.simulation.whatif import Apply

VIEWS: Mapping[str, Callable[[Running], Any]] = {
    "evicted": lambda result: {row.pod.partition("/")[2]: row.at for row in summarize("", result).evictions},
    "by": lambda result: {row.by for row in summarize("", result).evictions},
    "placed": placed,
    "on": lambda result: {row.pod.spec.node_name for row in result.history.pods.values() if row.placed is not None},
    "waits": waits,
    "pods": lambda result: {one.metadata.name for one in result.tracker.all("Pod").values()},
    "nodes": lambda result: {one.metadata.name: one.spec.node_name for one in result.tracker.all("Pod").values()},
    "classes": lambda result: {one.spec.priority_class_name for one in result.tracker.all("Pod").values()},
    "noticed": lambda result: {
        one.metadata.name for one in result.tracker.all("Pod").values() if NOTICE in (one.metadata.annotations or {})
    },
    "ready": lambda result: {one.metadata.name for one in result.tracker.all("Pod").values() if is_ready(one)},
    "budgets": lambda result: {
        key.partition("/")[2]: (one.status.disruptions_allowed, one.status.expected_pods)
        for key, one in result.tracker.all("PodDisruptionBudget").items()
    },
    "why": lambda result: "; ".join(sorted(set(result.reasons.values()))),
    "refused": lambda result: set(result.history.refused),
    "at_rest": lambda result: result.at_rest,
    "seconds": lambda result: result.seconds,
}
"""What a row may say of the end: times in seconds after the beginning, pods by name, `why` a part of the reasons."""


@dataclass
class Future:
    """What is done to a cluster, under a policy for class `high` with these further fields, and what comes of it."""

    objects: ClusterObjects
    ends: Json
    steps: tuple[str | Step, ...] = ()
    policy: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)


def outcome(future: Future) -> Json:
    """What the row speaks of, as it comes out."""
    result = run(future.objects, loaded(policy_text(**future.policy)), *future.steps, **future.options)
    seen = {name: VIEWS[name](result) for name in future.ends}
    if (why := future.ends.get("why", "")) in seen.get("why", ""):
        seen |= {"why": why} if why else {}
    return seen


P = pod("p", "2", "high")
NODES = [node("a", "2"), node("b", "2")]


def budget(name: str, unavailable: int | str, status: Json, **labels: str) -> Json:
    """A budget in namespace default over the pods with these labels."""
    spec = {"selector": {"matchLabels": labels}, "maxUnavailable": unavailable}
    return {"metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": spec, "status": status}


def counted(healthy: int, allowed: int = 1) -> Json:
    numbers = {"currentHealthy": healthy, "desiredHealthy": healthy - allowed, "expectedPods": healthy}
    return {"disruptionsAllowed": allowed, "observedGeneration": 1, **numbers}


def apply(at: float, kind: str, body: Json) -> Apply:
    """A workload that is applied then."""
    return Apply(at, "test", ({"apiVersion": BY_KIND[kind].resource.api_version, "kind": kind, **body},))


def pod_group(name: str, minimum: int) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum}}


def ring(minimum: int, members: int) -> ClusterObjects:
    """Two full nodes, and a gang whose members each need one of them."""
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    pods = [
        *(pod(f"v{name}", "2", on=name, annotations={CAN_BE_PREEMPTED: "true"}) for name in "ab"),
        *(pod(f"ring-{number}", "2", "high", labels=labels) for number in range(members)),
    ]
    return cluster_of(NODES, pods, CoschedulingPodGroup=[pod_group("ring", minimum)])
