"""Slices, claims and pods in the snapshot's columns, event by event."""

import random

import msgspec
import pytest

from tests.preemption.building import as_pod, node, pod
from tests.preemption.devices.building import claim, resource_slice
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot


def numbered(name, host, count, *, generation=1, slices=1, **device):
    """A slice of so many devices."""
    devices = [{"name": f"{name}-{number}", **device} for number in range(count)]
    return resource_slice(name, host, devices, generation=generation, slices=slices)


def held(name, host, devices, users, *, finalizer=True):
    return claim(name, pool=host, held=devices, users=users, finalizer=finalizer)


def holding(snapshot):
    """By device, how many claims hold it and which pods have to go for it."""
    devices, pods = snapshot.devices, snapshot.pods
    return {
        str(id_): [
            (
                int(devices.holds[row]),
                "several" if devices.holder[row] < 0 else pods.names[devices.holder[row]],
            )
            for row in sorted(rows)
        ]
        for id_, rows in sorted(devices.rows_of.items())
    }


def test_an_amount_that_is_none_is_refused():
    """The slice that was known before stays as it is."""
    snapshot = Snapshot()
    snapshot.put(SLICES, numbered("s", "n1", 2))
    before = holding(snapshot)
    for fields in (
        {"capacity": {"memory": {"value": "much"}}},
        {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "few"}}}]},
    ):
        with pytest.raises(ClusterError, match=r"resourceslice s: device s-0: '(much|few)' is not a quantity"):
            snapshot.put(SLICES, numbered("s", "n1", 1, **fields))
    assert holding(snapshot) == before


def test_events_lead_to_what_the_objects_say():
    """After random events in any order the columns are those of a snapshot that is filled in once."""
    rng = random.Random(7)
    snapshot, slices, claims, pods = Snapshot(), {}, {}, {}
    snapshot.put(NODES, msgspec.convert(node("n1"), Node))
    for _ in range(600):
        kind, name = rng.choice(["slice", "claim", "pod"]), f"x{rng.randint(0, 5)}"
        gone = rng.random() < 0.3
        if kind == "slice":
            numbers = {"generation": rng.randint(1, 2), "slices": rng.randint(1, 2)}
            made = numbered(name, f"n{rng.randint(1, 2)}", rng.randint(0, 3), **numbers)
            slices.pop(name, None)
            snapshot.remove(SLICES, name) if gone else snapshot.put(SLICES, made)
            slices |= {} if gone else {name: made}
        elif kind == "claim":
            devices = [f"x{rng.randint(0, 5)}-{rng.randint(0, 2)}" for _ in range(rng.randint(0, 2))]
            users = rng.sample(["x0", "x1", "x2", "stranger"], rng.randint(0, 2))
            made = held(name, f"n{rng.randint(1, 2)}", devices, users)
            claims.pop(name, None)
            snapshot.remove(CLAIMS, f"default/{name}") if gone else snapshot.put(CLAIMS, made)
            claims |= {} if gone else {name: made}
        else:
            pods.pop(name, None)
            made = pod(name, on=f"n{rng.randint(1, 2)}")
            made["metadata"]["uid"] = rng.choice([f"uid-{name}", "other"])
            snapshot.remove(PODS, f"default/{name}") if gone else snapshot.put(PODS, as_pod(made))
            pods |= {} if gone else {name: made}
    fresh = Snapshot()
    for one in claims.values():
        fresh.put(CLAIMS, one)
    for one in pods.values():
        fresh.put(PODS, as_pod(one))
    for one in slices.values():
        fresh.put(SLICES, one)
    assert holding(snapshot) == holding(fresh)
    assert any(one for one in holding(fresh).values())
    assert snapshot.device_claims.holders == fresh.device_claims.holders
    used, used_by_fresh = ({uid for uid in one.pods.uids if one.device_claims.uses(uid)} for one in (snapshot, fresh))
    assert used == used_by_fresh
    for name in slices:
        snapshot.remove(SLICES, name)
    assert snapshot.devices.rows_of == snapshot.devices.pools == snapshot.devices.local == {}


def test_the_newest_class_serves_a_resource():
    """Of several classes for one extended resource; each also serves the resource of its own name."""
    snapshot = Snapshot()
    for name, made in (("old", "2026-01-01T00:00:00Z"), ("new", "2026-02-01T00:00:00Z"), ("b", "2026-02-01T00:00:00Z")):
        body = {"metadata": {"name": name, "creationTimestamp": made}, "spec": {"extendedResourceName": "x/gpu"}}
        snapshot.put(DEVICE_CLASSES, msgspec.convert(body, DeviceClass))
    served = snapshot.devices.class_of_resource
    assert served["x/gpu"].metadata.name == "b"
    assert served["deviceclass.resource.kubernetes.io/old"].metadata.name == "old"
    snapshot.remove(DEVICE_CLASSES, "b")
    assert snapshot.devices.class_of_resource["x/gpu"].metadata.name == "new"
