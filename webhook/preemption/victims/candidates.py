"""The candidate nodes with their victims, as columns; objects are made only for those that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["Candidate", "CandidateFilter", "Candidates", "Victim", "per_candidate"]

Ints = NDArray[np.int64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Victim(NamedTuple):
    """A pod that would go; `start_time` is in seconds, infinite for one that has not started."""

    namespace: str
    name: str
    uid: str
    priority: int
    start_time: float
    node: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Candidate(NamedTuple):
    """A node that the preemptor fits on once the victims, most important first, are gone."""

    node: str
    victims: list[Victim]
    pdb_violations: int


class Candidates(NamedTuple):
    """The victims of all candidates: `pods` (rows) of `nodes[i]` from `starts[i]` on, most important first.

    `violating` are the victims beyond a budget. `given` are the same candidates as objects if they came as such;
    how many budgets they violate is then what they say.
    """

    snapshot: Snapshot
    nodes: Index
    starts: Index
    pods: Index
    violating: Mask
    given: tuple[Candidate, ...] | None = None

    @classmethod
    def joined(cls, snapshot: Snapshot, parts: Sequence[Candidates]) -> Candidates:
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
    def of(cls, snapshot: Snapshot, given: Sequence[Candidate]) -> Candidates:
        """The columns of candidates given as objects; each has at least one victim, and the snapshot knows them all."""
        sizes = [len(candidate.victims) for candidate in given]
        keys = [(victim.namespace, victim.name) for candidate in given for victim in candidate.victims]
        pods = np.array([snapshot.pods.find(namespace, name) for namespace, name in keys], np.intp)
        group = np.repeat(np.arange(len(given)), sizes)
        return cls(
            snapshot,
            np.array([snapshot.nodes.find(candidate.node) for candidate in given], np.intp),
            np.cumsum([0, *sizes[:-1]])[: len(sizes)].astype(np.intp),
            pods[np.lexsort((snapshot.pods.start[pods], -snapshot.pods.priority[pods], group))],
            np.zeros(len(keys), np.bool_),
            tuple(given),
        )

    def only(self, chosen: Mask) -> Candidates:
        """Those of the candidates for which the mask, one entry a candidate, is true."""
        if chosen.all():
            return self
        lengths = self.lengths()
        pods = np.repeat(chosen, lengths)
        starts = np.cumsum([0, *lengths[chosen]])[:-1].astype(np.intp)
        given = self.given and tuple(one for one, keep in zip(self.given, chosen.tolist(), strict=True) if keep)
        return Candidates(self.snapshot, self.nodes[chosen], starts, self.pods[pods], self.violating[pods], given)

    def lengths(self) -> Index:
        """How many victims each candidate has."""
        return np.diff(np.append(self.starts, len(self.pods)))

    def violations(self) -> Ints:
        """How many victims of each candidate are beyond a budget."""
        if self.given is not None:
            return np.array([candidate.pdb_violations for candidate in self.given], np.int64)
        return per_candidate(self.violating.astype(np.int64), self.starts)

    def names(self, numbers: Sequence[int]) -> list[str]:
        """The nodes of the chosen candidates."""
        return [self.snapshot.nodes.names[node] for node in self.nodes[numbers].tolist()] if len(numbers) else []

    def objects(self, numbers: Sequence[int] | Index) -> list[Candidate]:
        """The chosen candidates; equally important victims beyond a budget come first, as in Kubernetes."""
        if self.given is not None:
            return [self.given[number] for number in numbers]
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

    def by_name(self) -> list[Candidate]:
        """All candidates as objects, sorted by the node's name; given ones in the order in which they were given."""
        if self.given is not None:
            return list(self.given)
        return self.objects(np.argsort(self.snapshot.nodes.alphabetical()[self.nodes]))

    def _victims(self, rows: Index, nodes: list[str]) -> list[Victim]:
        """The pods in these rows as victims on these nodes."""
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


def per_candidate(values: Ints, starts: Index) -> Ints:
    """Sums over each candidate's victims, which start at `starts`; every candidate has at least one."""
    if not len(starts):
        return np.zeros(0, np.int64)
    sums: Ints = np.add.reduceat(values, starts)
    return sums
