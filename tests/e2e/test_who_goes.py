"""Who goes beside a stock kube-scheduler: costs, signals, limits, groups, host ports, several nodes, pods in front.

Of each case those pods go that have to by the policy, which are not those that Kubernetes would take, and nobody else.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import MAY_GO
from tests.e2e.native import RESOURCES
from tests.e2e.software import policies
from tests.workloads import Json, eventually, served, until_refused
from webhook.kube.pods import POD_DELETION_COST
from webhook.kube.resources import NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, VALIDATING_ADMISSION_POLICY
from webhook.native.objects import Validation, validating_policy

KARPENTER, SAVED = "karpenter.sh/do-not-disrupt", "example.com/saved-at"
TRAIN = {"jobset.sigs.k8s.io/jobset-name": "train"}
ZONE = "e2e.example.com/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONE_NODE, HALF, NOTHING = {"n1": "4"}, {"cpu": "2"}, dict[str, Any]()
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def alike(app: str) -> Json:
    """The pods of a zone with this label."""
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}


def apart_from(app: str) -> Json:
    """What a pod asks for that is in no zone with these."""
    return {"affinity": {"podAntiAffinity": {REQUIRED: [alike(app)]}}}


def spread_over(app: str) -> Json:
    """What a pod asks for that is spread over zones with these."""
    return {"topologySpreadConstraints": [{**alike(app), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


def with_port(cpu: str) -> Json:
    """What a pod of one container asks for that takes a port of its node."""
    port = {"containerPort": 80, "hostPort": 8080}
    return {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}, "ports": [port]}]}


class Case(NamedTuple):
    """Pods on nodes by the CPUs of these, a policy, and who has gone when the preemptor is bound.

    The first letter of a node is its zone. Nobody goes while a pod of `front` waits; without a node `on` the preemptor
    waits to the end.
    """

    pods: list[Json]
    goes: set[str]
    on: str = "n1"
    nodes: Json = ONE_NODE
    wants: Json = HALF
    policy: Json = NOTHING
    budget: Json = NOTHING
    front: Sequence[Json] = ()
    told: str = ""
    denied: str = ""
    kill: str = ""
    pause: float = 0.0


def running(name: str, cpu: str = "2", on: str = "n1", **fields: Any) -> Json:
    """A pod of the lower class that may go, unless it says otherwise."""
    return {"name": name, "cpu": cpu, "on": on, "annotations": MAY_GO, **fields}


def by_policy(first: Json, second: Json, **policy: Any) -> Case:
    """Of two pods the one goes that started first; by Kubernetes' own order the other one would."""
    return Case([running("goes", **first), running("stays", **second)], {"goes"}, policy=policy, pause=1.1)


def across(victims: dict[str, Json], goes: set[str], on: str = "a1", **more: Any) -> Case:
    """The preemptor has room on one node only, and pods on other nodes of the zone, or of any, keep it off."""
    third = ("c1", "c2") if "c1" in victims else ()
    full = {"a2": 1, "b1": 1 if "b1" in victims else 2, **dict.fromkeys(third[:1], 1)}
    pods = [running(f"stays-{at}-{n}", on=at, annotations={}) for at, count in full.items() for n in range(count)]
    pods += [running(at, on=at, labels={"app": "x"}, **fields) for at, fields in victims.items()]
    nodes = dict.fromkeys(("a1", "a2", "b1", *third), "4")
    more = {"policy": {"victims": {"mode": "opt-in", "acrossNodes": True}}, "told": "to make room in zone"} | more
    return Case(pods, goes, on, nodes, **{**more, "wants": {"cpu": "4", **more.get("wants", {})}})


CASES = {
    "the lower deletion cost": by_policy(
        {"annotations": {**MAY_GO, POD_DELETION_COST: "-5"}},
        {"annotations": {**MAY_GO, POD_DELETION_COST: "5"}},
        victims={"mode": "opt-in", "cost": {"deletionCost": True}},
    ),
    "a pod of no group": by_policy({}, {"labels": TRAIN}, victims={"mode": "opt-in", "cost": {"groupRestarts": True}}),
    "the one that saved its work": by_policy(
        {"annotations": {**MAY_GO, SAVED: "2199-01-01T00:00:00Z"}},
        {},
        victims={"mode": "opt-in", "cost": {"lostWork": {"checkpoints": [SAVED]}}},
    ),
    "whom no signal of another tool protects": by_policy(
        {"annotations": {KARPENTER: "false"}},
        {"annotations": {KARPENTER: "true"}},
        victims={"mode": "opt-out", "signals": [{"annotation": KARPENTER, "protects": ["true"]}]},
    ),
    "a group that holds the port, whole": Case(
        [running("first", labels=TRAIN, **with_port("1")), running("second", labels=TRAIN)],
        {"first", "second"},
        wants=with_port("1"),
        policy={"groups": {"disruption": "Group"}},
    ),
    "a pod of another scheduler, as in plain Kubernetes": Case(
        [running("kept", "4", annotations={}, schedulerName="foo")], {"kept"}, policy={"victims": {"mode": "opt-out"}}
    ),
    "for anti-affinity of the preemptor": across({"a2": {}}, {"a2"}, wants=apart_from("x")),
    "for anti-affinity of the victim": across({"a2": apart_from("p")}, {"a2"}),
    "for spread": across({"a2": {}}, {"a2"}, wants={"app": "x", **spread_over("x")}),
    "for a claim of one pod": across({"b1": CLAIM}, {"b1"}, wants=CLAIM, told="to free its claim"),
    "beside a strict budget": across(
        {"a1": {}, "a2": {}, "c1": {"of": "more"}}, {"c1"}, "c2", wants=apart_from("x"), budget={"minAvailable": 2}
    ),
    "also if the leader is killed after the first victim": across(
        {"a1": {}, "a2": {}}, {"a1", "a2"}, wants=apart_from("x"), kill="first-victim", told=""
    ),
    "elsewhere, as one of three is denied": Case(
        [*(running(name) for name in ("a", "b", "kept")), running("other", "6", "n2", of="more")],
        {"other"},
        "n2",
        {"n1": "6", "n2": "6"},
        {"cpu": "6"},
        denied="kept",
    ),
    "nobody, as one of three has a budget that is used up": Case(
        [running("a"), running("b"), running("kept", labels={"app": "x"})],
        set(),
        "",
        {"n1": "6"},
        {"cpu": "6"},
        {"budgets": "best-effort"},
        {"minAvailable": 1},
    ),
    "one of two, once the pods in front are gone": Case(
        [running("v1", "4", annotations={}), running("v2", "4", "n2")],
        {"v2"},
        "n2",
        {"n1": "4", "n2": "4"},
        {"cpu": "4"},
        front=[{"name": name, "cpu": "4"} for name in ("front1", "front2")],
    ),
    "who holds the port, once the pod in front is gone": Case(
        [running("holds", **with_port("4"))],
        {"holds"},
        wants=with_port("1"),
        front=[{"name": "front", **with_port("1")}],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_who_goes(sandbox, giveway, case):
    """Just those go, and the preemptor is bound; nobody goes for what it could not have."""
    high = await filled(sandbox, case)
    if case.denied:
        await denied(sandbox, case.denied)
    for fields in case.front:
        await sandbox.stuck(priorityClassName=f"{sandbox.id}-top", **fields)
    process = await giveway.reconcile(policies(high, **case.policy), kill_at=case.kill)
    await sandbox.preemptor(high, **case.wants)
    if case.kill:
        await process.killed()
        process = await giveway.reconcile(policies(high, **case.policy))
    there = {pod["name"] for pod in case.pods}
    if case.front or not case.on:
        [first, *_] = await eventually(lambda: process.lines("no preemption"), 30)
        assert ("front" in first["reason"]) == bool(case.front)
        await asyncio.sleep(2)
        assert there < await sandbox.here()
    for fields in case.front:
        await sandbox.client.delete(f"{sandbox.pods}/{fields['name']}", {"gracePeriodSeconds": 0})
    if case.on:
        assert await sandbox.bound("p", 40) == f"{sandbox.id}-{case.on}"
        await asyncio.sleep(1)
    assert await sandbox.here() == there - case.goes | {"p"}
    if case.told:
        await sandbox.told(case.told)


async def filled(sandbox: Any, case: Case) -> str:
    """The nodes and pods of a case are there; the class of preemptors."""
    classes = {name: await sandbox.priority_class(name, value) for name, value in (("low", 80), ("more", 90))}
    for name, cpu in case.nodes.items():
        full = await sandbox.node(name, cpu)
        await sandbox.client.patch(NODE.path(None, full), {"metadata": {"labels": {ZONE: name[0]}}})
    if CLAIM["volumes"] == case.wants.get("volumes"):
        await claim(sandbox)
    for number, pod in enumerate(case.pods):
        await asyncio.sleep(case.pause if number else 0)  # start times are whole seconds
        fields = {"of": "low", **pod}
        class_name, node = classes[fields.pop("of")], f"{sandbox.id}-{fields.pop('on')}"
        await sandbox.run(priorityClassName=class_name, node=node, **fields)
    if case.budget:
        await sandbox.budget("x", {"app": "x"}, **case.budget)
    if case.front:
        await sandbox.priority_class("top", 200, preemptionPolicy="Never")
    return await sandbox.priority_class("high", 100, preemptionPolicy="Never")


async def claim(sandbox: Any) -> None:
    """A volume that only one pod may use, and the claim that is bound to it."""
    spec = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "", "volumeMode": "Filesystem"}
    size, source = {"storage": "1Gi"}, {"driver": "e2e.example.com", "volumeHandle": sandbox.id}
    volume = {"metadata": {"name": sandbox.id}, "spec": {**spec, "capacity": size, "csi": source}}
    await sandbox.create(PERSISTENT_VOLUME, volume)
    metadata = {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    spec |= {"volumeName": sandbox.id, "resources": {"requests": size}}
    await sandbox.client.create(PERSISTENT_VOLUME_CLAIM.path(sandbox.id), {"metadata": metadata, "spec": spec})


async def denied(sandbox: Any, name: str) -> None:
    """An admission policy that denies the eviction of one pod, in force."""
    await served(sandbox.client.list(VALIDATING_ADMISSION_POLICY.path(), dict), "admission policies")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    kept = Validation("e2e", f"request.namespace != '{sandbox.id}' || request.name != '{name}'", "it is kept")
    where = {"resourceRules": [rule]}
    for one in validating_policy("e2e", f"{sandbox.id}-keeps", "enforce", constraints=where, validations=[kept]):
        await sandbox.create(RESOURCES[one["kind"]], one)
    await until_refused(lambda: sandbox.evict(name, dryRun=["All"]), "it is kept")


@pytest.mark.parametrize("spec", [apart_from("apart"), spread_over("apart")], ids=["anti-affinity", "spread"])
async def test_only_one_of_two_is_made_room_for(sandbox, giveway, spec):
    """Two full nodes of a zone, and one preemptor can be there: two pods go, and not four; spread has another zone."""
    nodes = {"a1": "4", "a2": "4", "b1": "4"}
    pods = [running(f"{at}-{n}", on=at, annotations=MAY_GO if at[0] == "a" else {}) for at in nodes for n in "ab"]
    high = await filled(sandbox, Case(pods, set(), nodes=nodes))
    await giveway.reconcile(policies(high))
    for name in ("p", "q"):
        await sandbox.preemptor(high, name=name, app="apart", **spec)
    await sandbox.one_bound("p", "q")
    await asyncio.sleep(5)
    placed = [name for name in ("p", "q") if (await sandbox.get(name))["spec"].get("nodeName")]
    assert len(placed) == 1
    assert len(await sandbox.here() - {"p", "q"}) == 4


async def test_a_workload_that_had_its_evictions_stays(sandbox, giveway):
    """After one eviction of a workload its next pod stays, and the waiting pod says why."""
    high = await filled(sandbox, Case([running(name, owner="db") for name in "ab"], set()))
    await giveway.reconcile(policies(high, limits={"perWorkload": {"evictions": 1, "window": "1h"}}))
    await sandbox.preemptor(high, "2")
    await sandbox.bound("p", 30)
    await sandbox.preemptor(high, "2", "q")
    await sandbox.told("limits.perWorkload")
    assert len({"a", "b"} & await sandbox.here()) == 1


async def test_a_namespace_has_its_share(sandbox, giveway):
    """One eviction a window: the second preemptor waits for the rate of the namespace."""
    high = await filled(sandbox, Case([running(name) for name in "ab"], set()))
    await giveway.reconcile(policies(high, limits={"perNamespace": {"evictions": 1, "window": "10s"}}))
    for name in ("p", "q"):
        await sandbox.preemptor(high, "2", name)
    first = await sandbox.one_bound("p", "q")
    await asyncio.sleep(3)
    assert len({"a", "b"} & await sandbox.here()) == 1
    await sandbox.bound("q" if first == "p" else "p", 40)
