"""Clusters with one pending pod each, as JSON data: recorded ones mixed, for comparing the decision with the oracle.

`plain(seed, *features)` takes each node with its pods from one of several recorded clusters, and so the preemptor.
"""

import copy
import gzip
import json
import random
from functools import cache
from pathlib import Path

from tests.preemption.building import ZONE, Json, instant, namespace
from tests.preemption.storage import csi_nodes, ephemeral, storage, storage_classes
from webhook.kube.pods import POD_DELETION_COST

RECORDED = Path(__file__).parent / "data"
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


@cache
def recorded(profile: str) -> list[Json]:
    """The recorded clusters of a profile."""
    with gzip.open(RECORDED / f"{profile}.jsonl.gz") as lines:
        return [json.loads(line)["input"] for line in lines]


def plain(seed: int, *features: str) -> Json:
    """A small cluster. What is taken from which recorded one depends on the seed alone."""
    dice = random.Random(f"{seed}/{features}")
    profiles = [feature for feature in features if feature in PROFILES] or ["resources"]
    sources = [dice.choice(recorded(profile)) for profile in profiles]
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
    name: str = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName", "")
    return name


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
