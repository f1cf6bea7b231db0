"""The oracle's volumes: the preemptor's claims judged for one node at a time."""

from __future__ import annotations

from typing import Any

__all__ = ["IN_USE", "claims", "exclusive_claims", "node_failures", "refusal"]

Json = dict[str, Any]
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
ZONE = "topology.kubernetes.io/zone"


def claims(pod: Json) -> set[str]:
    volumes = pod["spec"].get("volumes", ())
    return {f"{pod['metadata']['namespace']}/{v['persistentVolumeClaim']['claimName']}" for v in volumes}


def exclusive_claims(cluster: Json) -> set[str]:
    return {
        name
        for name in claims(cluster["preemptor"])
        if "ReadWriteOncePod" in _claim(cluster, name)["spec"]["accessModes"]
    }


def refusal(cluster: Json) -> str:
    """Why no node at all will do."""
    names = [f"{cluster['preemptor']['metadata']['namespace']}/{v['persistentVolumeClaim']['claimName']}"
             for v in cluster["preemptor"]["spec"].get("volumes", ())]  # fmt: skip
    for name in names:
        if not _claim(cluster, name):
            return f'persistentvolumeclaim "{name.split("/")[1]}" not found'
    for name in names:
        claim = _claim(cluster, name)
        if not _bound(claim) and _class(cluster, claim)["volumeBindingMode"] == "Immediate":
            return "pod has unbound immediate PersistentVolumeClaims"
    for name in names:
        claim = _claim(cluster, name)
        if _bound(claim) and not _volume(cluster, claim["spec"]["volumeName"]):
            return f'persistentvolume "{claim["spec"]["volumeName"]}" not found'
    return ""


def node_failures(cluster: Json, node: Json) -> list[str]:
    """What fails on a node: the binder's reasons together, then the zone."""
    labels = node["metadata"]["labels"]
    mine = [_claim(cluster, name) for name in sorted(claims(cluster["preemptor"]))]
    bound = [_volume(cluster, claim["spec"]["volumeName"]) for claim in mine if _bound(claim)]
    reasons = []
    if not all(_reaches(volume, labels) for volume in bound):
        reasons.append("node(s) didn't match PersistentVolume's node affinity")
    if not _bindable(cluster, [claim for claim in mine if not _bound(claim)], labels):
        reasons.append("node(s) didn't find available persistent volumes to bind")
    if reasons:
        return [", ".join(reasons)]
    zones = [volume["metadata"]["labels"][ZONE].split("__") for volume in bound if ZONE in volume["metadata"]["labels"]]
    if ZONE in labels and any(labels[ZONE] not in allowed for allowed in zones):
        return ["node(s) had no available volume zone"]
    return []


def _bindable(cluster: Json, waiting: list[Json], labels: Json) -> bool:
    taken: list[str] = []
    for claim in waiting:
        storage_class = _class(cluster, claim)
        if storage_class["metadata"]["name"] == "static":
            free = [
                volume
                for volume in cluster["persistentVolumes"]
                if volume["spec"].get("storageClassName") == "static"
                and volume["metadata"]["name"] not in taken
                and _reaches(volume, labels)
            ]
            if not free:
                return False
            taken.append(min(free, key=_size_and_name)["metadata"]["name"])
        for term in storage_class.get("allowedTopologies", ()):
            if any(labels.get(row["key"]) not in row["values"] for row in term["matchLabelExpressions"]):
                return False
    return True


def _size_and_name(volume: Json) -> tuple[int, str]:
    return int(volume["spec"]["capacity"]["storage"].removesuffix("Gi")), volume["metadata"]["name"]


def _reaches(volume: Json, labels: Json) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    rows = affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    return all(labels.get(row["key"]) in row["values"] for row in rows)


def _bound(claim: Json) -> bool:
    return "volumeName" in claim["spec"]


def _claim(cluster: Json, key: str) -> Json:
    found = [
        c
        for c in cluster.get("persistentVolumeClaims", ())
        if f"{c['metadata']['namespace']}/{c['metadata']['name']}" == key
    ]
    return found[0] if found else {}


def _volume(cluster: Json, name: str) -> Json:
    found = [volume for volume in cluster["persistentVolumes"] if volume["metadata"]["name"] == name]
    return found[0] if found else {}


def _class(cluster: Json, claim: Json) -> Json:
    return next(c for c in cluster["storageClasses"] if c["metadata"]["name"] == claim["spec"]["storageClassName"])
