"""Gangs as preemptors: one decision for 64 members among pods in groups of 1 to 64. Figures are the best of several."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.bench.measuring import best
from tests.preemption.building import NOW, Json, as_pod, node, pod, rules, snapshot_of
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.gangs.decision import decide_gang
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.pod_groups import POD_GROUP
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import Rules

NODES, PER_NODE, MEMBERS = 5000, 30, 64
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
WHOLE, SINGLE = rules(groups=GroupDisruption.GROUP), rules()


def main() -> None:
    """Print all figures."""
    snapshot = filled()
    print(f"{NODES} nodes x {PER_NODE} pods in groups of 1 to {MEMBERS}, nothing free")
    for cpu in ("4", "8"):
        for by, what in ((SINGLE, "one by one"), (WHOLE, "whole")):
            took, decision = gang(snapshot, by, cpu)
            price = decision.price
            print(
                f"  a gang of {MEMBERS}, each in the place of {int(cpu) - 2} pods, groups go {what}: {took:.0f} ms"
                f" (at most 250 asked); {price.groups} groups and {price.victims} pods go"
            )


def gang(snapshot: Snapshot, by: Rules, cpu: str) -> tuple[float, Any]:
    """Milliseconds of a decision for a gang, and the decision."""
    group = {"schedulingGroup": {"podGroupName": "gang"}}
    members = [as_pod(pod(f"gang-{number}", priority=100, cpu=cpu, **group)) for number in range(MEMBERS)]
    spec = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}, "priority": 100}
    made = {"metadata": {"name": "gang", "namespace": "default"}, "spec": spec}
    snapshot.put(kinds.POD_GROUPS[POD_GROUP], msgspec.convert(made, PodGroup))
    found: list[Any] = []
    took = best(lambda: found.append(decide_gang(snapshot, form_gang(snapshot, members), by, NOW)), 3)
    return took, found[0]


def filled() -> Snapshot:
    """A cluster whose pods are in groups of random sizes, each spread over random nodes."""
    nodes = (node(f"n{number}", str(PER_NODE + 2)) for number in range(NODES))
    return snapshot_of({"nodes": nodes, "pods": _pods()}, WHOLE)


def _pods() -> Iterator[Json]:
    dice = random.Random(1)
    places = [f"n{number}" for number in range(NODES) for _ in range(PER_NODE)]
    dice.shuffle(places)
    left, group = 0, 0
    for number, place in enumerate(places):
        if not left:
            left, group = dice.randint(1, MEMBERS), group + 1
            shared: dict[str, Any] = {"priority": dice.choice((0, 10, 20, 50)), "started": dice.randint(1, 9999)}
        left -= 1
        made = pod(f"p-{number}", on=place, **shared)
        made["metadata"]["labels"] = {"app": f"app-{group}", JOB_SET: f"set-{group}"}
        yield made
