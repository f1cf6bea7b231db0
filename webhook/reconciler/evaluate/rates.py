"""Which candidates the rates of a policy allow, given what recent evictions have left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import workload_name
from webhook.policy.model.limits import Limits
from webhook.preemption.snapshot.pod_view import Identity, Owner
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evictions.log import AnyRate, Remaining, label, rates_of
from webhook.reconciler.state.state import State

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

NOT_NOW = 1
"""Rejected because of the recent evictions: it may stand once they have left their windows."""
_NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster", 5: "perWorkload", 6: "perNamespace", 7: "perLabel"}
"""Rejected for good: these victims are more than the rate allows in a whole window. Other filters have other codes."""


class _Counted(NamedTuple):
    """How a rate counts pods: by its code, in a `group` each, of which so many are `left`; -1 for none."""

    code: int
    rate: AnyRate
    group: Rows
    left: Ints


class Rates:
    """Which candidates the rates of a policy allow, for all of them at once, given what recent evictions have left.

    A decision selects the best candidate *within* the rates, so that one whose victims are too many for a rate does
    not keep the preemptor from the next best. Victims that are leaving anyway are not asked, so they do not count.
    """

    CODES = frozenset({NOT_NOW, *_NEVER})
    """The codes by which it rejects candidates."""

    def __init__(self, state: State, limits: Limits, left: Remaining) -> None:
        self._state, self._limits, self.left = state, limits, left

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate within the rates, else why it is rejected."""
        codes = np.zeros(len(candidates.nodes), np.int8)
        candidate, row = candidates.all_victims()
        asked = ~self._state.snapshot.pods.terminating[row]
        candidate, row = candidate[asked], row[asked]
        for counted in self._counted(row):
            place = _places(candidate, counted.group)
            counts = counted.group >= 0
            codes[candidate[counts & (place >= counted.left) & (codes[candidate] == 0)]] = NOT_NOW
            beyond = counts & (place >= counted.rate.evictions)
            codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = counted.code
        return codes

    def beyond(
        self, rows: Rows, preference: NDArray[np.float64], *, at_once: bool = False, together: bool = False
    ) -> Rows:
        """Of these pods those that stay if as many go on each node as the rates leave now. The preferred ones go first.

        With `at_once` as many go as the rates ever allow, whatever has gone before. With `together` as many go on all
        nodes together; `perCluster` is left out then, since other pods would be no fewer.
        """
        pods = self._state.snapshot.pods
        kept = rows[~pods.terminating[rows]]
        kept = kept[np.argsort(-preference[~pods.terminating[rows]], kind="stable")]
        asked = kept
        one_place = np.zeros(pods.rows, np.intp) if together else pods.node
        for counted in self._counted(rows):  # what lies within another group comes first
            if together and counted.rate is self._limits.per_cluster:
                continue
            of_row = np.full(pods.rows, -1, np.intp)
            of_row[rows] = counted.group
            left = np.zeros(pods.rows, np.int64)
            left[rows] = counted.rate.evictions if at_once else counted.left
            place = _places(one_place[kept].astype(np.intp), of_row[kept])
            kept = kept[(of_row[kept] < 0) | (place < left[kept])]
        return np.setdiff1d(asked, kept)

    def _counted(self, row: Rows) -> Iterator[_Counted]:
        """How each rate counts the pods in these rows."""
        pods, nodes = self._state.snapshot.pods, self._state.snapshot.nodes
        codes = {name: code for code, name in _NEVER.items()}
        for field, kind, rate in rates_of(self._limits):
            left = self.left.left[field]
            if rate is self._limits.per_node:
                of_node = np.full(nodes.rows, rate.evictions, np.int64)
                for name, number in left.items():
                    if (at := nodes.find(name)) is not None:
                        of_node[at] = number
                node = pods.node[row].astype(np.intp)  # of a group that goes whole some are on other nodes
                yield _Counted(codes[field], rate, node, of_node[node])
            elif rate is self._limits.per_cluster:
                all_left = left.get("", rate.evictions)
                yield _Counted(codes[field], rate, np.zeros(len(row), np.intp), np.full(len(row), all_left))
            else:
                yield self._by_name(codes[field], rate, row, left, partial(_name, kind))

    def _by_name(
        self,
        code: int,
        rate: AnyRate,
        row: Rows,
        used: Mapping[str, int],
        name_of: Callable[[Owner, Identity], str | None],
    ) -> _Counted:
        """A rate that counts pods by a name; those without one do not count. `used` is what is left by name.

        Pods that have controller and labels in common have the name in common: it is worked out once for them.
        """
        pods = self._state.snapshot.pods
        kinds, kind_of = np.unique(pods.owner[row].astype(np.int64) << 32 | pods.identity[row], return_inverse=True)
        known: dict[str, int] = {}
        numbers = np.zeros(len(kinds), np.intp)
        for at, kind in enumerate(kinds.tolist()):
            owner, identity = pods.owners.values[kind >> 32], pods.identities.values[kind & 0xFFFFFFFF]
            assert owner is not None
            assert identity is not None
            name = name_of(owner, identity)
            numbers[at] = -1 if name is None else known.setdefault(name, len(known))
        left = np.array([*(used.get(name, rate.evictions) for name in known), 0], np.int64)
        number = numbers[kind_of]
        return _Counted(code, rate, number, left[number])


def _places(of: Rows, group: Rows) -> Rows:
    """How many pods of the same candidate or node, and of the same group, come before each pod."""
    both = of * (group.max(initial=0) + 2) + group + 1
    order = np.argsort(both, kind="stable")
    firsts = np.flatnonzero(np.diff(both[order], prepend=-1))
    places = np.empty(len(both), np.intp)
    places[order] = np.arange(len(both)) - np.repeat(firsts, np.diff(np.append(firsts, len(both))))
    return places


def _name(kind: str, owner: Owner, identity: Identity) -> str | None:
    """The name of this kind in which a rate counts such a pod; None if it counts in none."""
    if kind == "namespace":
        return identity.namespace
    if kind in ("owner", "workload"):
        return workload_name(owner.kind, owner.name, identity.namespace, identity.labels) or None
    return next((value for key, value in identity.labels_at_creation.items() if label(key) == kind), None)


def too_large(rejections: frozenset[int]) -> str:
    """Which rates no candidate can ever keep, if all of them are rejected by these codes; empty if one may yet."""
    names = [name for code, name in _NEVER.items() if code in rejections]
    return " and ".join(names) if rejections <= _NEVER.keys() else ""
