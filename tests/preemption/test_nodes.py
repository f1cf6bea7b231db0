"""Nodes as columns: labels of nodes are kept only as far as decisions ask for them, and never for good."""

import tracemalloc

import msgspec

from tests.preemption.building import NOW, as_pod, cluster, node, pod, snapshot_of
from webhook.kube.objects import Node
from webhook.preemption.decision import decide, fits
from webhook.preemption.nodes import MOST_LABEL_COLUMNS
from webhook.preemption.rules import kubernetes_rules

MANY = 3000


def asking(**selector):
    return as_pod(pod("preemptor", priority=100, cpu="1", nodeSelector=selector))


def columns(snapshot):
    return len(snapshot.nodes._columns)


def test_label_keys_that_tenants_choose_do_not_pile_up():
    """Thousands of node selectors, each with a key of its own, leave a bounded number of columns and little memory."""
    snapshot = snapshot_of(cluster([node(f"n{number}") for number in range(500)], [], pod("preemptor")))
    tracemalloc.start()
    try:
        for number in range(MANY):
            assert fits(snapshot, asking(**{f"tenant.example.com/{number}": "yes"})) == []
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert columns(snapshot) <= MOST_LABEL_COLUMNS + 1
    assert grown < 1_500_000  # every column is 2 kB and more; 3000 of them are 7 MB


def test_a_pod_may_ask_for_more_labels_than_are_kept():
    """A node selector of many more keys than are kept is judged right, time after time, and leaves no more behind."""
    keys = {f"key-{number}": str(number) for number in range(3 * MOST_LABEL_COLUMNS)}
    right, wrong = node("right", labels=keys), node("wrong", labels={**keys, "key-0": "another"})
    snapshot = snapshot_of(cluster([right, wrong], [], pod("preemptor")))
    for _ in range(3):
        assert fits(snapshot, asking(**keys)) == ["right"]
    assert fits(snapshot, asking()) == ["right", "wrong"]
    assert columns(snapshot) <= MOST_LABEL_COLUMNS + 1


def test_a_label_that_comes_back_is_read_anew():
    """A key that was dropped meanwhile, while the node's value changed, is judged by the value of now."""
    snapshot = snapshot_of(cluster([node("n1", labels={"disk": "old"})], [], pod("preemptor")))
    assert fits(snapshot, asking(disk="old")) == ["n1"]
    for number in range(2 * MOST_LABEL_COLUMNS):
        fits(snapshot, asking(**{f"other-{number}": "x"}))
    for value in ("new", "newest"):
        snapshot.set_node(msgspec.convert(node("n1", labels={"disk": value}), Node))
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
