"""The allocator against brute force, on random nodes of up to six devices."""

import random

import msgspec
import pytest

from tests.preemption.building import node
from tests.preemption.devices import oracle
from tests.preemption.devices.building import claim, demanded, device, device_class, published, resource_slice, wanted
from webhook.kube.objects.cluster_scoped import Node
from webhook.preemption.devices.allocator import Steps, TakenDevices, allocate
from webhook.preemption.devices.pools import NodePlace, gather_pools
from webhook.preemption.devices.requests import DemandError, compile_claim
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot

TAINTS = ({"key": "bad", "value": "x", "effect": "NoSchedule"}, {"key": "old", "value": "y", "effect": "NoExecute"})


class Random:
    """A random node: its devices, what is taken of them, and claims, as the oracle has them.

    `style` says which features go together: what kube-scheduler's search is known to miss is left out.
    """

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.style = rng.choice(["plain", "constraints", "counters", "shared", "admin"])
        self.devices = {f"d{n}": self.device() for n in range(rng.randint(2, 6))}
        self.claims = [self.claim(n) for n in range(rng.randint(1, 2))]
        held = [name for name, one in self.devices.items() if not one["shared"] and rng.random() < 0.3]
        capacity = {
            name: rng.randint(1, one["capacity"])
            for name, one in self.devices.items()
            if one["shared"] and rng.random() < 0.4
        }
        left = 8 - sum(self.devices[name]["consumes"] for name in held)
        self.taken = {"devices": held, "capacity": capacity, "counters": {"c": left}}

    def device(self):
        rng, style = self.rng, self.style
        return {
            "attributes": {"model": rng.choice("ab"), "numa": rng.choice("01"), "link": rng.choice("012")},
            "taints": rng.sample(TAINTS, rng.choice([0, 0, 1])) if style == "plain" else [],
            "shared": style == "shared" and rng.random() < 0.7,
            "capacity": rng.randint(2, 6),
            "consumes": rng.randint(1, 4) if style == "counters" else 0,
        }

    def claim(self, number):
        rng = self.rng
        constraints = []
        if self.style == "constraints":
            constraints = [(rng.choice(["match", "distinct"]), rng.choice(["numa", "link"]))]
        single = bool(constraints) and constraints[0][0] == "distinct"
        requests = [self.request(n, single=single) for n in range(rng.randint(1, 2))]
        return {"name": f"claim-{number}", "requests": requests, "constraints": constraints}

    def request(self, number, *, single):
        rng = self.rng
        count = 2 if self.style != "admin" and rng.random() < 0.3 else 1
        return {"name": f"r{number}", "alternatives": [self.wanted(single=single) for _ in range(count)]}

    def wanted(self, *, single):
        rng = self.rng
        mode = "All" if not single and self.style in ("plain", "counters") and rng.random() < 0.2 else "ExactCount"
        return {
            "mode": mode,
            "count": 1 if single else rng.randint(1, 3),
            "selects": [("model", rng.choice("ab"))] if rng.random() < 0.5 else [],
            "tolerates": rng.sample(TAINTS, rng.choice([0, 1, 2])),
            "admin": self.style == "admin" and rng.random() < 0.5,
            "capacity": rng.randint(1, 3),
        }


def snapshot_of(case):
    """The same node as objects, with a claim that holds what is taken."""
    snapshot = Snapshot()
    snapshot.put(NODES, msgspec.convert(node("n1"), Node))
    snapshot.put(DEVICE_CLASSES, device_class("any"))
    devices = [published(name, one) for name, one in case.devices.items()]
    counters = [{"name": "set", "counters": {"c": {"value": "8"}}}] if case.style == "counters" else []
    count = 1 + len(counters)
    snapshot.put(SLICES, resource_slice("s0", "n1", devices, pool="p", slices=count))
    if counters:
        snapshot.put(SLICES, resource_slice("s1", "n1", pool="p", slices=count, sharedCounters=counters))
    holder = claim("holder", pool="p", held=[*case.taken["devices"], *case.taken["capacity"]], finalizer=False)
    for result in holder.status.allocation.devices.results if holder.status.allocation else ():
        if (amount := case.taken["capacity"].get(result.device)) is not None:
            result.share_id, result.consumed_capacity = result.device, {"memory": str(amount)}
    snapshot.put(CLAIMS, holder)
    return snapshot


def found_by(case, steps=100_000):
    """What the allocator finds: device names by claim and request, None for nothing."""
    snapshot = snapshot_of(case)
    is_shared = case.style == "shared"
    made = [claim(one["name"], **demanded(one, "any", shared=is_shared)) for one in case.claims]
    claims = [compile_claim(snapshot, one) for one in made]
    place = NodePlace("n1", {"kubernetes.io/hostname": "n1"})
    pools = gather_pools(snapshot.devices, place)
    return allocate(place, pools, claims, TakenDevices(snapshot.device_claims), Steps(steps, steps))


@pytest.mark.parametrize("block", range(4))
def test_the_allocator_finds_what_there_is_and_nothing_else(block):
    """It never gives an allocation that brute force calls impossible, and gives one wherever there is one."""
    styles = {True: set(), False: set()}
    for seed in range(block * 100, block * 100 + 100):
        case = Random(seed)
        if case.style == "shared" and not all(one["shared"] for one in case.devices.values()):
            continue  # a capacity that a device does not have fits nowhere: the oracle's devices all have it
        possible = next(oracle.allocations(case.devices, case.claims, case.taken), None)
        found = found_by(case)
        assert (found is not None) is (possible is not None), (seed, case.style)
        styles[found is not None].add(case.style)
        if found is None:
            continue
        got = []
        for one in found:
            claim = next(claim for claim in case.claims if f"default/{claim['name']}" == one.claim)
            name, _, sub = one.request.partition("/")
            request = next(request for request in claim["requests"] if request["name"] == name)
            got.append((claim["name"], name, request["alternatives"][int(sub[1:]) if sub else 0], one.device.device))
        assert oracle.is_allowed(case.devices, case.claims, case.taken, got), (seed, case.style)
    assert len(styles[True]) == 5
    assert len(styles[False]) >= 4


FREE = {"devices": [], "capacity": {}, "counters": {"c": 8}}


def written(style, devices, *, constraints=(), taken=FREE, **wants):
    """A case by hand: devices of their own kind, and one request of one claim."""
    case = Random(0)
    case.style, case.taken = style, taken
    plain = {"attributes": {"model": "a"}}
    case.devices = {f"d{number}": device(**plain | told) for number, told in enumerate(devices)}
    request = {"name": "r", "alternatives": [wanted(**wants)]}
    case.claims = [{"name": "claim-0", "requests": [request], "constraints": list(constraints)}]
    return case


def test_what_kube_schedulers_search_misses_is_missed_here():
    """A device that is refused for its taint has used up its counters all the same (kubernetes-behaviour.md K45)."""
    case = written("counters", [{"consumes": 8, "taints": [TAINTS[0]]}, {"consumes": 8}])
    assert next(oracle.allocations(case.devices, case.claims, case.taken), None) is not None
    assert found_by(case) is None


def test_distinct_values_of_one_request_are_compared_with_the_last():
    """As in kube-scheduler: of three devices of one request the first and the third may be equal (K46)."""
    devices = [{"attributes": {"link": value}} for value in "010"]
    assert found_by(written("constraints", devices, constraints=[("distinct", "link")], count=3)) is not None


@pytest.mark.parametrize(("held", "possible"), [(4, False), (3, True)])
def test_too_few_devices_need_no_search(held, possible):
    """If fewer devices of a kind are free than are asked for, their sets are not tried: there are a million."""
    case = written("plain", [{}] * 24, taken=FREE | {"devices": [f"d{number}" for number in range(held)]}, count=21)
    assert (found_by(case, steps=24) is not None) is possible


def test_an_error_ends_the_attempt():
    """An expression that has no answer on a device that is looked at is an error, not a no."""
    case = written("plain", [{}], selects=[("nothing", "a")])
    with pytest.raises(DemandError, match=r"claim default/claim-0: selector #0: CEL runtime error"):
        found_by(case)
