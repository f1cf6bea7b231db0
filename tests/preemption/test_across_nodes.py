"""Victims on several nodes for one pod, a case each (docs/semantics.md D15); all sets tries `test_units_oracle`."""

import pytest

from tests.preemption.building import (
    Json,
    apart_from,
    bound,
    budget,
    cluster,
    decided,
    node,
    pod,
    pod_group,
    rules,
    volumes_of,
)
from tests.preemption.units import ZONE

NODES = [node(name, labels={ZONE: zone}) for name, zone in (("a1", "z1"), ("a2", "z1"), ("b1", "z2"))]
APART, FROM_P = (apart_from(ZONE, app=app) for app in "xp")
SKEW = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
SPREAD = [SKEW | {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}}]
CLAIM = volumes_of("data")
ZONE_1 = "to make room in zone z1"


def stays(on: str, cpu: str) -> Json:
    return pod(f"stays-{on}", on=on, priority=200, cpu=cpu)


CASES = {
    "the node of the own victim": ([pod("x", on="a2")], APART, 9, ("a2", ["x"], "")),
    "anti-affinity of the preemptor": (
        [pod("x", on="a2"), stays("a2", "3")],
        APART,
        9,
        ("a1", ["x"], ZONE_1),
    ),
    "anti-affinity of the victim": (
        [pod("x", on="a2", **FROM_P), stays("a2", "3")],
        {},
        9,
        ("a1", ["x"], ZONE_1),
    ),
    "spread": (
        [pod("x", on="a1"), pod("y", on="a2", priority=200), stays("a1", "3")],
        {"topologySpreadConstraints": SPREAD},
        9,
        ("a2", ["x"], ZONE_1),
    ),
    "a claim of one pod": (
        [pod("x", on="b1", cpu="", volumes=CLAIM)],
        {"volumes": CLAIM},
        9,
        ("a1", ["x"], "to free its claim"),
    ),
    "a strict budget": ([pod("x", on="a2"), stays("a2", "3")], APART, 0, None),
    "a group goes whole": (
        [pod("x", on="a2", group="g"), pod("y", on="a1", group="g"), stays("a2", "3")],
        APART,
        9,
        ("a1", ["x", "y"], ZONE_1),
    ),
}


def test_nobody_is_there():
    """Nodes without pods, which are full by nominations, are no candidates."""
    nominated = pod("first", priority=200, cpu="4")
    nominated["status"] = {"phase": "Pending", "nominatedNodeName": "a1"}
    data, by = cluster(NODES[:1], [nominated], pod("p", priority=100, cpu="2")), rules(across_nodes=True)
    assert decided(data, by).selected is None


@pytest.mark.parametrize(("pods", "wants", "allowed", "expected"), CASES.values(), ids=CASES)
def test_who_stands_in_the_way(pods, wants, allowed, expected):
    """Whoever keeps the pod off from another node goes, and nobody else; zone z2 is full of pods that stay."""
    group = pod_group("g", disruptionMode="PodGroup")
    data = cluster(NODES, [stays("b1", "4"), *pods], pod("p", priority=100, cpu="2", **wants), podGroups=[group])
    claim, volume = bound("data", "ReadWriteOncePod")
    data |= {"persistentVolumes": [volume], "persistentVolumeClaims": [claim]}
    data["podDisruptionBudgets"] = [budget("b", {"app": "x"}, allowed)]
    by = rules(across_nodes=True)
    decision = decided(data, by)
    best = decision.selected
    found = best and (best.node, sorted(victim.name for victim in best.victims), decision.made_room(best))
    assert found == expected
