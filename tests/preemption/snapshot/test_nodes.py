"""Nodes as columns: labels of nodes are kept only as far as decisions ask for them, and never for good."""

import msgspec

from tests.preemption.building import NOW, as_pod, cluster, node, pod, snapshot_of
from webhook.kube.objects.cluster_scoped import Node
from webhook.preemption.decision import decide, fits
from webhook.preemption.snapshot.kinds import NODES, PODS
from webhook.preemption.snapshot.nodes import MOST_LABEL_COLUMNS
from webhook.preemption.victims.rules import kubernetes_rules

MANY = 3000


def asking(**selector):
    return as_pod(pod("preemptor", priority=100, cpu="1", nodeSelector=selector))


def columns(snapshot):
    return len(snapshot.nodes._columns)


def test_a_pod_may_ask_for_more_labels_than_are_kept():
    """A node selector of many more keys than are kept is judged right, time after time, and leaves no more behind."""
    keys = {f"key-{number}": str(number) for number in range(3 * MOST_LABEL_COLUMNS)}
    right, wrong = node("right", labels=keys), node("wrong", labels={**keys, "key-0": "another"})
    snapshot = snapshot_of(cluster([right, wrong], [], pod("preemptor")))
    for _ in range(3):
        assert fits(snapshot, asking(**keys)) == ["right"]
    assert fits(snapshot, asking()) == ["right", "wrong"]
    assert columns(snapshot) == MOST_LABEL_COLUMNS


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


def test_reading_a_decision_after_others_were_made():
    """What a decision tells of the nodes does not depend on the columns that later decisions have pushed out."""
    data = cluster([node("n1", labels={"disk": "old"}), node("n2")], [], pod("preemptor", cpu="9", priority=100))
    snapshot = snapshot_of(data)
    decision = decide(snapshot, asking(disk="old"), kubernetes_rules(), NOW)
    for number in range(2 * MOST_LABEL_COLUMNS):
        fits(snapshot, asking(**{f"other-{number}": "x"}))
    assert decision.fits == ["n1"]
    assert decision.node_reasons == {"n2": "node(s) didn't match Pod's node affinity/selector"}


GPU = "example.com/gpu"


def wanting(name, resource, amount="1", **more):
    """A pod that asks for a resource besides cpu."""
    made = pod(name, **more)
    made["spec"]["containers"][0]["resources"]["requests"][resource] = amount
    return made


def with_gpus(number):
    made = node("n1", cpu="8")
    made["status"]["allocatable"][GPU] = str(number)
    return msgspec.convert(made, Node)


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


def test_a_resource_that_a_node_has_later_counts_from_then_on():
    """What pods asked for before their node had it is counted as soon as it does, once, and goes with them."""
    snapshot = snapshot_of(cluster([node("n1", cpu="8")], [wanting("v", GPU, "2", on="n1")], pod("preemptor")))
    asks = as_pod(wanting("preemptor", GPU, "3", priority=9))
    assert fits(snapshot, asks) == []
    snapshot.put(NODES, with_gpus(4))
    assert fits(snapshot, asks) == []
    decision = decide(snapshot, asks, kubernetes_rules(), NOW)
    assert [victim.key for victim in decision.selected.victims] == ["default/v"]
    snapshot.put(PODS, as_pod(wanting("v", GPU, "1", on="n1")))
    assert fits(snapshot, asks) == ["n1"]
    snapshot.remove(PODS, "default/v")
    assert fits(snapshot, as_pod(wanting("preemptor", GPU, "4"))) == ["n1"]
    assert fits(snapshot, as_pod(wanting("preemptor", GPU, "5"))) == []
