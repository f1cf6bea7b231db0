"""What keeps pods from going that the rules let go: rates and disruption budgets. Pure.

A rate allows what recent evictions have left of it. Budgets are counted without what a plan itself has reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.pods import workload_name
from webhook.policy.model.limits import Limits
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.evictions.log import AnyRate, Remaining, label, rates_of
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

NOT_NOW = 1
"""Rejected because of the recent evictions: it may stand once they have left their windows."""
_NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster", 5: "perWorkload", 6: "perNamespace", 7: "perLabel"}
"""Rejected for good: these victims are more than the rate allows in a whole window. Other filters have other codes."""
BEYOND_BUDGET = 8
"""The code of candidates with a victim that the Eviction API would refuse."""


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
        candidate, row = candidates.numbers, candidates.pods
        asked = ~self._state.snapshot.pods.terminating[row]
        candidate, row = candidate[asked], row[asked]
        for counted in self._counted(row):
            place = _places(candidate, counted.group)
            counts = counted.group >= 0
            codes[candidate[counts & (place >= counted.left) & (codes[candidate] == 0)]] = NOT_NOW
            beyond = counts & (place >= counted.rate.evictions)
            codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = counted.code
        return codes

    def code_of(self, victims: Rows) -> int:
        """Why a gang's victims, on whatever nodes, are more than the rates allow; 0 if they are not."""
        if not len(victims):
            return 0
        snapshot, nobody = self._state.snapshot, np.zeros(len(victims), np.bool_)
        on = np.full(len(victims), snapshot.pods.node[victims[0]], np.intp)  # as if all were on one node
        return int(self(Candidates.on_nodes(snapshot, on, victims, nobody))[0])

    def leaving_most_to(self, chosen: Rows, excluded: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The `excluded` pods, and those beyond what the rates leave on all nodes if the `chosen` go first."""
        pods = self._state.snapshot.pods
        mask = np.zeros(pods.rows, np.bool_)  # a trial may have made rows since the other one was made
        mask[: len(excluded)] = excluded
        rows = np.flatnonzero(~mask & (pods.node[: pods.rows] >= 0))
        mask[self.beyond(rows, np.isin(rows, chosen).astype(np.float64), together=True)] = True
        return mask

    def beyond(
        self, rows: Rows, preference: NDArray[np.float64], *, at_once: bool = False, together: bool = False
    ) -> Rows:
        """Of these pods those that stay if as many go on each node as the rates leave now. The preferred ones go first.

        With `at_once` as many go as the rates ever allow. With `together` as many go on all nodes together;
        `perCluster` is left out then, since other pods would be no fewer.
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
        """How each rate counts the pods in these rows: by names that those have in common that are alike in this."""
        pods, codes = self._state.snapshot.pods, {name: code for code, name in _NEVER.items()}
        alike = pods.owner[row].astype(np.int64) << 32 | pods.identity[row]
        by_kind: dict[str, Ints] = {"node": pods.node[row].astype(np.int64), "cluster": np.zeros(len(row), np.int64)}
        for field, kind, rate in rates_of(self._limits):
            ids, id_of = np.unique(by_kind.get(kind, alike), return_inverse=True)
            names = [self._name(kind, id_) for id_ in ids.tolist()]
            numbers = {name: number for number, name in enumerate(dict.fromkeys(names)) if name is not None}
            left = np.full(len(names) + 1, rate.evictions, np.int64)
            for name, count in self.left.left[field].items():
                left[numbers.get(name, -1)] = count
            group = np.array([-1 if name is None else numbers[name] for name in names], np.intp)[id_of]
            yield _Counted(codes[field], rate, group, left[group])

    def _name(self, kind: str, id_: int) -> str | None:
        """The name of this kind in which a rate counts pods alike; None if it counts them in none."""
        nodes, pods = self._state.snapshot.nodes, self._state.snapshot.pods
        if kind in ("node", "cluster"):
            return nodes.names[id_] if kind == "node" else ""
        owner, identity = pods.owners.values[id_ >> 32], pods.identities.values[id_ & 0xFFFFFFFF]
        assert owner is not None
        assert identity is not None
        if kind == "owner":
            return workload_name(owner.kind, owner.name, identity.namespace, identity.labels) or None
        made = identity.labels_at_creation.items()
        return identity.namespace if kind == "namespace" else next((v for k, v in made if label(k) == kind), None)


def _places(of: Rows, group: Rows) -> Rows:
    """How many pods of the same candidate or node, and of the same group, come before each pod."""
    both = of * (group.max(initial=0) + 2) + group + 1
    order = np.argsort(both, kind="stable")
    firsts = np.flatnonzero(np.diff(both[order], prepend=-1))
    places = np.empty(len(both), np.intp)
    places[order] = np.arange(len(both)) - np.repeat(firsts, np.diff(np.append(firsts, len(both))))
    return places


def too_large(rejections: frozenset[int]) -> str:
    """Which rates no candidate can ever keep, if all of them are rejected by these codes; empty if one may yet."""
    names = [name for code, name in _NEVER.items() if code in rejections]
    return " and ".join(names) if rejections <= _NEVER.keys() else ""


def beyond_budget(state: State, policy: PreemptionPolicy, victims: Sequence[PlanVictim]) -> str:
    """Which budget keeps one of the victims, if all of them are to go; empty if none does.

    Through the Eviction API every budget counts, whatever the policy says of choosing victims (docs/semantics.md D4).
    """
    evicts = policy.eviction is EvictionMode.EVICT
    if not (evicts or policy.budgets is BudgetMode.STRICT) or not state.budgets.items():
        return ""
    rows = state.snapshot.pod_rows([victim.key for victim in victims])
    unguarded = rows[state.snapshot.budgets.unguarded(rows)].tolist() if evicts else ()
    users: dict[str, set[str]] = {}
    for victim in victims:
        pod, row = state.pods.get(victim.key), state.snapshot.pods.find(victim.namespace, victim.name)
        keys = state.pending.covering(pod) if pod is not None and row not in unguarded else []
        if evicts and len(keys) > 1:
            return f"the Eviction API does not let {victim.key} go, which several budgets cover: {', '.join(keys)}"
        for key in keys:
            users.setdefault(key, set()).add(victim.name)
    for key, names in users.items():
        if (budget := state.budgets.get(key)) is None:
            continue
        # A pod that the status names has used its own disruption already.
        needed = names - (budget.status.disrupted_pods or {}).keys()
        stale = (budget.status.observed_generation or 0) < (budget.metadata.generation or 0)
        left = 0 if stale else budget.status.disruptions_allowed - len(state.pending.spending(key) - names)
        if len(needed) > left:
            return f"disruption budget {key} does not let {', '.join(sorted(names))} go"
    return ""
