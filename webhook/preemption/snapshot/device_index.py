"""The devices that drivers publish: slices by node and pool, and a row for every device."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from webhook.kube.objects.devices import Device, DeviceClass, ResourceSlice
from webhook.kube.quantity import QuantityError, nanos
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.columns import Columns, Interner, ObjectTable, Rows, array, take_out

_IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
_encode = msgspec.json.Encoder().encode

PoolId = tuple[str, str]
"""Driver and pool."""


class DeviceId(NamedTuple):
    """What identifies a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceShape(NamedTuple):
    """A device without its name and place: those of equal shape are equal to every request."""

    driver: str
    device: Device


class PublishedSlice(NamedTuple):
    """A slice; of its devices, in order, the ids, the ids of their shapes, and the rows."""

    slice: ResourceSlice
    ids: list[DeviceId]
    shapes: list[int]
    rows: Rows

    @property
    def name(self) -> str:
        """The slice's name."""
        return self.slice.metadata.name

    @property
    def pool(self) -> PoolId:
        """Its driver and pool."""
        return self.slice.spec.driver, self.slice.spec.pool.name

    @property
    def host(self) -> str:
        """The node whose devices these are; empty if every node looks at them."""
        return "" if self.slice.spec.shared_counters else self.slice.spec.node_name


class DeviceIndex(Columns):
    """Slices and classes, and columns by device.

    `holds` is how many claims hold the device for themselves. `holder` is the row of the pod
    whose removal frees it, 0 for none, -1 if several pods must go.
    """

    shape = array(np.int32)
    holds = array(np.int32)
    holder = array(np.int32)

    def __init__(self) -> None:
        super().__init__()
        self.slices: dict[str, PublishedSlice] = {}
        self.pools: dict[PoolId, dict[str, PublishedSlice]] = {}
        self.local: dict[str, dict[str, PublishedSlice]] = {}
        """By node, its slices; by the empty name those for all nodes, without the `counted`."""
        self.counted: dict[PoolId, dict[str, PublishedSlice]] = {}
        """By pool, the slices with its counters, which every node looks at."""
        self.unjudged: set[PoolId] = set()
        """Pools with counters for `preemption.devices` to judge: they may be `troubled`."""
        self.troubled: dict[PoolId, object] = {}
        """Pools incomplete or invalid to nodes that reach none of their devices."""
        self.classes = ObjectTable[DeviceClass]()
        self.shapes = Interner[tuple[str, bytes], DeviceShape]()
        self.rows_of: dict[DeviceId, list[int]] = {}
        self.seen_from: dict[str, object] = {}
        """By node, what `preemption.devices` made of its slices, until one changes."""

    def put_slice(self, resource_slice: ResourceSlice) -> list[DeviceId]:
        """Add or update a slice; returns the devices whose holders must be set.

        Raises ClusterError for an amount that is no quantity, and changes nothing.
        """
        _check_amounts(resource_slice)
        spec, name = resource_slice.spec, resource_slice.metadata.name
        devices, pool = spec.devices or [], (spec.driver, spec.pool.name)
        ids = [DeviceId(*pool, device.name) for device in devices]
        shapes = [self._shape(spec.driver, device) for device in devices]  # before the old ones are dropped
        changed = [*self.remove_slice(name), *ids]
        rows = np.array([self.new_row() for _ in devices], np.intp)
        for identity, row in zip(ids, rows.tolist(), strict=True):
            self.rows_of.setdefault(identity, []).append(row)
        self.shape[rows] = shapes
        published = PublishedSlice(resource_slice, ids, shapes, rows)
        self.slices[name] = published
        self.pools.setdefault(pool, {})[name] = published
        if spec.shared_counters:
            self.counted.setdefault(pool, {})[name] = published
        else:
            self.local.setdefault(published.host, {})[name] = published
        self._pool_changed(pool)
        return changed

    def remove_slice(self, name: str) -> list[DeviceId]:
        """Forget a slice; returns its devices."""
        before = self.slices.pop(name, None)
        if before is None:
            return []
        self._forget_seen(before)
        take_out(self.pools, before.pool, name)
        take_out(self.local, before.host, name)
        take_out(self.counted, before.pool, name)
        for shape in before.shapes:
            self.shapes.drop(shape)
        for identity, row in zip(before.ids, before.rows.tolist(), strict=True):
            self.free(row)
            self.rows_of[identity].remove(row)
            if not self.rows_of[identity]:
                del self.rows_of[identity]
        self._pool_changed(before.pool)
        return before.ids

    def set_holder(self, device: DeviceId, holds: int, holder: int) -> None:
        """Note how many claims hold a device, and whose removal frees it."""
        for row in self.rows_of.get(device, ()):
            self.holds[row], self.holder[row] = holds, holder

    @property
    def class_of_resource(self) -> dict[str, DeviceClass]:
        """By the name of an extended resource, the class whose devices serve it.

        Of several classes the newest counts, then the first by name (`ExtendedResourceCache`).
        """
        served = {f"{_IMPLICIT_RESOURCE}{name}": device_class for name, device_class in self.classes.items()}
        by_name = [device_class for _, device_class in sorted(self.classes.items(), reverse=True)]
        for device_class in sorted(by_name, key=lambda known: known.metadata.creation_timestamp or ""):
            resource = device_class.spec.extended_resource_name
            if resource:
                served[resource] = device_class
        return served

    def _shape(self, driver: str, device: Device) -> int:
        parts = (
            device.attributes, device.capacity, device.taints, device.consumes_counters,
            device.allow_multiple_allocations,
        )  # fmt: skip
        return self.shapes.take((driver, _encode(parts)), DeviceShape(driver, device))

    def _pool_changed(self, pool: PoolId) -> None:
        """Forget what was made of the pool's slices."""
        if pool in self.counted or pool in self.troubled:
            self.unjudged.add(pool)
        for published in self.pools.get(pool, {}).values():
            self._forget_seen(published)

    def _forget_seen(self, published: PublishedSlice) -> None:
        if published.host:
            self.seen_from.pop(published.host, None)
        elif self.seen_from and not published.slice.spec.shared_counters:
            self.seen_from.clear()


def _check_amounts(resource_slice: ResourceSlice) -> None:
    """Raise ClusterError for an amount that is no quantity."""
    name, spec = resource_slice.metadata.name, resource_slice.spec
    try:
        for device in spec.devices or ():
            for capacity in (device.capacity or {}).values():
                nanos(capacity.value)
            for consumption in device.consumes_counters or ():
                for counter in (consumption.counters or {}).values():
                    nanos(counter.value)
    except QuantityError as error:
        raise ClusterError(f"resourceslice {name}: device {device.name}: {error}") from error
