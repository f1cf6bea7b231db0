"""Which pods are no victims although the policy's rules allow it, and why: one mask by pod row for each reason.

Some go on running however often they are evicted, some the API server does not remove, of some the rate is used up, and
some are taken only if nothing else helps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from webhook.kube.backoff import exponential
from webhook.reconciler.evaluate.eviction_limiter import ExhaustedLimits
from webhook.reconciler.state.state import State

__all__ = ["EvictionBackoff", "Mask", "immovable", "last_resort", "of_rows", "over_rate", "union"]

Mask = NDArray[np.bool_]

_FIRST = 15.0
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    times: int
    until: float


class EvictionBackoff:
    """Pods by key that the API server did not remove: each is excluded for a while, twice as long after every refusal.

    A webhook that denies the eviction, a namespace without the right, a pod under two budgets (which the Eviction API
    does not support): none of it shows in the objects a decision looks at. Time is an argument, in monotonic seconds.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def note(self, key: str, now: float) -> None:
        """The pod could not be removed."""
        self._by_key = {key: it for key, it in self._by_key.items() if now < it.until + _LONGEST}
        known = self._by_key.get(key)
        times = known.times + 1 if known else 1
        self._by_key[key] = _Refusal(times, now + exponential(times, _FIRST, _LONGEST))

    def excluded(self, now: float) -> list[str]:
        """The pods that are not to be asked for now."""
        return [key for key, it in self._by_key.items() if now < it.until]

    def next_end(self, now: float) -> float | None:
        """When the first of them may be asked for again."""
        return min((it.until for it in self._by_key.values() if now < it.until), default=None)


def over_rate(state: State, exhausted: ExhaustedLimits) -> Mask | None:
    """The pods whose owner, node or cluster has had its evictions for now; None if there are none."""
    if exhausted.until is None:
        return None
    pods = state.snapshot.pods
    mask = np.full(pods.rows, exhausted.cluster, np.bool_)
    for owner in exhausted.owners:
        mask[state.snapshot.pod_rows(state.index.owned.get(owner, ()))] = True
    for node in exhausted.nodes:
        row = state.snapshot.nodes.find(node)
        if row is not None:
            mask |= pods.node[: pods.rows] == row
    return mask


def immovable(state: State, refused: Collection[str]) -> Mask:
    """The pods that go on running however often they are evicted, and those that the API server `refused` to remove.

    A static pod's object only shows it: its kubelet runs it from a file and makes the object again.
    """
    pods = state.snapshot.pods
    static = state.snapshot.table(("reconciler", "static"), pods.owners, np.bool_, lambda owner: owner.kind == "Node")
    mask: Mask = static[pods.owner[: pods.rows]].copy()
    if refused:
        mask[state.snapshot.pod_rows(refused)] = True
    return mask


def last_resort(state: State) -> Mask:
    """The pods whose replacement could run on no other node: a DaemonSet's, pinned ones."""
    snapshot = state.snapshot
    pods = snapshot.pods
    daemons = snapshot.table(("reconciler", "daemons"), pods.owners, np.bool_, lambda owner: owner.kind == "DaemonSet")
    mask: Mask = daemons[pods.owner[: pods.rows]].copy()
    if state.index.pinned:
        mask[snapshot.pod_rows(state.index.pinned)] = True
    return mask


def of_rows(state: State, rows: NDArray[np.intp]) -> Mask:
    """The pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


def union(one: Mask, other: Mask | None) -> Mask:
    """What either mask covers."""
    return one if other is None else one | other
