"""Which pods are no victims although the policy's rules allow it, as masks by pod row, and a decision without them.

Some go on running however often they are evicted, some the API server does not remove, of some the rate is used up, and
some are taken only if nothing else helps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.backoff import exponential
from webhook.kube.objects import Pod
from webhook.preemption.decision import decide
from webhook.preemption.extenders import Extender
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.result import Decision
from webhook.preemption.victims.candidates import CandidateFilter
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.evaluate.eviction_limiter import NOT_NOW, ExhaustedLimits, Rates
from webhook.reconciler.state.state import State

__all__ = [
    "EvictionBackoff",
    "LimitsNow",
    "decide_with_exclusions",
    "decide_within_limits",
    "immovable",
    "last_resort",
]

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

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


def _of_rows(state: State, rows: Rows) -> Mask:
    """The pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


class LimitsNow(NamedTuple):
    """What keeps pods that the rules let go from going now: API server and rates. Without `rates` there are none."""

    refused: Collection[str]
    """Keys of the pods that the API server would not remove."""
    exhausted: ExhaustedLimits
    rates: Rates | None


def decide_within_limits(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    limits: LimitsNow,
    *,
    soon: Rows,
    extenders: Sequence[Extender] = (),
    left_out: Collection[str] = (),
) -> Decision:
    """Decide with the pods excluded that asking does not remove, and those whose rate is used up.

    Of the pods that are leaving those that will not be gone `soon` are no victims: asking them again would not help.
    The others are counted on first: nobody goes in place of one that goes anyway.
    If every candidate has more victims than a rate ever allows, it is decided once more with those beyond it excluded:
    fewer pods that are more important may do.
    """
    snapshot, pods, rates = state.snapshot, state.snapshot.pods, limits.rates
    excluded = immovable(state, limits.refused) | _of_rows(state, np.setdiff1d(pods.leaving(), soon))
    if limits.exhausted.until is not None:
        excluded |= limits.exhausted.cluster
        for owner in limits.exhausted.owners:
            excluded[snapshot.pod_rows(state.index.owned.get(owner, ()))] = True
        for node in limits.exhausted.nodes:
            if (row := snapshot.nodes.find(node)) is not None:
                excluded |= pods.node[: pods.rows] == row
    decided = partial(
        decide_with_exclusions,
        state,
        pod,
        rules,
        now,
        extenders=extenders,
        candidate_filter=rates,
        left_out=left_out,
        going=soon,
    )
    decision = decided(excluded)
    if rates is None or not rates.surplus or decision.selected is not None or NOT_NOW in decision.rejections:
        return decision
    narrowed = decided(excluded | _of_rows(state, np.concatenate(rates.surplus)))
    narrowed.rejections |= decision.rejections
    return narrowed


def decide_with_exclusions(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    excluded: Mask,
    *,
    extenders: Sequence[Extender] = (),
    candidate_filter: CandidateFilter | None = None,
    left_out: Collection[str] = (),
    going: Rows = NO_PODS,
) -> Decision:
    """Decide with last-resort victims excluded; only if that finds nothing, with them too.

    The pods `excluded` never go, the pods in the rows `going` go anyway; nothing is planned on the nodes `left_out`.
    """
    leaving, last = _of_rows(state, going) if len(going) else None, last_resort(state)
    rejections: frozenset[int] = frozenset()
    for exclusions in (excluded | last, excluded):
        decision = decide(
            state.snapshot,
            pod,
            rules,
            now,
            extenders,
            exclusions=exclusions,
            candidate_filter=candidate_filter,
            excluded_nodes=left_out,
            leaving=leaving,
        )
        decision.rejections |= rejections
        if decision.selected is not None or not decision.eligible or not last.any() or decision.fits:
            break
        rejections = decision.rejections
    return decision
