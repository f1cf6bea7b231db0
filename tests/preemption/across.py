"""A second opinion about victims on several nodes: every set of at most three units is tried on every node.

Shares no code with the decision. Clusters are those of `crowded`: at most five nodes in zones, and twelve pods.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import combinations
from typing import Any

from tests.preemption.building import Json, bound, budget, node, pod, pod_group, volumes_of
from tests.preemption.gangs.brute_force import Piece, cpu_of, pieces

ZONE, HOST, REQUIRED = "zone", "kubernetes.io/hostname", "requiredDuringSchedulingIgnoredDuringExecution"
_APPS = "xyz"


def crowded(seed: int) -> Json:
    """A random cluster whose preemptor is kept off by anti-affinity of either side, hard spread, a claim, or room."""
    dice = random.Random(seed)
    zones = dice.choice((1, 1, 2, 2, 3))
    nodes = [
        node(f"n{number}", str(dice.randint(2, 6)), labels={ZONE: f"z{number % zones}"})
        for number in range(dice.randint(2, 5))
    ]
    left = {one["metadata"]["name"]: int(one["status"]["allocatable"]["cpu"]) for one in nodes}
    pods, against_it = [], dice.random() < 0.6
    for number in range(11):
        cpu, on = dice.choice((1, 1, 2)), dice.choice(list(left))
        if left[on] < cpu:
            continue
        left[on] -= cpu
        made = pod(f"p-{number}", on=on, cpu=str(cpu), priority=dice.choice((-5, 0, 0, 10, 10, 20, 20, 150)))
        made["status"]["startTime"] = f"2026-01-01T00:00:{dice.choice((0, 10, 20)):02}Z"
        made["metadata"]["labels"] = {"app": dice.choice(_APPS)}
        if against_it and dice.random() < 0.4:
            made["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [_term(dice, "p")]}}
        if dice.random() < 0.1:
            made["spec"]["volumes"] += volumes_of("data")
        if dice.random() < 0.2:
            made["spec"]["schedulingGroup"] = {"podGroupName": dice.choice("gh")}
        pods.append(made)
    more: Json = {}
    if dice.random() < 0.6:
        more["affinity"] = {"podAntiAffinity": {REQUIRED: [_term(dice, app) for app in dice.sample(_APPS, 1)]}}
    if dice.random() < 0.5:
        keys = dice.choice(((ZONE,), (ZONE,), (HOST,), (ZONE, HOST)))
        more["topologySpreadConstraints"] = [
            {
                "topologyKey": key,
                "maxSkew": dice.choice((1, 1, 2)),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["p", "x"]}]},
            }
            for key in keys
        ]
    if dice.random() < 0.3:
        more["volumes"] = volumes_of("data")
    claim, volume = bound("data", "ReadWriteOncePod")
    preemptor = pod("p", priority=100, cpu=str(dice.choice((1, 1, 2, 3))), **more)
    return {
        "name": "across",
        "nodes": nodes,
        "pods": pods,
        "preemptor": preemptor,
        "podDisruptionBudgets": [budget(app, {"app": app}, dice.randint(0, 2)) for app in "xy" if dice.random() < 0.3],
        "podGroups": [pod_group(name, disruptionMode="PodGroup") for name in "gh"],
        "persistentVolumes": [volume],
        "persistentVolumeClaims": [claim],
    }


def _term(dice: random.Random, app: str) -> Json:
    key = dice.choice((ZONE, ZONE, HOST))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def fits(data: Json, name: str, gone: frozenset[str]) -> bool:
    """Whether the preemptor fits on the node once these pods are gone."""
    own, nodes = data["preemptor"], {one["metadata"]["name"]: one for one in data["nodes"]}
    labels = {one: nodes[one]["metadata"]["labels"] for one in nodes}
    there = [one for one in data["pods"] if one["metadata"]["name"] not in gone]
    used = sum(cpu_of(one) for one in there if one["spec"]["nodeName"] == name)
    if used + cpu_of(own) > int(nodes[name]["status"]["allocatable"]["cpu"]):
        return False
    for other in there:
        where = labels[other["spec"]["nodeName"]]
        if any(
            term["labelSelector"]["matchLabels"]["app"] == against["metadata"]["labels"]["app"]
            and where[term["topologyKey"]] == labels[name][term["topologyKey"]]
            for who, against in ((own, other), (other, own))
            for term in who["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(REQUIRED, ())
        ):
            return False
    if _has_claim(own) and any(map(_has_claim, there)):
        return False
    for rule in own["spec"].get("topologySpreadConstraints", ()):
        key = rule["topologyKey"]
        counts = {labels[one][key]: 0 for one in nodes}
        for other in there:
            counts[labels[other["spec"]["nodeName"]][key]] += other["metadata"]["labels"]["app"] in ("p", "x")
        if counts[labels[name][key]] + 1 - min(counts.values()) > rule["maxSkew"]:
            return False
    return True


def _has_claim(one: Json) -> bool:
    return any("persistentVolumeClaim" in volume for volume in one["spec"]["volumes"])


def violations(data: Json, names: frozenset[str]) -> int:
    """How many of these pods go beyond a budget."""
    apps = Counter(one["metadata"]["labels"]["app"] for one in data["pods"] if one["metadata"]["name"] in names)
    allowed = {one["metadata"]["name"]: one["status"]["disruptionsAllowed"] for one in data["podDisruptionBudgets"]}
    return sum(max(0, apps[app] - count) for app, count in allowed.items())


def price(data: Json, name: str, chosen: Collection[Piece]) -> tuple[Any, ...]:
    """What a set costs, by the documented keys in their order (docs/semantics.md D6 and D15); the less the better."""
    pods = {one["metadata"]["name"]: one for one in data["pods"]}
    of = {one: unit.priority for unit in chosen for one in unit.pods}
    highest = max(of.values())
    return (
        violations(data, frozenset(of)),
        highest,
        sum(bool(unit.whole) for unit in chosen),
        sum(priority + 2**31 for priority in of.values()),
        len(of),
        [-ord(sign) for sign in min(pods[one]["status"]["startTime"] for one in of if of[one] == highest)],
        sum(pods[one]["spec"]["nodeName"] != name for one in of),
    )


def sets(data: Json, *, strict: bool) -> Iterator[tuple[tuple[Any, ...], str, tuple[Piece, ...]]]:
    """All sets of at most three units with a node that the preemptor fits on without them, and their price."""
    usable = [one for one in pieces(data, "nobody's") if one.priority < data["preemptor"]["spec"]["priority"]]
    for size in (1, 2, 3):
        for chosen in combinations(usable, size):
            names = frozenset().union(*(unit.pods for unit in chosen))
            if strict and violations(data, names):
                continue
            for one in data["nodes"]:
                name = one["metadata"]["name"]
                if fits(data, name, names):
                    yield price(data, name, chosen), name, chosen
