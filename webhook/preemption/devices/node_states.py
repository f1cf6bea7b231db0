"""What a search on a node depends on, so nodes in equal states are searched once.

Names and serial numbers make every node's devices different. To a search a device is what the
requests say of it, and which of its compared attributes are equal to those of the node's
other devices. Nodes equal in this are of one *kind*. They differ only in which
devices are taken, a bit for each: taking pods away and putting them back is arithmetic on
bits of all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, compress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.preemption.devices.constraints import attribute_of, compared_by
from webhook.preemption.devices.device_selector import value_of
from webhook.preemption.devices.pools import NodePlace, Pool, PublishedDevice, gather_pools, judge_remote
from webhook.preemption.devices.requests import ERROR, MATCHES, ClaimDemand, Request
from webhook.preemption.snapshot.claim_index import SEVERAL
from webhook.preemption.snapshot.columns import Ints, Ints32, Mask, Rows
from webhook.preemption.snapshot.device_index import DeviceShape
from webhook.preemption.snapshot.snapshot import Snapshot

_MOST_DEVICES = 63
"""Of a node, for one bit each."""
_NO_VALUE, _NO_TYPE = -1, -2


class NodeDevicesSeen(NamedTuple):
    """What a node reaches: its pools in the order of the search, and their devices, with rows.

    It is `simple` if a search depends only on which devices are taken: none can be shared or
    says itself who reaches it, and no device of other nodes uses their counters. `counters`
    is a digest of the counters and of what devices use of them, empty without any.
    """

    place: NodePlace
    pools: list[Pool]
    devices: list[PublishedDevice]
    rows: Rows
    simple: bool
    counters: bytes


def pools_of(snapshot: Snapshot, node: int) -> NodeDevicesSeen:
    """What the node in this row reaches; kept until its slices or labels change."""
    index, nodes = snapshot.devices, snapshot.nodes
    place = NodePlace(nodes.names[node], nodes.labels[node])
    judge_remote(index)
    known = index.seen_from.get(place.name)
    if isinstance(known, NodeDevicesSeen) and known.place == place:
        return known
    pools = gather_pools(index, place)
    devices = [device for pool in pools for device in pool.devices]
    rows = [index.rows_of[device.id] for device in devices]
    counted = any(device.device.consumes_counters for device in devices)
    simple = (
        len(rows) <= _MOST_DEVICES
        and all(len(some) == 1 for some in rows)
        and not any(device.selects for device in devices)
        and not any(device.device.allow_multiple_allocations for device in devices)
        and not (counted and any(pool.others for pool in pools))
    )
    counters = _counters_of(pools) if counted and simple else b""
    firsts = np.array([some[0] for some in rows], np.intp)
    seen = NodeDevicesSeen(place, pools, devices, firsts, simple, counters)
    index.seen_from[place.name] = seen
    return seen


def _counters_of(pools: Sequence[Pool]) -> bytes:
    """A digest of the counters that pools offer, first of a name first, and devices use."""
    names = [pool.id[1] for pool in pools]
    offered = [(names.index(pool.id[1]), pool.counters) for pool in pools]
    used = [[device.consumption for device in pool.devices] for pool in pools]
    text = repr((offered, used)).encode()
    return blake2b(text, digest_size=16).digest()


class NodeStates:
    """The kinds of nodes for the claims to allocate there, and which devices are taken.

    By node row, `kind` is -1 for none, and `taken` has a bit for each device that a pod has
    which is not `gone`. Where not `told` it depends on pods together. `of_pod` has by
    pod row the devices on its node that its removal frees.
    """

    def __init__(self, snapshot: Snapshot, groups: Iterable[tuple[Sequence[ClaimDemand], Rows]], gone: Mask) -> None:
        count = snapshot.nodes.rows
        self.kind = np.full(count, -1, np.int32)
        self.taken = np.zeros(count, np.uint64)
        self.told = np.full(count, False)
        self.of_pod = np.zeros(len(snapshot.pods.node), np.uint64)
        self._kinds: dict[tuple[object, ...], int] = {}
        self._facts: list[_Kind] = []
        for number, (claims, nodes) in enumerate(groups):
            self._add(snapshot, nodes, number, claims, gone)

    def canonical(self, kind: int, taken: int) -> tuple[object, ...]:
        """The state as the search sees it: equal ones have one outcome.

        Who asks for neither all devices nor admin access looks at no taken device, unless it
        uses counters.
        """
        facts = self._facts[kind]
        if facts.sees_taken:
            return (kind, taken)
        rows = []
        numbers: list[dict[int, int]] = [{} for _ in range(facts.attributes)]
        for place, answers, values in facts.devices:
            if taken >> place & 1:
                continue
            equal = [
                known.setdefault(value, len(known)) if value >= 0 else value
                for known, value in zip(numbers, values, strict=True)
            ]
            rows.append((answers, *equal))
        return (facts.group, tuple(rows))

    def _add(self, snapshot: Snapshot, nodes: Rows, group: int, claims: Sequence[ClaimDemand], gone: Mask) -> None:
        """Tell the kinds of nodes where the same claims are to be allocated."""
        every = [pools_of(snapshot, node) for node in nodes.tolist()]
        simple = np.array([on_node.simple for on_node in every], np.bool_)
        seen, nodes = [*compress(every, simple)], nodes[simple]
        if not seen:
            return
        lengths = np.array([len(on_node.rows) for on_node in seen], np.intp)
        starts = np.cumsum(lengths) - lengths
        rows = np.concatenate([on_node.rows for on_node in seen])
        of = np.repeat(np.arange(len(seen)), lengths)
        requests: list[Request] = []
        compared: set[str] = set()
        for claim in claims:
            requests += chain(*claim.requests)
            compared.update(map(compared_by, claim.constraints))
        devices = snapshot.devices
        shape = devices.shape[rows]
        answers = _answers(snapshot, requests, shape)
        equal = _equal(snapshot, sorted(compared), shape, of, starts)
        matrix = np.stack([*answers, *equal], axis=1, dtype=np.int64)
        wrong = np.full(len(seen), False)
        for request in requests:
            wrong[of[request.selects[shape] == ERROR]] = True
        sees_taken = any(request.admin or request.mode == "All" for request in requests)
        split = len(answers)
        for place in np.flatnonzero(~wrong).tolist():
            on_node, start = seen[place], starts[place]
            pools = on_node.pools
            told = matrix[start : start + len(on_node.rows)]
            marks = tuple((pool.incomplete, pool.invalid, len(pool.devices)) for pool in pools)
            key = (group, marks, on_node.counters, told.tobytes())
            kind = self._kinds.setdefault(key, len(self._facts))
            if kind == len(self._facts):
                known = []
                for at, row in enumerate(told.tolist()):
                    if any(row[: 2 * len(requests) : 2]):
                        known.append((at, tuple(row[:split]), tuple(row[split:])))
                invalid = any(pool.invalid for pool in pools)
                sees = sees_taken or bool(on_node.counters)
                self._facts.append(_Kind(known, len(equal), sees, (group, invalid)))
            self.kind[nodes[place]] = kind
        # Which of the devices are taken, and whose removal frees them
        pods = snapshot.pods
        places = (np.arange(len(rows)) - starts[of]).astype(np.uint64)
        bit = np.left_shift(np.uint64(1), places)
        holder = devices.holder[rows]
        pod = np.maximum(holder, 0)
        by_pod = holder > 0
        held = (devices.holds[rows] > 0) & ~(by_pod & gone[pod])
        np.bitwise_or.at(self.taken, nodes[of[held]], bit[held])
        own = held & by_pod & (pods.node[pod] == nodes[of])
        np.bitwise_or.at(self.of_pod, pod[own], bit[own])
        self.told[nodes] = self.kind[nodes] >= 0
        self.told[nodes[of[held & (holder == SEVERAL)]]] = False


class _Kind(NamedTuple):
    """A kind of node. Each device that a request selects has its bit, the requests' answers and attributes' values."""

    devices: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
    attributes: int
    sees_taken: bool
    group: tuple[object, ...]


def _answers(snapshot: Snapshot, requests: Sequence[Request], shape: Ints32) -> list[NDArray[Any]]:
    """Two columns a request, and one for capacity if amounts are asked for."""
    columns: list[NDArray[Any]] = []
    for request in requests:
        columns += [request.selects[shape] == MATCHES, request.tolerated[shape]]
    if any(request.capacity for request in requests):
        capacity = snapshot.table(
            ("device capacity",),
            snapshot.devices.shapes,
            np.int64,
            lambda some: _digest(msgspec.json.encode(some.device.capacity)),
        )
        columns.append(capacity[shape])
    return columns


def _equal(snapshot: Snapshot, names: Sequence[str], shape: Ints32, of: Rows, starts: Rows) -> list[Ints]:
    """By attribute the node's first device with this value, -1 without one, -2 of no type."""
    columns = []
    shapes = snapshot.devices.shapes
    for name in names:
        read = partial(_number_of, name)
        value = snapshot.table(("device attribute", name), shapes, np.int64, read)[shape]
        kinds, dense = np.unique(value, return_inverse=True)
        on_node = of * len(kinds) + dense
        _, first, where = np.unique(on_node, return_index=True, return_inverse=True)
        columns.append(np.where(value < 0, value, first[where] - starts[of]))
    return columns


def _number_of(name: str, shape: DeviceShape) -> int:
    """The same number for equal values; others have it with a chance of one in 2**63."""
    attribute = attribute_of(shape.device, shape.driver, name)
    if attribute is None:
        return _NO_VALUE
    value = value_of(attribute)
    return _digest(repr(value).encode(errors="surrogatepass")) if value[0] else _NO_TYPE


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1
