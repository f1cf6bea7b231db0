"""Pods that the policy's rules allow as victims and that a decision excludes for another reason: masks by pod row.

A pod is excluded if its owner or its kubelet puts it back on the node, if the API server does not remove it, or if it
leaves already, but too late. It is excluded if a rate that it counts in is used up, or if its workload evicted that of
the preemptor and the policy keeps the evictor (`limits.PastEvictions`). If its replacement could run on no other node,
it is taken only if nothing else helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits
from webhook.preemption.decision import decide
from webhook.preemption.extenders import Extender
from webhook.preemption.result import Decision
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.eligible import static_pods
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.evaluate.limits import NOT_NOW, PastEvictions, Rates
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.evaluate.room import rows_without
from webhook.reconciler.evictions.log import Remaining
from webhook.reconciler.state.state import State

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


def immovable(state: State, refused: Collection[str], owners: Collection[str] = ()) -> Mask:
    """The pods that go on running however often they are evicted.

    Those that the API server `refused` to remove, those of `owners` that put them back, and static pods: such an
    object only shows the pod, its kubelet runs it from a file and makes the object again.
    """
    mask: Mask = static_pods(state.snapshot)
    if refused:
        mask[state.snapshot.pod_rows(refused)] = True
    for owner in owners:
        mask[state.snapshot.pod_rows(state.index.owned.get(owner, ()))] = True
    return mask


def last_resort(state: State) -> Mask:
    """The pods whose replacement could run on no other node: a DaemonSet's, and those confined to theirs."""
    snapshot = state.snapshot
    pods = snapshot.pods
    daemons = snapshot.table(("reconciler", "daemons"), pods.owners, np.bool_, lambda owner: owner.kind == "DaemonSet")
    mask: Mask = daemons[pods.owner[: pods.rows]].copy()
    mask[snapshot.pod_rows(state.confined.on_one_node())] = True
    return mask


def among_last_resort(state: State, pods: Iterable[Pod]) -> frozenset[str]:
    """Those of the pods, by `namespace/name`, whose replacement could run on no other node."""
    last, find = last_resort(state), state.snapshot.pods.find
    places = [(key_of(pod), find(pod.metadata.namespace, pod.metadata.name)) for pod in pods]
    return frozenset(key for key, row in places if row is not None and last[row])


def mask_of(state: State, rows: Rows) -> Mask:
    """The pods in these rows."""
    mask = np.zeros(state.snapshot.pods.rows, np.bool_)
    mask[rows] = True
    return mask


class LimitsNow(NamedTuple):
    """What keeps pods that the rules let go from going now for preemptors: API server, rates, cycles.

    Without `rates` there are none.
    """

    now: Limits
    """The policy's limits as they are at this time of day."""
    exclusions: Mask
    """The pods, by row, that evicting does not help."""
    asked_again: float | None
    """When the first of those may be asked again that are excluded for a while only, in monotonic seconds."""
    left: Remaining
    rates: Rates | None
    past: PastEvictions
    filters: tuple[CandidateFilter, ...] = ()
    """What else keeps candidates from being selected."""

    def too_many(self, attempts: int) -> Unschedulable | None:
        """Why nobody goes after so many plans that evicted in vain; None if the policy allows one more."""
        if attempts < (most := self.now.attempts_per_preemptor):
            return None
        reason = f"{attempts} plans evicted pods for it in vain, and the policy allows {most}"
        return Unschedulable(f"{reason}; one stops to count every 15 min", limited=True)

    def selectable(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that may be selected now, else the code of the first filter that rejects it."""
        codes = np.zeros(len(candidates.nodes), np.int8)
        for filter_ in (*((self.rates,) if self.rates is not None else ()), *self.filters):
            open_ = codes == 0
            if open_.any():
                codes[open_] = filter_(candidates.only(open_))
        return codes


def decide_within_limits(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    limits: LimitsNow,
    *,
    leaving: Rows,
    extenders: Sequence[Extender] = (),
    left_out: Collection[str] = (),
) -> Decision:
    """Decide without pods that asking does not remove, and without those whose rate is used up.

    The pods in the rows `leaving` will be gone in time and are counted on first: nobody goes in place of them. Others
    that leave take too long, and asking them again would not help: they are no victims.
    If every candidate has more victims than a rate allows, it is decided again with only as many of a node's pods as
    the rates leave. First these are the cheapest of each owner and so on, then those that give most of what the
    preemptor lacks: fewer or more important pods of the node may be enough.
    """
    rates, excluded = limits.rates, excluded_now(state, limits, leaving)
    decided = partial(
        decide,
        state.snapshot,
        pod,
        rules,
        now,
        extenders,
        candidate_filter=limits.selectable if rates is not None or limits.filters else None,
        left_out=left_out,
        leaving=mask_of(state, leaving) if len(leaving) else None,
        evicted=limits.past.evicted_lately(),
    )
    decision = decide_sparing(state, decided, excluded)
    if rates is None or decision.selected is not None or not Rates.CODES & decision.rejections:
        return decision
    rows, rejections = decision.may_go_rows(), decision.rejections
    relief = decision.relief(rows)
    for preference, at_once in ((decision.cheapness(rows), False), (relief, False), (relief, True)):
        if at_once and (NOT_NOW in rejections or rates.left.until is None):
            break  # it is known already whether waiting for the rates helps
        beyond = rates.beyond(rows, preference, at_once=at_once)
        narrowed = decide_sparing(state, decided, excluded | mask_of(state, beyond))
        rejections |= narrowed.rejections
        if narrowed.selected is not None:
            return narrowed
    decision.rejections = rejections
    return decision


def excluded_now(state: State, limits: LimitsNow, leaving: Rows) -> Mask:
    """The pods that may not go now: those of the limits, of used-up rates, and those that leave, but too late."""
    snapshot, pods, left = state.snapshot, state.snapshot.pods, limits.left
    excluded: Mask = limits.exclusions | mask_of(state, rows_without(pods.leaving(), leaving))
    if left.again is not None:
        excluded |= bool(left.used_up("perCluster"))
        for owner in (*left.used_up("perOwner"), *left.used_up("perWorkload")):
            excluded[snapshot.pod_rows(state.index.owned.get(owner, ()))] = True
        excluded |= np.isin(pods.node[: pods.rows], snapshot.nodes.rows_of(left.used_up("perNode")))
        key = limits.now.per_label.label if limits.now.per_label else ""
        namespaces, values = set(left.used_up("perNamespace")), set(left.used_up("perLabel"))
        if namespaces or values:
            inside = np.zeros(len(pods.identities), np.bool_)
            for number, identity in pods.identities.used():
                inside[number] = identity.namespace in namespaces or identity.labels_at_creation.get(key) in values
            excluded |= inside[pods.identity[: pods.rows]]
    return excluded


def decide_sparing(state: State, decided: Callable[..., Decision], excluded: Mask) -> Decision:
    """The decision with the `excluded` pods and last-resort victims excluded; only if that finds nothing, with these.

    `decided` makes it, given the `exclusions`.
    """
    last, rejections = last_resort(state), frozenset[int]()
    for exclusions in (excluded | last, excluded):
        decision = decided(exclusions=exclusions)
        decision.rejections |= rejections
        if decision.selected is not None or not decision.eligible or not last.any() or decision.fits:
            break
        rejections = decision.rejections
    return decision
