"""The pods of nodes in another order than that of importance, kept from decision to decision.

A node is put in order again only if one of its pods has changed since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.pods import Pods

__all__ = ["SlotOrder", "SlotOrders"]

_MOST_ORDERS = 16
Keys = Callable[[NDArray[np.intp]], list[NDArray[np.float64]]]
"""What pods are put in order by, of the pods in an array of rows: an array of the same shape a key, the first decides.

The larger value comes first.
"""


class SlotOrder:
    """One such order of the pods of each node."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._slots: NDArray[np.int32] = np.zeros((0, 0), np.int32)
        self._made = np.zeros(0, np.int64)
        """By node row the count of changes at which its pods were put in order, -1 for never."""
        self._outside = np.zeros(0, np.int64)

    def slots_of(self, nodes: NDArray[np.intp], keys: Keys, outside: NDArray[np.int64] | None) -> NDArray[np.int32]:
        """The pods of the nodes, one row a node, in the order of `keys`; equal ones by importance.

        As wide as the fullest of them, 0 for no more pods. `outside` is a number by pod row that the keys look at
        beside the pod, and nobody changes any more: where it is another one than last time, the node is put in order
        again.
        """
        pods = self._pods
        plain = pods.slots_of(nodes)
        self._fit(pods.slots.shape)
        if outside is not None:
            self._compare(outside)
        changes = pods.nodes.pod_changes
        stale = nodes[self._made[nodes] != changes[nodes]]
        if len(stale):
            rows = pods.slots[stale].astype(np.intp)
            columns = [np.where(rows > 0, -key, np.inf) for key in keys(rows)]
            order = np.lexsort((*reversed(columns),), axis=-1)
            self._slots[stale] = np.take_along_axis(rows, order, axis=-1)
            self._made[stale] = changes[stale]
        return self._slots[nodes, : plain.shape[1]]

    def _fit(self, shape: tuple[int, ...]) -> None:
        if self._slots.shape == shape:
            return
        larger = np.zeros(shape, np.int32)
        larger[: len(self._slots), : self._slots.shape[1]] = self._slots
        made = np.full(shape[0], -1, np.int64)
        made[: len(self._made)] = self._made
        self._slots, self._made = larger, made

    def _compare(self, outside: NDArray[np.int64]) -> None:
        """Nodes of pods whose number has changed are stale."""
        before = self._outside
        if len(before) != len(outside):
            before = np.zeros(len(outside), np.int64)
            common = min(len(outside), len(self._outside))
            before[:common] = self._outside[:common]
        node = self._pods.node[np.flatnonzero(before != outside)]
        node = node[node >= 0]
        self._made[node[node < len(self._made)]] = -1
        self._outside = outside


class SlotOrders:
    """Orders by what makes them; one that has not been asked for in a long time is dropped."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._orders: OrderedDict[Hashable, SlotOrder] = OrderedDict()

    def order(self, key: Hashable) -> SlotOrder:
        """The order that is kept under `key`."""
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = SlotOrder(self._pods)
            if len(self._orders) > _MOST_ORDERS:
                self._orders.popitem(last=False)
        else:
            self._orders.move_to_end(key)
        return found
