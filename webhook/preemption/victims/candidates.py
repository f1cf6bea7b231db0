"""The candidate nodes with their victims, as columns; few become objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.columns import Ints, Ints8, Mask, Rows
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.units import Units


class Victim(NamedTuple):
    """A pod that would go; `start_time` is in seconds, infinite before the start.

    `group` names the group that it goes with, empty for none.
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
    """These pods (rows, on nodes) as victims, each with one of the `groups`, or 0."""
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
    """A node that takes the preemptor once the victims, most important first, are gone.

    Some may be on other nodes: members of a group that goes whole, or pods in the way.
    """

    node: str
    victims: list[Victim]
    pdb_violations: int


class Candidates(NamedTuple):
    """The victims of all candidates: of `nodes[i]` `sizes[i]` rows of `pods` from `starts[i]`.

    They stand most important first; each candidate has at least one. `violating` are those beyond a
    budget, `violations` their number by candidate, as an extender says it if one was asked. `group` is
    by victim the id of the group that goes whole with it, else 0. By `units` some have their group's
    priority.
    """

    snapshot: Snapshot
    nodes: Rows
    starts: Rows
    sizes: Rows
    pods: Rows
    violating: Mask
    violations: Ints
    group: Rows
    units: Units | None = None

    @classmethod
    def on_nodes(
        cls,
        snapshot: Snapshot,
        nodes: Rows,
        pods: Rows,
        violating: Mask | None = None,
        *,
        units: Units | None = None,
        of: Rows | None = None,
    ) -> Candidates:
        """The candidates of these victims, node by node: nodes, rows, who is beyond a budget, if any.

        If a node is several candidates `of` tells them apart, by a number for each victim. With `units`
        the victims' groups go with them, whatever node the other members are on.
        """
        starts = np.flatnonzero(np.diff(nodes if of is None else of, prepend=-1) != 0)
        none = np.zeros(len(pods), np.intp)
        sizes = np.diff(np.append(starts, len(pods)))
        violating = none > 0 if violating is None else violating
        violations = np.add.reduceat(violating.astype(np.int64), starts) if len(starts) else none
        made = cls(snapshot, nodes[starts], starts, sizes, pods, violating, violations, group=none)
        if units is None or not units.member_of[pods].any():
            return made
        return made._with_groups(units)

    def _with_groups(self, units: Units) -> Candidates:
        """The same with all members of groups with a victim."""
        first = self.numbers * len(units.sizes)
        group = units.group[self.pods].astype(np.intp)
        if units.above is not None:  # whom a group can spare goes with it
            above = units.above[self.pods]
            goes_with = (above > 0) & np.isin(first + above, (first + group)[group > 0])
            group = np.where(goes_with, above, group)
        if not group.any():
            return self._replace(units=units)
        single = group == 0
        of, groups = np.divmod(np.unique((first + group)[~single]), len(units.sizes))
        members = {id_: self.snapshot.pods.grouped.members(id_) for id_ in set(groups.tolist())}
        whole = [members[id_] for id_ in groups.tolist()]
        counts = list(map(len, whole))
        of = np.concatenate([self.numbers[single], np.repeat(of, counts)])
        pods = np.concatenate([self.pods[single], *whole])
        group = np.concatenate([group[single], np.repeat(groups, counts)])
        order = np.lexsort((-units.priority[pods], of))
        sizes = np.bincount(of, minlength=len(self.nodes))
        return self._replace(
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            pods=pods[order],
            violating=np.zeros(len(pods), np.bool_),
            units=units,
            group=group[order],
        )

    @classmethod
    def of(cls, snapshot: Snapshot, given: Sequence[Candidate], units: Units | None = None) -> Candidates:
        """Candidates from objects known to the snapshot, each with a victim."""
        find, victims = snapshot.pods.find, chain(*(candidate.victims for candidate in given))
        pods = np.array([find(victim.namespace, victim.name) for victim in victims], np.intp)
        nodes = np.array([snapshot.nodes.find(candidate.node) for candidate in given], np.intp)
        of = np.repeat(np.arange(len(given)), [len(candidate.victims) for candidate in given])
        priority = (units or snapshot.pods).priority[pods]
        pods = pods[np.lexsort((snapshot.pods.start[pods], -priority, of))]
        made = cls.on_nodes(snapshot, nodes[of], pods, units=units, of=of)
        violations = [candidate.pdb_violations for candidate in given]
        return made._replace(violations=np.array(violations, np.int64))

    def only(self, chosen: Mask) -> Candidates:
        """The `chosen` candidates."""
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
            group=self.group[pods],
        )

    @property
    def numbers(self) -> Rows:
        """The number of the candidate of every victim."""
        return np.repeat(np.arange(len(self.nodes)), self.sizes)

    def victims_of(self, number: int) -> Rows:
        """The rows of the victims of one candidate."""
        start = self.starts[number]
        return self.pods[start : start + self.sizes[number]]

    def here(self) -> Mask:
        """Which victims are on the node of their candidate."""
        here: Mask = self.snapshot.pods.node[self.pods] == np.repeat(self.nodes, self.sizes)
        return here

    def elsewhere(self) -> Ints:
        """How many victims of each of one or more candidates are elsewhere."""
        return self.summed((~self.here()).astype(np.int64))

    def priority_of(self, rows: Rows) -> Ints:
        """The priorities that count for these pods: of one that goes whole its group's."""
        return (self.units or self.snapshot.pods).priority[rows]

    def summed(self, values: NDArray[Any]) -> Ints:
        """The sum of values by victim for each of one or more candidates."""
        sums: Ints = np.add.reduceat(values, self.starts)
        return sums

    def count_of(self, groups: NDArray[Any]) -> Ints:
        """How many groups each candidate has; `groups` are ids by victim, 0 for none."""
        pairs = np.unique(((self.numbers << 32) | groups)[groups > 0])
        return np.bincount(pairs >> 32, minlength=len(self.nodes)).astype(np.int64)

    def names(self, numbers: Sequence[int] | Rows) -> list[str]:
        """The nodes of the chosen candidates."""
        names = self.snapshot.nodes.names
        return [names[node] for node in self.nodes[numbers].tolist()]

    def objects(self, numbers: Sequence[int] | Rows) -> list[Candidate]:
        """The chosen ones; of equal victims those beyond a budget come first (kube-scheduler)."""
        chosen = np.asarray(numbers, np.intp)
        sizes = self.sizes[chosen]
        of, ends = np.repeat(np.arange(len(chosen)), sizes), np.cumsum(sizes)
        starts = ends - sizes
        place = np.arange(len(of)) + (self.starts[chosen] - starts)[of]
        rows, group, pods = self.pods[place], self.group[place], self.snapshot.pods
        keys: list[NDArray[Any]] = [~self.violating[place], pods.start[rows]]
        if self.units is not None:  # equal ones by name: the order of the input does not matter
            names = np.array(list(map(pods.key, rows.tolist())))
            groups = np.array([str(pods.groups.values[id_]) for id_ in group.tolist()])
            keys = [names, *keys, groups, -self.units.sizes[group]]
        order = np.lexsort((*keys, -self.priority_of(rows), of))
        victims = victims_in(self.snapshot, rows[order], group[order].tolist())
        parts = [victims[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        counts = self.violations[chosen].tolist()
        return list(map(Candidate, self.names(chosen), parts, counts))

    def by_name(self) -> list[Candidate]:
        """All candidates as objects, sorted by the node's name."""
        return self.objects(np.argsort(self.snapshot.nodes.alphabetical()[self.nodes]))


CandidateFilter = Callable[[Candidates], Ints8]
"""Says 0 of candidates that may be selected, else the caller's code for why not."""
