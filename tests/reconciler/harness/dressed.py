"""What pods of random clusters have beside priorities and CPUs.

What binds them to others, what evicting them costs, and what they want to grow to, with the kubelet's part in that.
"""

import copy
import random
from functools import partial

from msgspec.structs import replace

from tests.preemption.building import HOST, ZONE, apart_from, node, owned_by, spread
from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, cpu_of, request, running
from tests.reconciler.harness.virtual_time import later, now
from webhook.kube.instants import rfc3339
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Rate, WorkloadLimit
from webhook.policy.model.values import MANAGED, MARK
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
            pod["spec"] |= apart_from(HOST, app=chance.choice(("a", "b", "c")))
        if tainted and chance.random() < 0.5:
            pod["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]

    made.dresses.append(dress)


def _free(made: Cluster, pod: Json, port: Json) -> bool:
    """Whether nobody else on the pod's node has the port."""
    there = [other for other in made.pods.values() if other["spec"].get("nodeName") == pod["spec"].get("nodeName", "")]
    return not any(port in other["spec"]["containers"][0].get("ports", ()) for other in there)


def _far(made: Cluster) -> None:
    """A pod on a node of its own that is apart from all others; both stay.

    kube-scheduler heeds the anti-affinity of a nominated pod only if a pod on a node has a like one.
    """
    made.nodes.append(node("far", "0"))
    pod = running("apart", "far", random.Random(0))
    pod["metadata"] |= {"annotations": {}, "ownerReferences": [], "labels": {_BOUND: "true"}}
    pod["spec"] |= {"priority": 1000, **apart_from(HOST, {"app": "b"}, {"app": "c"}, app="a")}
    request(pod, 0)
    made.put(pod)


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
                pod["spec"] |= apart_from(ZONE, app=dice.choice(("a", "b", "c")))
            elif dice.random() < 0.5:
                pod["spec"] |= spread(ZONE, dice.randint(1, 2), app=labels["app"])
        elif dice.random() < 0.15:
            pod["spec"] |= apart_from(ZONE, app=dice.choice(("a", "d")))

    def came(old: Json | None, new: Json | None) -> None:
        """A nomination keeps nobody out of a zone: whoever is bound may stand in the way, whatever its priority."""
        if new is not None and new["spec"].get("nodeName") and not (old and old["spec"].get("nodeName")):
            for pod in made.pods.values():
                if _keeps_out(new, pod) or _keeps_out(pod, new):
                    made.outcomes.outside(f"{new['metadata']['name']} counts in its zone", pod["metadata"]["uid"])

    made.dresses.append(dress)
    made.changes.append(came)


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


_PENDING = "PodResizePending"


def growth(made: Cluster, seed: int) -> None:
    """Some pods that run want more on their node, whose kubelet looks whenever a pod there is different."""
    dice = random.Random(f"growth {seed}")
    made.policy = replace(made.policy, preemptors=replace(made.policy.preemptors, resize=True))

    def changed(old: Json | None, new: Json | None) -> None:
        for pod in (old, new):
            if pod is not None and (node := pod["spec"].get("nodeName")):
                later(dice.choice((0.0, 0.01, 0.5)), _look, made, node)
                return

    made.changes.append(changed)
    for number, host in enumerate(made.nodes):
        if number and dice.random() < 0.5:
            continue
        name, at = f"g{number}", dice.choice((0.0, 0.3, dice.uniform(0, 20)))
        pod = running(name, host["metadata"]["name"], dice)
        pod["metadata"] |= {"labels": {MARK: MANAGED}, "ownerReferences": []}
        priority = dice.choice((100, 110, 120))
        pod["spec"] |= {"priority": priority, "priorityClassName": "high", "preemptionPolicy": "Never"}
        if dice.random() < 0.8:
            pod["metadata"]["annotations"] = {}
        has = dice.randint(1, 2)
        request(pod, has)
        pod["status"]["containerStatuses"] = [_allotted(has)]
        host["status"]["allocatable"]["cpu"] = str(8 + has)
        made.put(pod)
        for _ in range(dice.choice((1, 1, 1, 2))):
            later(at, _wish, made, name, has + dice.randint(1, 7))
            at += dice.uniform(0, 30)
        if dice.random() < 0.15:
            later(at, _wish, made, name, has)


def _wish(made: Cluster, name: str, cpu: int) -> None:
    """Somebody changes what a pod wants."""
    known = made.pods.get(name)
    if known is not None and "deletionTimestamp" not in known["metadata"]:
        made.outcomes.outside(f"{name} wants to grow there", known["spec"]["nodeName"])
        made.edit(name, lambda pod: request(pod, cpu))


def _look(made: Cluster, node: str) -> None:
    """The kubelet grants what fits beside what the pods there have, the highest priority first, and defers the rest."""
    there = lambda: [pod for pod in made.pods.values() if pod["spec"].get("nodeName") == node]  # noqa: E731
    for pod in sorted(filter(_wants, there()), key=lambda pod: -pod["spec"]["priority"]):
        told = {row["type"]: row for row in pod["status"].get("conditions", ())}
        before, changed, wants = told.pop(_PENDING, {}), copy.deepcopy(pod), cpu_of(pod)
        used = sum(_has(other) for other in there() if other["metadata"]["name"] != pod["metadata"]["name"])
        if wants == _has(pod) or used + max(wants, _has(pod)) <= made.cpus(node):
            changed["status"]["containerStatuses"] = [_allotted(wants)]
        else:
            reason = "Deferred" if wants <= made.cpus(node) else "Infeasible"
            if before.get("reason") == reason:
                continue
            said = {"type": _PENDING, "status": "True", "reason": reason}
            told[_PENDING] = {**said, "lastTransitionTime": rfc3339(START + now())}
        changed["status"]["conditions"] = list(told.values())
        made.put(changed)


def _has(pod: Json) -> int:
    said = pod["status"].get("containerStatuses")
    return int(said[0]["allocatedResources"]["cpu"]) if said else cpu_of(pod)


def _wants(pod: Json) -> bool:
    """Whether the pod stays, and what it wants is not what it has, or was not until now."""
    pending = any(row["type"] == _PENDING for row in pod["status"].get("conditions", ()))
    stays = "deletionTimestamp" not in pod["metadata"]
    return stays and "containerStatuses" in pod["status"] and (pending or cpu_of(pod) != _has(pod))


def _allotted(cpu: int) -> Json:
    amounts = {"cpu": str(cpu)}
    return {"name": "main", "resources": {"requests": amounts}, "allocatedResources": amounts}
