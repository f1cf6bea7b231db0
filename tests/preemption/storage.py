"""Claims, volumes, storage classes and attach limits of random clusters, as JSON data."""

import random

from tests.preemption.building import HOST, ZONE, Json

DRIVERS = ("disk.example.com", "share.example.com", "ebs.csi.aws.com")
GOLD = "gold"


def storage(rng: random.Random, nodes: list[Json]) -> tuple[list[Json], list[Json]]:
    """Some claims, bound and not, and their volumes; and volumes that nobody has claimed yet."""
    claims = [_claim(rng, f"claim-{number}", rng.choice(("team-a", "team-b")), number) for number in range(12)]
    claims = claims[: rng.randint(2, 12)]
    volumes = [_volume(rng, number, claim, nodes) for number, claim in enumerate(claims) if rng.random() < 0.95]
    volumes += [_free(rng, f"free-{number}", nodes) for number in range(rng.randint(0, 4))]
    return claims, volumes


def ephemeral(rng: random.Random, pod: Json, claims: list[Json], volumes: list[Json], nodes: list[Json]) -> Json:
    """A volume that is made for the pod, and mostly its claim."""
    name = f"{pod['metadata']['name']}-scratch"
    if rng.random() < 0.95:
        claim = _claim(rng, name, pod["metadata"]["namespace"], len(volumes) + 100)
        uid = pod["metadata"]["uid"] if rng.random() < 0.9 or pod["metadata"]["name"] != "preemptor" else "another"
        claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "any", "uid": uid, "controller": True}]
        claims.append(claim)
        if rng.random() < 0.9:
            volumes.append(_volume(rng, len(volumes) + 100, claim, nodes))
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def csi_nodes(rng: random.Random, nodes: list[Json]) -> list[Json]:
    """What most nodes can attach, by driver."""

    def driver(name: str) -> Json:
        limit: Json = {"allocatable": {"count": rng.randint(0, 4)}} if rng.random() < 0.8 else {}
        return {"name": name, "nodeID": "id", **limit}

    return [
        {"metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": [driver(name) for name in DRIVERS]}}
        for node in nodes
        if rng.random() < 0.9
    ]


def _claim(rng: random.Random, name: str, namespace: str, number: int) -> Json:
    claim: Json = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": {}},
        "spec": {
            "accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))],
            "resources": {"requests": {"storage": rng.choice(("2Gi", "5Gi", "6000Mi"))}},
        },
        "status": {"phase": "Bound"},
    }
    annotations = claim["metadata"]["annotations"]
    if rng.random() < 0.65:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
        claim["spec"]["volumeName"] = f"volume-{number}"
        return claim
    claim["status"]["phase"] = "Pending"
    of_class = rng.choice(("late", "late", "static", "static", "static", "zonal", "now"))
    if rng.random() < 0.2:
        annotations["volume.beta.kubernetes.io/storage-class"] = of_class
    else:
        claim["spec"]["storageClassName"] = of_class
    if rng.random() < 0.15:
        claim["spec"]["volumeAttributesClassName"] = GOLD
    if rng.random() < 0.15:
        annotations["volume.kubernetes.io/selected-node"] = rng.choice(("node-0000", "node-0001", "node-0002"))
    if rng.random() < 0.15:
        claim["spec"]["selector"] = {"matchLabels": {"kind": "fast"}}
    return claim


def _volume(rng: random.Random, number: int, claim: Json, nodes: list[Json]) -> Json:
    """The volume of a bound claim; for another one a volume that is free, or reserved for it."""
    volume = _free(rng, f"volume-{number}", nodes)
    meta = claim["metadata"]
    if "volumeName" in claim["spec"]:
        volume["status"]["phase"] = "Bound"
        volume["spec"]["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    elif rng.random() < 0.3:
        volume["spec"]["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"]}
        if rng.random() < 0.3:
            volume["spec"]["claimRef"]["uid"] = rng.choice((meta["uid"], "another"))
    return volume


def _free(rng: random.Random, name: str, nodes: list[Json]) -> Json:
    volume: Json = {
        "metadata": {"name": name, "labels": {"kind": rng.choice(("fast", "slow"))}, "annotations": {}},
        "spec": {
            "capacity": {"storage": rng.choice(("4Gi", "5Gi", "10Gi"))},
            "accessModes": rng.choice((["ReadWriteOnce", "ReadWriteOncePod"], ["ReadWriteOnce"])),
        },
        "status": {"phase": rng.choice(("Available",) * 8 + ("Released",))},
    }
    spec = volume["spec"]
    if rng.random() < 0.2:
        volume["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"] = "static"
    else:
        spec["storageClassName"] = rng.choice(("static", "static", "static", "late"))
    if rng.random() < 0.1:
        spec["volumeAttributesClassName"] = GOLD
    handle = rng.choice((name, name, "shared-1", "shared-2"))
    if rng.random() < 0.2:
        spec["awsElasticBlockStore"] = {"volumeID": rng.choice((handle, f"aws://zone/{handle}"))}
    elif rng.random() < 0.8:
        spec["csi"] = {"driver": rng.choice(DRIVERS), "volumeHandle": handle}
    terms = _terms(rng, nodes)
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if rng.random() < 0.3:
        volume["metadata"]["labels"][ZONE] = rng.choice(("z1", "z1__z2", "z3__ z1", "z3__"))
    return volume


def _terms(rng: random.Random, nodes: list[Json]) -> list[Json]:
    """From where a volume can be reached; empty for everywhere."""
    zones = {"key": ZONE, "operator": "In", "values": rng.sample(("z1", "z2", "z3"), 2)}
    host = {"key": HOST, "operator": "In", "values": [rng.choice(nodes)["metadata"]["name"]]}
    elsewhere = {"key": HOST, "operator": "NotIn", "values": [rng.choice(nodes)["metadata"]["name"]]}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-0000"]}
    return rng.choice(
        (
            [],
            [],
            [{"matchExpressions": [zones]}],
            [{"matchExpressions": [zones]}],
            [{"matchExpressions": [host]}],
            [{"matchExpressions": [zones, elsewhere]}],
            [{"matchExpressions": [zones]}, {"matchExpressions": [host]}],
            [{"matchExpressions": [host], "matchFields": [field]}],
            [{"matchFields": [field]}],
        )
    )


def storage_classes() -> list[Json]:
    """A class of every kind that the claims name."""
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1", "z2"]}]}]
    late = "WaitForFirstConsumer"
    return [
        {"metadata": {"name": "late"}, "provisioner": "disk.example.com", "volumeBindingMode": late},
        {
            "metadata": {"name": "zonal"},
            "provisioner": "share.example.com",
            "volumeBindingMode": late,
            "allowedTopologies": zones,
        },
        {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": late},
        {"metadata": {"name": "now"}, "provisioner": "disk.example.com", "volumeBindingMode": "Immediate"},
    ]
