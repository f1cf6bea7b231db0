"""The pools of devices that a node reaches, as `GatherPools` of Kubernetes' allocator.

Slices of an older generation are ignored. A pool that lacks slices is incomplete, one that
contradicts itself invalid: nothing is allocated from either.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from webhook.kube.objects.devices import Device, ResourceSliceSpec
from webhook.kube.quantity import QuantityError, nanos
from webhook.kube.selectors import Labels, node_matcher
from webhook.preemption.snapshot.device_index import DeviceId, DeviceIndex, PoolId, PublishedSlice

CounterName = tuple[str, str]
"""A counter set, and a counter of it."""
Counters = dict[CounterName, int]
"""Amounts in nanos."""


class NodePlace(NamedTuple):
    """A node as slices select it."""

    name: str
    labels: Labels

    def matches(self, selecting: ResourceSliceSpec | Device) -> bool:
        """Whether the node is named, or any, or selected: the first one given."""
        if selecting.node_name:
            return self.name == selecting.node_name
        if selecting.all_nodes or selecting.node_selector is None:
            return selecting.all_nodes
        return node_matcher(selecting.node_selector)(self.name, self.labels)


class PublishedDevice(NamedTuple):
    """A device with the id of its shape. If it `selects`, it says itself who reaches it."""

    id: DeviceId
    device: Device
    shape: int
    selects: bool

    def reachable(self, node: NodePlace) -> bool:
        """Whether the node, which looks at its slice, may use it."""
        return not self.selects or node.matches(self.device)

    @property
    def consumption(self) -> Counters:
        """What it uses of counters, in nanos. Raises QuantityError."""
        return {
            (consumption.counter_set, name): nanos(counter.value)
            for consumption in self.device.consumes_counters or ()
            for name, counter in (consumption.counters or {}).items()
        }


class Pool(NamedTuple):
    """What a node sees of a pool. `others` are devices of other nodes: they use up counters."""

    id: PoolId
    devices: list[PublishedDevice]
    others: list[PublishedDevice]
    counters: Counters
    incomplete: bool = False
    invalid: bool = False

    @property
    def name(self) -> str:
        """`driver/pool`."""
        return "/".join(self.id)


def gather_pools(index: DeviceIndex, node: NodePlace) -> list[Pool]:
    """The node's pools as devices are taken: by name, those with binding conditions last.

    Slices with counters are read from every node. A pool of which a node sees nothing else is
    there only if it is incomplete or invalid.
    """
    judge_remote(index)
    slices: dict[PoolId, list[PublishedSlice]] = {}
    for name in (node.name, ""):
        for published in index.local.get(name, {}).values():
            if _is_relevant(published, node):
                slices.setdefault(published.pool, []).append(published)
    troubled = index.troubled.items()
    pools = [pool for id_, pool in troubled if isinstance(pool, Pool) and id_ not in slices]
    for id_, relevant in slices.items():
        pool = _pool(index, [*relevant, *index.counted.get(id_, {}).values()])
        if pool is not None:
            pools.append(pool)
    devices = chain(*(pool.devices for pool in pools))
    binding = {some.id[:2] for some in devices if some.device.binding_conditions is not None}
    return sorted(pools, key=lambda pool: (pool.id in binding, pool.id))


def judge_remote(index: DeviceIndex) -> None:
    """Tell which `unjudged` pools are in trouble to nodes that reach none of their devices."""
    for id_ in index.unjudged:
        slices = index.counted.get(id_)
        pool = _pool(index, [*slices.values()]) if slices else None
        before = index.troubled.pop(id_, None)
        if pool is not None and (pool.incomplete or pool.invalid):
            index.troubled[id_] = pool
        if index.troubled.get(id_) != before:
            index.seen_from.clear()
    index.unjudged.clear()


def _newest(slices: list[PublishedSlice]) -> list[PublishedSlice]:
    """Those of the newest generation."""
    newest = max(published.slice.spec.pool.generation for published in slices)
    return [some for some in slices if some.slice.spec.pool.generation == newest]


def _is_relevant(published: PublishedSlice, node: NodePlace) -> bool:
    """A slice that says nothing of nodes is of an unknown kind."""
    spec = published.slice.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node.matches(spec)
    return spec.per_device_node_selection and any(node.matches(device) for device in spec.devices or ())


def _pool(index: DeviceIndex, slices: list[PublishedSlice]) -> Pool | None:
    """The pool of these slices; None if a newer generation, not on this node, replaces it."""
    seen = sorted(_newest(slices), key=lambda published: published.name)
    id_, own = seen[0].pool, seen[0].slice.spec.pool
    others: list[PublishedSlice] = []
    if len(seen) != own.resource_slice_count:
        current = _newest([*index.pools[id_].values()])
        if current[0].slice.spec.pool.generation > own.generation:
            return None
        if len(current) != own.resource_slice_count:
            return Pool(id_, [], [], {}, incomplete=True)
        names = {published.name for published in seen}
        others = [published for published in current if published.name not in names]
    with_devices = [some for some in seen if not some.slice.spec.shared_counters]
    devices = _devices(with_devices)
    rest, counters = _devices(others), _counters(seen)
    consumers = chain(_devices(seen), rest)
    if (
        counters is None
        or len({device.id for device in devices}) < len(devices)
        or not all(device.consumption.keys() <= counters.keys() for device in consumers)
    ):
        return Pool(id_, [], [], {}, invalid=True)
    return Pool(id_, devices, rest, counters)


def _devices(slices: Iterable[PublishedSlice]) -> list[PublishedDevice]:
    devices = []
    for published in slices:
        spec = published.slice.spec
        rows = zip(published.ids, spec.devices or (), published.shapes, strict=True)
        selects = spec.per_device_node_selection
        devices += [PublishedDevice(*row, selects) for row in rows]
    return devices


def _counters(slices: list[PublishedSlice]) -> Counters | None:
    """The slices' counters; None if a set is there twice, or an amount is none."""
    sets = [*chain(*(published.slice.spec.shared_counters or () for published in slices))]
    if len({counters.name for counters in sets}) < len(sets):
        return None
    try:
        return {
            (counters.name, name): nanos(counter.value)
            for counters in sets
            for name, counter in (counters.counters or {}).items()
        }
    except QuantityError:
        return None
