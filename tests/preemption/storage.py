"""Claims, volumes and storage classes of random clusters, as JSON data."""

from __future__ import annotations

import random

from tests.preemption.parts import HOST, ZONE, Json

__all__ = ["storage", "storage_classes"]


def storage(rng: random.Random, nodes: list[Json]) -> tuple[list[Json], list[Json]]:
    """Some claims, bound and not, and their volumes."""
    claims: list[Json] = []
    volumes: list[Json] = []
    for number in range(rng.randint(2, 6)):
        namespace, name = rng.choice(("team-a", "team-b")), f"claim-{number}"
        claim: Json = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
            "spec": {
                "accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))],
                "resources": {"requests": {"storage": "5Gi"}},
            },
            "status": {"phase": "Bound"},
        }
        if rng.random() < 0.65:
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            claim["spec"]["volumeName"] = f"volume-{number}"
        else:
            claim["spec"]["storageClassName"] = rng.choice(("late", "late", "static", "zonal", "now"))
            claim["status"]["phase"] = "Pending"
        claims.append(claim)
        if rng.random() < 0.95:
            volumes.append(_volume(rng, number, claim, nodes))
    return claims, volumes


def _volume(rng: random.Random, number: int, claim: Json, nodes: list[Json]) -> Json:
    bound = "volumeName" in claim["spec"]
    volume: Json = {
        "metadata": {"name": f"volume-{number}", "labels": {}},
        "spec": {
            "capacity": {"storage": rng.choice(("5Gi", "10Gi"))},
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        },
        "status": {"phase": "Bound" if bound else "Available"},
    }
    if not bound:
        volume["spec"]["storageClassName"] = "static"
    if rng.random() < 0.5:
        row = {"key": ZONE, "operator": "In", "values": rng.sample(("z0", "z1", "z2"), 2)}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
    elif rng.random() < 0.5:
        host = rng.choice(nodes)["metadata"]["name"]
        row = {"key": HOST, "operator": "In", "values": [host]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
    if rng.random() < 0.3:
        volume["metadata"]["labels"][ZONE] = rng.choice(("z0", "z1__z2"))
    return volume


def storage_classes() -> list[Json]:
    """A class of every kind that the claims name."""
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z0", "z1"]}]}]
    late = "WaitForFirstConsumer"
    return [
        {"metadata": {"name": "late"}, "provisioner": "example.com/disk", "volumeBindingMode": late},
        {
            "metadata": {"name": "zonal"},
            "provisioner": "example.com/disk",
            "volumeBindingMode": late,
            "allowedTopologies": zones,
        },
        {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": late},
        {"metadata": {"name": "now"}, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate"},
    ]
