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


def snapshot_of(rings):
    """Nodes whose devices, each held by a pod of its own, are on these rings."""
    snapshot = Snapshot()
    snapshot.put(DEVICE_CLASSES, device_class("any"))
    for name, values in rings.items():
        snapshot.put(NODES, msgspec.convert(node(name), Node))
        found = [
            {"name": f"d{n}", "attributes": texts(ring=f"{name}-{value}", serial=f"{name}-{n}")}
            for n, value in enumerate(values)
        ]
        snapshot.put(SLICES, resource_slice(name, name, found))
        hold(snapshot, name, [device["name"] for device in found])
    return snapshot


def hold(snapshot, host, names):
    """Let each of these devices be held by a pod of its own, the last one by the most important."""
    for n, name in enumerate(names):
        snapshot.put(PODS, as_pod(pod(f"{host}-p{n}", on=host, priority=n, cpu="")))
        snapshot.put(CLAIMS, claim(f"{host}-p{n}", pool=host, held=[name], users=[f"{host}-p{n}"]))


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


def partitioned(hosts):
    """Nodes with one device of three partitions, each held by a pod of its own."""
    snapshot = Snapshot()
    snapshot.put(DEVICE_CLASSES, device_class("any"))
    for name in hosts:
        snapshot.put(NODES, msgspec.convert(node(name), Node))
        for one in slices_of(name):
            snapshot.put(SLICES, one)
        hold(snapshot, name, [f"part{n}" for n in range(3)])
    return snapshot


def slices_of(host, *, count=2):
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


RINGS, PARTS = (lambda hosts: snapshot_of(dict.fromkeys(hosts, "aabb"))), partitioned


@pytest.mark.parametrize("nodes", [1, 40])
@table("made, tied", ("rings", RINGS, [RING]), ("partitions", PARTS, []))
def test_equal_nodes_are_searched_once(nodes, made, tied, searched):
    """Forty nodes whose devices differ in their serial numbers and in the names of their rings cost what one does.

    Of partitions those that are taken say what is left of their counters.
    """
    snapshot = made([f"n{number:02}" for number in range(nodes)])
    snapshot.put(CLAIMS, wanted(2, *tied))
    decision = decided(snapshot)
    assert decision.candidate_count == nodes
    assert [victim.name for victim in decision.selected.victims] == ["n00-p1", "n00-p0"]
    assert len(searched) == 5


def test_a_pool_of_another_node_matters_only_while_it_is_incomplete():
    """Its counters are looked at from every node: who asks for all devices is told of a pool that is being updated."""
    snapshot = partitioned(["n1"])
    snapshot.put(NODES, msgspec.convert(node("n2"), Node))
    assert [pool.id for pool in pools_of(snapshot, snapshot.nodes.find("n2")).pools] == []
    seen = []
    for count in (3, 2):
        for one in slices_of("n1", count=count):
            snapshot.put(SLICES, one)
        found = pools_of(snapshot, snapshot.nodes.find("n2")).pools
        seen.append([(pool.id, pool.incomplete) for pool in found])
    assert seen == [[((DRIVER, "n1"), True)], []]
    snapshot.remove(SLICES, "n1-1")
    assert [pool.incomplete for pool in pools_of(snapshot, snapshot.nodes.find("n2")).pools] == [True]
    snapshot.remove(SLICES, "n1-0")
    assert pools_of(snapshot, snapshot.nodes.find("n2")).pools == []
