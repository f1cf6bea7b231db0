"""Devices counted: a request for a number of devices that nothing ties together is a counter, like a resource."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.devices.requests import ERROR, MATCHES, ClaimDemand, Request
from webhook.preemption.filters.counters import UNBOUNDED, Counter, column_share
from webhook.preemption.snapshot.claim_index import SEVERAL
from webhook.preemption.snapshot.snapshot import Snapshot

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

_MOST_PER_CLAIM = 32


def simple_requests(snapshot: Snapshot, claims: list[ClaimDemand]) -> list[tuple[Request, int]] | None:
    """Requests that can be counted, equal ones together, each with its number of devices; None if one cannot be.

    Each device must be wanted by one of them only.
    """
    counts: dict[tuple[object, ...], tuple[Request, int]] = {}
    for claim in claims:
        if claim.constraints or sum(alternatives[0].number for alternatives in claim.requests) > _MOST_PER_CLAIM:
            return None
        for alternatives in claim.requests:
            request = alternatives[0]
            if request.parent or request.mode != "ExactCount" or request.admin or request.capacity:
                return None
            _, count = counts.get(request.key, (request, 0))
            counts[request.key] = (request, count + request.number)
    simple = list(counts.values())
    if len(simple) > 1:
        used = [number for number, _ in snapshot.devices.shapes.used()]
        if (np.stack([_matching(request)[used] for request, _ in simple]).sum(axis=0) > 1).any():
            return None
    return simple


def _matching(request: Request) -> Mask:
    """By the id of a shape, whether such a device satisfies the request."""
    count = min(len(request.selects), len(request.tolerated))
    matching: Mask = (request.selects[:count] == MATCHES) & request.tolerated[:count]
    return matching


def count_devices(
    snapshot: Snapshot, simple: list[tuple[Request, int]], mask: Mask, without: Rows
) -> tuple[list[Counter], Mask]:
    """A counter for each request on the nodes of the mask, and the nodes on which counting is not enough."""
    devices, nodes, pods = snapshot.devices, snapshot.nodes, snapshot.pods
    count = devices.rows
    # The last entry stands for no host, and for a host that is no node
    known = [-1 if name is None else _row(snapshot, name) for name in devices.hosts.values]
    node_of = np.array([*known, -1], np.intp)
    node = node_of[devices.host[:count]]
    rows = np.flatnonzero((node >= 0) & devices.live[:count])
    node, shape = node[rows], devices.shape[rows]
    holds, holder = devices.holds[rows], devices.holder[rows]
    searched = np.zeros(nodes.rows, np.bool_)
    searched[[row for name in devices.odd_hosts if (row := nodes.find(name)) is not None]] = True
    if _shared_matter(snapshot, simple):
        searched[:] = True
    counters = []
    gone = np.zeros(len(pods.node), np.bool_)
    gone[without] = True
    for request, wanted in simple:
        matching = _matching(request)[shape]
        there, held = node[matching], (holds[matching] > 0)
        by = holder[matching]
        searched[node[request.selects[shape] == ERROR]] = True
        searched[there[by == SEVERAL]] = True
        by = np.where(held, by, 0)
        held = held & ~gone[np.maximum(by, 0)]
        own = held & (by > 0) & (pods.node[np.maximum(by, 0)] == there)
        freed = np.bincount(by[own], minlength=len(pods.node)).astype(np.int64)
        total = np.bincount(there, minlength=nodes.rows).astype(np.int64)
        used = np.bincount(there[held], minlength=nodes.rows).astype(np.int64)
        counters.append(
            Counter(
                stage="devices",
                base=used,
                limit=np.where(mask, total - wanted, UNBOUNDED),
                share=column_share(freed),
                name="devices",
            )
        )
    return counters, searched


def _row(snapshot: Snapshot, name: str) -> int:
    row = snapshot.nodes.find(name)
    return -1 if row is None else row


def _shared_matter(snapshot: Snapshot, simple: list[tuple[Request, int]]) -> bool:
    """Whether a request may get a device from a slice that several nodes look at."""
    shapes = sorted({shape for published in snapshot.devices.shared.values() for shape in published.shapes})
    return bool(shapes) and any(
        (_matching(request)[shapes] | (request.selects[shapes] == ERROR)).any() for request, _ in simple
    )
