"""The candidate nodes with their victims, as columns; objects are made only for those that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.plan import Candidate, Victim
from webhook.preemption.ranking import PRIORITY_OFFSET, Keys
from webhook.preemption.snapshot import Snapshot

__all__ = ["Admission", "Plans", "per_node"]

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Plans(NamedTuple):
    """The victims of all candidates: `pods` (rows) of `nodes[i]` from `starts[i]` on, most important first."""

    snapshot: Snapshot
    nodes: Index
    starts: Index
    pods: Index
    violating: Mask

    @classmethod
    def joined(cls, snapshot: Snapshot, parts: list[Plans]) -> Plans:
        """The candidates of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.cumsum([0, *(len(part.pods) for part in parts)])
        return cls(
            snapshot,
            np.concatenate([np.zeros(0, np.intp), *(part.nodes for part in parts)]),
            np.concatenate(
                [np.zeros(0, np.intp), *(part.starts + at for part, at in zip(parts, lengths, strict=False))]
            ),
            np.concatenate([np.zeros(0, np.intp), *(part.pods for part in parts)]),
            np.concatenate([np.zeros(0, np.bool_), *(part.violating for part in parts)]),
        )

    @classmethod
    def of(cls, snapshot: Snapshot, candidates: Sequence[Candidate]) -> Plans:
        """The columns of candidates given as objects; each has at least one victim, and the snapshot knows them all."""
        sizes = [len(candidate.victims) for candidate in candidates]
        keys = [(victim.namespace, victim.name) for candidate in candidates for victim in candidate.victims]
        return cls(
            snapshot,
            np.array([snapshot.nodes.find(candidate.node) for candidate in candidates], np.intp),
            np.cumsum([0, *sizes[:-1]])[: len(sizes)].astype(np.intp),
            np.array([snapshot.pods.find(namespace, name) for namespace, name in keys], np.intp),
            np.zeros(len(keys), np.bool_),
        )

    def only(self, standing: Mask) -> Plans:
        """Those of the candidates for which the mask, one entry a candidate, is true."""
        if standing.all():
            return self
        lengths = self.lengths()
        pods = np.repeat(standing, lengths)
        starts = np.cumsum([0, *lengths[standing]])[:-1].astype(np.intp)
        return Plans(self.snapshot, self.nodes[standing], starts, self.pods[pods], self.violating[pods])

    def lengths(self) -> Index:
        """How many victims each candidate has."""
        return np.diff(np.append(self.starts, len(self.pods)))

    def keys(self) -> Keys:
        """What the candidates are compared by."""
        pods = self.snapshot.pods
        first = self.pods[self.starts]
        return Keys(
            violations=per_node(self.violating.astype(np.int64), self.starts),
            highest_priority=pods.priority[first],
            priority_sum=per_node(pods.priority[self.pods] + PRIORITY_OFFSET, self.starts),
            victims=self.lengths(),
            earliest_start=pods.start[first],
            name=self.snapshot.nodes.alphabetical()[self.nodes],
        )

    def latest(self, ends: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest of `ends`, which is by pod row, among each candidate's victims."""
        if not len(self.starts):
            return np.zeros(0, np.float64)
        largest: NDArray[np.float64] = np.maximum.reduceat(ends[self.pods], self.starts)
        return largest

    def candidate(self, number: int) -> Candidate:
        """One candidate with its victims; equally important ones beyond a budget come first, as in Kubernetes."""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.pods)
        span = slice(int(self.starts[number]), int(end))
        rows, violating = self.pods[span].tolist(), self.violating[span].tolist()
        pods = self.snapshot.pods
        order = sorted(range(len(rows)), key=lambda i: (-pods.priority[rows[i]], pods.start[rows[i]], not violating[i]))
        node = self.snapshot.nodes.names[self.nodes[number]]
        return Candidate(node, [_victim(self.snapshot, rows[i], node) for i in order], sum(violating))


Admission = Callable[[Plans], NDArray[np.int8]]
"""Says of every candidate whether it may be selected: 0 where it may, else a code of the caller's for why not."""


def per_node(values: Ints, starts: Index) -> Ints:
    """Sums over each node's pods, which start at `starts`; every node has at least one."""
    if not len(starts):
        return np.zeros(0, np.int64)
    sums: Ints = np.add.reduceat(values, starts)
    return sums


def _victim(snapshot: Snapshot, row: int, node: str) -> Victim:
    pods = snapshot.pods
    return Victim(
        namespace=pods.namespaces[row],
        name=pods.names[row],
        uid=pods.uids[row],
        priority=int(pods.priority[row]),
        start_time=float(pods.start[row]),
        node=node,
    )
