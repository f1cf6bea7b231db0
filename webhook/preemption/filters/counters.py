"""Everything that pods on a node use up, as counters that must not exceed a limit.

Whether the preemptor fits depends on the pods of a node only through numbers that each pod adds to: millicores and
bytes, the number of pods, pods that match a term in the node's topology domain, and so on. So every counter is a
row of `base` (its value on every node now), a row of `limit` (the most at which the preemptor still fits) and
`share(pods)` (what each pod adds on its node). Taking pods away and putting them back is then arithmetic on whole
rows. Taken host ports are no counter but a set of bits per node (as in kube-scheduler, where removing one of two pods
with the same port frees it). Required affinity must have at least one match: it counts what is missing to that.

Counters, ports, the limits of volumes, and devices are *meters*. The `rooms` of each are what is left on some nodes
once pods are gone. These are given by row in layers of steps, with a column a node, 0 for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.amounts import Amounts
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.pod_info import HostPort, PodInfo, conflicts
from webhook.preemption.snapshot.snapshot import Snapshot

UNBOUNDED = 2**62
"""A limit that nothing reaches."""
_WORD = 63
"""Bits of an int64 that can stand for a port."""


class MeterRoom(Protocol):
    """What is left of something on some nodes."""

    def fits_beside(self, step: int, back: Mask, fits: Mask) -> None:
        """Take out of `fits` the nodes on which it does not fit beside those of the step that are `back`, too."""

    def put_back(self, stays: Mask) -> None:
        """Let those pods be there again on the nodes where they stay."""


class PlacedPods:
    """The pods on known nodes, those in the rows `without` left out; looked up only if a filter asks for them.

    Those in the rows `coming` count where they are nominated.
    """

    def __init__(self, snapshot: Snapshot, without: Rows, coming: Rows) -> None:
        self._snapshot = snapshot
        self._without = without
        self._coming = coming

    @cached_property
    def rows(self) -> Rows:
        """The pods' rows."""
        nodes = self._snapshot.nodes
        on = self._snapshot.pods.node[: self._snapshot.pods.rows]
        alive = np.append(nodes.valid[: nodes.rows], False)[on]  # -1, no node, reads the last one
        alive[self._without] = False
        return np.append(np.flatnonzero(alive), self._coming)

    @cached_property
    def nodes(self) -> Rows:
        """The rows of the nodes they are on."""
        pods, placed = self._snapshot.pods, self.rows[: len(self.rows) - len(self._coming)]
        return np.append(pods.node[placed], pods.nominated[self._coming]).astype(np.intp)


Reach = tuple[str, NDArray[Any]]
"""On which nodes a pod counts: the key of a topology, empty for all nodes, and each node's domain, below 0 for none."""


@dataclass(eq=False)
class Counter:
    """One thing pods use up, as a number; `share` gives what pods add on nodes, `beside` counts the nominated ones.

    The preemptor fits up to the `limit`, and `again` from another number on if there is one: then nominated pods may
    stand in its favour, and it has to fit without them, too.
    """

    stage: str
    base: Ints
    limit: Ints
    share: Callable[[Rows, Rows], Ints]
    name: str = ""
    again: Ints | None = None
    reach: Reach | None = None
    """None if a pod counts on its own node alone."""
    beside: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.beside = self.base

    def nominate(self, rows: Rows, nodes: Rows) -> None:
        """Count these pods as nominated to these nodes."""
        self.beside = self.base.copy()
        np.add.at(self.beside, nodes, self.share(rows, nodes))

    def fails(self, *, nominated: bool) -> Mask:
        """The nodes on which the preemptor does not fit."""
        used = self.beside if nominated else self.base
        return used > self.limit if self.again is None else (used > self.limit) & (used < self.again)

    def rooms(self, nodes: Rows, gone: Rows, on: NDArray[np.int32] | None = None) -> list[_Slack]:
        """How much it may still grow beside the nominated pods, and without them.

        If pods are on other nodes, too, `on` has those of all pods by row; such a pod counts within reach.
        """
        if on is None or self.reach is None:
            added = self.share(gone, nodes)
        else:
            where, (_, domains) = on[gone].astype(np.intp), self.reach
            added = self.share(gone, where) * (domains[where] == domains[nodes])
        both = self.again is not None and self.beside is not self.base
        loads = (self.beside, self.base) if both else (self.beside,)
        return [_Slack(self, load, nodes, added[0] if len(added) == 1 else added.sum(axis=0)) for load in loads]


class _Slack:
    """By how much a number may grow."""

    def __init__(self, counter: Counter, load: Ints, nodes: Rows, added: Ints) -> None:
        self._added, used = added, load[nodes] - added.sum(axis=0)
        self._bounds = [bound[nodes] - used for bound in (counter.limit, counter.again) if bound is not None]

    def fits_beside(self, step: int, back: Mask, fits: Mask) -> None:
        self._more = self._added[step] * back
        within: Mask = self._more <= self._bounds[0]
        for again in self._bounds[1:]:
            within |= self._more >= again
        fits &= within

    def put_back(self, stays: Mask) -> None:
        for bound in self._bounds:
            np.subtract(bound, self._more, out=bound, where=stays)


@dataclass(eq=False)
class PortUsage:
    """Taken host ports that conflict with the preemptor's, as bits of one or more words; the words are the first axis.

    `base` has those of every node, `reserved` those that nominated pods will take, `bits` gives those of pods by row.
    """

    stage = "ports"
    base: Ints
    bits: Callable[[Rows], Ints]
    reserved: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.reserved = np.zeros_like(self.base)

    def nominate(self, rows: Rows, nodes: Rows) -> None:
        """Count these pods as nominated to these nodes."""
        for word, bits in zip(self.reserved, self.bits(rows), strict=True):
            np.bitwise_or.at(word, nodes, bits)

    def fails(self, *, nominated: bool) -> Mask:
        """The nodes on which a port is taken."""
        taken = self.base | self.reserved if nominated else self.base
        failing: Mask = np.bitwise_or.reduce(taken) != 0
        return failing

    def rooms(self, nodes: Rows, gone: Rows) -> list[_Ports]:
        """The ports that stay taken."""
        return [_Ports(self, nodes, np.bitwise_or.reduce(self.bits(gone), axis=1))]


class _Ports:
    def __init__(self, ports: PortUsage, nodes: Rows, bits: Ints) -> None:
        self._bits = bits
        self._taken = ports.base[:, nodes] & ~np.bitwise_or.reduce(bits, axis=1)
        self._reserved = ports.reserved[:, nodes]

    def fits_beside(self, step: int, back: Mask, fits: Mask) -> None:
        self._more = self._bits[:, step] * back
        fits &= ~(self._taken | self._reserved | self._more).any(axis=0)

    def put_back(self, stays: Mask) -> None:
        self._taken = np.where(stays, self._taken | self._more, self._taken & ~self._more)


def resource_counters(
    snapshot: Snapshot, incoming: PodInfo, without: Rows, wishes: Mapping[int, Amounts] | None = None
) -> list[Counter]:
    """The number of pods and each resource asked for, in the order in which Kubernetes names them.

    The pods in the rows `without`, all of them on nodes, are gone. Those in the rows of `wishes` take so much less.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    count = nodes.rows

    def counter(name: str, used: Ints, limit: Ints, column: Ints | None = None) -> Counter:
        def share(rows: Rows, _nodes: Rows) -> Ints:
            return (rows > 0).astype(np.int64) if column is None else column[rows]

        base = used[:count]
        if len(without):
            base = base.copy()
            np.subtract.at(base, pods.node[without], share(without, without))
        return Counter("resources", base, limit, share, name)

    counters = [counter("", nodes.pod_count, nodes.pod_limit[:count] - 1)]
    always = [*nodes.resources][:3]
    for name in (*(name for name in always if name in incoming.amounts), *sorted(incoming.amounts.keys() - always)):
        row = nodes.resources.get(name)
        if row is None:  # no pod uses what no node has had
            used = allocatable = np.zeros(count, np.int64)
            column = np.zeros(len(pods.node), np.int64)
        else:
            used, allocatable, column = nodes.used[row], nodes.allocatable[row, :count], pods.amounts[row]
        if wishes:
            used, column = used.copy(), column.copy()
            for other, wish in wishes.items():
                column[other] -= wish.get(name, 0)
                used[pods.node[[other]]] -= wish.get(name, 0) * (pods.node[other] >= 0)
        counters.append(counter(name, used, allocatable - incoming.amounts[name], column))
    return counters


def growth_counters(snapshot: Snapshot, incoming: PodInfo, without: Rows) -> list[Counter]:
    """A counter for each resource that the pod asks for, as if the pods in the rows `without` were gone.

    It is bound and wants to grow in place. What it wants is counted on its node already; only there is anything
    bounded. The kubelet grants a resize if the pod fits with what it wants now beside what the others were allotted or
    have. What others want and have not got does not count there (docs/kubernetes-behaviour.md K53): nobody goes for a
    neighbour's wish.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    node, own = nodes.find(incoming.pod.spec.node_name), pods.find(incoming.namespace, incoming.name)
    wishes = {row: wish for row, wish in pods.wishes.items() if row != own}
    counters = resource_counters(snapshot, incoming, without[pods.node[without] >= 0], wishes)
    for counter in counters:
        limit = np.full(nodes.rows, UNBOUNDED)
        if node is not None and counter.name:
            limit[node] = counter.limit[node] + incoming.amounts[counter.name]
        counter.limit = limit
    return counters


def port_bits(snapshot: Snapshot, incoming: PodInfo, live: PlacedPods) -> PortUsage:
    """The taken ports that conflict with the preemptor's."""
    pods = snapshot.pods
    of_set = {
        identity: conflicting
        for identity, taken in pods.ports.used()
        if (conflicting := [port for port in taken if any(conflicts(own, port) for own in incoming.ports)])
    }
    bit_of: dict[HostPort, int] = {}
    for port in (port for conflicting in of_set.values() for port in conflicting):
        bit_of.setdefault(port, len(bit_of))
    masks = np.zeros((1 + len(bit_of) // _WORD, len(pods.ports.values)), np.int64)
    for identity, conflicting in of_set.items():
        for port in conflicting:
            word, bit = divmod(bit_of[port], _WORD)
            masks[word, identity] |= 1 << bit
    in_conflict: Mask = np.bitwise_or.reduce(masks) != 0
    users = np.flatnonzero(in_conflict[pods.port_set[live.rows]])
    sets, nodes = pods.port_set[live.rows[users]], live.nodes[users]
    base = np.zeros((len(masks), snapshot.nodes.rows), np.int64)
    for row, mask in zip(base, masks, strict=True):
        np.bitwise_or.at(row, nodes, mask[sets])
    return PortUsage(base, lambda rows: masks[:, pods.port_set[rows]])
