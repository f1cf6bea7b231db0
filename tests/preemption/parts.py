"""Parts of random clusters, as JSON data."""

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
