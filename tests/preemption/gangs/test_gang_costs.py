"""What victims cost decides for a gang as for one pod; all keys together in `test_units_oracle`."""

from tests.cases import table
from tests.preemption.building import gang_decided, node, pod, pod_group, rules, snapshot_of
from tests.preemption.costs import dressed
from webhook.policy.model.victims import EvictionCost


def who_goes(pods, nodes, cost):
    """Whose pods go for a gang of two members, each of which takes a node."""
    waiting = [pod(f"m-{n}", cpu="4", priority=100, group="gang") for n in range(2)]
    hosts = [node(f"n{number}") for number in range(nodes)]
    by, data = rules(cost=cost), {"nodes": hosts, "pods": pods, "podGroups": [pod_group("gang", 2, priority=100)]}
    return sorted(victim.name for victim in gang_decided(snapshot_of(data, by), waiting, by).victims)


@table(
    "nodes",
    ("few units", 3),
    ("many units", 40),
)
def test_the_cheapest_units_go(nodes):
    """Two of three nodes are emptied for two members: those whose pods cost less, though they started earlier."""
    pods = [
        dressed(pod("stays-1", on="n0", cpu="4", priority=10, started=100.0), cost=2),
        *(dressed(pod(f"goes-{n}", on=f"n{n}", cpu="4", priority=10, started=900.0), cost=1) for n in (1, 2)),
        *(dressed(pod(f"dear-{n}-{m}", on=f"n{n}", cpu="2", priority=10)) for n in range(3, nodes) for m in range(2)),
    ]
    assert who_goes(pods, nodes, EvictionCost(deletion_cost=True)) == ["goes-1", "goes-2"]


def test_what_units_cost_together_counts():
    """Two pods of one group go: each costs as much as the third one, which started last, and both together less."""
    pods = [
        pod(name, on=on, cpu="4", priority=10, started=started)
        for name, on, started in (("a-1", "n0", 900.0), ("a-2", "n1", 500.0), ("b", "n2", 100.0))
    ]
    for one in pods:
        one["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = one["metadata"]["name"][0]
    assert who_goes(pods, 3, EvictionCost(group_restarts=True)) == ["a-1", "a-2"]
