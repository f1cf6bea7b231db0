"""Which pods are spared beyond what the policy's rules say: by the rates that are used up, and last-resort victims."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.reading import Owner
from webhook.reconciler.restraint import Full
from webhook.reconciler.state import State

__all__ = ["Mask", "last_resort", "of_rows", "over_rate", "union"]

Mask = NDArray[np.bool_]


def over_rate(state: State, full: Full) -> Mask | None:
    """By pod row, the pods whose owner, node or cluster has had its evictions for now; None where there are none."""
    if full.until is None:
        return None
    pods = state.snapshot.pods
    mask = np.full(pods.rows, full.cluster, np.bool_)
    for owner in full.owners:
        mask[state.snapshot.pod_rows(state.owned.get(owner, ()))] = True
    for node in full.nodes:
        row = state.snapshot.nodes.find(node)
        if row is not None:
            mask |= pods.node[: pods.rows] == row
    return mask


def last_resort(state: State) -> Mask:
    """By pod row, the pods whose replacement could run on no other node: a DaemonSet's, static ones, pinned ones."""
    snapshot = state.snapshot
    pods = snapshot.pods
    bound = snapshot.table(("reconciler", "bound-owners"), pods.owners, np.bool_, _is_bound_to_node)
    mask: Mask = bound[pods.owner[: pods.rows]].copy()
    if state.pinned:
        mask[snapshot.pod_rows(state.pinned)] = True
    return mask


def _is_bound_to_node(owner: Owner) -> bool:
    return owner.kind in {"DaemonSet", "Node"}


def of_rows(state: State, rows: NDArray[np.intp]) -> Mask:
    """By pod row, the pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


def union(one: Mask | None, other: Mask) -> Mask:
    """What either mask covers."""
    return other if one is None else one | other
