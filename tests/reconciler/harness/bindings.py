"""Random clusters in which host ports, anti-affinity and taints bind pods to others, and the trouble of the others."""

import random

from tests.preemption.building import node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, running

HOST = "kubernetes.io/hostname"
_BOUND = "bound"
"""The label of pods to which this was given, and of those in their place."""


def bindings(made: Cluster, seed: int) -> None:
    """Many pods are bound to others on their node."""
    dice = random.Random(f"bindings {seed}")
    ports, apart, tainted = (dice.random() < 0.6 for _ in range(3))
    for host in made.nodes:
        host["metadata"].setdefault("labels", {})[HOST] = host["metadata"]["name"]
        if tainted and dice.random() < 0.3:
            host["spec"] = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}
    if apart:
        _far(made)

    def dress(pod: Json) -> None:
        if _BOUND in pod["metadata"]["labels"]:
            return
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], _BOUND: "true"}
        chance = random.Random(f"{seed} {pod['metadata']['name']}")
        if ports and chance.random() < 0.5:
            port = {"containerPort": 80, "hostPort": chance.choice((8080, 9090))}
            if _free(made, pod, port):
                pod["spec"]["containers"][0]["ports"] = [port]
        if apart and chance.random() < 0.5 and not pod["spec"].get("nodeName"):
            pod["spec"]["affinity"] = _apart_from(chance.choice(("a", "b", "c")))
        if tainted and chance.random() < 0.5:
            pod["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]

    made.dresses.append(dress)


def _free(made: Cluster, pod: Json, port: Json) -> bool:
    """Whether nobody else on the pod's node has the port."""
    there = [other for other in made.pods.values() if other["spec"].get("nodeName") == pod["spec"].get("nodeName", "")]
    return not any(port in other["spec"]["containers"][0].get("ports", ()) for other in there)


def _far(made: Cluster) -> None:
    """A pod on a node of its own that is apart from all others, and stays.

    kube-scheduler heeds the anti-affinity of a nominated pod only if a pod on a node has a like one.
    """
    made.nodes.append(node("far", "0", labels={HOST: "far"}))
    pod = running("apart", "far", random.Random(0))
    pod["metadata"] |= {"annotations": {}, "ownerReferences": [], "labels": {_BOUND: "true"}}
    pod["spec"] |= {"priority": 1000, "affinity": _apart_from("a", "b", "c")}
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "0"
    made.put(pod)


def _apart_from(*apps: str) -> Json:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]}
    term = {"labelSelector": selector, "topologyKey": HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
