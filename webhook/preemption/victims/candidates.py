"""The candidate nodes with their victims, as columns; objects are made only for those that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.snapshot import Snapshot

__all__ = ["Candidate", "CandidateFilter", "Candidates", "Victim"]

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
    """The victims of all candidates: of `nodes[i]` the `sizes[i]` rows of `pods` from `starts[i]` on.

    They stand most important first, and every candidate has at least one. `violating` are the victims beyond a budget,
    `violations` their number by candidate. `given` are the same candidates as objects if they came as such;
    `violations` are then what they say.
    """

    snapshot: Snapshot
    nodes: Index
    starts: Index
    sizes: Index
    pods: Index
    violating: Mask
    violations: Ints
    given: tuple[Candidate, ...] | None = None

    @classmethod
    def on_nodes(cls, snapshot: Snapshot, nodes: Index, pods: Index, violating: Mask) -> Candidates:
        """The candidates with these victims, node by node: of each its node, its row, whether it is beyond a budget."""
        starts = np.flatnonzero(np.diff(nodes, prepend=-1))
        sizes = np.diff(np.append(starts, len(pods)))
        violations = np.add.reduceat(violating.astype(np.int64), starts) if len(starts) else np.zeros(0, np.int64)
        return cls(snapshot, nodes[starts], starts, sizes, pods, violating, violations)

    @classmethod
    def of(cls, snapshot: Snapshot, given: Sequence[Candidate]) -> Candidates:
        """The columns of candidates given as objects; each has at least one victim, and the snapshot knows them all."""
        keys = [(victim.namespace, victim.name) for candidate in given for victim in candidate.victims]
        pods = np.array([snapshot.pods.find(namespace, name) for namespace, name in keys], np.intp)
        sizes = np.array([len(candidate.victims) for candidate in given], np.intp)
        group = np.repeat(np.arange(len(given)), sizes)
        return cls(
            snapshot=snapshot,
            nodes=np.array([snapshot.nodes.find(candidate.node) for candidate in given], np.intp),
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            pods=pods[np.lexsort((snapshot.pods.start[pods], -snapshot.pods.priority[pods], group))],
            violating=np.zeros(len(keys), np.bool_),
            violations=np.array([candidate.pdb_violations for candidate in given], np.int64),
            given=tuple(given),
        )

    def only(self, chosen: Mask) -> Candidates:
        """Those of the candidates for which the mask, one entry a candidate, is true."""
        if chosen.all():
            return self
        sizes, pods = self.sizes[chosen], np.repeat(chosen, self.sizes)
        return Candidates(
            snapshot=self.snapshot,
            nodes=self.nodes[chosen],
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            pods=self.pods[pods],
            violating=self.violating[pods],
            violations=self.violations[chosen],
            given=self.given and tuple(one for one, keep in zip(self.given, chosen.tolist(), strict=True) if keep),
        )

    def names(self, numbers: Sequence[int] | Index) -> list[str]:
        """The nodes of the chosen candidates."""
        return [self.snapshot.nodes.names[node] for node in self.nodes[numbers].tolist()] if len(numbers) else []

    def objects(self, numbers: Sequence[int] | Index) -> list[Candidate]:
        """The chosen candidates; equally important victims beyond a budget come first, as in Kubernetes."""
        if self.given is not None:
            return [self.given[number] for number in numbers]
        chosen = np.asarray(numbers, np.intp)
        sizes = self.sizes[chosen]
        ends = np.cumsum(sizes)
        group = np.repeat(np.arange(len(chosen)), sizes)
        span = np.arange(len(group)) + (self.starts[chosen] - ends + sizes)[group]
        pods, rows = self.snapshot.pods, self.pods[span]
        rows = rows[np.lexsort((~self.violating[span], pods.start[rows], -pods.priority[rows], group))]
        names, numbers = self.names(chosen), rows.tolist()
        columns = (
            [pods.namespaces[row] for row in numbers],
            [pods.names[row] for row in numbers],
            [pods.uids[row] for row in numbers],
            pods.priority[rows].tolist(),
            pods.start[rows].tolist(),
            [names[number] for number in group.tolist()],
        )
        victims = list(map(Victim._make, zip(*columns, strict=True)))
        starts, violations = (ends - sizes).tolist(), self.violations[chosen].tolist()
        return [
            Candidate(name, victims[start:end], count)
            for name, start, end, count in zip(names, starts, ends.tolist(), violations, strict=True)
        ]

    def by_name(self) -> list[Candidate]:
        """All candidates as objects, sorted by the node's name; given ones in the order in which they were given."""
        if self.given is not None:
            return list(self.given)
        return self.objects(np.argsort(self.snapshot.nodes.alphabetical()[self.nodes]))


CandidateFilter = Callable[[Candidates], NDArray[np.int8]]
"""Says of every candidate whether it may be selected: 0 if it may, else a code of the caller's for why not."""
