"""What pods of random clusters have beside priorities and CPUs: what binds them to others, and what evicting costs."""

import random
from functools import partial

from msgspec.structs import replace

from tests.preemption.building import HOST, ZONE, node, owned_by
from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, request, running
from webhook.kube.instants import rfc3339
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Rate, WorkloadLimit
from webhook.policy.model.values import MARK
from webhook.policy.model.victims import EvictionCost, LostWork

_BOUND = "bound"
"""The label of pods to which ports, anti-affinity or tolerations were given, and of those in their place."""
_SAVED = "example.com/saved-at"


def bindings(made: Cluster, seed: int) -> None:
    """Host ports, anti-affinity and taints bind many pods to others on their node."""
    dice = random.Random(f"bindings {seed}")
    ports, apart, tainted = (dice.random() < 0.6 for _ in range(3))
    for host in made.nodes:
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
    made.nodes.append(node("far", "0"))
    pod = running("apart", "far", random.Random(0))
    pod["metadata"] |= {"annotations": {}, "ownerReferences": [], "labels": {_BOUND: "true"}}
    pod["spec"] |= {"priority": 1000, "affinity": _apart_from("a", "b", "c")}
    request(pod, 0)
    made.put(pod)


def _apart_from(*apps: str) -> Json:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]}
    term = {"labelSelector": selector, "topologyKey": HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def zones(made: Cluster, seed: int) -> None:
    """Nodes in two zones; preemptors, and some other pods, want to be apart from pods, or spread evenly."""
    dice = random.Random(f"zones {seed}")
    for host in made.nodes:
        host["metadata"]["labels"][ZONE] = dice.choice(("a", "b"))
    made.policy = replace(made.policy, victims=replace(made.policy.victims, across_nodes=True))

    def dress(pod: Json) -> None:
        labels = pod["metadata"]["labels"]
        if MARK in labels:
            labels["app"] = dice.choice(("a", "b", "c", "d"))
            if dice.random() < 0.5:
                _apart(pod, dice.choice(("a", "b", "c")))
            elif dice.random() < 0.5:
                _spread(pod, dice.randint(1, 2))
        elif dice.random() < 0.15:
            _apart(pod, dice.choice(("a", "d")))

    def came(old: Json | None, new: Json | None) -> None:
        """A nomination keeps nobody out of a zone: whoever is bound may stand in the way, whatever its priority."""
        if new is not None and new["spec"].get("nodeName") and not (old and old["spec"].get("nodeName")):
            for pod in made.pods.values():
                if _keeps_out(new, pod) or _keeps_out(pod, new):
                    made.outcomes.outside(f"{new['metadata']['name']} counts in its zone", pod["metadata"]["uid"])

    made.dresses.append(dress)
    made.changes.append(came)


def _apart(pod: Json, app: str) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(pod: Json, skew: int) -> None:
    own = {"labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **own}
    pod["spec"]["topologySpreadConstraints"] = [constraint]


def _keeps_out(one: Json, other: Json) -> bool:
    """Whether a pod counts others such as this one in its zone."""
    terms = one["spec"].get("affinity", {}).get("podAntiAffinity", {})
    rows = [*one["spec"].get("topologySpreadConstraints", ()), *(row for some in terms.values() for row in some)]
    labels = other["metadata"]["labels"].items()
    return any(row["labelSelector"]["matchLabels"].items() <= labels for row in rows)


def costs(made: Cluster, seed: int) -> None:
    """Random costs, limits of workloads and shares."""
    dice = random.Random(f"costly {seed}")
    some = lambda: dice.random() < 0.6  # noqa: E731
    cost = EvictionCost(
        readiness=some(),
        group_restarts=some(),
        deletion_cost=some(),
        lost_work=LostWork(checkpoints=(_SAVED,)) if some() else None,
        recent_evictions=dice.choice((5.0, 60.0, 3600.0)) if some() else None,
        grace_period=some(),
    )
    window = lambda: dice.choice((5.0, 60.0))  # noqa: E731
    limits = replace(
        made.policy.limits,
        per_workload=WorkloadLimit(dice.randint(1, 3), dice.choice((20.0, 60.0, 120.0))) if some() else None,
        per_namespace=Rate(dice.randint(1, 3), window()) if dice.random() < 0.3 else None,
        per_label=LabelRate("app", dice.randint(1, 2), window()) if dice.random() < 0.3 else None,
        cycles=Cycles(keep=dice.choice(list(CycleKeeper)), window=dice.choice((20.0, 60.0, 3600.0))),
    )
    made.policy = replace(made.policy, limits=limits, victims=replace(made.policy.victims, cost=cost))
    made.dresses.append(partial(_put_costs, dice))


def _put_costs(dice: random.Random, pod: Json) -> None:
    """Whatever pod comes has what the keys look at; preemptors belong to the workloads of victims."""
    meta = pod["metadata"]
    if dice.random() < 0.5:
        meta.setdefault("annotations", {})[POD_DELETION_COST] = str(dice.randint(-5, 5))
    if dice.random() < 0.3:
        meta.setdefault("annotations", {})[_SAVED] = rfc3339(START - dice.randint(-100, 3000))
    if dice.random() < 0.3:
        meta["labels"]["jobset.sigs.k8s.io/jobset-name"] = dice.choice(("s", "t"))
    if dice.random() < 0.7 and pod["status"]["phase"] == "Running":
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    if MARK in meta["labels"] and dice.random() < 0.9:
        meta["ownerReferences"] = owned_by("Job", dice.choice(("x", "y")))
