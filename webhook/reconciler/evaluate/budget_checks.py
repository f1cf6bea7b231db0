"""Whether disruption budgets let the rest of a plan go, counted without what the plan itself has reserved. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.preemption.victims.candidates import Candidates
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

BEYOND_BUDGET = 8
"""The code of candidates with a victim that the Eviction API would refuse."""


def within_budgets(candidates: Candidates) -> NDArray[np.int8]:
    """0 for every candidate that violates no budget, else BEYOND_BUDGET (a `CandidateFilter`)."""
    return np.where(candidates.violations > 0, BEYOND_BUDGET, 0).astype(np.int8)


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
        budget = state.budgets.get(key)
        if budget is not None and _needed(budget, names) > _left(state, key, budget, names):
            return f"disruption budget {key} does not let {', '.join(sorted(names))} go"
    return ""


def _needed(budget: PodDisruptionBudget, names: set[str]) -> int:
    """How many disruptions the pods of these names use. A pod that the status names has used its own already."""
    return len(names - (budget.status.disrupted_pods or {}).keys())


def _left(state: State, key: str, budget: PodDisruptionBudget, names: set[str]) -> int:
    """How many disruptions the budget has for these pods, without those that others are expected to use."""
    stale = (budget.status.observed_generation or 0) < (budget.metadata.generation or 0)
    return 0 if stale else budget.status.disruptions_allowed - len(state.pending.spending(key) - names)
