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

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.limits import CycleKeeper
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.preemption.decision import decide
from webhook.preemption.extenders import Extender
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Mask
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator, mask_of
from webhook.reconciler.evaluate.limits import BEYOND_BUDGET, NOT_NOW, Rates
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.evictions.log import BARE
from webhook.reconciler.state.state import State

_SHOWN = 3
"""Evictors that are named."""


def last_resort(state: State) -> Mask:
    """The pods whose replacement could run on no other node: a DaemonSet's, and those confined to theirs."""
    snapshot = state.snapshot
    pods = snapshot.pods
    daemons = snapshot.table(("reconciler", "daemons"), pods.owners, np.bool_, lambda owner: owner.kind == "DaemonSet")
    mask: Mask = daemons[pods.owner[: pods.rows]].copy()
    mask[snapshot.pod_rows(state.index.on_one_node())] = True
    return mask


class LimitsNow:
    """What keeps pods that the rules let go from going now for preemptors: API server, rates, cycles.

    `pods` is the preemptor, or the members of a gang that are placed together. A preemptor of workload A closes a cycle
    if pods of A were evicted for B within the policy's window, and it would evict pods of B. The chain may be longer:
    pods of B were evicted for C, and it would evict pods of C. The policy may keep those because of that.
    """

    def __init__(self, evaluator: Evaluator, policy: PreemptionPolicy, pods: Iterable[Pod], at: Now) -> None:
        log, state, now = evaluator.log, evaluator.state, at.monotonic
        self._state, self._policy, self._at = state, policy, at
        self.limits = policy.limits.at(at.wall)
        self.left = log.remaining(self.limits, now)
        self.rates = Rates(state, self.limits, self.left) if self.left.left else None
        """What the rates allow; None if there are none."""
        self.asked_again = log.next_end(now)
        """When the first of those may be asked again that are excluded for a while only, in monotonic seconds."""
        own = dict.fromkeys(workload for pod in pods if (workload := workload_of(pod)))
        self.evictors: dict[str, str] = {}
        """Workload or bare pod for which pods were evicted to whose these were: each leads to the preemptor's own."""
        for workload in own:
            self.evictors = log.evictors(workload, policy.limits.cycles.window, now) | self.evictors
        for workload in own:
            self.evictors.pop(workload, None)
        stay = self.evictors if policy.limits.cycles.keep is CycleKeeper.EVICTOR else ()
        bare = [evictor.removeprefix(BARE) for evictor in stay if evictor.startswith(BARE)]
        self._kept = np.append(state.snapshot.pod_rows(bare), evaluator.owned(stay))
        self.leaving = evaluator.room_within(min(policy.wait_for_terminating, policy.plan_timeout), at)
        """The rows of the pods that leave so soon that decisions count on them and evict no others."""
        late = np.setdiff1d(state.snapshot.pods.leaving(), self.leaving, assume_unique=True)
        self.excluded = evaluator.exclusions(now) | mask_of(state, np.append(self._kept, late))
        """The pods, by row, that may not go now: in vain, to close no cycle, by a used-up rate, or as they leave."""
        if self.left.again is not None:
            self._exclude_used_up(evaluator)
        self.evicted = None
        """How often the workload of each pod, by row, was evicted recently; None if the policy does not count it."""
        if (recent := policy.victims.cost.recent_evictions) is not None:
            self.evicted = np.zeros(state.snapshot.pods.rows, np.int64)
            for workload, count in log.counts(recent, now).items():
                self.evicted[evaluator.owned((workload,))] = count

    def _exclude_used_up(self, evaluator: Evaluator) -> None:
        """The pods may not go whose owner, node, namespace, label or cluster has nothing left of a rate."""
        pods, nodes, used_up = self._state.snapshot.pods, self._state.snapshot.nodes, self.left.used_up
        self.excluded[evaluator.owned((*used_up("perOwner"), *used_up("perWorkload")))] = True
        self.excluded |= np.isin(pods.node[: pods.rows], nodes.rows_of(used_up("perNode")))
        self.excluded |= bool(used_up("perCluster"))
        key = self.limits.per_label.label if self.limits.per_label else ""
        namespaces, values = set(used_up("perNamespace")), set(used_up("perLabel"))
        inside = np.zeros(len(pods.identities), np.bool_)
        for number, identity in pods.identities.used() if namespaces or values else ():
            inside[number] = identity.namespace in namespaces or identity.labels_at_creation.get(key) in values
        self.excluded |= inside[pods.identity[: pods.rows]]

    def kept_from(self, outcome: Unschedulable) -> Unschedulable:
        """The outcome. If pods stay so that no cycle is closed, it says so."""
        if not len(self._kept):
            return outcome
        names, within = ", ".join(list(self.evictors)[:_SHOWN]), self._policy.limits.cycles.window
        why = f"pods of {names} stay, for which pods of its own workload were evicted within {within:g} s"
        return replace(outcome, reason=f"{outcome.reason.rstrip('.')}; {why}", limited=True)

    def decide(
        self,
        pod: Pod,
        rules: Rules,
        in_front: CandidateFilter | None,
        extenders: Sequence[Extender],
        left_out: Collection[str],
    ) -> Decision:
        """Decide without the pods that may not go now, by rates, budgets and who is `in_front`.

        The pods that are `leaving` in time are counted on first: nobody goes in place of them. If every candidate has
        more victims than a rate allows, it is decided again with only as many of a node's pods as the rates leave.
        First these are the cheapest of each owner and so on, then those that give most of what the preemptor lacks:
        fewer or more important pods of the node may be enough.
        """
        rates, state, deletes = self.rates, self._state, self._policy.eviction is EvictionMode.DELETE

        def selectable(candidates: Candidates) -> NDArray[np.int8]:
            """0 for every candidate that may be selected now, else the code of what rejects it first."""
            codes = np.zeros(len(candidates.nodes), np.int8) if rates is None else rates(candidates)
            codes[(codes == 0) & (candidates.violations > 0) & (not deletes)] = BEYOND_BUDGET
            if in_front is not None and (open_ := codes == 0).any():
                codes[open_] = in_front(candidates.only(open_))
            return codes

        decided = partial(
            decide,
            state.snapshot,
            pod,
            rules,
            self._at.wall,
            extenders,
            candidate_filter=selectable,
            left_out=left_out,
            leaving=mask_of(state, self.leaving) if len(self.leaving) else None,
            evicted=self.evicted,
        )
        decision = decide_sparing(state, decided, self.excluded)
        if rates is None or decision.selected is not None or not Rates.CODES & decision.rejections:
            return decision
        rows = decision.may_go_rows()
        relief = decision.relief(rows)
        for preference, at_once in ((decision.cheapness(rows), False), (relief, False), (relief, True)):
            if at_once and (NOT_NOW in decision.rejections or rates.left.until is None):
                break  # it is known already whether waiting for the rates helps
            beyond = rates.beyond(rows, preference, at_once=at_once)
            narrowed = decide_sparing(state, decided, self.excluded | mask_of(state, beyond))
            narrowed.rejections |= decision.rejections
            if narrowed.selected is not None:
                return narrowed
            decision.rejections = narrowed.rejections
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
