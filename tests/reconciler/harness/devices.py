"""Devices of a simulated cluster: what nodes publish, claims, and what kube-scheduler and controllers do to both.

Claims are allocated by the oracle, which shares no code with the decision, reserved and taken back as on a real control
plane: kube-controller-manager deallocates a while after the last consumer is gone, and makes claims from templates. In
the end: random wishes for devices, and pods that hold some when a random cluster begins.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tests.preemption.devices import oracle
from tests.preemption.devices.building import DRIVER, demanded, device, published, wanted
from tests.reconciler.harness.api_server import StoredObjects
from tests.reconciler.harness.pods import Json, request
from tests.reconciler.harness.virtual_time import later
from webhook.kube.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED = "example.com/gpu"
_EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
_LATE = (0.0, 0.02, 0.02, 0.3)
"""Seconds that kube-controller-manager takes."""


class SimulatedDevices:
    """Devices by node and claims by name; `demands` are the oracle's, by claim."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster, self.dice = cluster, dice
        self.devices: dict[str, dict[str, Json]] = {
            one["metadata"]["name"]: {f"d{n}": _device(dice) for n in range(dice.randint(1, 5))}
            for one in cluster.nodes
        }
        self.collection = StoredObjects(lambda: self.dice.choice((0.0, 0.0, 0.01, 0.2)))
        cluster.api.collections[RESOURCE_CLAIM.path()] = self.collection
        self.claims = self.collection.objects
        self.demands: dict[str, Json] = {}
        self.templates: dict[str, Json] = {}
        """By the name of a ResourceClaimTemplate, the demand of its claims."""
        self.dress: Callable[[Json], None] = lambda _: None
        """What gives a new pod its wishes for devices."""
        self._known: set[str] = set()
        self._made = 0

    def publish(self) -> None:
        """Write the classes and the slices of all nodes."""
        self.cluster.show(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
        self.cluster.show(DEVICE_CLASS, {"metadata": {"name": "served"}, "spec": {"extendedResourceName": EXTENDED}})
        for host, devices in self.devices.items():
            shown = [published(name, known) for name, known in devices.items()]
            pool = {"name": host, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "nodeName": host, "pool": pool, "devices": shown}
            self.cluster.show(RESOURCE_SLICE, {"metadata": {"name": host}, "spec": spec})

    def _write(self, name: str, claim: Json) -> None:
        self.collection.put(name, claim)
        self.cluster.scheduler.woken.set()

    # What pods ask for, and what kube-controller-manager makes of it.

    def claim(self, name: str, demand: Json, *, owner: Json | None = None, extended: bool = False) -> Json:
        """A claim for this demand, which is not there yet."""
        self._made += 1
        meta: Json = {"name": name, "namespace": "default", "uid": f"uid-claim-{name}-{self._made}"}
        if owner is not None:
            ref = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "controller": True}
            meta["ownerReferences"] = [{**ref, "uid": owner["metadata"]["uid"]}]
        if extended:
            meta["annotations"] = {_EXTENDED_CLAIM: "true"}
        self.demands[name] = {**demand, "name": name}
        return {"metadata": meta, "spec": {"devices": demanded(demand, "gpu")}, "status": {}}

    def name_claim(self, name: str, demand: Json) -> None:
        """Somebody makes a claim with a name of its own."""
        self._write(name, self.claim(name, demand))

    def came(self, pod: Json) -> None:
        """A pod is about to be there, for the first time or again under its name; its claims are made a while later."""
        base = pod["metadata"]["name"].partition("-r")[0]
        if base not in self._known:
            self._known.add(base)
            self.dress(pod)
        else:
            pod["status"].pop("resourceClaimStatuses", None)
            pod["status"].pop("extendedResourceClaimStatus", None)
        if not pod["spec"].get("nodeName") and any("resourceClaimTemplateName" in one for one in _uses(pod)):
            later(self.dice.choice(_LATE), self._make, pod["metadata"]["uid"])

    def _make(self, uid: str) -> None:
        pod = next((one for one in self.cluster.pods.values() if one["metadata"]["uid"] == uid), None)
        if pod is not None and not pod["status"].get("resourceClaimStatuses"):
            made = copy.deepcopy(pod)
            self.make_claims(made)
            self.cluster.put(made)

    def make_claims(self, pod: Json) -> None:
        """Make the claims of the pod's templates, and name them in its status."""
        made = []
        for one in _uses(pod):
            if template := one.get("resourceClaimTemplateName"):
                name = f"{pod['metadata']['name']}-{one['name']}-{self._made}"
                self._write(name, self.claim(name, self.templates[template], owner=pod))
                made.append({"name": one["name"], "resourceClaimName": name})
        pod["status"]["resourceClaimStatuses"] = made

    def gone(self, pod: Json) -> None:
        """A pod is gone: its claims are taken back a while later."""
        for name in [name for name, one in self.claims.items() if pod["metadata"]["uid"] in _users(one)]:
            later(self.dice.choice(_LATE), self._take_back, name, pod["metadata"]["uid"])
        for name, one in list(self.claims.items()):
            if _owner(one) == pod["metadata"]["uid"] and not _users(one):
                self._delete(name)

    def _take_back(self, name: str, uid: str) -> None:
        """kube-controller-manager takes a consumer off, the allocation with the last, then the finalizer."""
        if name not in self.claims or uid not in _users(self.claims[name]):
            return
        claim = copy.deepcopy(self.claims[name])
        status = claim["status"]
        status["reservedFor"] = [one for one in status["reservedFor"] if one["uid"] != uid]
        if not status["reservedFor"] and FINALIZER in claim["metadata"].get("finalizers", ()):
            claim["status"] = {}
            claim["metadata"]["finalizers"] = []
        self._write(name, claim)
        if _owner(claim) == uid:
            later(0.02, self._delete, name)

    def _delete(self, name: str) -> None:
        if name in self.claims:
            self.collection.remove(name)
            self.cluster.scheduler.woken.set()

    # What kube-scheduler does.

    def names_of(self, pod: Json) -> list[str] | None:
        """The names of the pod's claims; None if one is not there yet."""
        made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())}
        names = [one.get("resourceClaimName") or made.get(one["name"]) for one in _uses(pod)]
        return None if any(name not in self.claims for name in names) else [str(name) for name in names]

    def allocation(self, pod: Json, node: str) -> dict[str, list[str]] | None:
        """The devices that each claim of the pod would get on the node; None if they cannot be had together."""
        names = self.names_of(pod)
        if names is None:
            return None
        taken = self.taken(node)
        wishes = []
        for name in names:
            hosts = self.nodes_of(self.claims[name])
            if not hosts:
                wishes.append(self.demands[name])
            elif node not in hosts:
                return None
        if count := extended_of(pod):
            wishes.append({**plain(count), "name": "extended"})
        free = {"devices": taken, "capacity": {}, "counters": {}}
        found = next(iter(islice(oracle.allocations(self.devices.get(node, {}), wishes, free), 1)), None)
        if found is None:
            return None
        devices: dict[str, list[str]] = {one["name"]: [] for one in wishes}
        for claim, _, _, name in found:
            devices[claim].append(name)
        return devices

    def uses_devices(self, pod: Json) -> bool:
        """Whether the pod asks for devices."""
        return bool(_uses(pod) or extended_of(pod))

    def taken(self, node: str) -> list[str]:
        """The devices of a node that claims hold."""
        return [result["device"] for one in self.claims.values() for result in _results(one) if result["pool"] == node]

    def nodes_of(self, claim: Json) -> set[str]:
        """The node of the claim's devices, if it has some."""
        return {result["pool"] for result in _results(claim)}

    def allocate(self, pod: Json, node: str) -> None:
        """Allocate and reserve the pod's claims there, before it is bound."""
        found = self.allocation(pod, node)
        assert found is not None
        if "extended" in found:
            self.hold_extended(pod, node, found.pop("extended"))
        for name in {*found, *(self.names_of(pod) or ())}:
            self.reserve(name, pod, node, found.get(name))

    def hold_extended(self, pod: Json, node: str, devices: Collection[str]) -> None:
        """Make the claim for the pod's extended resource, with these devices."""
        name = f"{pod['metadata']['name']}-extended-{self._made}"
        self.claims[name] = self.claim(name, plain(len(devices)), owner=pod, extended=True)
        pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name}
        self.reserve(name, pod, node, devices)

    def reserve(self, name: str, pod: Json, node: str, devices: Collection[str] | None) -> None:
        """Reserve the claim for the pod, and allocate these devices to it unless it has some."""
        claim = copy.deepcopy(self.claims[name])
        meta, status = claim["metadata"], claim["status"]
        if devices is not None:
            results = [{"request": "r0", "driver": DRIVER, "pool": node, "device": device} for device in devices]
            only = [{"key": "metadata.name", "operator": "In", "values": [node]}]
            selector = {"nodeSelectorTerms": [{"matchFields": only}]}
            meta["finalizers"] = [FINALIZER]
            status["allocation"] = {"devices": {"results": results}, "nodeSelector": selector}
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status["reservedFor"] = [*status.get("reservedFor", ()), user]
        self._write(name, claim)


def plain(count: int) -> Json:
    """The oracle's demand for so many devices of any kind."""
    return {"requests": [{"name": "r0", "alternatives": [wanted(count=count)]}], "constraints": []}


def random_demand(dice: random.Random) -> Json:
    """A demand of one or two requests, which may have alternatives, want all devices, or be tied together."""

    def one() -> Json:
        made = wanted(count=dice.choice((1, 1, 1, 2, 2, 3)))
        made["selects"] = [("kind", dice.choice("ab"))] if dice.random() < 0.4 else []
        return {**made, "mode": "All"} if dice.random() < 0.08 else made

    requests = [
        {"name": f"r{number}", "alternatives": [one() for _ in range(dice.choice((1, 1, 1, 2)))]}
        for number in range(dice.choice((1, 1, 1, 2)))
    ]
    return {"requests": requests, "constraints": [("match", "ring")] if dice.random() < 0.2 else []}


def extended_of(pod: Json) -> int:
    """How many devices the pod asks for by the extended resource."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"].get(EXTENDED, 0))


def bare(pod: Json) -> Json:
    """The pod without what it asks of devices."""
    if not extended_of(pod):
        return pod
    made = copy.deepcopy(pod)
    del made["spec"]["containers"][0]["resources"]["requests"][EXTENDED]
    return made


def _device(dice: random.Random) -> Json:
    made: Json = device(attributes={"kind": dice.choice("aab"), "ring": dice.choice("xy")})
    return made


def _uses(pod: Json) -> list[Json]:
    uses: list[Json] = pod["spec"].get("resourceClaims", [])
    return uses


def _results(claim: Json) -> list[Json]:
    results: list[Json] = claim["status"].get("allocation", {}).get("devices", {}).get("results", [])
    return results


def _users(claim: Json) -> list[str]:
    return [one["uid"] for one in claim["status"].get("reservedFor", ())]


def _owner(claim: Json) -> str:
    return next((owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())), "")


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
