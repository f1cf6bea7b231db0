"""Random wishes for devices, and pods that hold some when a random cluster begins."""

import random
from collections.abc import Callable
from functools import partial

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.devices import EXTENDED, SimulatedDevices, plain, random_demand
from tests.reconciler.harness.pods import Json, request


def devices(made: Cluster, seed: int) -> None:
    """Many pods hold devices or want some."""
    dice = random.Random(f"devices {seed}")
    made.devices = SimulatedDevices(made, dice)
    made.devices.dress = partial(_dress, made.devices, dice)


def _dress(devices: SimulatedDevices, dice: random.Random, pod: Json) -> None:
    on_node = bool(pod["spec"].get("nodeName"))
    if dice.random() < (0.7 if on_node else 0.9):
        (_hold if on_node else _wish)(devices, dice, pod)
        request(pod, 1)  # devices are scarcer


def _wish(devices: SimulatedDevices, dice: random.Random, pod: Json) -> None:
    """A pod that waits wants devices, in one of the ways there are."""
    name = pod["metadata"]["name"]
    ways: tuple[Callable[[], None], ...] = (
        lambda: _by_template(devices, pod, random_demand(dice)),
        lambda: _by_template(devices, pod, random_demand(dice)),
        lambda: _by_name(devices, pod, f"c-{name}", random_demand(dice)),
        lambda: _by_name(devices, pod, dice.choice([*devices.claims, f"c-{name}"]), random_demand(dice)),
        lambda: _extended(pod, dice.randint(1, 2)),
    )
    dice.choice(ways)()


def _by_template(devices: SimulatedDevices, pod: Json, demand: Json) -> None:
    template = f"t-{pod['metadata']['name']}"
    devices.templates[template] = demand
    pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": template}]


def _by_name(devices: SimulatedDevices, pod: Json, name: str, demand: Json) -> None:
    owner = devices.claims.get(name, {}).get("metadata", {}).get("ownerReferences")
    if owner:
        return  # it was made from a template, for another pod
    if name not in devices.claims:
        devices.name_claim(name, demand)
    pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]


def _extended(pod: Json, count: int) -> None:
    pod["spec"]["containers"][0]["resources"]["requests"][EXTENDED] = str(count)


def _hold(devices: SimulatedDevices, dice: random.Random, pod: Json) -> None:
    """A pod that runs holds some of its node's free devices, or shares those of another pod there."""
    host = pod["spec"]["nodeName"]
    free = [name for name in devices.devices[host] if name not in devices.taken(host)]
    shared = [
        name
        for name, one in devices.claims.items()
        if not one["metadata"].get("ownerReferences") and host in devices.nodes_of(one)
    ]
    if shared and dice.random() < 0.3:
        name = dice.choice(shared)
        pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]
        devices.reserve(name, pod, host, None)
        return
    held = free[: dice.choice((1, 1, 1, 2))]
    if not held:
        return
    if dice.random() < 0.15:
        _extended(pod, len(held))
        devices.hold_extended(pod, host, held)
    elif dice.random() < 0.5:
        _by_template(devices, pod, plain(len(held)))
        devices.make_claims(pod)
        devices.reserve(pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"], pod, host, held)
    else:
        _by_name(devices, pod, f"c-{pod['metadata']['name']}", plain(len(held)))
        devices.reserve(f"c-{pod['metadata']['name']}", pod, host, held)
