"""Nodes in the same state are searched once."""

import msgspec
import pytest

from tests.preemption.building import NOW, as_pod, node, pod
from webhook.kube.objects import DeviceClass, Node, ResourceClaim, ResourceSlice
from webhook.preemption.decision import decide
from webhook.preemption.filters import devices
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

DRIVER = "d.example.com"
RING = {"matchAttribute": f"{DRIVER}/ring"}


def snapshot_of(rings):
    """Nodes whose devices, each held by a pod of its own, are on these rings."""
    snapshot = Snapshot()
    snapshot.set_device_class(msgspec.convert({"metadata": {"name": "any"}}, DeviceClass))
    for name, values in rings.items():
        snapshot.set_node(msgspec.convert(node(name), Node))
        found = [
            {
                "name": f"d{n}",
                "attributes": {"ring": {"string": f"{name}-{value}"}, "serial": {"string": f"{name}-{n}"}},
            }
            for n, value in enumerate(values)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": found}
        snapshot.set_resource_slice(msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice))
        for n in range(len(values)):
            holder = f"{name}-p{n}"
            snapshot.set_pod(as_pod(pod(holder, on=name, priority=n, cpu="")))
            snapshot.set_resource_claim(claim(holder, 1, [], held=[(name, f"d{n}", holder)]))
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


@pytest.mark.parametrize(("nodes", "searches"), [(1, 5), (40, 5)])
def test_equal_nodes_are_searched_once(nodes, searches, monkeypatch):
    """Forty nodes whose devices differ in their serial numbers and in the names of their rings cost what one does."""
    snapshot = snapshot_of({f"n{number:02}": "aabb" for number in range(nodes)})
    snapshot.set_resource_claim(claim("wanted", 2, [RING]))
    asked = []
    allocate = devices.allocate
    monkeypatch.setattr(devices, "allocate", lambda *given: asked.append(1) or allocate(*given))
    wanted = as_pod(pod("wants", priority=100, cpu="", resourceClaims=[{"name": "r", "resourceClaimName": "wanted"}]))
    decision = decide(snapshot, wanted, kubernetes_rules(), NOW)
    assert decision.candidate_count == nodes
    assert [victim.name for victim in decision.selected.victims] == ["n00-p1", "n00-p0"]
    assert len(asked) == searches


def test_nodes_that_differ_in_what_matters_are_searched_apart():
    """A ring of one device more or less is another node."""
    snapshot = snapshot_of({"n1": "aabb", "n2": "abab", "n3": "abcd"})
    snapshot.set_resource_claim(claim("wanted", 2, [RING]))
    wanted = as_pod(pod("wants", priority=100, cpu="", resourceClaims=[{"name": "r", "resourceClaimName": "wanted"}]))
    decision = decide(snapshot, wanted, kubernetes_rules(), NOW)
    found = {one.node: [victim.name for victim in one.victims] for one in decision.candidates}
    assert found == {"n1": ["n1-p1", "n1-p0"], "n2": ["n2-p2", "n2-p0"]}
