"""Which candidates the policy's rates allow, for all of them at once.

A decision selects the best candidate *within* the rates, so that one whose victims are too many for a rate does not
keep the preemptor from the next best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import workload_name
from webhook.policy.model import Limits, Rate
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evaluate.eviction_limiter import Remaining
from webhook.reconciler.state.state import State

__all__ = ["NOT_NOW", "Rates", "too_large"]

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

NOT_NOW = 1
"""Barred because of the recent evictions: it may stand once they have left their windows."""
_NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster"}
"""Barred permanently: these victims are more than the rate allows in a whole window."""


class _Counted(NamedTuple):
    """What a rate counts, an entry a victim: its candidate, its row, the group it counts in, what is left for that."""

    candidate: Rows
    row: Rows
    group: Rows
    left: Ints


class Rates:
    """An admission of candidates by the rates of a policy, given what the recent evictions have left of them.

    Victims that are leaving anyway are not asked, so they do not count. `surplus` collects, of the candidates that are
    barred permanently, the victims beyond the rate, the least important ones: with these excluded, others may do.
    """

    def __init__(self, state: State, limits: Limits, left: Remaining) -> None:
        self._state, self._limits, self._left = state, limits, left
        self.surplus: list[Rows] = []

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate within the rates, else why it is barred."""
        codes, limits = np.zeros(len(candidates.nodes), np.int8), self._limits
        asked = ~self._state.snapshot.pods.terminating[candidates.pods]
        candidate, row = (
            np.repeat(np.arange(len(candidates.nodes)), candidates.lengths())[asked],
            candidates.pods[asked],
        )
        if limits.per_owner:
            owner, left = self._owners(row, limits.per_owner)
            some = owner > 0
            group = candidate[some] * (len(left) + 1) + owner[some]
            counted = _Counted(candidate[some], row[some], group, left[owner[some] - 1])
            self._bar(codes, 2, limits.per_owner, counted)
        if limits.per_node:
            counted = _Counted(
                candidate, row, candidate, self._left_of_nodes(limits.per_node)[candidates.nodes[candidate]]
            )
            self._bar(codes, 3, limits.per_node, counted)
        if limits.per_cluster:
            counted = _Counted(candidate, row, candidate, np.full(len(row), self._left.cluster, np.int64))
            self._bar(codes, 4, limits.per_cluster, counted)
        return codes

    def _bar(self, codes: NDArray[np.int8], code: int, rate: Rate, victims: _Counted) -> None:
        """Bar the candidates with a group of victims larger than what is left of a rate, or than all of it."""
        candidate, place = victims.candidate, _places(victims.group)
        codes[candidate[(place >= victims.left) & (codes[candidate] == 0)]] = NOT_NOW
        beyond = place >= rate.evictions
        codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = code
        if beyond.any():
            self.surplus.append(victims.row[beyond])

    def _left_of_nodes(self, rate: Rate) -> Ints:
        """What is left of the rate, by node row."""
        nodes = self._state.snapshot.nodes
        left = np.full(nodes.rows, rate.evictions, np.int64)
        for name, number in self._left.nodes.items():
            row = nodes.find(name)
            if row is not None:
                left[row] = number
        return left

    def _owners(self, rows: Rows, rate: Rate) -> tuple[Rows, Ints]:
        """The number of each pod's owner from 1 on, 0 for none, and what is left of the rate of owner 1, 2 and so on.

        Pods that have controller and labels in common have the owner in common: it is worked out once for them.
        """
        pods = self._state.snapshot.pods
        kinds, kind_of = np.unique(pods.owner[rows].astype(np.int64) << 32 | pods.identity[rows], return_inverse=True)
        known: dict[str, int] = {}
        numbers = np.zeros(len(kinds), np.intp)
        for at, kind in enumerate(kinds.tolist()):
            owner, identity = pods.owners.values[kind >> 32], pods.identities.values[kind & 0xFFFFFFFF]
            assert owner is not None
            assert identity is not None
            name = workload_name(owner.kind, owner.name, identity.namespace, identity.labels)
            numbers[at] = known.setdefault(name, len(known) + 1) if name else 0
        left = np.array([self._left.owners.get(name, rate.evictions) for name in known], np.int64)
        return numbers[kind_of], left


def _places(group: Rows) -> Rows:
    """How many entries of the same group come before each entry."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    places = np.empty(len(group), np.intp)
    places[order] = np.arange(len(group)) - np.repeat(firsts, np.diff(np.append(firsts, len(group))))
    return places


def too_large(barred: frozenset[int]) -> str:
    """Which rates no candidate can ever keep, if all of them are barred by these codes; empty if one may yet."""
    names = [name for code, name in _NEVER.items() if code in barred]
    return " and ".join(names) if NOT_NOW not in barred else ""
