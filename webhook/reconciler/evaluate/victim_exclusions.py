"""Which pods are spared beyond what the policy's rules say: those that asking does not remove, and by restraint."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from webhook.preemption.snapshot.pod_view import Owner
from webhook.reconciler.evaluate.eviction_limiter import ExhaustedLimits
from webhook.reconciler.state.state import State

__all__ = ["Mask", "immovable", "last_resort", "of_rows", "over_rate", "union"]

Mask = NDArray[np.bool_]


def over_rate(state: State, full: ExhaustedLimits) -> Mask | None:
    """By pod row, the pods whose owner, node or cluster has had its evictions for now; None if there are none."""
    if full.until is None:
        return None
    pods = state.snapshot.pods
    mask = np.full(pods.rows, full.cluster, np.bool_)
    for owner in full.owners:
        mask[state.snapshot.pod_rows(state.index.owned.get(owner, ()))] = True
    for node in full.nodes:
        row = state.snapshot.nodes.find(node)
        if row is not None:
            mask |= pods.node[: pods.rows] == row
    return mask


def immovable(state: State, refused: Collection[str]) -> Mask:
    """By pod row, the pods that go on running however often they are evicted, and those the API server keeps.

    A static pod's object only shows it: its kubelet runs it from a file and makes the object again.
    """
    pods = state.snapshot.pods
    static = state.snapshot.table(("reconciler", "static"), pods.owners, np.bool_, lambda owner: owner.kind == "Node")
    mask: Mask = static[pods.owner[: pods.rows]].copy()
    if refused:
        mask[state.snapshot.pod_rows(refused)] = True
    return mask


def last_resort(state: State) -> Mask:
    """By pod row, the pods whose replacement could run on no other node: a DaemonSet's, pinned ones."""
    snapshot = state.snapshot
    pods = snapshot.pods
    bound = snapshot.table(("reconciler", "bound-owners"), pods.owners, np.bool_, _is_bound_to_node)
    mask: Mask = bound[pods.owner[: pods.rows]].copy()
    if state.index.pinned:
        mask[snapshot.pod_rows(state.index.pinned)] = True
    return mask


def _is_bound_to_node(owner: Owner) -> bool:
    return owner.kind == "DaemonSet"


def of_rows(state: State, rows: NDArray[np.intp]) -> Mask:
    """By pod row, the pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


def union(one: Mask, other: Mask | None) -> Mask:
    """What either mask covers."""
    return one if other is None else one | other
