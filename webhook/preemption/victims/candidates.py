"""The candidate nodes with their victims, as columns; objects are made only for those that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.units import Units


class Victim(NamedTuple):
    """A pod that would go; `start_time` is in seconds, infinite for one that has not started.

    `group` names the group that it goes with; empty for a pod that goes by itself.
    """

    namespace: str
    name: str
    uid: str
    priority: int
    start_time: float
    node: str
    group: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def victims_in(snapshot: Snapshot, rows: Rows, groups: Sequence[int]) -> list[Victim]:
    """The pods in these rows, all of them on nodes, as victims; of each the id of the group that it goes with, or 0."""
    pods, places = snapshot.pods, rows.tolist()
    columns = (
        [pods.namespaces[row] for row in places],
        [pods.names[row] for row in places],
        [pods.uids[row] for row in places],
        pods.priority[rows].tolist(),
        pods.start[rows].tolist(),
        [snapshot.nodes.names[node] for node in pods.node[rows].tolist()],
        [str(pods.groups.values[group]) if group else "" for group in groups],
    )
    return list(map(Victim._make, zip(*columns, strict=True)))


class Candidate(NamedTuple):
    """A node that the preemptor fits on once the victims, most important first, are gone.

    Some of them may be on other nodes: members of a group that goes whole, or pods that stand in the way from there.
    """

    node: str
    victims: list[Victim]
    pdb_violations: int


class Candidates(NamedTuple):
    """The victims of all candidates: of `nodes[i]` the `sizes[i]` rows of `pods` from `starts[i]` on.

    They stand most important first, and every candidate has at least one. `violating` are the victims beyond a budget,
    `violations` their number by candidate. `given` are the same candidates as objects if they came as such;
    `violations` are then what they say. With `units` a candidate's victims on its own node stand for the groups that go
    with them: `group` has the id of each one's, 0 for a pod that goes by itself, and if there are any, `stands_for` how
    many pods: the first of a group for all of it, the others on the node for none.
    """

    snapshot: Snapshot
    nodes: Rows
    starts: Rows
    sizes: Rows
    pods: Rows
    violating: Mask
    violations: Ints
    given: tuple[Candidate, ...] | None = None
    units: Units | None = None
    group: Rows | None = None
    stands_for: Ints | None = None

    @classmethod
    def on_nodes(
        cls,
        snapshot: Snapshot,
        nodes: Rows,
        pods: Rows,
        violating: Mask,
        *,
        units: Units | None = None,
        leads: Mask | None = None,
        of: Rows | None = None,
    ) -> Candidates:
        """The candidates with these victims, node by node: of each its node, its row, whether it is beyond a budget.

        If a node is several candidates `of` tells them apart, by a number for each victim.

        With `units` it has to be known, too, which one of those that go together on a node `leads` the others.
        """
        starts = np.flatnonzero(np.diff(nodes if of is None else of, prepend=-1))
        sizes = np.diff(np.append(starts, len(pods)))
        violations = np.add.reduceat(violating.astype(np.int64), starts) if len(starts) else np.zeros(0, np.int64)
        made = cls(snapshot, nodes[starts], starts, sizes, pods, violating, violations)
        if units is None or leads is None or not units.member_of[pods].any():
            return made
        group = _groups_that_go(units, pods, sizes)
        all_of_it = np.where(leads & (units.group[pods] > 0), units.sizes[group], 0)
        return made._replace(
            units=units, group=group, stands_for=np.where(group > 0, all_of_it, 1) if group.any() else None
        )

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
        return self._replace(
            nodes=self.nodes[chosen],
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            pods=self.pods[pods],
            violating=self.violating[pods],
            violations=self.violations[chosen],
            given=self.given
            and tuple(candidate for candidate, keep in zip(self.given, chosen.tolist(), strict=True) if keep),
            group=None if self.group is None else self.group[pods],
            stands_for=None if self.stands_for is None else self.stands_for[pods],
        )

    def all_victims(self) -> tuple[Rows, Rows]:
        """Every victim on whatever node: the number of its candidate, and its row."""
        return self._victims(np.arange(len(self.nodes)))[:2]

    def victims_of(self, number: int) -> Rows:
        """The rows of the victims of one candidate, on whatever node."""
        return self._victims(np.array([number]))[1]

    def here(self) -> Mask:
        """Which of the `pods` are on the node of their candidate."""
        here: Mask = self.snapshot.pods.node[self.pods] == np.repeat(self.nodes, self.sizes)
        return here

    def elsewhere(self) -> Ints:
        """How many of the victims of each candidate are on other nodes; there is at least one candidate."""
        return self.victim_counts() - np.add.reduceat(self.here().astype(np.int64), self.starts)

    def _victims(self, numbers: Rows) -> tuple[Rows, Rows, Rows, Mask]:
        """Every victim of these candidates, on whatever node: the place of its candidate among these, and its row.

        Then the id of the group that goes with it, 0 for a pod that goes by itself, and whether it is beyond a budget.
        """
        sizes = self.sizes[numbers]
        of = np.repeat(np.arange(len(sizes)), sizes)
        span = np.arange(len(of)) + (self.starts[numbers] - np.cumsum(sizes) + sizes)[of]
        here, violating = self.pods[span], self.violating[span]
        if self.group is None:
            return of, here, np.zeros(len(of), np.intp), violating
        group = self.group[span]
        single = group == 0
        pairs = np.unique(np.stack([of[~single], group[~single]]), axis=1)
        members = [self.snapshot.pods.grouped.members(id_) for id_ in pairs[1].tolist()]
        counts = np.array([len(rows) for rows in members], np.intp)
        whole = np.concatenate([of[single], np.repeat(pairs[0], counts)])
        rows = np.concatenate([here[single], *members])
        count = self.snapshot.pods.rows
        beyond = np.isin(whole * count + rows, (of * count + here)[violating])
        return whole, rows, np.concatenate([group[single], np.repeat(pairs[1], counts)]), beyond

    def priority_of(self, rows: Rows) -> Ints:
        """The priorities that count for these pods: that of its group for a pod of one that goes whole."""
        return self.snapshot.pods.priority[rows] if self.units is None else self.units.priority[rows]

    def victim_counts(self) -> Rows:
        """How many pods go for each candidate, on whatever node."""
        return self.sizes if self.stands_for is None else np.add.reduceat(self.stands_for, self.starts)

    def groups(self) -> Ints | None:
        """How many groups go whole for each candidate; None if none goes for any."""
        if self.stands_for is None or self.group is None:
            return None
        counts: Ints = np.add.reduceat(((self.group > 0) & (self.stands_for > 0)).astype(np.int64), self.starts)
        return counts

    def priority_sums(self, raised: int) -> Ints:
        """The sum of the victims' priorities for each candidate, each of them `raised` by as much."""
        each = self.priority_of(self.pods) + raised
        sums: Ints = np.add.reduceat(each if self.stands_for is None else each * self.stands_for, self.starts)
        return sums

    def names(self, numbers: Sequence[int] | Rows) -> list[str]:
        """The nodes of the chosen candidates."""
        return [self.snapshot.nodes.names[node] for node in self.nodes[numbers].tolist()] if len(numbers) else []

    def objects(self, numbers: Sequence[int] | Rows) -> list[Candidate]:
        """The chosen candidates; equally important victims beyond a budget come first, as in Kubernetes."""
        if self.given is not None:
            return [self.given[number] for number in numbers]
        chosen, pods = np.asarray(numbers, np.intp), self.snapshot.pods
        of, rows, group, beyond = self._victims(chosen)
        keys: list[NDArray[Any]] = [~beyond, pods.start[rows]]
        if self.units is not None:
            keys = [rows, *keys, group, -self.units.sizes[group]]
        order = np.lexsort((*keys, -self.priority_of(rows), of))
        victims = victims_in(self.snapshot, rows[order], group[order].tolist())
        ends = np.cumsum(np.bincount(of, minlength=len(chosen))).tolist()
        return [
            Candidate(name, victims[start:end], count)
            for name, start, end, count in zip(
                self.names(chosen), [0, *ends], ends, self.violations[chosen].tolist(), strict=False
            )
        ]

    def by_name(self) -> list[Candidate]:
        """All candidates as objects, sorted by the node's name; given ones in the order in which they were given."""
        if self.given is not None:
            return list(self.given)
        return self.objects(np.argsort(self.snapshot.nodes.alphabetical()[self.nodes]))


def _groups_that_go(units: Units, pods: Rows, sizes: Rows) -> Rows:
    """The id of each victim's group if that goes; who could be spared goes with it as well."""
    group = units.group[pods].astype(np.intp)
    if units.above is None:
        return group
    above, first = units.above[pods], np.repeat(np.arange(len(sizes)) * len(units.sizes), sizes)
    goes_with = (above > 0) & np.isin(first + above, (first + group)[group > 0])
    return np.where(goes_with, above, group)


CandidateFilter = Callable[[Candidates], NDArray[np.int8]]
"""Says of every candidate whether it may be selected: 0 if it may, else a code of the caller's for why not."""
