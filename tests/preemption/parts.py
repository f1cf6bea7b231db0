"""Parts of random clusters, as JSON data."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.token_volumes import token_volume

Json = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "batch", "db", "cache")
_START = datetime(2026, 1, 1, tzinfo=UTC)


def instant(seconds: int) -> str:
    return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_pod(name: str, namespace: str, priority: int, labels: Json, requests: Json) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels},
        "spec": {
            "priority": priority,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}],
            "volumes": [token_volume(name)],
        },
        "status": {"phase": "Pending"},
    }


def make_budget(namespace: str, name: str, labels: Json, allowed: int) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 1, "expectedPods": 9},
    }


def make_namespace(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}


def report_resize(rng: random.Random, pod: Json) -> None:
    """Let the pod's status tell of its containers, and of it as a whole, other amounts than they ask for."""
    spec, status = pod["spec"], pod["status"]

    def report() -> Json:
        said: Json = {"resources": {"requests": {"cpu": rng.choice(("100m", "1", "2500m")), "memory": "1Gi"}}}
        if rng.random() < 0.7:
            said["allocatedResources"] = {"cpu": rng.choice(("200m", "1500m"))}
        return said if rng.random() < 0.9 else {"allocatedResources": {"cpu": "9"}}

    status["containerStatuses"] = [{"name": one["name"], **report()} for one in spec["containers"]]
    status["initContainerStatuses"] = [{"name": one["name"], **report()} for one in spec.get("initContainers", ())]
    if rng.random() < 0.5:
        status |= report()
    if rng.random() < 0.4:
        reason = rng.choice(("Infeasible", "Deferred"))
        status.setdefault("conditions", []).append({"type": "PodResizePending", "status": "True", "reason": reason})
