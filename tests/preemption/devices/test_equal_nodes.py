"""Nodes in the same state are searched once."""

import msgspec
import pytest

from tests.preemption.building import NOW, as_pod, node, pod
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from webhook.preemption.decision import decide
from webhook.preemption.devices.node_states import pools_of
from webhook.preemption.filters import devices
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

DRIVER = "d.example.com"
RING = {"matchAttribute": f"{DRIVER}/ring"}


def snapshot_of(rings):
    """Nodes whose devices, each held by a pod of its own, are on these rings."""
    snapshot = Snapshot()
    snapshot.put(DEVICE_CLASSES, msgspec.convert({"metadata": {"name": "any"}}, DeviceClass))
    for name, values in rings.items():
        snapshot.put(NODES, msgspec.convert(node(name), Node))
        found = [
            {
                "name": f"d{n}",
                "attributes": {"ring": {"string": f"{name}-{value}"}, "serial": {"string": f"{name}-{n}"}},
            }
            for n, value in enumerate(values)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": found}
        snapshot.put(SLICES, msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice))
        for n in range(len(values)):
            holder = f"{name}-p{n}"
            snapshot.put(PODS, as_pod(pod(holder, on=name, priority=n, cpu="")))
            snapshot.put(CLAIMS, claim(holder, 1, [], held=[(name, f"d{n}", holder)]))
    return snapshot


def claim(name, count, constraints, held=()):
    request = {"name": "r", "exactly": {"deviceClassName": "any", "count": count}}
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
        "spec": {"devices": {"requests": [request], "constraints": constraints}},
    }
    for pool, device, user in held:
        results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device}]
        reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
        body["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return msgspec.convert(body, ResourceClaim)


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


@pytest.mark.parametrize("nodes", [1, 40])
def test_equal_nodes_are_searched_once(nodes, searched):
    """Forty nodes whose devices differ in their serial numbers and in the names of their rings cost what one does."""
    snapshot = snapshot_of({f"n{number:02}": "aabb" for number in range(nodes)})
    snapshot.put(CLAIMS, claim("wanted", 2, [RING]))
    decision = decided(snapshot)
    assert decision.candidate_count == nodes
    assert [victim.name for victim in decision.selected.victims] == ["n00-p1", "n00-p0"]
    assert len(searched) == 5


def test_nodes_that_differ_in_what_matters_are_searched_apart():
    """A ring of one device more or less is another node."""
    snapshot = snapshot_of({"n1": "aabb", "n2": "abab", "n3": "abcd"})
    snapshot.put(CLAIMS, claim("wanted", 2, [RING]))
    decision = decided(snapshot)
    found = {one.node: [victim.name for victim in one.victims] for one in decision.candidates}
    assert found == {"n1": ["n1-p1", "n1-p0"], "n2": ["n2-p2", "n2-p0"]}


def partitioned(hosts):
    """Nodes with one device of three partitions, each held by a pod of its own."""
    snapshot = Snapshot()
    snapshot.put(DEVICE_CLASSES, msgspec.convert({"metadata": {"name": "any"}}, DeviceClass))
    for name in hosts:
        snapshot.put(NODES, msgspec.convert(node(name), Node))
        for one in slices_of(name):
            snapshot.put(SLICES, one)
        for n in range(3):
            holder = f"{name}-p{n}"
            snapshot.put(PODS, as_pod(pod(holder, on=name, priority=n, cpu="")))
            snapshot.put(CLAIMS, claim(holder, 1, [], held=[(name, f"part{n}", holder)]))
    return snapshot


def slices_of(host, *, count=2):
    """The slices of a node: the counters, and the partitions and the whole that share them."""
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"parts": {"value": amount}}}]}
        for name, amount in [("part0", "1"), ("part1", "1"), ("part2", "1"), ("whole", "3")]
    ]
    specs = [{"sharedCounters": [{"name": "gpu", "counters": {"parts": {"value": "3"}}}]}, {"devices": devices}]
    pool = {"name": host, "generation": 1, "resourceSliceCount": count}
    return [
        msgspec.convert(
            {
                "metadata": {"name": f"{host}-{n}"},
                "spec": {"driver": DRIVER, "nodeName": host, "pool": pool, **spec},
            },
            ResourceSlice,
        )
        for n, spec in enumerate(specs)
    ]


@pytest.mark.parametrize("nodes", [1, 40])
def test_nodes_with_equal_partitions_are_searched_once(nodes, searched):
    """Which of a node's partitions are taken says what is left of their counters."""
    snapshot = partitioned([f"n{number:02}" for number in range(nodes)])
    snapshot.put(CLAIMS, claim("wanted", 2, []))
    decision = decided(snapshot)
    assert decision.candidate_count == nodes
    assert [victim.name for victim in decision.selected.victims] == ["n00-p1", "n00-p0"]
    assert len(searched) == 5


def test_counters_that_differ_are_searched_apart():
    """A node of which the counters allow less is another node."""
    snapshot = partitioned(["n1", "n2"])
    less = slices_of("n2")[0]
    less.spec.shared_counters[0].counters["parts"].value = "2"
    snapshot.put(SLICES, less)
    snapshot.put(CLAIMS, claim("wanted", 3, []))
    decision = decided(snapshot)
    assert [one.node for one in decision.candidates] == ["n1"]


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
