"""The pools of devices that a node can reach (`GatherPools` of Kubernetes' structured allocator).

Slices of an older generation are ignored. A pool that lacks slices is incomplete, one that
contradicts itself is invalid: nothing is allocated from either.
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
        """Whether the node has the name, or is any, or selected: the first that is given."""
        if selecting.node_name:
            return self.name == selecting.node_name
        if selecting.all_nodes or selecting.node_selector is None:
            return selecting.all_nodes
        return node_matcher(selecting.node_selector)(self.name, self.labels)


class PublishedDevice(NamedTuple):
    """A device of a pool, with the id of its shape. If it `selects`, it says itself which nodes reach it."""

    id: DeviceId
    device: Device
    shape: int
    selects: bool

    def reachable(self, node: NodePlace) -> bool:
        """Whether the node, which looks at its slice, may use it."""
        return not self.selects or node.matches(self.device)


class Pool(NamedTuple):
    """What a node sees of a pool. `others` are devices that only other nodes reach; they use up counters."""

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

    Slices with counters are read from every node. Pools of which a node sees nothing else are
    there only if they are incomplete or invalid: the node has no device of the others.
    """
    judge_remote(index)
    slices: dict[PoolId, list[PublishedSlice]] = {}
    for published in chain(*(index.local.get(name, {}).values() for name in (node.name, ""))):
        if _is_relevant(published, node):
            slices.setdefault(published.pool, []).append(published)
    pools = [pool for id_, pool in index.troubled.items() if isinstance(pool, Pool) and id_ not in slices]
    for id_, relevant in slices.items():
        pool = _pool(index, [*relevant, *index.counted.get(id_, {}).values()])
        if pool is not None:
            pools.append(pool)
    binding = {pool.id for pool in pools for device in pool.devices if device.device.binding_conditions is not None}
    return sorted(pools, key=lambda pool: (pool.id in binding, pool.id))


def judge_remote(index: DeviceIndex) -> None:
    """Tell which `unjudged` pools are incomplete or invalid to nodes that reach none of their devices."""
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
    return [published for published in slices if published.slice.spec.pool.generation == newest]


def consumption_of(device: Device) -> Counters:
    """By counter set and counter, what the device uses up, in nanos. Raises QuantityError."""
    return {
        (consumption.counter_set, name): nanos(counter.value)
        for consumption in device.consumes_counters or ()
        for name, counter in (consumption.counters or {}).items()
    }


def _is_relevant(published: PublishedSlice, node: NodePlace) -> bool:
    """A slice that says nothing of nodes is of a kind not known yet."""
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
    devices = _devices(published for published in seen if not published.slice.spec.shared_counters)
    rest, counters = _devices(others), _counters(seen)
    consumers = chain(_devices(seen), rest)
    if (
        counters is None
        or len({device.id for device in devices}) < len(devices)
        or not all(consumption_of(device.device).keys() <= counters.keys() for device in consumers)
    ):
        return Pool(id_, [], [], {}, invalid=True)
    return Pool(id_, devices, rest, counters)


def _devices(slices: Iterable[PublishedSlice]) -> list[PublishedDevice]:
    return [
        PublishedDevice(id_, device, shape, published.slice.spec.per_device_node_selection)
        for published in slices
        for id_, device, shape in zip(published.ids, published.slice.spec.devices or (), published.shapes, strict=True)
    ]


def _counters(slices: list[PublishedSlice]) -> Counters | None:
    """The counters that the slices offer; None if a set is there twice, or an amount is none."""
    sets = [counters for published in slices for counters in published.slice.spec.shared_counters or ()]
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
