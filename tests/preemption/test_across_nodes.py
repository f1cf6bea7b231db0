"""Victims on several nodes for one pod, and what is said of them (docs/semantics.md D15): see `test_units_oracle`."""

from tests.cases import table
from tests.preemption.building import apart_from, bound, cluster, decided, node, pod, pod_group, rules, volumes_of
from tests.preemption.units import ZONE

NODES = [node(name, labels={ZONE: zone}) for name, zone in (("a1", "z1"), ("a2", "z1"), ("b1", "z2"))]
APART, CLAIM = apart_from(ZONE, app="x"), {"volumes": volumes_of("data")}
STAYS = pod("stays-a2", on="a2", priority=200, cpu="3")
OF_G = [pod("x", on="a2", group="g"), pod("y", on="a1", group="g"), STAYS]
ZONE_1 = "to make room in zone z1"


def test_nobody_is_there():
    """Nodes without pods, which are full by nominations, are no candidates."""
    nominated = pod("first", priority=200, cpu="4")
    nominated["status"] = {"phase": "Pending", "nominatedNodeName": "a1"}
    data, by = cluster(NODES[:1], [nominated], pod("p", priority=100, cpu="2")), rules(across_nodes=True)
    assert decided(data, by).selected is None


@table(
    "pods, wants, expected",
    ("the node of the own victim", [pod("x", on="a2")], APART, ("a2", ["x"], "")),
    ("anti-affinity of the preemptor", [pod("x", on="a2"), STAYS], APART, ("a1", ["x"], ZONE_1)),
    ("a claim of one pod", [pod("x", on="b1", cpu="", **CLAIM)], CLAIM, ("a1", ["x"], "to free its claim")),
    ("a group goes whole", OF_G, APART, ("a1", ["x", "y"], ZONE_1)),
)
def test_who_stands_in_the_way(pods, wants, expected):
    """Whoever keeps the pod off from another node goes, and nobody else; zone z2 is full of pods that stay."""
    group, full = pod_group("g", disruptionMode="PodGroup"), pod("stays-b1", on="b1", priority=200, cpu="4")
    data = cluster(NODES, [full, *pods], pod("p", priority=100, cpu="2", **wants), podGroups=[group])
    claim, volume = bound("data", "ReadWriteOncePod")
    data |= {"persistentVolumes": [volume], "persistentVolumeClaims": [claim]}
    decision = decided(data, rules(across_nodes=True))
    best = decision.selected
    assert (best.node, sorted(victim.name for victim in best.victims), decision.made_room(best)) == expected
