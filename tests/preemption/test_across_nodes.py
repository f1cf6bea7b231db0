"""Victims on several nodes for one pod, held against every set of at most three units (docs/semantics.md D15)."""

from collections import Counter

import pytest

from tests.preemption import across
from tests.preemption.across import REQUIRED, ZONE
from tests.preemption.building import (
    NOW,
    Json,
    as_data,
    as_pod,
    budget,
    cluster,
    decided,
    node,
    pod,
    pod_group,
    rules,
    snapshot_of,
    volumes_of,
)
from tests.preemption.gangs.brute_force import chosen_by
from webhook.policy.model.preemption import BudgetMode
from webhook.preemption.decision import decide


def judge(data: Json, budgets: BudgetMode) -> str:
    """What the decision finds across nodes, held against all small sets; says in a word what it was."""
    off, on = (rules(budgets=budgets, across_nodes=across_nodes) for across_nodes in (False, True))
    preemptor = as_pod(data["preemptor"])
    plain, decision = (decide(snapshot_of(data, by), preemptor, by, NOW) for by in (off, on))
    if plain.fits or plain.selected is not None:
        assert as_data(plain)["fits"] == as_data(decision)["fits"]
        assert {one.node for one in plain.candidates} == {one.node for one in decision.candidates}
        return "fits" if plain.fits else "one node"
    strict = budgets is BudgetMode.STRICT
    best = min(across.sets(data, strict=strict), default=None)
    if decision.selected is None:
        assert best is None, best
        return "nothing helps"
    node, names = decision.selected.node, frozenset(victim.name for victim in decision.selected.victims)
    chosen = chosen_by(data, "nobody's", names)
    assert all(unit.priority < 100 for unit in chosen), "only who may go"
    assert across.fits(data, node, names)
    assert not (strict and across.violations(data, names))
    assert decision.selected.pdb_violations == across.violations(data, names)
    assert best is None or across.price(data, node, chosen) <= best[0]
    return "more than three" if len(chosen) > 3 else "across"


def judged(seeds: range) -> Counter[str]:
    """What is found in these clusters, under strict budgets in turn with others."""
    ways = (BudgetMode.STRICT, BudgetMode.BEST_EFFORT)
    return Counter(judge(across.crowded(seed), ways[seed % 2]) for seed in seeds)


def test_the_best_of_all_small_sets():
    """Whoever goes makes room, no small set is better, and if there is one, somebody goes."""
    found = judged(range(150))
    assert found["across"] >= 10
    assert found["nothing helps"] >= 10


@pytest.mark.soak
def test_the_best_of_all_small_sets_in_many_clusters():
    """The same in 2000 clusters."""
    found = judged(range(1000, 3000))
    assert found["across"] >= 150


NODES = [node(name, labels={ZONE: zone}) for name, zone in (("a1", "z1"), ("a2", "z1"), ("b1", "z2"))]
APART = {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}]}}
FROM_P = {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "p"}}}]}}
SKEW = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
SPREAD = [SKEW | {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}}]
CLAIM = volumes_of("data")
ZONE_1 = "to make room in zone z1"


def stays(on: str, cpu: str) -> Json:
    return pod(f"stays-{on}", on=on, priority=200, cpu=cpu)


CASES = {
    "the node of the own victim": ([pod("x", on="a2")], {"affinity": APART}, 9, ("a2", ["x"], "")),
    "anti-affinity of the preemptor": (
        [pod("x", on="a2"), stays("a2", "3")],
        {"affinity": APART},
        9,
        ("a1", ["x"], ZONE_1),
    ),
    "anti-affinity of the victim": (
        [pod("x", on="a2", affinity=FROM_P), stays("a2", "3")],
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
    "a strict budget": ([pod("x", on="a2"), stays("a2", "3")], {"affinity": APART}, 0, None),
    "a group goes whole": (
        [pod("x", on="a2", group="g"), pod("y", on="a1", group="g"), stays("a2", "3")],
        {"affinity": APART},
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
    data |= {name: across.crowded(0)[name] for name in ("persistentVolumes", "persistentVolumeClaims")}
    data["podDisruptionBudgets"] = [budget("b", {"app": "x"}, allowed)]
    by = rules(across_nodes=True)
    decision = decided(data, by)
    best = decision.selected
    found = best and (best.node, sorted(victim.name for victim in best.victims), decision.made_room(best))
    assert found == expected
