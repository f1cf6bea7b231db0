"""What victims of equal priority cost: each key by itself, all of them against an oracle, and plain rules untouched."""

import random

import msgspec
import pytest

from tests.preemption import oracle
from tests.preemption.building import NOW, as_data, as_pod, cluster, decided, node, pod, rules, snapshot_of
from tests.preemption.clusters import plain
from tests.preemption.costs import EVERY, Counted, counts, dressed
from tests.preemption.oracle_pods import key
from webhook.kube.instants import rfc3339
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, victims_needed
from webhook.preemption.ranking import preferred_because
from webhook.preemption.snapshot.kinds import PODS

JOBSET = "jobset.sigs.k8s.io/jobset-name"


PREEMPTOR = pod("preemptor", priority=100, cpu="4")


def test_people_read_which_cost_decided():
    """A node that loses pods of one group is preferred to one that loses pods of two, and why is said."""
    pods = [pod(name, on="n1" if name in "ab" else "n2", cpu="2") for name in "abcd"]
    for made, group in zip(pods, "xyzz", strict=True):
        made["metadata"]["labels"] = {JOBSET: group}
    by = rules(cost=EvictionCost(group_restarts=True))
    decision = decided(cluster([node("n1"), node("n2")], pods, PREEMPTOR), by)
    assert decision.selected.node == "n2"
    assert preferred_because(*decision.scores(2)).endswith("because fewer groups of pods lose a member for it")


def test_a_policy_without_keys_decides_as_before():
    """Without keys nothing that victims cost is looked at; with all of them each is, between victims and start."""
    keys = list(msgspec.structs.asdict(EVERY))
    data = cluster([node("n1")], [pod("a", on="n1")], PREEMPTOR)
    names = decided(data, rules()).scores(1)[0].values.keys()
    assert names.isdisjoint(keys)
    names = list(decided(data, rules(cost=EVERY)).scores(1)[0].values)
    assert [name for name in names if name in keys] == keys
    assert names.index("victims") < names.index(keys[0]) < names.index(keys[-1]) < names.index("earliest_start")


def redressed(made, dice):
    """The pod with other costs."""
    made["spec"]["terminationGracePeriodSeconds"] = 30
    made["metadata"]["annotations"] = {}
    made["metadata"]["labels"][JOBSET] = dice.choice(["", "", "x", "y"])
    return dressed(
        made,
        ready=dice.random() < 0.7,
        cost=dice.choice([None, 0, 5, -5, "x", 7]),
        saved=dice.choice([None, None, 10, 300, 1000, -50, "soon"]),
        grace=dice.choice([None, 5, 60]),
    )


@pytest.mark.parametrize("seed", range(200))
def test_decisions_by_costs_are_those_of_the_oracle(seed):
    """The decision is the one that the words of the reference give, by all keys and by some of them.

    So it is after single pods have changed.
    """
    dice, data = random.Random(seed), plain(seed) | {"podDisruptionBudgets": []}
    for one in data["pods"]:
        one["spec"]["priority"] = dice.choice([0, 0, 0, 10])
        one["status"]["startTime"] = rfc3339(NOW - dice.choice([0, 100, 500, 500, 2000]))
        if dice.random() < 0.1:
            del one["status"]["startTime"]
        redressed(one, dice)
    every = msgspec.structs.asdict(EVERY)
    on = {name: value for name, value in every.items() if seed % 4 == 0 or dice.random() < 0.5}
    by = rules(cost=EvictionCost(**on))
    snapshot = snapshot_of(data, by)
    for _ in range(4):
        evicted = {key(one): dice.randint(0, 2) for one in data["pods"]}
        decision = decide(snapshot, as_pod(data["preemptor"]), by, NOW, evicted=counts(snapshot, evicted))
        assert {"name": data["name"], **as_data(decision)} == oracle.decide(
            data, policy=oracle.Policy(costs=Counted(evicted, on))
        )
        for one in dice.sample(data["pods"], 2):
            snapshot.put(PODS, as_pod(redressed(one, dice)))


def test_of_planned_victims_the_cheapest_go_if_fewer_do():
    """When fewer victims suffice, the costlier of them stay."""
    by = rules(cost=EVERY)
    pods = [pod(name, on="n1", cpu="2", started=started) for name, started in (("dear", 900.0), ("cheap", 10.0))]
    data = cluster([node("n1")], pods, pod("preemptor", priority=100, cpu="2"))
    snapshot = snapshot_of(data, by)
    rows = snapshot.pod_rows(["default/dear", "default/cheap"])
    needed = victims_needed(snapshot, as_pod(data["preemptor"]), "n1", rows, rules=by)
    assert [snapshot.pods.names[row] for row in needed] == ["cheap"]
