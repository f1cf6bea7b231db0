"""Clusters with one pending pod each, as JSON data: recorded ones mixed, for comparing the decision with the oracle.

`plain(seed, *features)` takes each node with its pods from one of several recorded clusters, and so the preemptor. In
the end: claims, volumes, storage classes and attach limits.
"""

import copy
import random

from tests.preemption.building import HOST, ZONE, Json, instant, namespace
from tests.preemption.recorded import DATA, recorded
from webhook.kube.pods import POD_DELETION_COST

PROFILES = (
    "affinity",
    "antiaffinity",
    "bigmix",
    "csilimits",
    "mixed",
    "nominated",
    "pdb",
    "placement",
    "ports",
    "resize",
    "resources",
    "sidecars",
    "spread",
    "taints",
    "terminating",
)
"""What recorded clusters are about."""
FEATURES = (*PROFILES, "volumes", "oddities")
"""The same, and what is added to them: claims of every kind, and what few clusters have."""
DECLARED = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")
_MOST_NODES = 7


def plain(seed: int, *features: str) -> Json:
    """A small cluster. What is taken from which recorded one depends on the seed alone."""
    dice = random.Random(f"{seed}/{features}")
    profiles = [feature for feature in features if feature in PROFILES] or ["resources"]
    sources = [dice.choice(recorded(DATA / f"{profile}.jsonl.gz"))[0] for profile in profiles]
    of = copy.deepcopy(dice.choice(sources))
    nodes, pods = [], []
    for number in range(dice.randint(2, _MOST_NODES)):
        place = dice.randrange(len(sources))
        if number < len(sources[place]["nodes"]):
            node = copy.deepcopy(sources[place]["nodes"][number])
            nodes.append(node)
            pods += [_named(pod, place) for pod in sources[place]["pods"] if _node_of(pod) == node["metadata"]["name"]]
    budgets = copy.deepcopy([budget for source in sources for budget in source["podDisruptionBudgets"]])
    for number, budget in enumerate(budgets):
        budget["metadata"]["name"] = f"budget-{number}"
        _read_by_the_eviction_api(dice, budget)
    for pod in pods:
        if dice.random() < 0.8:
            pod["status"].setdefault("conditions", []).append({"type": "Ready", "status": "True"})
    kinds = ("persistentVolumes", "persistentVolumeClaims", "storageClasses", "csiNodes")
    cluster = {
        "name": f"{'+'.join(features) or 'resources'}-{seed}",
        "nodes": nodes,
        "pods": pods,
        "podDisruptionBudgets": budgets,
        "namespaces": [namespace("team-a", stage="prod"), namespace("team-b", stage="dev")],
        "preemptor": of["preemptor"],
        **{kind: of.get(kind, []) for kind in kinds},
    }
    if "volumes" in features:
        _put_volumes(dice, cluster)
    if "oddities" in features:
        _make_odd(dice, cluster)
    return cluster


def _node_of(pod: Json) -> str:
    """The node that a pod is on or nominated to."""
    return str(pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName", ""))


def _named(pod: Json, place: int) -> Json:
    """A copy of the pod, with a name of its own among those of several clusters."""
    made: Json = copy.deepcopy(pod)
    if place:
        made["metadata"] |= {"name": f"{pod['metadata']['name']}-{place}", "uid": f"{pod['metadata']['uid']}-{place}"}
    return made


def _read_by_the_eviction_api(dice: random.Random, budget: Json) -> None:
    """Give the budget what kube-scheduler does not look at."""
    if dice.random() < 0.3:
        budget["spec"]["unhealthyPodEvictionPolicy"] = dice.choice(("AlwaysAllow", "IfHealthyBudget"))
    budget["status"]["currentHealthy"] = dice.choice((0, 1, 9))
    if dice.random() < 0.2:
        budget["metadata"]["generation"], budget["status"]["observedGeneration"] = 2, 1


def _put_volumes(dice: random.Random, cluster: Json) -> None:
    """Let pods use claims of every kind instead of those that they have."""
    nodes, pods, preemptor = cluster["nodes"], cluster["pods"], cluster["preemptor"]
    claims, volumes = storage(dice, nodes)
    for node in nodes if dice.random() < 0.7 else ():  # then nothing else is short
        node["status"]["allocatable"] = dict.fromkeys(node["status"]["allocatable"], "1024Gi") | {
            "example.com/gpu": "64"
        }
    for pod in (*pods, preemptor):
        used = pod["spec"]["volumes"] = []
        if dice.random() > (0.8 if pod is preemptor else 0.4):
            continue
        own = [one for one in claims if one["metadata"]["namespace"] == pod["metadata"]["namespace"]]
        names = [one["metadata"]["name"] for one in dice.sample(own, min(len(own), dice.randint(1, 2)))]
        names += ["missing"] if pod is preemptor and dice.random() < 0.05 else []
        used += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        if dice.random() < 0.3:
            used.append(ephemeral(dice, pod, claims, volumes, nodes))
    cluster |= {"persistentVolumes": volumes, "persistentVolumeClaims": claims, "storageClasses": storage_classes()}
    cluster["csiNodes"] = csi_nodes(dice, nodes) if dice.random() < 0.7 else []


def _make_odd(dice: random.Random, cluster: Json) -> None:
    """Change some objects to what few clusters have, and what is easily read in another way."""
    preemptor = cluster["preemptor"]["spec"]
    for node in cluster["nodes"]:
        if dice.random() < 0.2:
            node["metadata"]["labels"].pop(dice.choice((ZONE, "gen", "pool")), None)
        if dice.random() < 0.8:
            node["status"]["declaredFeatures"] = list(DECLARED)[: dice.randint(0, 2)]
    if dice.random() < 0.3:
        preemptor |= {"hostNetwork": True, "hostUsers": False}
    if dice.random() < 0.3:
        container = dice.choice([*preemptor["containers"], *preemptor.get("initContainers", ())])
        container["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    for constraint in preemptor.get("topologySpreadConstraints", ()):
        if dice.random() < 0.3:
            constraint["labelSelector"] = {}
    for pod in cluster["pods"]:
        pod["metadata"].setdefault("annotations", {})[POD_DELETION_COST] = str(dice.randint(-99, 99))
        _make_pod_odd(dice, pod, preemptor["containers"][0].get("ports", []))


def _make_pod_odd(dice: random.Random, pod: Json, ports: list[Json]) -> None:
    """Change the pod; it may come to hold the `ports` that others of its node hold, too."""
    status = pod["status"]
    if dice.random() < 0.1:
        status["phase"] = dice.choice(("Pending", "Pending", "Succeeded", "Failed"))
    if dice.random() < 0.1:
        status.pop("startTime", None)
    if dice.random() < 0.05:
        pod["metadata"]["labels"] = {}
    if dice.random() < 0.3:
        pod["spec"]["containers"][0]["ports"] = ports
    if dice.random() < 0.2:
        pod["metadata"]["deletionTimestamp"] = instant(9000)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        withdrawn = [{**condition, "status": "False"}] if dice.random() < 0.3 else []
        status["conditions"] = [*status.get("conditions", ()), *withdrawn, condition]
    if "nodeName" not in pod["spec"] and dice.random() < 0.2:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    elif dice.random() < 0.02:
        pod["spec"]["nodeName"] = "gone"


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
