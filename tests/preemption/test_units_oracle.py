"""Who goes for a pod, on one node or on several, or for a gang, against every set of units.

Nobody goes in vain, no unit in part, and mostly the cheapest.
"""

import random
from collections import Counter
from typing import NamedTuple

import pytest
from msgspec import structs

from tests.preemption.building import NOW, Json, as_pod, gang_decided, pod, rules, snapshot_of
from tests.preemption.costs import EVERY, Counted, counts, dressed
from tests.preemption.oracle_pods import key
from tests.preemption.units import (
    Price,
    cheapest,
    chosen_by,
    cost_of,
    fits,
    gang_cluster,
    kept_off,
    names_of,
    price_on,
    sets,
    violations,
    where_it_fits,
)
from webhook.policy.model.preemption import BudgetMode, GroupDisruption
from webhook.preemption.decision import decide, fits_on

WHOLE, COSTLY = rules(groups=GroupDisruption.GROUP), rules(groups=GroupDisruption.GROUP, cost=EVERY)


class Decided(NamedTuple):
    """What was decided in a cluster for `own`, a gang: whether nobody has to go, and who does."""

    data: Json
    own: str
    fits: bool
    victims: frozenset[str]
    price: Price = cost_of
    incomplete: bool = False


def for_a_pod(seed):
    """A pod is a gang of one that is nobody's; it fits on its node without the victims."""
    waiting = pod("p", priority=100, cpu=str(random.Random(seed).randint(2, 8)))
    nobodys = {"metadata": {"name": "nobody's"}, "spec": {}}
    data = gang_cluster(seed) | {"preemptors": [waiting], "podGroup": nobodys, "need": 1}
    snapshot = snapshot_of(data, WHOLE)
    decision = decide(snapshot, as_pod(waiting), WHOLE, NOW)
    victims = decision.selected.victims if decision.selected else ()
    if victims:
        rows = snapshot.pod_rows([victim.key for victim in victims])
        assert fits_on(snapshot, as_pod(waiting), decision.selected.node, without=rows), f"seed {seed}: in vain"
    return Decided(data, "nobody's", bool(decision.fits), frozenset(victim.name for victim in victims))


def for_a_gang(seed, data=None, by=WHOLE, evicted=None, price=cost_of):
    """All members are placed that are needed, or none."""
    data = data or gang_cluster(seed)
    snapshot = snapshot_of(data, by)
    decision = gang_decided(snapshot, data["preemptors"], by, evicted=counts(snapshot, evicted or {}))
    victims = frozenset(victim.name for victim in decision.victims)
    assert len(decision.placements) == (0 if decision.reason else data["need"]), f"seed {seed}: a part of the gang"
    assert not (victims and decision.reason), f"seed {seed}: nobody is placed"
    return Decided(data, "gang", decision.fits, victims, price, bool(decision.gang.incomplete))


def for_a_gang_by_cost(seed):
    """Every pod costs something, by all keys; there are no budgets."""
    dice, data = random.Random(-seed), gang_cluster(seed) | {"podDisruptionBudgets": []}
    for one in data["pods"]:
        ready, saved = dice.random() < 0.6, dice.choice((0, 100, 5000))
        dressed(one, ready=ready, cost=dice.randint(0, 2), saved=saved, grace=dice.choice((5, 30)))
    evicted = {key(one): dice.choice((0, 0, 1, 2)) for one in data["pods"]}
    costs = Counted(evicted, structs.asdict(EVERY))

    def price(chosen):
        gone = [one for one in data["pods"] if one["metadata"]["name"] in names_of(chosen)]
        priorities = sum(piece.priority * len(piece.pods) for piece in chosen)
        return (*cost_of(chosen), priorities, *costs.of_pods(gone))

    return for_a_gang(seed, data, COSTLY, evicted, price)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "kind"), [(500, for_a_pod), (500, for_a_gang), (300, for_a_gang_by_cost)])
def test_no_set_of_units_is_much_better(seeds, kind):
    """In random clusters of up to 8 nodes nobody goes in vain, and the price is mostly the lowest there is.

    The lowest highest priority always; then groups, then pods in 95 of 100, and never more than twice as many.
    """
    seen = Counter()
    for seed in range(seeds):
        data, own, as_it_is, victims, price, incomplete = kind(seed)
        if incomplete or as_it_is:
            assert not victims
            seen["incomplete" if incomplete else "fits"] += 1
            continue
        assert fits(data, victims, data["need"]) is bool(victims), f"seed {seed}: in vain, or for nobody"
        best, paid = cheapest(data, data["need"], price), price(chosen_by(data, own, victims)) if victims else None
        if best is None or paid is None:
            assert best is paid, f"seed {seed}: {paid}, where {best} would do"
            seen["hopeless"] += 1
            continue
        seen["best" if paid == best else "worse"] += 1
        (highest, groups, pods), lowest = paid[:3], best[:3]
        assert highest == lowest[0], f"seed {seed}: {paid}, where {best} would do"
        assert groups <= 2 * lowest[1], f"seed {seed}: {paid}, where {best} would do"
        assert groups > lowest[1] or pods <= 2 * lowest[2], f"seed {seed}: {paid}, where {best} would do"
    assert seen["best"] >= 0.95 * (seen["best"] + seen["worse"]) > 80, seen
    assert min(seen["fits"], seen["hopeless"]) > 10, seen
    assert (seen["incomplete"] > 10) is (kind is not for_a_pod), seen


def found_across(data, budgets):
    """What the decision finds across nodes, held against all sets of at most three units; says in a word what."""
    strict = budgets is BudgetMode.STRICT
    off, on = (rules(budgets=budgets, groups=GroupDisruption.GROUP, across_nodes=across) for across in (False, True))
    preemptor = as_pod(data["preemptor"])
    plain, decision = (decide(snapshot_of(data, by), preemptor, by, NOW) for by in (off, on))
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
    assert decision.selected.pdb_violations == violations(data, names)
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
