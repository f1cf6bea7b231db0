"""ResourceClaims: what is allocated to whom, and whose removal would free which claims.

A claim is freed when all its consumers are pods that go. kube-controller-manager takes an
allocation back only if its finalizer is there (docs/kubernetes-behaviour.md K42).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webhook.kube.objects.devices import (
    AllocationResult,
    ClaimConsumer,
    DeviceAllocation,
    DeviceRequestResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.quantity import QuantityError, nanos
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.columns import take_out
from webhook.preemption.snapshot.device_index import DeviceId, DeviceIndex
from webhook.preemption.snapshot.pods import Pods

_FINALIZER = "resource.kubernetes.io/delete-protection"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
SEVERAL = -1

Consumption = dict[str, int]
"""By capacity, what is consumed in nanos."""


class ClaimIndex:
    """Claims by `namespace/name`, by the pods that use them, and by the devices they hold."""

    def __init__(self, devices: DeviceIndex, pods: Pods) -> None:
        self._devices = devices
        self._pods = pods
        self.claims: dict[str, ResourceClaim] = {}
        self.holders: dict[DeviceId, set[str]] = {}
        """By device, the claims that hold it for themselves."""
        self.shares: dict[DeviceId, dict[str, list[Consumption | None]]] = {}
        """By device and claim, what each share consumes, None if not said."""
        self.planned: dict[str, ClaimConsumer] = {}
        """By a claim's key for a plan's devices, the pod they are held for."""
        self.extended: dict[str, str] = {}
        """By a pod's uid, the claim made for its extended resources."""
        self._by_consumer: dict[str, set[str]] = {}

    def put(self, claim: ResourceClaim) -> None:
        """Add or update a claim. Raises ClusterError for what is no quantity."""
        key, results, devices = key_of(claim), _results(claim), devices_of(claim)
        try:
            consumptions = [_consumption(result) for result in results]
        except QuantityError as error:
            raise ClusterError(f"resourceclaim {key}: status.allocation: consumedCapacity: {error}") from error
        affected = self._drop(key)
        self.claims[key] = claim
        for consumer in claim.status.reserved_for or ():
            self._by_consumer.setdefault(consumer.uid, set()).add(key)
        for uid in _extended_for(claim):
            self.extended[uid] = key
        for device, result, consumption in zip(devices, results, consumptions, strict=True):
            if result.share_id is None:
                self.holders.setdefault(device, set()).add(key)
            else:
                self.shares.setdefault(device, {}).setdefault(key, []).append(consumption)
        self.refresh(affected.union(devices))

    def hold(self, plan: str, namespace: str, pod: ClaimConsumer, devices: Iterable[DeviceId]) -> None:
        """Count the devices as taken by a waiting pod's claim."""
        results = [DeviceRequestResult(**device._asdict()) for device in devices]
        # No other claim has such a name
        meta = ObjectMeta(namespace=namespace, name=f"plan {plan}", finalizers=[_FINALIZER])
        status = ResourceClaimStatus(AllocationResult(DeviceAllocation(results)), [pod])
        claim = ResourceClaim(metadata=meta, status=status)
        self.planned[key_of(claim)] = pod
        self.put(claim)

    def release(self, plan: str, namespace: str) -> bool:
        """Count the plan's devices no longer; whether it held any."""
        key = f"{namespace}/plan {plan}"
        if self.planned.pop(key, None) is None:
            return False
        self.remove(key)
        return True

    def yielding_to(self, uid: str, priority: int) -> list[tuple[str, int]]:
        """Pods whose held devices this one may take: itself, and lower priorities. Uid and row, 0 if unknown."""
        yielding = []
        for key, pod in self.planned.items():
            row = self._row_of(self.claims[key], pod)
            if pod.uid == uid or (row and self._pods.priority[row] < priority):
                yielding.append((pod.uid, row))
        return yielding

    def planned_for(self, uid: str) -> list[DeviceId]:
        """The devices a plan holds for the pod with this uid."""
        keys = [key for key, pod in self.planned.items() if pod.uid == uid]
        return [device for key in keys for device in devices_of(self.claims[key])]

    def in_the_way(
        self, devices: Iterable[DeviceId], uid: str, going: Collection[str]
    ) -> list[tuple[str, list[DeviceId]]]:
        """By claim of others, the devices it keeps when those `going` have left."""
        freed, kept = self.freed_without({*going, uid}), dict[str, list[DeviceId]]()
        for device in devices:
            for key in self.users(device) - freed - self.planned.keys():
                kept.setdefault(key, []).append(device)
        return sorted(kept.items())

    def is_binding(self, uid: str) -> bool:
        """Whether its scheduler is binding the pod: a claim is reserved or was made for it."""
        return uid in self.extended or bool(self.used_by(uid))

    def used_by(self, uid: str) -> frozenset[str]:
        """The claims that the pod with this uid uses."""
        return frozenset(self._by_consumer.get(uid, ())) - self.planned.keys()

    def remove(self, key: str) -> None:
        """Forget the claim `namespace/name`."""
        self.refresh(self._drop(key))

    def pod_changed(self, before: str, after: str) -> None:
        """A pod has another uid, empty for none: set again what removing either frees."""
        for uid in (before, after) if before != after else ():
            for key in self._by_consumer.get(uid, ()):
                self.refresh(devices_of(self.claims[key]))

    def refresh(self, devices: Iterable[DeviceId]) -> None:
        """Set again who holds these devices."""
        for device in devices:
            claims = [self.claims[key] for key in self.holders.get(device, ())]
            holder = SEVERAL if claims else 0
            if len(claims) == 1:
                holder = self._sole_pod(claims[0])
            self._devices.set_holder(device, len(claims), holder)

    def users(self, device: DeviceId) -> set[str]:
        """The claims that hold the device, or a share of it."""
        return {*self.holders.get(device, ()), *self.shares.get(device, ())}

    def uses(self, uid: str) -> bool:
        """Whether the pod with this uid uses a claim."""
        return uid in self._by_consumer

    def freed_without(self, uids: Collection[str]) -> frozenset[str]:
        """The claims that are free when the pods with these uids are gone."""
        keys = {key for uid in uids for key in self._by_consumer.get(uid, ())}
        return frozenset(key for key in keys if _is_freed(self.claims[key], uids))

    def _sole_pod(self, claim: ResourceClaim) -> int:
        """Row of the pod whose removal frees the claim, 0 for none, or SEVERAL."""
        consumers = claim.status.reserved_for or ()
        rows = [self._row_of(claim, consumer) for consumer in consumers]
        if not all(rows) or not _is_freed(claim, {consumer.uid for consumer in consumers}):
            return 0
        return rows[0] if len(rows) == 1 else SEVERAL

    def _row_of(self, claim: ResourceClaim, pod: ClaimConsumer) -> int:
        """The row of a pod that uses the claim, 0 if not known."""
        row = self._pods.find(claim.metadata.namespace, pod.name) or 0
        return row if self._pods.uids[row] == pod.uid else 0

    def _drop(self, key: str) -> set[DeviceId]:
        """Take a claim out; returns the devices that it held."""
        claim = self.claims.pop(key, None)
        if claim is None:
            return set()
        for consumer in claim.status.reserved_for or ():
            take_out(self._by_consumer, consumer.uid, key)
        for uid in _extended_for(claim):
            if self.extended.get(uid) == key:
                del self.extended[uid]
        devices = set(devices_of(claim))
        for device in devices:
            take_out(self.holders, device, key)
            take_out(self.shares, device, key)
        return devices


def devices_of(claim: ResourceClaim) -> list[DeviceId]:
    """The devices that the claim holds, or has shares of."""
    return [DeviceId(result.driver, result.pool, result.device) for result in _results(claim)]


def _results(claim: ResourceClaim) -> list[DeviceRequestResult]:
    """What the claim holds; access for administration holds nothing."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else None
    return [result for result in results or () if not result.admin_access]


def _consumption(result: DeviceRequestResult) -> Consumption | None:
    consumed = result.consumed_capacity
    return None if consumed is None else {name: nanos(amount) for name, amount in consumed.items()}


def _is_freed(claim: ResourceClaim, uids: Collection[str]) -> bool:
    """Whether the claim is free when the pods with these uids are gone."""
    consumers, finalizers = claim.status.reserved_for, claim.metadata.finalizers or ()
    if claim.status.allocation is None or not consumers or _FINALIZER not in finalizers:
        return False
    return all(
        consumer.resource == "pods" and not consumer.api_group and consumer.uid in uids for consumer in consumers
    )


def _extended_for(claim: ResourceClaim) -> list[str]:
    """The uids of pods for whose extended resources the claim was made."""
    meta = claim.metadata
    if (meta.annotations or {}).get(_EXTENDED) != "true":
        return []
    return [owner.uid for owner in meta.owner_references or () if owner.controller]
