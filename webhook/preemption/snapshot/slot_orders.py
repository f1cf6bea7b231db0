"""Nodes' pods in another order than that of importance, kept between decisions.

A node is put in order again only when one of its pods has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from webhook.preemption.snapshot.columns import Floats, Ints, Ints32, Rows, grown
from webhook.preemption.snapshot.pods import Pods

Keys = Callable[[Rows], list[Floats | Ints]]
"""What orders an array of pods' rows: an array of its shape a key, the first decides.

The larger value comes first.
"""


class SlotOrder:
    """One such order of the pods of each node."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._slots = np.zeros((0, 0), np.int32)
        self._made = np.zeros(0, np.int64)
        """By node row the count of changes when its pods were put in order, -1 for never."""
        self._outside: dict[int, Ints] = {}

    def slots_of(self, nodes: Rows, keys: Keys, outside: Sequence[Ints] = ()) -> Ints32:
        """The nodes' pods, one row a node, in the order of `keys`; equal ones by importance.

        As wide as the fullest node, 0 for no more pods. Each of the `outside` has by pod row a
        number that keys look at. Where it changed, a node is put in order again.
        """
        pods = self._pods
        width = pods.width(nodes)
        self._fit(pods.slots.shape)
        for number, values in enumerate(outside):
            self._compare(number, values)
        changes = pods.nodes.pod_changes
        stale = nodes[self._made[nodes] != changes[nodes]]
        if len(stale):
            rows = pods.slots[stale].astype(np.intp)
            columns = [rows == 0, *(-key for key in keys(rows))]
            order = np.lexsort((*reversed(columns),), axis=-1)
            self._slots[stale] = np.take_along_axis(rows, order, axis=-1)
            self._made[stale] = changes[stale]
        return self._slots[nodes, :width]

    def _fit(self, shape: tuple[int, ...]) -> None:
        if self._slots.shape == shape:
            return
        more = [(0, now - before) for now, before in zip(shape, self._slots.shape, strict=True)]
        self._slots = np.pad(self._slots, more)
        self._made = np.pad(self._made, more[:1], constant_values=-1)

    def _compare(self, number: int, values: Ints) -> None:
        """Nodes of pods whose number has changed are stale."""
        before = self._outside.get(number, np.zeros(0, np.int64))
        if len(before) < len(values):
            before = grown(before, len(values))
        before = before[: len(values)]
        node = self._pods.node[np.flatnonzero(before != values)]
        node = node[node >= 0]
        self._made[node[node < len(self._made)]] = -1
        self._outside[number] = values
