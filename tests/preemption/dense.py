"""The large, full cluster that figures are taken on, as JSON data."""

import random

from tests.preemption.parts import APPS, HOST, ZONE, Json, instant, make_budget, make_namespace, make_pod


def dense(nodes: int, per_node: int = 30, seed: int = 1) -> Json:
    """Every node full (32 CPUs) with pods of five priorities, two fifths of them behind budgets; nothing is free."""
    rng = random.Random(seed)
    return {
        "name": f"dense-{nodes}x{per_node}",
        "nodes": [_dense_node(number) for number in range(nodes)],
        "pods": [pod for number in range(nodes) for pod in _dense_pods(rng, number, per_node)],
        "podDisruptionBudgets": [
            make_budget("team-a", "db", {"app": "db"}, 0),
            make_budget("team-a", "cache", {"app": "cache"}, 2),
        ],
        "namespaces": [make_namespace("team-a")],
        "preemptor": make_pod("preemptor", "team-a", 500, {"app": "web"}, {"cpu": "4", "memory": "4Gi"}),
    }


def _dense_node(number: int) -> Json:
    size = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {HOST: f"node-{number:05d}", ZONE: f"z{number % 3 + 1}"}
    return {
        "metadata": {"name": f"node-{number:05d}", "labels": labels},
        "spec": {},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _dense_pods(rng: random.Random, node: int, per_node: int) -> list[Json]:
    left, pods = 32000, []
    for place in range(per_node):
        share = int(32000 / per_node * rng.uniform(0.7, 1.3))
        cpu = left if place == per_node - 1 else max(50, min(left, share))
        if cpu <= 0:
            break
        left -= cpu
        memory = f"{rng.choice((256, 512, 1024))}Mi"
        labels = {"app": rng.choice((*APPS, "etl")), "tier": "be"}
        pod = make_pod(
            f"p{node * per_node + place:06d}",
            "team-a",
            rng.choice((0, 10, 100, 200, 1000)),
            labels,
            {"cpu": f"{cpu}m", "memory": memory},
        )
        pod["spec"]["nodeName"] = f"node-{node:05d}"
        pod["status"] = {"phase": "Running", "startTime": instant(3000 + rng.randrange(100000))}
        pods.append(pod)
    return pods
