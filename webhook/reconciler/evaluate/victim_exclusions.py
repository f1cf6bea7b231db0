"""Pods that the policy's rules allow as victims and that a decision excludes for another reason: masks by pod row.

A pod is excluded if its owner or its kubelet puts it back on the node, if the API server does not remove it, or if it
leaves already, but too late. It is excluded if a rate that it counts in is used up, or if its workload evicted that of
the preemptor and the policy keeps the evictor. If its replacement could run on no other node,
it is taken only if nothing else helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.limits import CycleKeeper
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import decide
from webhook.preemption.extenders import Extender
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.limits import NOT_NOW, Rates
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable, Waits
from webhook.reconciler.evictions.log import BARE, EvictionLog, name_of
from webhook.reconciler.state.state import State

_SHOWN = 3
"""Evictors that are named."""


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


class LimitsNow:
    """What keeps pods that the rules let go from going now for preemptors: API server, rates, attempts, cycles.

    `pods` is the preemptor, or the members of a gang that are placed together. A preemptor of workload A closes a cycle
    if pods of A were evicted for B within the policy's window, and it would evict pods of B. The chain may be longer:
    pods of B were evicted for C, and it would evict pods of C. The policy may keep those because of that.
    """

    def __init__(self, state: State, log: EvictionLog, policy: PreemptionPolicy, pods: Iterable[Pod], at: Now) -> None:
        log.remember(policy.limits)
        self._state, self._log, self._policy, self._now = state, log, policy, at.monotonic
        self.limits = policy.limits.at(at.wall)
        self.left = log.remaining(self.limits, at.monotonic)
        self.rates = Rates(state, self.limits, self.left) if self.left.left else None
        """What the rates allow; None if there are none."""
        self.asked_again = log.next_end(at.monotonic)
        """When the first of those may be asked again that are excluded for a while only, in monotonic seconds."""
        own = dict.fromkeys(workload for pod in pods if (workload := workload_of(pod)))
        self._evictors: dict[str, str] = {}
        """Workload or bare pod for which pods were evicted to whose these were: each leads to the preemptor's own."""
        for workload in own:
            self._evictors = log.evictors(workload, policy.limits.cycles.window, at.monotonic) | self._evictors
        for workload in own:
            self._evictors.pop(workload, None)
        stay = self._evictors if policy.limits.cycles.keep is CycleKeeper.EVICTOR else ()
        bare = [evictor.removeprefix(BARE) for evictor in stay if evictor.startswith(BARE)]
        self._kept = state.snapshot.pod_rows([*bare, *owned(state, stay)])
        self.exclusions = in_vain(state, log, at.monotonic) | mask_of(state, self._kept)
        """The pods, by row, that evicting does not help, or that stay so that no cycle is closed."""

    def too_many(self, attempts: int) -> Unschedulable | None:
        """Why nobody goes after so many plans that evicted in vain; None if the policy allows one more."""
        if attempts < (most := self.limits.attempts_per_preemptor):
            return None
        reason = f"{attempts} plans evicted pods for it in vain, and the policy allows {most}"
        return Unschedulable(f"{reason}; one stops to count every 15 min", limited=True)

    def excluded(self, leaving: Rows) -> Mask:
        """The pods that may not go now; also those of used-up rates, and those that leave, but are not `leaving`."""
        state, snapshot, pods, left = self._state, self._state.snapshot, self._state.snapshot.pods, self.left
        excluded: Mask = self.exclusions | mask_of(state, np.setdiff1d(pods.leaving(), leaving))
        if left.again is not None:
            excluded |= bool(left.used_up("perCluster"))
            excluded[snapshot.pod_rows(owned(state, (*left.used_up("perOwner"), *left.used_up("perWorkload"))))] = True
            excluded |= np.isin(pods.node[: pods.rows], snapshot.nodes.rows_of(left.used_up("perNode")))
            key = self.limits.per_label.label if self.limits.per_label else ""
            namespaces, values = set(left.used_up("perNamespace")), set(left.used_up("perLabel"))
            if namespaces or values:
                inside = np.zeros(len(pods.identities), np.bool_)
                for number, identity in pods.identities.used():
                    inside[number] = identity.namespace in namespaces or identity.labels_at_creation.get(key) in values
                excluded |= inside[pods.identity[: pods.rows]]
        return excluded

    def evicted_lately(self) -> Ints | None:
        """How often the workload of each pod, by row, was evicted recently; None if the policy does not count it."""
        if (recent := self._policy.victims.cost.recent_evictions) is None:
            return None
        column = np.zeros(self._state.snapshot.pods.rows, np.int64)
        for workload, count in self._log.counts(recent, self._now).items():
            column[self._state.snapshot.pod_rows(owned(self._state, (workload,)))] = count
        return column

    def closed_by(self, outcome: Evicts | Waits) -> Evicts | Waits:
        """The outcome with the cycles that it closes: from an evictor back to the preemptor's own workload."""
        cycles = []
        for evictor in sorted(set(map(name_of, outcome.victims)) & self._evictors.keys()):
            cycle = [evictor]
            while evicted := self._evictors.get(cycle[-1]):
                cycle.append(evicted)
            cycles.append(tuple(cycle))
        return replace(outcome, cycles=tuple(cycles)) if cycles and isinstance(outcome, Evicts) else outcome

    def kept_from(self, outcome: Unschedulable) -> Unschedulable:
        """The outcome. If pods stay so that no cycle is closed, it says so."""
        if not len(self._kept):
            return outcome
        names, within = ", ".join(list(self._evictors)[:_SHOWN]), self._policy.limits.cycles.window
        why = f"pods of {names} stay, for which pods of its own workload were evicted within {within:g} s"
        return replace(outcome, reason=f"{outcome.reason.rstrip('.')}; {why}", limited=True)


def in_vain(state: State, log: EvictionLog, now: float) -> Mask:
    """The pods that go on running however often they are evicted, by what was seen.

    The API server refused to remove them, or their owners put them back.
    """
    refused, owners = log.excluded(now)
    return mask_of(state, state.snapshot.pod_rows([*refused, *owned(state, owners)]))


def owned(state: State, owners: Iterable[str]) -> list[str]:
    """The pods of these owners that are on nodes, by `namespace/name`."""
    return [key for owner in owners for key in state.index.owned.get(owner, ())]


def decide_within_limits(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    limits: LimitsNow,
    *,
    leaving: Rows,
    filters: Sequence[CandidateFilter],
    extenders: Sequence[Extender],
    left_out: Collection[str],
) -> Decision:
    """Decide without pods that asking does not remove, without those whose rate is used up, and by these filters.

    The pods in the rows `leaving` will be gone in time and are counted on first: nobody goes in place of them. Others
    that leave take too long, and asking them again would not help: they are no victims.
    If every candidate has more victims than a rate allows, it is decided again with only as many of a node's pods as
    the rates leave. First these are the cheapest of each owner and so on, then those that give most of what the
    preemptor lacks: fewer or more important pods of the node may be enough.
    """
    rates, excluded = limits.rates, limits.excluded(leaving)
    kept: list[CandidateFilter] = [*filters] if rates is None else [rates, *filters]

    def selectable(candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate that may be selected now, else the code of the first filter that rejects it."""
        codes = np.zeros(len(candidates.nodes), np.int8)
        for filter_ in kept:
            if (open_ := codes == 0).any():
                codes[open_] = filter_(candidates.only(open_))
        return codes

    decided = partial(
        decide,
        state.snapshot,
        pod,
        rules,
        now,
        extenders,
        candidate_filter=selectable if kept else None,
        left_out=left_out,
        leaving=mask_of(state, leaving) if len(leaving) else None,
        evicted=limits.evicted_lately(),
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
