"""Nodes as columns: labels of nodes are kept only as far as decisions ask for them, and never for good."""

import msgspec

from tests.preemption.building import as_pod, cluster, node, pod, snapshot_of
from webhook.kube.objects.cluster_scoped import Node
from webhook.preemption.decision import fits
from webhook.preemption.snapshot.kinds import NODES, PODS
from webhook.preemption.snapshot.nodes import MOST_LABEL_COLUMNS

MANY = 3000


def asking(**selector):
    return as_pod(pod("preemptor", priority=100, cpu="1", nodeSelector=selector))


def test_a_pod_may_ask_for_more_labels_than_are_kept():
    """A node selector of many more keys than are kept is judged right, time after time, and leaves no more behind."""
    keys = {f"key-{number}": str(number) for number in range(3 * MOST_LABEL_COLUMNS)}
    right, wrong = node("right", labels=keys), node("wrong", labels={**keys, "key-0": "another"})
    snapshot = snapshot_of(cluster([right, wrong], [], pod("preemptor")))
    for _ in range(3):
        assert fits(snapshot, asking(**keys)) == ["right"]
    assert fits(snapshot, asking()) == ["right", "wrong"]
    assert len(snapshot.nodes._columns) == MOST_LABEL_COLUMNS


def test_a_label_that_comes_back_is_read_anew():
    """A key that was dropped meanwhile, while the node's value changed, is judged by the value of now."""
    snapshot = snapshot_of(cluster([node("n1", labels={"disk": "old"})], [], pod("preemptor")))
    assert fits(snapshot, asking(disk="old")) == ["n1"]
    for number in range(2 * MOST_LABEL_COLUMNS):
        fits(snapshot, asking(**{f"other-{number}": "x"}))
    for value in ("new", "newest"):
        snapshot.put(NODES, msgspec.convert(node("n1", labels={"disk": value}), Node))
        assert fits(snapshot, asking(disk=value)) == ["n1"]
        assert fits(snapshot, asking(disk="old")) == []


def wanting(name, resource, amount="1", **more):
    """A pod that asks for a resource besides cpu."""
    made = pod(name, **more)
    made["spec"]["containers"][0]["resources"]["requests"][resource] = amount
    return made


def test_resources_that_no_node_has_do_not_pile_up():
    """Thousands of pods, each asking for a resource with a name of its own, take no column each, and go completely."""
    snapshot = snapshot_of(cluster([node("n1", cpu="8000")], [], pod("preemptor")))
    for number in range(MANY):
        snapshot.put(PODS, as_pod(wanting(f"p{number}", f"tenant.example.com/{number}", on="n1")))
    assert len(snapshot.pods.amounts) == len(snapshot.nodes.used) == 3
    assert fits(snapshot, as_pod(wanting("p", "tenant.example.com/7", priority=9))) == []
    for number in range(MANY):
        snapshot.remove(PODS, f"default/p{number}")
    assert snapshot.pods._unadvertised == {}
