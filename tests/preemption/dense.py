"""The large, full cluster that figures are taken on, as JSON data."""

import random
from typing import Any

from tests.preemption.building import ZONE, Json, budget, instant, namespace, node, pod

_APPS = ("web", "batch", "db", "cache", "etl")


def dense(nodes: int, per_node: int = 30, seed: int = 1) -> Json:
    """Every node full (32 CPUs) with pods of five priorities, two fifths of them behind budgets; nothing is free."""
    rng = random.Random(seed)
    return {
        "name": f"dense-{nodes}x{per_node}",
        "nodes": [_dense_node(number) for number in range(nodes)],
        "pods": [pod for number in range(nodes) for pod in _dense_pods(rng, number, per_node)],
        "podDisruptionBudgets": [
            _in_team(budget(app, {"app": app}, allowed, currentHealthy=9, desiredHealthy=1, expectedPods=9))
            for app, allowed in (("db", 0), ("cache", 2))
        ],
        "namespaces": [namespace("team-a")],
        "preemptor": _pod("preemptor", 500, "web", "4", "4Gi"),
    }


def _in_team(made: Json) -> Json:
    made["metadata"]["namespace"] = "team-a"
    return made


def _pod(name: str, priority: int, app: str, cpu: str, memory: str, **more: Any) -> Json:
    made = _in_team(pod(name, priority=priority, cpu=cpu, **more))
    made["metadata"]["labels"] = {"app": app, "tier": "be"}
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return made


def _dense_node(number: int) -> Json:
    made = node(f"node-{number:05d}", "32", labels={ZONE: f"z{number % 3 + 1}"})
    made["status"]["allocatable"] |= {"memory": "128Gi", "ephemeral-storage": "100Gi"}
    return made


def _dense_pods(rng: random.Random, node: int, per_node: int) -> list[Json]:
    left, pods = 32000, []
    for place in range(per_node):
        share = int(32000 / per_node * rng.uniform(0.7, 1.3))
        cpu = left if place == per_node - 1 else max(50, min(left, share))
        if cpu <= 0:
            break
        left -= cpu
        memory = f"{rng.choice((256, 512, 1024))}Mi"
        app, name = rng.choice(_APPS), f"p{node * per_node + place:06d}"
        priority = rng.choice((0, 10, 100, 200, 1000))
        pods.append(_pod(name, priority, app, f"{cpu}m", memory, on=f"node-{node:05d}"))
        pods[-1]["status"]["startTime"] = instant(3000 + rng.randrange(100000))
    return pods
