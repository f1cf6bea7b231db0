"""The pools of devices that a node can reach (`GatherPools` of Kubernetes' structured allocator).

Slices of an older generation are ignored. A pool of which slices are missing is incomplete, and one that contradicts
itself is invalid; nothing is allocated from either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from webhook.kube.objects.devices import Device
from webhook.kube.objects.placement import NodeSelector
from webhook.kube.quantity import QuantityError, nanos
from webhook.kube.selectors import Labels, node_matcher
from webhook.preemption.snapshot.device_index import DeviceId, DeviceIndex, PoolId, PublishedSlice

CounterSets = dict[str, dict[str, int]]
"""By counter set and counter, an amount in nanos."""


class NodePlace(NamedTuple):
    """A node as slices select it."""

    name: str
    labels: Labels

    def matches(self, name: str, selector: NodeSelector | None, *, everywhere: bool) -> bool:
        """Whether the node has the name, or is any, or selected: the first that is given."""
        if name:
            return self.name == name
        if everywhere or selector is None:
            return everywhere
        return node_matcher(selector)(self.name, self.labels)


class PublishedDevice(NamedTuple):
    """A device of a pool; `shape` is the id of its shape. With `selects` it says by itself which nodes reach it."""

    id: DeviceId
    device: Device
    shape: int
    selects: bool

    def reachable(self, node: NodePlace) -> bool:
        """Whether the node may use it, its slice being one that the node looks at."""
        own = self.device
        return not self.selects or node.matches(own.node_name, own.node_selector, everywhere=own.all_nodes)


class Pool(NamedTuple):
    """What a node sees of a pool. `others` are its devices that only other nodes reach; they use up counters."""

    id: PoolId
    devices: list[PublishedDevice]
    others: list[PublishedDevice]
    counters: CounterSets
    incomplete: bool = False
    invalid: bool = False

    @property
    def name(self) -> str:
        """`driver/pool`."""
        return "/".join(self.id)


def gather_pools(index: DeviceIndex, node: NodePlace) -> list[Pool]:
    """The node's pools as devices are taken: by name, those with binding conditions last.

    The slices with counters are looked at from every node. Of pools of which a node sees nothing else only those are
    in its list that are incomplete or invalid: no device of the others is had there.
    """
    judge_remote(index)
    slices: dict[PoolId, list[PublishedSlice]] = {}
    for published in chain(*(index.local.get(name, {}).values() for name in (node.name, ""))):
        if _is_relevant(published, node):
            slices.setdefault(published.pool, []).append(published)
    seen = {id_: _newest([*relevant, *index.counted.get(id_, {}).values()]) for id_, relevant in slices.items()}
    pools = [pool for id_, newest in seen.items() if (pool := _pool(index, id_, newest)) is not None]
    pools += [pool for id_, pool in index.troubled.items() if isinstance(pool, Pool) and id_ not in slices]
    binding = {pool.id for pool in pools for device in pool.devices if device.device.binding_conditions is not None}
    return sorted(pools, key=lambda pool: (pool.id in binding, pool.id))


def judge_remote(index: DeviceIndex) -> None:
    """Tell which `unjudged` pools are incomplete or invalid to who reaches no device of theirs."""
    for id_ in index.unjudged:
        slices = index.counted.get(id_)
        pool = _pool(index, id_, _newest(list(slices.values()))) if slices else None
        new = pool if pool is not None and (pool.incomplete or pool.invalid) else None
        if new != index.troubled.pop(id_, None):
            index.seen_from.clear()
        if new is not None:
            index.troubled[id_] = new
    index.unjudged.clear()


def _newest(slices: list[PublishedSlice]) -> list[PublishedSlice]:
    """Those of the newest generation."""
    newest = max(published.slice.spec.pool.generation for published in slices)
    return [published for published in slices if published.slice.spec.pool.generation == newest]


def consumption_of(device: Device) -> dict[tuple[str, str], int]:
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
        return node.matches(spec.node_name, spec.node_selector, everywhere=spec.all_nodes)
    return spec.per_device_node_selection and any(
        node.matches(device.node_name, device.node_selector, everywhere=device.all_nodes)
        for device in spec.devices or ()
    )


def _pool(index: DeviceIndex, id_: PoolId, seen: list[PublishedSlice]) -> Pool | None:
    """The pool of these slices; None if a newer generation, not on this node, replaces it."""
    seen = sorted(seen, key=lambda published: published.name)
    own = seen[0].slice.spec.pool
    others: list[PublishedSlice] = []
    if len(seen) != own.resource_slice_count:
        known = list(index.pools.get(id_, {}).values())
        if any(published.slice.spec.pool.generation > own.generation for published in known):
            return None
        current = [published for published in known if published.slice.spec.pool.generation == own.generation]
        if len(current) != own.resource_slice_count:
            return Pool(id_, [], [], {}, incomplete=True)
        names = {published.name for published in seen}
        others = [published for published in current if published.name not in names]
    devices = _devices(published for published in seen if not published.slice.spec.shared_counters)
    counters = _counter_sets(seen)
    rest = _devices(others)
    if (
        counters is None
        or len({device.id for device in devices}) < len(devices)
        or not all(_has_counters(counters, device.device) for device in [*_devices(seen), *rest])
    ):
        return Pool(id_, [], [], {}, invalid=True)
    return Pool(id_, devices, rest, counters)


def _devices(slices: Iterable[PublishedSlice]) -> list[PublishedDevice]:
    return [
        PublishedDevice(id_, device, shape, published.slice.spec.per_device_node_selection)
        for published in slices
        for id_, device, shape in zip(published.ids, published.slice.spec.devices or (), published.shapes, strict=True)
    ]


def _counter_sets(slices: list[PublishedSlice]) -> CounterSets | None:
    """The counters that the slices offer; None if a set is there twice, or an amount is none."""
    offered: CounterSets = {}
    for published in slices:
        for counters in published.slice.spec.shared_counters or ():
            if counters.name in offered:
                return None
            try:
                offered[counters.name] = {
                    name: nanos(counter.value) for name, counter in (counters.counters or {}).items()
                }
            except QuantityError:
                return None
    return offered


def _has_counters(counters: Mapping[str, Mapping[str, int]], device: Device) -> bool:
    """Whether the pool has the counters that the device consumes."""
    return all(
        consumption.counter_set in counters
        and set(consumption.counters or ()) <= set(counters[consumption.counter_set])
        for consumption in device.consumes_counters or ()
    )
