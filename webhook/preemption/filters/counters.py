"""What pods on a node use up, as counters that must not exceed a limit.

Whether the preemptor fits depends on a node's pods only through sums: millicores, bytes, pods,
pods that match a term in the node's topology domain. A counter has its value on every node
(`base`), the most at which the preemptor fits (`limit`), and what each pod adds (`share`).
So taking pods away and putting them back is arithmetic on rows. Required affinity counts
what is missing to one match. Of volumes and host ports the users are counted.

Counters, things in use and devices are *meters*. Their `rooms` are what is left on some nodes
without some pods: rows in layers of steps, with a column a node, 0 for none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.amounts import Amounts
from webhook.preemption.snapshot.columns import Ints, Ints32, Mask, Rows
from webhook.preemption.snapshot.pod_info import PodInfo, conflicts
from webhook.preemption.snapshot.snapshot import Snapshot

UNBOUNDED = 2**62
"""A limit that nothing reaches."""
Thing = tuple[int, Hashable]
"""The number of a kind, and what tells its things apart."""


class MeterRoom(Protocol):
    """What is left on some nodes."""

    def fits_beside(self, step: int | None, fits: Mask) -> None:
        """Clear `fits` where it does not fit beside the pods of this step, if any."""

    def put_back(self, stays: Mask) -> None:
        """Put the pods of the last step back on the nodes where they stay."""


class PlacedPods(NamedTuple):
    """The pods on known nodes, not in the rows `without`, and the `coming` nominated ones."""

    snapshot: Snapshot
    without: Rows
    coming: Rows

    def those(self, ids: Ints32, wanted: Mask) -> tuple[Rows, Rows]:
        """Rows and nodes of those whose id is wanted, coming ones last; `ids` are by pod row."""
        pods, nodes = self.snapshot.pods, self.snapshot.nodes
        coming = self.coming[wanted[ids[self.coming]]]
        rows = np.flatnonzero(wanted.take(ids[: pods.rows]))
        on = pods.node.take(rows)
        valid = np.append(nodes.valid[: nodes.rows], False)  # -1, no node, reads the last one
        placed = np.flatnonzero(valid.take(on) & ~np.isin(rows, self.without))
        on = np.append(on.take(placed), pods.nominated[coming])
        return np.append(rows.take(placed), coming), on.astype(np.intp)


Reach = tuple[str, NDArray[Any]]
"""The key of a topology, empty for all nodes, and each node's domain, below 0 for none."""


@dataclass(eq=False)
class Counter:
    """A number that pods use up. `share` is what they add on nodes.

    `beside` counts nominated pods, too. The preemptor fits up to the `limit`, and from
    `again` on, if given: then nominated pods may help it.
    """

    stage: str
    base: Ints
    limit: Ints
    share: Callable[[Rows, Rows], Ints]
    name: str = ""
    again: Ints | None = None
    reach: Reach | None = None
    """Where a pod counts; None for its own node only."""
    beside: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.beside = self.base

    def nominate(self, rows: Rows, nodes: Rows) -> None:
        """Count these pods where they are nominated."""
        self.beside = self.base.copy()
        np.add.at(self.beside, nodes, self.share(rows, nodes))

    def fails(self, *, nominated: bool) -> Mask:
        """The nodes where the preemptor does not fit."""
        used = self.beside if nominated else self.base
        over = used > self.limit
        return over if self.again is None else over & (used < self.again)

    def rooms(self, nodes: Rows, gone: Rows, on: Ints32 | None = None) -> list[_Slack]:
        """How much it may still grow beside the nominated pods, and without them.

        Pods on other nodes count within reach: `on` has the nodes of all pods by row.
        """
        if on is None or self.reach is None:
            added = self.share(gone, nodes)
        else:
            where, (_, domains) = on[gone].astype(np.intp), self.reach
            added = self.share(gone, where) * (domains[where] == domains[nodes])
        added = added[0] if len(added) == 1 else added.sum(axis=0)
        loads = [self.beside]
        if self.again is not None and self.beside is not self.base:
            loads.append(self.base)
        return [_Slack(self, load, nodes, added) for load in loads]


class _Slack:
    """How much a number may grow."""

    def __init__(self, counter: Counter, load: Ints, nodes: Rows, added: Ints) -> None:
        self._added = added
        used = load[nodes] - added.sum(axis=0)
        self._bounds = [counter.limit[nodes] - used]
        if counter.again is not None:
            self._bounds.append(counter.again[nodes] - used)

    def fits_beside(self, step: int | None, fits: Mask) -> None:
        self._more: Ints | int = 0 if step is None else self._added[step]
        within: Mask = self._more <= self._bounds[0]
        for again in self._bounds[1:]:
            within |= self._more >= again
        fits &= within

    def put_back(self, stays: Mask) -> None:
        more = self._more * stays
        for bound in self._bounds:
            np.subtract(bound, more, out=bound)


@dataclass(eq=False)
class ThingsInUse:
    """Things that count once on a node however many pods use them: ports, volumes.

    `limit` has a row a kind of things and a column a node, `own` how many of each the
    preemptor uses. A *pair* is a thing on a node, with its `cell` in the flattened `limit`;
    pair 0 is none. `users` is the number of pods on the node that use the thing; `beside`
    counts nominated ones, too. `pairs_at` has the pairs of each pod by row, in as many lines
    as the most of a pod. If it `forgets`, a thing is free once one of its users is gone.
    """

    stage: str
    limit: Ints
    own: Ints
    cell: Rows
    is_own: Mask
    users: Ints
    pairs_at: Rows
    forgets: bool = False
    beside: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.beside = self.users

    def nominate(self, rows: Rows, _nodes: Rows) -> None:
        """Count these pods as nominated to their nodes."""
        pairs = self.pairs_at[:, rows].ravel()
        self.beside = self.users + np.bincount(pairs, minlength=len(self.users))

    def used(self, pairs: Rows) -> Ints:
        """How many are used, and how many the preemptor has, too, by kind and node."""
        there = pairs[pairs > 0]
        cells, size = self.cell[there], self.limit.size
        shared = cells[self.is_own[there]]
        counts = [np.bincount(some, minlength=size) for some in (cells, shared)]
        return np.reshape(counts, (2, *self.limit.shape))

    def fits(self, used: Ints) -> Mask:
        """The nodes that take the preemptor's things beside those in use."""
        there, more = used[0], self.own[:, None] - used[1]
        fits: Mask = ((more == 0) | (there + more <= self.limit)).all(axis=0)
        return fits

    def fails(self, *, nominated: bool) -> Mask:
        """The nodes where a thing is one too many."""
        users = self.beside if nominated else self.users
        return ~self.fits(self.used(np.flatnonzero(users)))

    def rooms(self, nodes: Rows, gone: Rows) -> list[_Unused]:
        """What stays in use, beside the nominated pods and without: they may go elsewhere."""
        pairs = np.concatenate([line[gone] for line in self.pairs_at])
        fewer = np.bincount(pairs.ravel(), minlength=len(self.users))
        left = np.where(fewer > 0, 0, self.users) if self.forgets else self.users - fewer
        coming = self.beside - self.users
        loads = (left + coming, left) if coming.any() else (left,)
        return [_Unused(self, nodes, pairs, load > 0) for load in loads]


class _Unused:
    """Which pairs are in use on some nodes while pods come back.

    `pairs` has a layer a thing, a row a step and a column a node.
    """

    def __init__(self, things: ThingsInUse, nodes: Rows, pairs: Rows, in_use: Mask) -> None:
        self._things, self._nodes, self._pairs, self._in_use = things, nodes, pairs, in_use
        self._has_pairs = np.asarray(pairs.any(axis=(0, 2)))
        self._use(things.used(np.flatnonzero(in_use)))

    def _use(self, used: Ints) -> None:
        self._used, self._fits = used, self._things.fits(used)[self._nodes]

    def fits_beside(self, step: int | None, fits: Mask) -> None:
        self._new, fits_now = self._nodes[:0], self._fits
        if step is not None and self._has_pairs[step]:
            pairs = self._pairs[:, step] * fits
            self._new = np.unique(pairs[~self._in_use[pairs]])
            used = self._used + self._things.used(self._new)
            fits_now = self._things.fits(used)[self._nodes]
        fits &= fits_now

    def put_back(self, stays: Mask) -> None:
        if len(self._new):
            on_node = np.full(self._used.shape[2], False)
            on_node[self._nodes] = stays
            nodes = self._things.cell[self._new] % len(on_node)
            new = self._new[on_node[nodes]]
            self._in_use[new] = True
            self._use(self._used + self._things.used(new))


def things_in_use(
    stage: str,
    placed: PlacedPods,
    ids: Ints32,
    things: Mapping[int, Sequence[Thing]],
    own: Collection[Thing],
    *,
    limit: Ints,
) -> ThingsInUse:
    """What placed and nominated pods use where there is a limit: `things` are by id."""
    numbers: dict[Thing, int] = {}
    width = max([1, *map(len, things.values())])
    table = np.full((ids.max() + 1, width), -1)
    for id_, some in things.items():
        table[id_, : len(some)] = [numbers.setdefault(thing, len(numbers)) for thing in some]
    pods, count = placed.snapshot.pods, max(1, len(numbers))
    bounded = np.asarray((limit < UNBOUNDED).any(axis=0))
    rows, nodes = placed._replace(coming=pods.nominees()).those(ids, table[:, 0] >= 0)
    rows, nodes = rows[bounded[nodes]], nodes[bounded[nodes]]
    used = table[ids[rows]]
    codes = np.where(used < 0, -1, nodes[:, None] * count + used)
    known, pairs = np.unique(np.append(-1, codes), return_inverse=True)
    pairs = pairs.ravel()[1:].reshape(len(rows), width)
    pairs_at = np.zeros((width, len(ids)), np.intp)
    pairs_at[:, rows] = pairs.T
    node, thing = np.divmod(known, count)
    kind = np.array([*(kind for kind, _ in numbers), 0])[thing]
    return ThingsInUse(
        stage=stage,
        limit=limit,
        own=np.bincount([kind for kind, _ in own], minlength=len(limit)),
        cell=kind * limit.shape[1] + node,
        is_own=np.array([*(known in own for known in numbers), False])[thing],
        users=np.bincount(pairs[pods.node[rows] >= 0].ravel(), minlength=len(known)),
        pairs_at=pairs_at,
    )


def resource_counters(
    incoming: PodInfo, live: PlacedPods, wishes: Mapping[int, Amounts] | None = None
) -> list[Counter]:
    """The number of pods and each resource asked for, in Kubernetes' order.

    Those in the rows of `wishes` take so much less.
    """
    nodes, pods = live.snapshot.nodes, live.snapshot.pods
    without, count = live.without[pods.node[live.without] >= 0], nodes.rows

    def counter(name: str, used: Ints, limit: Ints, column: Ints | None = None) -> Counter:
        def share(rows: Rows, _nodes: Rows) -> Ints:
            return (rows > 0).astype(np.int64) if column is None else column.take(rows)

        base = used[:count]
        if len(without):
            base = base.copy()
            np.subtract.at(base, pods.node[without], share(without, without))
        return Counter("resources", base, limit, share, name)

    counters = [counter("", nodes.pod_count, nodes.pod_limit[:count] - 1)]
    always = [*nodes.resources][:3]
    named = [name for name in always if name in incoming.amounts]
    for name in (*named, *sorted(incoming.amounts.keys() - named)):
        row = nodes.resources.get(name)
        if row is None:  # no pod uses what no node has had
            used = allocatable = np.zeros(count, np.int64)
            column = np.zeros(len(pods.node), np.int64)
        else:
            used, column = nodes.used[row], pods.amounts[row]
            allocatable = nodes.allocatable[row, :count]
        if wishes:
            used, column = used.copy(), column.copy()
            for other, wish in wishes.items():
                column[other] -= wish.get(name, 0)
                used[pods.node[[other]]] -= wish.get(name, 0) * (pods.node[other] >= 0)
        counters.append(counter(name, used, allocatable - incoming.amounts[name], column))
    return counters


def growth_counters(incoming: PodInfo, live: PlacedPods) -> list[Counter]:
    """What a bound pod needs to grow in place, a counter a resource.

    Only its node is bounded, which counts what it wants already. The kubelet grants a resize
    beside what others were allotted or have, not beside what they only want
    (docs/kubernetes-behaviour.md K53): nobody goes for a neighbour's wish.
    """
    nodes, pods = live.snapshot.nodes, live.snapshot.pods
    node = nodes.find(incoming.pod.spec.node_name)
    own = pods.find(incoming.namespace, incoming.name)
    wishes = {row: wish for row, wish in pods.wishes.items() if row != own}
    counters = resource_counters(incoming, live, wishes)
    for counter in counters:
        limit = np.full(nodes.rows, UNBOUNDED)
        if node is not None and counter.name:
            limit[node] = counter.limit[node] + incoming.amounts[counter.name]
        counter.limit = limit
    return counters


def port_use(incoming: PodInfo, live: PlacedPods) -> ThingsInUse:
    """The taken ports that conflict with the preemptor's: its node may have none.

    To kube-scheduler a port of two pods is free once one is gone, under a policy without both.
    """
    snapshot, pods = live.snapshot, live.snapshot.pods
    taken = {
        id_: [(0, port) for port in ports if any(conflicts(own, port) for own in incoming.ports)]
        for id_, ports in pods.ports.used()
    }
    at_most = np.ones((1, snapshot.nodes.rows), np.int64)
    use = things_in_use("ports", live, pods.port_set, taken, [(0, None)], limit=at_most)
    use.forgets = not snapshot.under_policy
    return use
