"""Slices, claims and pods in the snapshot's columns, event by event."""

import random
from typing import NamedTuple

import msgspec
import pytest

from tests.preemption.building import as_pod, node, pod
from tests.preemption.devices.building import DRIVER, claim, resource_slice
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ClaimConsumer, DeviceClass
from webhook.kube.objects.meta import OwnerReference
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot

POOLS = ("n1", "n2")
DEVICES = sorted(
    DeviceId(DRIVER, pool, f"x{name}-{number}") for pool in POOLS for name in range(4) for number in range(3)
)
USERS = ["x0", "x1", "x2", "stranger"]


def numbered(name, host, count, *, generation=1, slices=1, **device):
    """A slice of so many devices."""
    devices = [{"name": f"{name}-{number}", **device} for number in range(count)]
    return resource_slice(name, host, devices, generation=generation, slices=slices)


class Claim(NamedTuple):
    """A claim in words: the devices of a pool that it holds, or has shares of, and the pods that use it."""

    pool: str
    held: list[str]
    users: list[str]
    shared: bool = False
    finalizer: bool = True
    extended: bool = False
    planned: bool = False

    def made(self, name):
        """The claim as it is read; that of a pod's extended resources has the pod as its controller."""
        made = claim(name, pool=self.pool, held=self.held, users=self.users, finalizer=self.finalizer)
        for result in made.status.allocation.devices.results if self.held else ():
            result.share_id = result.device if self.shared else None
        if self.extended:
            made.metadata.annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
            made.metadata.owner_references = [OwnerReference(kind="Pod", name="x", uid="uid-x0", controller=True)]
        return made

    @property
    def devices(self):
        return [DeviceId(DRIVER, self.pool, name) for name in self.held]

    def is_freed(self, going):
        """Whether it loses its devices with these users."""
        return bool(self.held or self.planned) and bool(self.users) and self.finalizer and {*self.users} <= {*going}


def holding(snapshot):
    """By device, how many claims hold it and which pods have to go for it."""
    devices, pods = snapshot.devices, snapshot.pods
    return {
        str(id_): [(int(devices.holds[row]), [*pods.names, "several"][devices.holder[row]]) for row in sorted(rows)]
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


def answers(snapshot, going, user):
    """What is asked of the claims: about all devices, for a pod, once others are gone."""
    claims, uid, uids = snapshot.device_claims, f"uid-{user}", [f"uid-{name}" for name in going]
    asked = (claims.used_by(uid), claims.uses(uid), claims.is_binding(uid), sorted(claims.planned_for(uid)))
    yielding = sorted(other for other, _ in claims.yielding_to(uid, 100))
    users = {str(id_): claims.users(id_) for id_ in snapshot.devices.rows_of}
    return holding(snapshot), users, asked, claims.in_the_way(DEVICES, uid, uids), claims.freed_without(uids), yielding


def expected(slices, claims, pods, going, user):
    """The same, read off the claims."""
    known = {name for name, uid in pods.items() if uid == f"uid-{name}"}

    def sole(one):
        """The pod whose removal frees the claim, if it is known by its uid."""
        if not one.is_freed(one.users) or not known.issuperset(one.users):
            return ""
        return one.users[0] if len(one.users) == 1 else "several"

    held, users, way = {}, {}, {}
    published = [DeviceId(DRIVER, pool, name) for pool, names in slices.values() for name in names]
    for id_ in sorted(published):
        holders = [one for one in claims.values() if id_ in one.devices and not one.shared]
        who = sole(holders[0]) if len(holders) == 1 else "several" if holders else ""
        held[str(id_)] = [(len(holders), who)] * published.count(id_)
        users[str(id_)] = {name for name, one in claims.items() if id_ in one.devices}
    for id_ in DEVICES:
        for name, one in claims.items():
            if id_ in one.devices and not one.planned and not one.is_freed([*going, user]):
                way.setdefault(name, []).append(id_)
    own = {name: one for name, one in claims.items() if user in one.users}
    named = {name for name, one in own.items() if not one.planned}
    is_extended = user == "x0" and any(one.extended for one in claims.values())
    planned = sorted(id_ for name in own.keys() - named for id_ in own[name].devices)
    asked = (named, bool(own), bool(named) or is_extended, planned)
    waiting = [one.users[0] for one in claims.values() if one.planned]
    yielding = sorted(f"uid-{name}" for name in waiting if name == user or name in known)
    return held, users, asked, sorted(way.items()), {n for n, one in claims.items() if one.is_freed(going)}, yielding


def test_events_lead_to_what_the_objects_say():
    """After random events in any order everything that is asked of devices is what a plain reading of claims says."""
    rng = random.Random(7)
    snapshot, slices, claims, pods = Snapshot(), {}, {}, {}
    snapshot.put(NODES, msgspec.convert(node("n1"), Node))
    for _ in range(1500):
        name, pool = f"x{rng.randint(0, 3)}", rng.choice(POOLS)
        gone, devices = rng.random() < 0.3, rng.sample([id_.device for id_ in DEVICES[:6]], rng.randint(0, 2))
        match rng.choice(["slice", "claim", "claim", "plan", "pod"]):
            case "slice":
                made = numbered(name, pool, rng.randint(0, 3), generation=rng.randint(1, 2), slices=rng.randint(1, 2))
                slices.pop(name, None)
                snapshot.remove(SLICES, name) if gone else snapshot.put(SLICES, made)
                slices |= {} if gone else {name: (pool, [one.name for one in made.spec.devices])}
            case "claim":
                key, users = f"default/{name}", rng.sample(USERS, rng.randint(0, 2)) if devices else []
                claims.pop(key, None)
                extended = rng.random() < 0.1 and not any(one.extended for one in claims.values())
                one = Claim(pool, devices, users, rng.random() < 0.3, rng.random() < 0.8, extended)
                snapshot.remove(CLAIMS, key) if gone else snapshot.put(CLAIMS, one.made(name))
                claims |= {} if gone else {key: one}
            case "plan" if gone:
                snapshot.release_devices(name, "default")
                claims.pop(f"default/plan {name}", None)
            case "plan":
                user = rng.choice(USERS)
                one = claims[f"default/plan {name}"] = Claim(pool, devices, [user], planned=True)
                consumer = ClaimConsumer(resource="pods", name=user, uid=f"uid-{user}")
                snapshot.hold_devices(name, "default", consumer, one.devices)
            case _:
                pods.pop(name, None)
                made = pod(name, on=pool)
                made["metadata"]["uid"] = rng.choice([f"uid-{name}", "other"])
                snapshot.remove(PODS, f"default/{name}") if gone else snapshot.put(PODS, as_pod(made))
                pods |= {} if gone else {name: made["metadata"]["uid"]}
        going, user = rng.sample(USERS, rng.randint(0, 3)), rng.choice(USERS)
        assert answers(snapshot, going, user) == expected(slices, claims, pods, going, user)
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
