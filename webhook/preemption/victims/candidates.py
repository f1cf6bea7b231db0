"""The candidate nodes with their victims, as columns; objects are made only for those that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.ranking import PRIORITY_OFFSET, Keys
from webhook.preemption.result import Candidate, Victim
from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["CandidateFilter", "Candidates", "per_node"]

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Candidates(NamedTuple):
    """The victims of all candidates: `pods` (rows) of `nodes[i]` from `starts[i]` on, most important first."""

    snapshot: Snapshot
    nodes: Index
    starts: Index
    pods: Index
    violating: Mask

    @classmethod
    def joined(cls, snapshot: Snapshot, parts: list[Candidates]) -> Candidates:
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
    def of(cls, snapshot: Snapshot, candidates: Sequence[Candidate]) -> Candidates:
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

    def only(self, standing: Mask) -> Candidates:
        """Those of the candidates for which the mask, one entry a candidate, is true."""
        if standing.all():
            return self
        lengths = self.lengths()
        pods = np.repeat(standing, lengths)
        starts = np.cumsum([0, *lengths[standing]])[:-1].astype(np.intp)
        return Candidates(self.snapshot, self.nodes[standing], starts, self.pods[pods], self.violating[pods])

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

    def candidates(self, numbers: Sequence[int] | Index) -> list[Candidate]:
        """The chosen candidates; equally important victims beyond a budget come first, as in Kubernetes."""
        chosen = np.asarray(numbers, np.intp)
        lengths = self.lengths()[chosen]
        ends = np.cumsum(lengths)
        group = np.repeat(np.arange(len(chosen)), lengths)
        span = np.arange(len(group)) + (self.starts[chosen] - ends + lengths)[group]
        rows, violating, pods = self.pods[span], self.violating[span], self.snapshot.pods
        order = np.lexsort((~violating, pods.start[rows], -pods.priority[rows], group))
        names = [self.snapshot.nodes.names[node] for node in self.nodes[chosen].tolist()]
        victims = self._victims(rows[order], [names[number] for number in group.tolist()])
        beyond = np.bincount(group[violating], minlength=len(chosen)).tolist()
        starts = [0, *ends.tolist()]
        return [
            Candidate(name, victims[start:end], count)
            for name, start, end, count in zip(names, starts, starts[1:], beyond, strict=False)
        ]

    def in_order_of_name(self) -> list[Candidate]:
        """All candidates, sorted by the node's name."""
        return self.candidates(np.argsort(self.snapshot.nodes.alphabetical()[self.nodes]))

    def _victims(self, rows: Index, nodes: list[str]) -> list[Victim]:
        pods, numbers = self.snapshot.pods, rows.tolist()
        columns = (
            [pods.namespaces[row] for row in numbers],
            [pods.names[row] for row in numbers],
            [pods.uids[row] for row in numbers],
            pods.priority[rows].tolist(),
            pods.start[rows].tolist(),
            nodes,
        )
        return list(map(Victim._make, zip(*columns, strict=True)))


CandidateFilter = Callable[[Candidates], NDArray[np.int8]]
"""Says of every candidate whether it may be selected: 0 if it may, else a code of the caller's for why not."""


def per_node(values: Ints, starts: Index) -> Ints:
    """Sums over each node's pods, which start at `starts`; every node has at least one."""
    if not len(starts):
        return np.zeros(0, np.int64)
    sums: Ints = np.add.reduceat(values, starts)
    return sums
