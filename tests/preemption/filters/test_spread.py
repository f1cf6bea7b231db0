"""Topology spread beside pods on their way out."""

from tests.cases import table
from tests.preemption.building import NOW, as_pod, cluster, node, pod, rules, snapshot_of
from webhook.preemption.decision import decide
from webhook.preemption.victims.rules import kubernetes_rules

SPREAD = {
    "labelSelector": {"matchLabels": {"app": "db"}},
    "topologyKey": "kubernetes.io/hostname",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
}


def of_db(made, **metadata):
    """The pod as one of those that the constraint counts."""
    made["metadata"] |= {"labels": {"app": "db"}, **metadata}
    return made


@table(
    "by, victims",
    ("kube-scheduler counts one less for a pod it did not count", kubernetes_rules(), {"leaves", "filler"}),
    ("under a policy nobody goes in vain", rules(), None),
)
def test_a_pod_that_leaves_is_not_taken_away_twice(by, victims):
    """On a node with one pod too many of the spread, another one that leaves anyway makes no room under a policy."""
    pods = [
        of_db(pod("stays", on="full", priority=200)),
        of_db(pod("leaves", on="full", priority=5), deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("filler", on="full", cpu="2", priority=5),
    ]
    preemptor = of_db(pod("preemptor", cpu="2", priority=100, topologySpreadConstraints=[SPREAD]))
    nodes = [node("full"), node("empty", unschedulable=True)]
    selected = decide(snapshot_of(cluster(nodes, pods, preemptor), by), as_pod(preemptor), by, NOW).selected
    assert (selected and {victim.name for victim in selected.victims}) == victims
