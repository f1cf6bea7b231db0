"""Nodes in the same state are searched once."""

import msgspec
import pytest

from tests.cases import table
from tests.preemption.building import NOW, as_pod, node, pod
from tests.preemption.devices.building import DRIVER, claim, count_of, device_class, resource_slice, texts
from webhook.kube.objects.cluster_scoped import Node
from webhook.preemption.decision import decide
from webhook.preemption.devices.node_states import pools_of
from webhook.preemption.filters import devices
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

RING = {"matchAttribute": f"{DRIVER}/ring"}


def snapshot_of(hosts, slices, *held):
    """Nodes with such slices; each of these devices is held by a pod of its own, the last one by the most important."""
    snapshot = Snapshot()
    snapshot.put(DEVICE_CLASSES, device_class("any"))
    for host in hosts:
        snapshot.put(NODES, msgspec.convert(node(host), Node))
        for one in slices(host):
            snapshot.put(SLICES, one)
        for n, name in enumerate(held):
            snapshot.put(PODS, as_pod(pod(f"{host}-p{n}", on=host, priority=n, cpu="")))
            snapshot.put(CLAIMS, claim(f"{host}-p{n}", pool=host, held=[name], users=[f"{host}-p{n}"]))
    return snapshot


def rings(host):
    """The slice of a node with four devices on two rings."""
    devices = [
        {"name": f"d{n}", "attributes": texts(ring=f"{host}-{value}", serial=f"{host}-{n}")}
        for n, value in enumerate("aabb")
    ]
    return [resource_slice(host, host, devices)]


def wanted(count, *constraints):
    return claim("wanted", [count_of("any", count)], constraints=constraints)


def decided(snapshot):
    """The decision for a pod with the claim `wanted`."""
    wants = as_pod(pod("wants", priority=100, cpu="", resourceClaims=[{"name": "r", "resourceClaimName": "wanted"}]))
    return decide(snapshot, wants, kubernetes_rules(), NOW)


@pytest.fixture
def searched(monkeypatch):
    """Grows with each search of a node."""
    searches, allocate = [], devices.allocate
    monkeypatch.setattr(devices, "allocate", lambda *given: searches.append(1) or allocate(*given))
    return searches


def partitions(host, *, count=2):
    """The slices of a node: the counters, and the partitions and the whole that share them."""
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"parts": {"value": amount}}}]}
        for name, amount in [("part0", "1"), ("part1", "1"), ("part2", "1"), ("whole", "3")]
    ]
    counters = [{"name": "gpu", "counters": {"parts": {"value": "3"}}}]
    return [
        resource_slice(f"{host}-0", host, slices=count, sharedCounters=counters),
        resource_slice(f"{host}-1", host, devices, slices=count),
    ]


PARTS = ("part0", "part1", "part2")


@pytest.mark.parametrize("nodes", [1, 40])
@table(
    "slices, held, tied",
    ("rings", rings, ("d0", "d1", "d2", "d3"), [RING]),
    ("partitions", partitions, PARTS, []),
)
def test_equal_nodes_are_searched_once(nodes, slices, held, tied, searched):
    """Forty nodes whose devices differ in their serial numbers and in the names of their rings cost what one does.

    Of partitions those that are taken say what is left of their counters.
    """
    snapshot = snapshot_of([f"n{number:02}" for number in range(nodes)], slices, *held)
    snapshot.put(CLAIMS, wanted(2, *tied))
    decision = decided(snapshot)
    assert decision.candidate_count == nodes
    assert [victim.name for victim in decision.selected.victims] == ["n00-p1", "n00-p0"]
    assert len(searched) == 5


def test_a_pool_of_another_node_matters_only_while_it_is_incomplete():
    """Its counters are looked at from every node: who asks for all devices is told of a pool that is being updated."""
    snapshot = snapshot_of(["n1"], partitions, *PARTS)
    snapshot.put(NODES, msgspec.convert(node("n2"), Node))
    assert [pool.id for pool in pools_of(snapshot, snapshot.nodes.find("n2")).pools] == []
    seen = []
    for count in (3, 2):
        for one in partitions("n1", count=count):
            snapshot.put(SLICES, one)
        found = pools_of(snapshot, snapshot.nodes.find("n2")).pools
        seen.append([(pool.id, pool.incomplete) for pool in found])
    assert seen == [[((DRIVER, "n1"), True)], []]
    snapshot.remove(SLICES, "n1-1")
    assert [pool.incomplete for pool in pools_of(snapshot, snapshot.nodes.find("n2")).pools] == [True]
    snapshot.remove(SLICES, "n1-0")
    assert pools_of(snapshot, snapshot.nodes.find("n2")).pools == []
