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
UIDS = ["uid-x0", "uid-x1", "uid-x2", "uid-stranger"]


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


def sole(one, pods):
    """The pod whose removal frees the claim, if it is known by its uid."""
    if not one.is_freed(one.users) or not all(pods.get(user) == f"uid-{user}" for user in one.users):
        return ""
    return one.users[0] if len(one.users) == 1 else "several"


def answers(snapshot, going, uid):
    """What is asked of the claims: about all devices, for a pod, once others are gone."""
    claims = snapshot.device_claims
    return {
        "held": holding(snapshot),
        "users": {str(id_): claims.users(id_) for id_ in snapshot.devices.rows_of},
        "used by it": claims.used_by(uid),
        "it uses some": claims.uses(uid),
        "it is being bound": claims.is_binding(uid),
        "planned for it": sorted(claims.planned_for(uid)),
        "in its way": claims.in_the_way(DEVICES, uid, going),
        "freed": claims.freed_without(going),
        "yielding to it": sorted(user for user, _ in claims.yielding_to(uid, 100)),
    }


def expected(slices, claims, pods, going, uid):
    """The same, read off the claims."""
    published = [DeviceId(DRIVER, pool, name) for pool, names in slices.values() for name in names]
    held, users = {}, {}
    for id_ in sorted(published):
        holders = [one for one in claims.values() if id_ in one.devices and not one.shared]
        who = sole(holders[0], pods) if len(holders) == 1 else "several" if holders else ""
        held[str(id_)] = [(len(holders), who)] * published.count(id_)
        users[str(id_)] = {f"default/{name}" for name, one in claims.items() if id_ in one.devices}
    own = [(f"default/{name}", one) for name, one in claims.items() if uid in [f"uid-{user}" for user in one.users]]
    gone = [user.removeprefix("uid-") for user in going]
    way = {}
    for id_ in DEVICES:
        for name, one in claims.items():
            if id_ in one.devices and not one.planned and not one.is_freed([*gone, uid.removeprefix("uid-")]):
                way.setdefault(f"default/{name}", []).append(id_)
    extended = uid == "uid-x0" and any(one.extended for one in claims.values())
    planned = [one for one in claims.values() if one.planned]
    yielding = [f"uid-{one.users[0]}" for one in planned]
    return {
        "held": held,
        "users": users,
        "used by it": {name for name, one in own if not one.planned},
        "it uses some": bool(own),
        "it is being bound": extended or any(not one.planned for _, one in own),
        "planned for it": sorted(id_ for _, one in own if one.planned for id_ in one.devices),
        "in its way": sorted(way.items()),
        "freed": {f"default/{name}" for name, one in claims.items() if one.is_freed(gone)},
        "yielding to it": sorted(
            user for user in yielding if user == uid or pods.get(user.removeprefix("uid-")) == user
        ),
    }


def test_events_lead_to_what_the_objects_say():
    """After random events in any order everything that is asked of devices is what a plain reading of claims says."""
    rng = random.Random(7)
    snapshot, slices, claims, pods = Snapshot(), {}, {}, {}
    snapshot.put(NODES, msgspec.convert(node("n1"), Node))
    for _ in range(1500):
        kind, name, pool = (
            rng.choice(["slice", "claim", "claim", "plan", "pod"]),
            f"x{rng.randint(0, 3)}",
            rng.choice(POOLS),
        )
        gone, devices = rng.random() < 0.3, rng.sample([id_.device for id_ in DEVICES[:6]], rng.randint(0, 2))
        if kind == "slice":
            numbers = {"generation": rng.randint(1, 2), "slices": rng.randint(1, 2)}
            made = numbered(name, pool, rng.randint(0, 3), **numbers)
            slices.pop(name, None)
            snapshot.remove(SLICES, name) if gone else snapshot.put(SLICES, made)
            slices |= {} if gone else {name: (pool, [one.name for one in made.spec.devices])}
        elif kind == "claim":
            users = rng.sample(["x0", "x1", "x2", "stranger"], rng.randint(0, 2)) if devices else []
            extended = rng.random() < 0.1 and not any(one.extended for one in claims.values())
            one = Claim(pool, devices, users, rng.random() < 0.3, rng.random() < 0.8, extended)
            claims.pop(name, None)
            snapshot.remove(CLAIMS, f"default/{name}") if gone else snapshot.put(CLAIMS, one.made(name))
            claims |= {} if gone else {name: one}
        elif kind == "plan":
            user = rng.choice(["x0", "x1", "stranger"])
            one = Claim(pool, devices, [user], planned=True)
            claims.pop(f"plan {name}", None)
            consumer = ClaimConsumer(resource="pods", name=user, uid=f"uid-{user}")
            snapshot.release_devices(name, "default") if gone else snapshot.hold_devices(
                name, "default", consumer, one.devices
            )
            claims |= {} if gone else {f"plan {name}": one}
        else:
            pods.pop(name, None)
            made = pod(name, on=rng.choice(POOLS))
            made["metadata"]["uid"] = rng.choice([f"uid-{name}", "other"])
            snapshot.remove(PODS, f"default/{name}") if gone else snapshot.put(PODS, as_pod(made))
            pods |= {} if gone else {name: made["metadata"]["uid"]}
        going, uid = rng.sample(UIDS, rng.randint(0, 3)), rng.choice(UIDS)
        assert answers(snapshot, going, uid) == expected(slices, claims, pods, going, uid)
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
