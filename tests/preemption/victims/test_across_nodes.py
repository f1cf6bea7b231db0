"""Victims on one node or on several for one pod, against every set of units, and what is said of them (D15)."""

import random
from collections import Counter

import pytest

from tests.cases import table
from tests.preemption import building, units
from tests.preemption.building import apart_from, as_pod, cluster, decided, node, pod, pod_group, rules, snapshot_of
from tests.preemption.units import ZONE, chosen_by, gang_cluster, kept_off, names_of, price_on, sets, where_it_fits
from webhook.policy.model.preemption import BudgetMode, GroupDisruption
from webhook.preemption.decision import decide, fits_on

WHOLE = rules(groups=GroupDisruption.GROUP)

NODES = [node(name, labels={ZONE: zone}) for name, zone in (("a1", "z1"), ("a2", "z1"), ("b1", "z2"))]
APART, CLAIM = apart_from(ZONE, app="x"), {"volumes": building.volumes_of("data")}
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
    claim, volume = building.bound("data", "ReadWriteOncePod")
    data |= {"persistentVolumes": [volume], "persistentVolumeClaims": [claim]}
    decision = decided(data, rules(across_nodes=True))
    best = decision.selected
    assert (best.node, sorted(victim.name for victim in best.victims), decision.made_room(best)) == expected


def test_each_set_is_judged_by_itself():
    """A port is taken while a pod that stays has it, in however many of the sets another one with it goes."""
    port = {"cpu": "", "containers": [{"name": "main", "ports": [{"hostPort": 80}]}]}
    pods = [pod("x", on="a1", **port), pod("stays", on="a1", priority=200, **port), pod("z", on="a1")]
    waiting = pod("p", priority=100, **port)
    assert decided(cluster(NODES[:1], pods, waiting), rules(across_nodes=True)).selected is None


def for_a_pod(seed):
    """A pod is a gang of one that is nobody's; it fits on its node without the victims."""
    waiting = pod("p", priority=100, cpu=str(random.Random(seed).randint(2, 8)))
    nobodys = {"metadata": {"name": "nobody's"}, "spec": {}}
    data = gang_cluster(seed) | {"preemptors": [waiting], "podGroup": nobodys, "need": 1}
    snapshot = snapshot_of(data, WHOLE)
    decision = decide(snapshot, as_pod(waiting), WHOLE, building.NOW)
    victims = decision.selected.victims if decision.selected else ()
    if victims:
        rows = snapshot.pod_rows([victim.key for victim in victims])
        assert fits_on(snapshot, as_pod(waiting), decision.selected.node, without=rows), f"seed {seed}: in vain"
    return units.Decided(data, "nobody's", bool(decision.fits), frozenset(victim.name for victim in victims))


@pytest.mark.slow
def test_no_set_of_units_is_much_better():
    """In random clusters of up to 8 nodes nobody goes in vain, and the price is mostly the lowest there is."""
    assert not units.judged(map(for_a_pod, range(500)))["incomplete"]


def found_across(data, budgets):
    """What the decision finds across nodes, held against all sets of at most three units; says in a word what."""
    strict = budgets is BudgetMode.STRICT
    off, on = (rules(budgets=budgets, groups=GroupDisruption.GROUP, across_nodes=across) for across in (False, True))
    preemptor = as_pod(data["preemptor"])
    plain, decision = (decide(snapshot_of(data, by), preemptor, by, building.NOW) for by in (off, on))
    assert plain.fits == decision.fits == where_it_fits(data, frozenset())
    if plain.fits or plain.selected is not None:
        assert {one.node for one in plain.candidates} == {one.node for one in decision.candidates}
        return "fits" if plain.fits else "one node"
    possible = sets(data, "nobody's", most=3, strict=strict)
    if decision.selected is None:
        assert not any(where_it_fits(data, names_of(chosen)) for chosen in possible)
        return "nothing helps"
    node, names = decision.selected.node, frozenset(victim.name for victim in decision.selected.victims)
    chosen = chosen_by(data, "nobody's", names)
    assert all(unit.priority < 100 for unit in chosen), "only who may go"
    assert node in where_it_fits(data, names)
    assert decision.selected.pdb_violations == units.violations(data, names)
    assert not (strict and decision.selected.pdb_violations)
    paid = price_on(data, node, chosen)
    for other in possible:
        cheaper = {
            one["metadata"]["name"] for one in data["nodes"] if price_on(data, one["metadata"]["name"], other) < paid
        }
        assert not (cheaper and cheaper.intersection(where_it_fits(data, names_of(other)))), other
    return "more than three" if len(chosen) > 3 else "across"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(1000, 3000), marks=pytest.mark.soak)])
def test_the_best_of_all_small_sets_across_nodes(seeds):
    """Whoever goes makes room, no small set is better, and if there is one, somebody goes."""
    ways = (BudgetMode.STRICT, BudgetMode.BEST_EFFORT)
    found = Counter(found_across(kept_off(seed), ways[seed % 2]) for seed in seeds)
    assert min(found["across"], found["nothing helps"]) >= 10, found
