"""What a search on a node depends on, so that nodes in the same state are searched once.

Device names, serial numbers and the like make every node another one. To a search a device is what the requests say of
it, and which of its attributes that constraints compare are equal to those of the node's other devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from webhook.preemption.devices.constraints import attribute_of
from webhook.preemption.devices.pools import Pool, PublishedDevice
from webhook.preemption.devices.requests import ERROR, ClaimDemand
from webhook.preemption.snapshot.device_index import DeviceId

__all__ = ["NodeSignature", "signature"]


class NodeSignature(NamedTuple):
    """The node's devices in their order, and what each of them and their pools are to the claims."""

    devices: tuple[DeviceId, ...]
    key: tuple[object, ...]


def signature(pools: Sequence[Pool], claims: Iterable[ClaimDemand]) -> NodeSignature | None:
    """The signature of a node for these claims.

    None if the search depends on more: partitions, devices with several allocations, devices that say by themselves
    which nodes reach them, or an expression without an answer.
    """
    claims = list(claims)
    requests = [request for claim in claims for alternatives in claim.requests for request in alternatives]
    constraints = [one for claim in claims for one in claim.constraints]
    names = sorted({one.match_attribute or one.distinct_attribute or "" for one in constraints})
    devices = [device for pool in pools for device in pool.devices]
    if any(one.device.consumes_counters or one.device.allow_multiple_allocations or one.selects for one in devices):
        return None
    seen: list[dict[object, int]] = [{} for _ in names]
    rows = []
    for one in devices:
        answers = tuple((int(request.selects[one.shape]), bool(request.tolerated[one.shape])) for request in requests)
        if any(answer == ERROR for answer, _ in answers):
            return None
        equal = tuple(_number(numbers, one, name) for numbers, name in zip(seen, names, strict=True))
        capacity = one.shape if one.device.capacity and any(request.capacity for request in requests) else -1
        rows.append((answers, equal, capacity))
    marks = tuple((pool.incomplete, pool.invalid, len(pool.devices)) for pool in pools)
    return NodeSignature(tuple(one.id for one in devices), (marks, tuple(rows)))


def _number(numbers: dict[object, int], device: PublishedDevice, name: str) -> int:
    """The same number for equal values on one node, -1 for no value, -2 for one of a type that is not known."""
    attribute = attribute_of(device, name)
    if attribute is None:
        return -1
    value = (attribute.text, attribute.number, attribute.flag, attribute.version)
    return numbers.setdefault(value, len(numbers)) if any(one is not None for one in value) else -2
