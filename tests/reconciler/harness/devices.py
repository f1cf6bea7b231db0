"""Devices of a simulated cluster: what nodes publish, claims, and what kube-scheduler and controllers do to both.

Claims are allocated by the oracle, which shares no code with the decision, reserved and taken back as on a real control
plane: kube-controller-manager deallocates a while after the last consumer is gone, and makes claims from templates. In
the end: random wishes for devices, and pods that hold some when a random cluster begins.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection
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
    """Devices by node and claims by name. A pod uses one claim at most, and devices by the extended resource."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster, self.dice = cluster, dice
        self.devices: dict[str, dict[str, Json]] = {
            host["metadata"]["name"]: {
                f"d{number}": device(attributes={"kind": dice.choice("aab"), "ring": dice.choice("xy")})
                for number in range(dice.randint(1, 5))
            }
            for host in cluster.nodes
        }
        self.collection = StoredObjects(lambda: self.dice.choice((0.0, 0.0, 0.01, 0.2)))
        cluster.api.collections[RESOURCE_CLAIM.path()] = self.collection
        self.claims = self.collection.objects
        self.demands: dict[str, Json] = {}
        """The oracle's, by the name of a claim or of a ResourceClaimTemplate."""
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

    def _claim(self, name: str, demand: Json, owner: Json | None = None, **annotations: str) -> Json:
        """A claim for this demand, of a pod if it was made for one, which is not there yet."""
        self._made += 1
        meta: Json = {"name": name, "namespace": "default", "uid": f"uid-claim-{name}-{self._made}"}
        if owner is not None:
            ref = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "controller": True}
            meta["ownerReferences"] = [{**ref, "uid": owner["metadata"]["uid"]}]
        self.demands[name] = {**demand, "name": name}
        spec = {"devices": demanded(demand, "gpu")}
        return {"metadata": {**meta, "annotations": annotations}, "spec": spec, "status": {}}

    def came(self, pod: Json) -> None:
        """A pod is about to be there, for the first time or again under its name; its claim is made a while later."""
        base = pod["metadata"]["name"].partition("-r")[0]
        if base not in self._known:
            self._known.add(base)
            self._dress(pod)
        else:
            pod["status"].pop("resourceClaimStatuses", None)
            pod["status"].pop("extendedResourceClaimStatus", None)
        if not pod["spec"].get("nodeName") and "resourceClaimTemplateName" in _use(pod):
            later(self.dice.choice(_LATE), self._make, pod["metadata"]["uid"])

    def _make(self, uid: str) -> None:
        for pod in self.cluster.pods.values():
            if pod["metadata"]["uid"] == uid and not pod["status"].get("resourceClaimStatuses"):
                made = copy.deepcopy(pod)
                self._make_claim(made)
                self.cluster.put(made)
                return

    def _make_claim(self, pod: Json) -> str:
        """Make the claim of the pod's template, and name it in its status."""
        name = f"{pod['metadata']['name']}-r-{self._made}"
        self._write(name, self._claim(name, self.demands[_use(pod)["resourceClaimTemplateName"]], pod))
        pod["status"]["resourceClaimStatuses"] = [{"name": "r", "resourceClaimName": name}]
        return name

    def gone(self, pod: Json) -> None:
        """A pod is gone: its claims are taken back a while later."""
        uid = pod["metadata"]["uid"]
        for name in [name for name, claim in self.claims.items() if uid in _users(claim)]:
            later(self.dice.choice(_LATE), self._take_back, name, uid)
        for name in [name for name, claim in self.claims.items() if _owner(claim) == uid and not _users(claim)]:
            self._delete(name)

    def _take_back(self, name: str, uid: str) -> None:
        """kube-controller-manager takes a consumer off, the allocation with the last, then the finalizer."""
        if name not in self.claims or uid not in _users(self.claims[name]):
            return
        claim = copy.deepcopy(self.claims[name])
        status = claim["status"]
        status["reservedFor"] = [user for user in status["reservedFor"] if user["uid"] != uid]
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

    def claim_of(self, pod: Json) -> str | None:
        """The name of the pod's claim, empty if it uses none; None if it is not there yet."""
        made = [row["resourceClaimName"] for row in pod["status"].get("resourceClaimStatuses", ())]
        name: str = _use(pod).get("resourceClaimName") or next(iter(made), "")
        return name if name in self.claims or not _use(pod) else None

    def allocation(self, pod: Json, node: str) -> dict[str, list[str]] | None:
        """The devices that each claim of the pod would get on the node; None if they cannot be had together."""
        name, wishes = self.claim_of(pod), []
        if name is None:
            return None
        if name and not (hosts := self.nodes_of(self.claims[name])):
            wishes.append(self.demands[name])
        elif name and node not in hosts:
            return None
        if count := extended_of(pod):
            wishes.append({**plain(count), "name": "extended"})
        free = {"devices": self.taken(node), "capacity": {}, "counters": {}}
        for allocated in oracle.allocations(self.devices.get(node, {}), wishes, free):
            devices: dict[str, list[str]] = {wish["name"]: [] for wish in wishes}
            for claim, _, _, taken in allocated:
                devices[claim].append(taken)
            return devices
        return None

    def taken(self, node: str) -> list[str]:
        """The devices of a node that claims hold."""
        results = [result for claim in self.claims.values() for result in _results(claim)]
        return [result["device"] for result in results if result["pool"] == node]

    def nodes_of(self, claim: Json) -> set[str]:
        """The node of the claim's devices, if it has some."""
        return {result["pool"] for result in _results(claim)}

    def allocate(self, pod: Json, node: str) -> None:
        """Allocate and reserve the pod's claims there, before it is bound."""
        devices = self.allocation(pod, node)
        assert devices is not None
        if "extended" in devices:
            self._hold_extended(pod, node, devices["extended"])
        if name := self.claim_of(pod):
            self._reserve(name, pod, node, devices.get(name))

    def _hold_extended(self, pod: Json, node: str, devices: Collection[str]) -> None:
        """Make the claim for the pod's extended resource, with these devices."""
        name = f"{pod['metadata']['name']}-extended-{self._made}"
        self.claims[name] = self._claim(name, plain(len(devices)), pod, **{_EXTENDED_CLAIM: "true"})
        pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name}
        self._reserve(name, pod, node, devices)

    def _reserve(self, name: str, pod: Json, node: str, devices: Collection[str] | None) -> None:
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

    # What pods of random clusters wish for, and hold at first.

    def _dress(self, pod: Json) -> None:
        on_node = bool(pod["spec"].get("nodeName"))
        if self.dice.random() < (0.7 if on_node else 0.9):
            (self._hold if on_node else self._wish)(pod)
            request(pod, 1)  # devices are scarcer

    def _wish(self, pod: Json) -> None:
        """A pod that waits wants devices, in one of the ways there are."""
        name = f"c-{pod['metadata']['name']}"
        way = self.dice.choice(("template", "template", "by name", "of others", "extended"))
        if way == "extended":
            _ask(pod, self.dice.randint(1, 2))
        elif way == "template":
            self._by_template(pod, random_demand(self.dice))
        else:
            name = self.dice.choice([*self.claims, name]) if way == "of others" else name
            self._by_name(pod, name, random_demand(self.dice))

    def _by_template(self, pod: Json, demand: Json) -> None:
        template = f"t-{pod['metadata']['name']}"
        self.demands[template] = demand
        pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": template}]

    def _by_name(self, pod: Json, name: str, demand: Json) -> None:
        if name not in self.claims:
            self._write(name, self._claim(name, demand))
        if not _owner(self.claims[name]):  # else it was made from a template, for another pod
            pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]

    def _hold(self, pod: Json) -> None:
        """A pod that runs holds some of its node's free devices, or shares those of another pod there."""
        host, name = pod["spec"]["nodeName"], f"c-{pod['metadata']['name']}"
        taken = self.taken(host)
        free = [known for known in self.devices[host] if known not in taken]
        there = [known for known, claim in self.claims.items() if host in self.nodes_of(claim) and not _owner(claim)]
        if there and self.dice.random() < 0.3:
            name = self.dice.choice(there)
            pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]
            self._reserve(name, pod, host, None)
        elif held := free[: self.dice.choice((1, 1, 1, 2))]:
            if self.dice.random() < 0.15:
                _ask(pod, len(held))
                self._hold_extended(pod, host, held)
            elif self.dice.random() < 0.5:
                self._by_template(pod, plain(len(held)))
                self._reserve(self._make_claim(pod), pod, host, held)
            else:
                self._by_name(pod, name, plain(len(held)))
                self._reserve(name, pod, host, held)


def plain(count: int) -> Json:
    """The oracle's demand for so many devices of any kind."""
    return {"requests": [{"name": "r0", "alternatives": [wanted(count=count)]}], "constraints": []}


def random_demand(dice: random.Random) -> Json:
    """A demand of one or two requests, which may have alternatives, want all devices, or be tied together."""

    def alternative() -> Json:
        made = wanted(count=dice.choice((1, 1, 1, 2, 2, 3)))
        made["selects"] = [("kind", dice.choice("ab"))] if dice.random() < 0.4 else []
        return {**made, "mode": "All"} if dice.random() < 0.08 else made

    requests = [
        {"name": f"r{number}", "alternatives": [alternative() for _ in range(dice.choice((1, 1, 1, 2)))]}
        for number in range(dice.choice((1, 1, 1, 2)))
    ]
    return {"requests": requests, "constraints": [("match", "ring")] if dice.random() < 0.2 else []}


def extended_of(pod: Json) -> int:
    """How many devices the pod asks for by the extended resource."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"].get(EXTENDED, 0))


def uses_devices(pod: Json) -> bool:
    """Whether the pod asks for devices."""
    return bool(_use(pod) or extended_of(pod))


def bare(pod: Json) -> Json:
    """The pod without what it asks of devices."""
    if not extended_of(pod):
        return pod
    made = copy.deepcopy(pod)
    del made["spec"]["containers"][0]["resources"]["requests"][EXTENDED]
    return made


def _ask(pod: Json, count: int) -> None:
    pod["spec"]["containers"][0]["resources"]["requests"][EXTENDED] = str(count)


def _use(pod: Json) -> Json:
    """How the pod names its claim; empty if it uses none."""
    return next(iter(pod["spec"].get("resourceClaims", ())), {})


def _results(claim: Json) -> list[Json]:
    results: list[Json] = claim["status"].get("allocation", {}).get("devices", {}).get("results", [])
    return results


def _users(claim: Json) -> list[str]:
    return [user["uid"] for user in claim["status"].get("reservedFor", ())]


def _owner(claim: Json) -> str:
    return next((owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())), "")


def devices(made: Cluster, seed: int) -> None:
    """Many pods hold devices or want some."""
    made.devices = SimulatedDevices(made, random.Random(f"devices {seed}"))
