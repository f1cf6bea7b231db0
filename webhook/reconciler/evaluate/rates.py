"""Which candidates the rates of a policy allow, given what recent evictions have left of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import workload_name
from webhook.policy.model import LabelRate, Limits, Rate, WorkloadLimit
from webhook.preemption.snapshot.pod_view import Identity, Owner
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evaluate.eviction_limiter import Remaining, group_rates, groups_of
from webhook.reconciler.state.state import State

__all__ = ["NOT_NOW", "Rates", "too_large"]

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

NOT_NOW = 1
"""Barred because of the recent evictions: it may stand once they have left their windows."""
_NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster", 5: "perWorkload", 6: "perNamespace", 7: "perLabel"}
"""Barred permanently: these victims are more than the rate allows in a whole window. Other filters have other codes."""


class _Counted(NamedTuple):
    """What a rate counts, an entry a victim: its candidate, its row, the group it counts in, what is left for that."""

    candidate: Rows
    row: Rows
    group: Rows
    left: Ints


class Rates:
    """Which candidates the rates of a policy allow, for all of them at once, given what recent evictions have left.

    A decision selects the best candidate *within* the rates, so that one whose victims are too many for a rate does
    not keep the preemptor from the next best.

    Victims that are leaving anyway are not asked, so they do not count. `surplus` collects, of the candidates that are
    rejected for good, the victims beyond the rate, the least important ones: with these excluded, others may do.
    """

    def __init__(self, state: State, limits: Limits, left: Remaining) -> None:
        self._state, self._limits, self.left = state, limits, left
        self.surplus: list[Rows] = []

    def __call__(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate within the rates, else why it is rejected."""
        codes, limits = np.zeros(len(candidates.nodes), np.int8), self._limits
        pods = self._state.snapshot.pods
        candidate, row = candidates.all_victims()
        asked = ~pods.terminating[row]
        candidate, row = candidate[asked], row[asked]
        if limits.per_owner:
            self._reject_named(codes, 2, limits.per_owner, (candidate, row), used=self.left.owners, name_of=_workload)
        if limits.per_workload:
            self._reject_named(
                codes, 5, limits.per_workload, (candidate, row), used=self.left.workloads, name_of=_workload
            )
        for name, of, rate in group_rates(limits):
            key = rate.label if isinstance(rate, LabelRate) else ""
            code = next(code for code, one in _NEVER.items() if one == name)
            self._reject_named(
                codes, code, rate, (candidate, row), used=self.left.groups, name_of=partial(_group, of, key)
            )
        if limits.per_node:
            nodes = self._state.snapshot.nodes
            of_node = np.full(nodes.rows, limits.per_node.evictions, np.int64)
            for name, number in self.left.nodes.items():
                if (at := nodes.find(name)) is not None:
                    of_node[at] = number
            node = pods.node[row]  # of a group that goes whole some are on other nodes
            counted = _Counted(candidate, row, candidate * nodes.rows + node, of_node[node])
            self._reject(codes, 3, limits.per_node, counted)
        if limits.per_cluster:
            counted = _Counted(candidate, row, candidate, np.full(len(row), self.left.cluster, np.int64))
            self._reject(codes, 4, limits.per_cluster, counted)
        return codes

    def _reject(
        self, codes: NDArray[np.int8], code: int, rate: Rate | LabelRate | WorkloadLimit, victims: _Counted
    ) -> None:
        """Reject the candidates with a group of victims larger than what is left of a rate, or than all of it."""
        candidate, group = victims.candidate, victims.group
        # How many victims of the same group come before each victim.
        order = np.argsort(group, kind="stable")
        firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
        place = np.empty(len(group), np.intp)
        place[order] = np.arange(len(group)) - np.repeat(firsts, np.diff(np.append(firsts, len(group))))
        codes[candidate[(place >= victims.left) & (codes[candidate] == 0)]] = NOT_NOW
        beyond = place >= rate.evictions
        codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = code
        if beyond.any():
            self.surplus.append(victims.row[beyond])

    def _reject_named(
        self,
        codes: NDArray[np.int8],
        code: int,
        rate: Rate | LabelRate | WorkloadLimit,
        victims: tuple[Rows, Rows],
        *,
        used: dict[str, int],
        name_of: Callable[[Owner, Identity], str],
    ) -> None:
        """Reject by a rate that counts victims, a candidate and a row each, by a name; those without one do not count.

        `used` is what is left of the rate by name. Pods that have controller and labels in common have the name in
        common: it is worked out once for them.
        """
        pods, (candidate, row) = self._state.snapshot.pods, victims
        kinds, kind_of = np.unique(pods.owner[row].astype(np.int64) << 32 | pods.identity[row], return_inverse=True)
        known: dict[str, int] = {}
        numbers = np.zeros(len(kinds), np.intp)
        for at, kind in enumerate(kinds.tolist()):
            owner, identity = pods.owners.values[kind >> 32], pods.identities.values[kind & 0xFFFFFFFF]
            assert owner is not None
            assert identity is not None
            name = name_of(owner, identity)
            numbers[at] = known.setdefault(name, len(known) + 1) if name else 0
        left = np.array([used.get(name, rate.evictions) for name in known], np.int64)
        number = numbers[kind_of]
        some = number > 0
        group = candidate[some] * (len(left) + 1) + number[some]
        self._reject(codes, code, rate, _Counted(candidate[some], row[some], group, left[number[some] - 1]))


def _workload(owner: Owner, identity: Identity) -> str:
    return workload_name(owner.kind, owner.name, identity.namespace, identity.labels)


def _group(of: str, key: str, owner: Owner, identity: Identity) -> str:
    """The name of the pod's group in a rate by label, or by namespace if there is no key."""
    del owner
    names = groups_of(identity.namespace, identity.labels, (key,) if key else ())
    return next((name for name in names if name.startswith(of)), "")


def too_large(rejections: frozenset[int]) -> str:
    """Which rates no candidate can ever keep, if all of them are rejected by these codes; empty if one may yet."""
    names = [name for code, name in _NEVER.items() if code in rejections]
    return " and ".join(names) if rejections <= _NEVER.keys() else ""
