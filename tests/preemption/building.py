"""Small builders for pods, nodes and snapshots, and decisions as plain data."""

import math
from typing import Any

import msgspec

from tests.token_volumes import token_volume
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import (
    BudgetMode,
    EvictionMode,
    GroupDisruption,
    Groups,
    PreemptionPolicy,
    Protection,
)
from webhook.policy.model.victims import VictimMode, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.decision import decide
from webhook.preemption.gangs.decision import GangDecision, decide_gang
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules, compile_rules, kubernetes_rules

NOW = 1_800_000_000.0
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Json = dict[str, Any]


def pod(
    name: str,
    *,
    on: str = "",
    priority: int = 0,
    cpu: str = "1",
    started: float | None = None,
    group: str = "",
    **spec: Any,
) -> Json:
    """A pod, of a PodGroup if one is given, and further fields go into its spec.

    It `started` so many seconds before NOW; a pod on a node has not if these are infinite.
    """
    requests = {"requests": {"cpu": cpu}} if cpu else {}
    spec |= {"schedulingGroup": {"podGroupName": group}} if group else {}
    made: Json = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}},
        "spec": {
            "priority": priority,
            "containers": [{"name": "main", "resources": requests}],
            **spec,
            "volumes": [token_volume(name), *spec.get("volumes", ())],
        },
        "status": {"phase": "Running" if on else "Pending"},
    }
    if on:
        made["spec"]["nodeName"] = on
        if started != math.inf:
            made["status"]["startTime"] = rfc3339(NOW - (3600 if started is None else started))
    return made


def owned_by(kind: str, name: str) -> list[Json]:
    """The owner references of a pod that this one controls."""
    return [{"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def victim(*, says: Json | None = None, **more: Any) -> Json:
    """A pod of the class `low` on node n1, with annotations if it says something."""
    made = pod("victim", on="n1", **{"cpu": "3", "priorityClassName": "low"} | more)
    made["metadata"]["annotations"] = says or {}
    return made


def node(name: str, cpu: str = "4", *, labels: Json | None = None, pods: str = "110", **spec: Any) -> Json:
    """A node with a hostname label."""
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": pods}},
    }


def namespace(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}


def instant(seconds: int) -> str:
    """A time of 2026, counted from its beginning."""
    return rfc3339(1_767_225_600 + seconds)


def budget(name: str, labels: Json, allowed: int, **status: Any) -> Json:
    """A disruption budget with so many disruptions left."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def pod_group(name: str, minimum: int = 0, *, topology: str = "", **spec: Any) -> Json:
    """A PodGroup, with a minimum and a topology if these are given."""
    spec["schedulingPolicy"] = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec |= {"schedulingConstraints": {"topology": [{"key": topology}]}} if topology else {}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def bound(name: str, mode: str = "ReadWriteOnce", **source: Any) -> tuple[Json, Json]:
    """A claim, and the volume that it is bound to."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    volume = {"metadata": {"name": f"pv-{name}", "labels": {}}, "spec": {"capacity": {"storage": "5Gi"}, **source}}
    return {"metadata": meta, "spec": {"volumeName": f"pv-{name}", "accessModes": [mode]}}, volume


def volumes_of(*claims: str) -> list[Json]:
    """The volumes of a pod that names these claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def affinity(kind: str, key: str, *others: Json, **labels: str) -> Json:
    """What a pod's spec says to be in one domain with pods of these labels, or in another; with others as well."""
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": one}} for one in (labels, *others)]
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def apart_from(key: str, *others: Json, **labels: str) -> Json:
    """What a pod's spec says to be in no domain with pods of these labels."""
    return affinity("podAntiAffinity", key, *others, **labels)


def spread(key: str, skew: int = 1, **labels: str) -> Json:
    """What a pod's spec says to be spread evenly over domains, beside pods of these labels."""
    hard = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [hard | {"labelSelector": {"matchLabels": labels}}]}


def priority_class(name: str, value: int = 0, **annotations: str) -> Json:
    """A class of the value that `pod` gives, so that it speaks for its pods."""
    return {"metadata": {"name": name, "annotations": annotations}, "value": value}


def cluster(nodes: list[Json], pods: list[Json], preemptor: Json, **more: Any) -> Json:
    """A cluster of these objects, in which the classes that pods name exist unless `priorityClasses` says others."""
    named = {
        one["spec"]["priorityClassName"]: one["spec"].get("priority", 0)
        for one in (*pods, preemptor)
        if one["spec"].get("priorityClassName")
    }
    classes = [priority_class(name, value) for name, value in named.items()]
    return {"name": "test", "nodes": nodes, "pods": pods, "preemptor": preemptor, "priorityClasses": classes, **more}


def as_pod(data: Json) -> Pod:
    return msgspec.convert(data, Pod)


def snapshot_of(data: Json, rules: Rules | None = None) -> Snapshot:
    """The snapshot of a cluster's objects."""
    snapshot = Snapshot(rules.annotations, under_policy=True) if rules and rules.policy else Snapshot()
    for kind in SNAPSHOT_KINDS:
        for item in data.get(kind.field) or ():
            snapshot.put(kind, msgspec.convert(item, kind.type_))
    return snapshot


def decided(data: Json, by: Rules | None = None, **more: Any) -> Decision:
    """The decision for the preemptor of a cluster, by Kubernetes' own rules if no others are given."""
    return decide(snapshot_of(data, by), as_pod(data["preemptor"]), by or kubernetes_rules(), NOW, **more)


def gang_decided(snapshot: Snapshot, waiting: list[Json], by: Rules, **more: Any) -> GangDecision:
    """The decision for the members of a gang that wait."""
    return decide_gang(snapshot, form_gang(snapshot, list(map(as_pod, waiting))), by, NOW, **more)


def answer(data: Json, rules: Rules | None = None, snapshot: Snapshot | None = None) -> Json:
    """The decision as data, `selected` being all equally good nodes."""
    rules = rules or kubernetes_rules()
    decision = decide(snapshot or snapshot_of(data, rules), as_pod(data["preemptor"]), rules, NOW)
    return {"name": data["name"], **as_data(decision)}


def as_data(decision: Decision) -> Json:
    return {
        "eligible": decision.eligible,
        "reason": decision.reason,
        "fits": decision.fits,
        "unresolvable": decision.unresolvable,
        "candidates": [
            {"node": one.node, "victims": [victim.key for victim in one.victims], "pdbViolations": one.pdb_violations}
            for one in decision.candidates
        ],
        "selected": decision.equally_good,
        "nodeReasons": decision.node_reasons,
    }


def rules(
    *,
    budgets: BudgetMode = BudgetMode.STRICT,
    grace_period: int | None = None,
    groups: GroupDisruption = GroupDisruption.POD,
    protection: Protection | None = None,
    eviction: EvictionMode = EvictionMode.EVICT,
    **victims: Any,
) -> Rules:
    """An opt-out policy, so that only what a test is about excludes a pod."""
    made = PreemptionPolicy(
        name="policy",
        source=SourcePosition(),
        victims=Victims(**({"mode": VictimMode.OPT_OUT} | victims)),
        budgets=budgets,
        grace_period_seconds=grace_period,
        groups=Groups(disruption=groups),
        protection=protection or Protection(),
        eviction=eviction,
    )
    return compile_rules(made)


def outcome(
    pods: list[Json], by: Rules, *, nodes: list[Json] | None = None, preemptor: Json | None = None, **more: Any
) -> tuple[list[str], dict[str, str]]:
    """Who goes, and what keeps the others: {pod: rule}."""
    data = cluster(nodes or [node("n1")], pods, preemptor or pod("preemptor", priority=100, cpu="4"), **more)
    decision = decided(data, by)
    excluded = {
        one.pod.split("/")[1]: one.rule for name in data["nodes"] for one in decision.excluded(name["metadata"]["name"])
    }
    return [victim.name for victim in decision.selected.victims] if decision.selected else [], excluded
