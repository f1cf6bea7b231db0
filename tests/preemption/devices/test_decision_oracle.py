"""Decisions for devices against every choice there is: up to four nodes with six devices each, and their holders.

The oracle shares no code with `webhook`: it tries every set of devices and every set of pods.
"""

import random
from collections.abc import Collection, Iterable
from itertools import chain, combinations

import msgspec
import pytest

from tests.preemption.building import NOW, as_pod, node, pod
from tests.preemption.devices.building import DRIVER, claim, count_of, device_class, resource_slice, texts
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

PREEMPTOR = 100
KINDS, RINGS = "ab", "xy"


class Cluster:
    """Devices by node: (kind, ring); claims: the node, its devices, its users; pods: node and priority."""

    def __init__(self, dice: random.Random) -> None:
        self.devices: dict[str, list[tuple[str, str]]] = {}
        self.claims: list[tuple[str, list[int], list[str]]] = []
        self.pods: dict[str, tuple[str, int]] = {}
        for number in range(dice.randint(1, 4)):
            host = f"n{number}"
            self.devices[host] = [(dice.choice(KINDS), dice.choice(RINGS)) for _ in range(dice.randint(1, 6))]
            free = list(range(len(self.devices[host])))
            dice.shuffle(free)
            while free and dice.random() < 0.9:
                held = [free.pop() for _ in range(min(len(free), dice.choice([1, 1, 2])))]
                users = [f"{host}-p{len(self.pods) + place}" for place in range(dice.choice([1, 1, 1, 2]))]
                for user in users:
                    self.pods[user] = (host, dice.choice([0, 10, 20, 200]))
                self.claims.append((host, held, users))
        self.tied = dice.random() < 0.5
        self.wants = [(kind, dice.randint(1, 2)) for kind in dice.sample(KINDS, dice.randint(1, 2))]

    def most_on(self, host: str, gone: Collection[str]) -> int:
        """How many pods can have what is wanted on the node at once when these are gone: every choice is tried."""
        taken = {one for on, held, users in self.claims if on == host and not set(users) <= set(gone) for one in held}
        free = frozenset(range(len(self.devices[host]))) - taken

        def sets(rest: list[tuple[str, int]], chosen: tuple[int, ...]) -> list[frozenset[int]]:
            if not rest:
                rings = {self.devices[host][one][1] for one in chosen}
                return [frozenset(chosen)] if not self.tied or len(rings) <= 1 else []
            (kind, count), *others = rest
            matching = [one for one in free if self.devices[host][one][0] == kind]
            return list(chain.from_iterable(sets(others, (*chosen, *more)) for more in combinations(matching, count)))

        possible = sets(self.wants, ())

        def most(left: frozenset[int]) -> int:
            return max((1 + most(left - one) for one in possible if one <= left), default=0)

        return most(free)

    def possible(self, host: str, gone: Collection[str]) -> bool:
        return self.most_on(host, gone) > 0

    def lower(self, host: str) -> set[str]:
        return {name for name, (on, priority) in self.pods.items() if on == host and priority < PREEMPTOR}

    def claim(self, name: str) -> ResourceClaim:
        """A claim for what is wanted."""
        tied = [{"matchAttribute": f"{DRIVER}/ring"}] if self.tied else []
        return claim(name, [count_of(kind, count) for kind, count in self.wants], constraints=tied)

    def snapshot(self) -> Snapshot:
        snapshot = Snapshot()
        for kind in KINDS:
            snapshot.put(DEVICE_CLASSES, device_class(kind, f'device.attributes["{DRIVER}"].kind == "{kind}"'))
        for host, devices in self.devices.items():
            snapshot.put(NODES, msgspec.convert(node(host), Node))
            published = [
                {"name": f"d{place}", "attributes": texts(kind=kind, ring=f"{host}-{ring}")}
                for place, (kind, ring) in enumerate(devices)
            ]
            snapshot.put(SLICES, resource_slice(host, host, published))
        for name, (host, priority) in self.pods.items():
            snapshot.put(PODS, as_pod(pod(name, on=host, priority=priority, cpu="")))
        for number, (host, held, users) in enumerate(self.claims):
            names = [f"d{place}" for place in held]
            snapshot.put(CLAIMS, claim(f"c{number}", pool=host, held=names, users=users))
        snapshot.put(CLAIMS, self.claim("wanted"))
        return snapshot


def compare(seeds: Iterable[int]) -> int:
    """It fits where the oracle says so; a node is a candidate if it can be made to fit; nobody goes who could stay.

    Returns how many candidates were judged.
    """
    wanted = as_pod(
        pod("wants", priority=PREEMPTOR, cpu="", resourceClaims=[{"name": "r", "resourceClaimName": "wanted"}])
    )
    candidates = 0
    for seed in seeds:
        cluster = Cluster(random.Random(seed))
        decision = decide(cluster.snapshot(), wanted, kubernetes_rules(), NOW)
        fits = sorted(host for host in cluster.devices if cluster.possible(host, set()))
        assert decision.fits == fits, seed
        if fits:
            continue
        helped = {host for host in cluster.devices if cluster.possible(host, cluster.lower(host))}
        found = {one.node: {victim.name for victim in one.victims} for one in decision.candidates}
        assert set(found) == helped, seed
        for host, victims in found.items():
            assert victims <= cluster.lower(host), seed
            assert cluster.possible(host, victims), seed
            assert not any(cluster.possible(host, victims - {one}) for one in victims), seed
            candidates += 1
    return candidates


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_decisions_for_devices(start: int):
    """They are those of the oracle; further clusters are held by the filter's tests."""
    assert compare(range(start, start + 100)) > 20
