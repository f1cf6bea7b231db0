"""Who goes for a gang, against every set of units: nobody in vain, no unit in part, and mostly the cheapest."""

import random

import pytest
from msgspec import structs

from tests.preemption.building import gang_decided, rules, snapshot_of
from tests.preemption.costs import EVERY, Counted, counts, dressed
from tests.preemption.oracle_pods import key
from tests.preemption.units import Decided, cost_of, gang_cluster, judged, names_of
from webhook.policy.model.preemption import GroupDisruption

WHOLE, COSTLY = rules(groups=GroupDisruption.GROUP), rules(groups=GroupDisruption.GROUP, cost=EVERY)


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
@pytest.mark.parametrize(("seeds", "kind"), [(500, for_a_gang), (300, for_a_gang_by_cost)])
def test_no_set_of_units_is_much_better(seeds, kind):
    """In random clusters of up to 8 nodes nobody goes in vain, and the price is mostly the lowest there is.

    The lowest highest priority always; then groups, then pods in 95 of 100, and never more than twice as many.
    """
    assert judged(map(kind, range(seeds)))["incomplete"] > 10
