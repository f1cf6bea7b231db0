"""What keeps pods that the rules let go: owners, rates, cycles and disruption budgets. Pure.

Masks of pod rows exclude pods that their owner or kubelet puts back on the node, that the
API server does not remove, that leave too late, that count in a used-up rate, or whose
workload evicted the preemptor's, if the policy keeps evictors. Pods whose replacement could
run on no other node go only if nothing else helps. Budgets are counted without what a plan
itself has reserved.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_name, workload_of
from webhook.policy.model.limits import CycleKeeper
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.preemption.decision import fits
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Floats, Ints, Mask, Rows
from webhook.preemption.snapshot.pod_view import Identity, priority_of
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.eligible import protection_ends
from webhook.preemption.victims.rules import EXPENDABLE, Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator, mask_of
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.evaluate.pods_ahead import AHEAD
from webhook.reconciler.evictions.log import BARE, AnyRate, label, rates_of
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

NOT_NOW = 1
"""Rejected by recent evictions, until they leave their windows."""
NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster", 5: "perWorkload", 6: "perNamespace", 7: "perLabel"}
"""Rejected for good: more victims than the rate ever allows."""
BEYOND_BUDGET = 8
"""Rejected, since the Eviction API would refuse a victim."""
_NO_NODE = (
    f"cluster-autoscaler adds no node, because the pod fits where pods below {EXPENDABLE} run that may not be evicted:"
    " nobody helps it"
)
_REFUSED = "the API server is asked again about pods that it would not remove"
_PROTECTION_PAUSE = 1.0
"""Seconds between two tries at ends of protections, at least."""
_SHOWN = 3
"""Evictors that are named."""


class LimitsNow:
    """What keeps pods now that the rules let go: API server, rates, cycles.

    `pods` is the preemptor, or those of a gang. If pods of workload A were evicted for B within the
    policy's window, a preemptor of A closes a cycle if it evicts B, or C for which B was evicted.
    The policy may keep these pods.
    """

    def __init__(self, evaluator: Evaluator, policy: PreemptionPolicy, pods: Iterable[Pod], at: Now) -> None:
        log, state, now = evaluator.log, evaluator.state, at.monotonic
        snapshot, cycles = state.snapshot, policy.limits.cycles
        self._state, self._policy, self._at = state, policy, at
        self.limits = policy.limits.at(at.wall)
        self.left = log.remaining(self.limits, now)
        _, _, self.asked_again = log.excluded(now)
        """When the first excluded pod may be asked again, in monotonic seconds."""
        own = [workload for pod in pods if (workload := workload_of(pod))]
        self.evictors = log.evictors(own, cycles.window, now)
        """By evictor (workload or bare pod) the way from it to the preemptor's own."""
        stay = self.evictors if cycles.keep is CycleKeeper.EVICTOR else ()
        bare = snapshot.pod_rows([evictor.removeprefix(BARE) for evictor in stay])
        self._kept = np.append(bare, evaluator.owned(stay))
        self.last_resort = state.index.last_resort()
        soon = min(policy.wait_for_terminating, policy.plan_timeout)
        self.leaving = evaluator.room_within(soon, at)
        """Rows of pods that leave soon enough to count on."""
        late = np.setdiff1d(snapshot.pods.leaving(), self.leaving, assume_unique=True)
        self.excluded = evaluator.exclusions(now) | mask_of(state, np.append(self._kept, late))
        """Which pods, by row, may not go now."""
        if self.left.again is not None:
            self._exclude_used_up(evaluator)
        self.evicted = None
        """How often each pod's workload was evicted recently, if that counts."""
        if (recent := policy.victims.cost.recent_evictions) is not None:
            self.evicted = np.zeros(snapshot.pods.rows, np.int64)
            for workload, count in log.counts(recent, now).items():
                self.evicted[evaluator.owned((workload,))] = count

    def _exclude_used_up(self, evaluator: Evaluator) -> None:
        """Nobody goes whose owner, node, namespace, label or cluster used up a rate."""
        snapshot = self._state.snapshot
        used_up, excluded = self.left.used_up, self.excluded
        pods, per_label = snapshot.pods, self.limits.per_label
        excluded[evaluator.owned((*used_up("perOwner"), *used_up("perWorkload")))] = True
        excluded |= np.isin(pods.node[: pods.rows], snapshot.nodes.rows_of(used_up("perNode")))
        excluded |= bool(used_up("perCluster"))
        key = per_label.label if per_label else ""
        namespaces = frozenset(used_up("perNamespace"))
        values = frozenset(used_up("perLabel"))

        def is_inside(identity: Identity) -> bool:
            return identity.namespace in namespaces or identity.labels_at_creation.get(key) in values

        names = "used up", namespaces, key, values
        inside = snapshot.table(names, pods.identities, np.bool_, is_inside)
        excluded |= inside[pods.identity[: pods.rows]]

    def hopeless(self, pod: Pod, decision: Decision, rules: Rules, blocking: str) -> Unschedulable:
        """Why nothing helps, maybe who is `blocking`, and when time helps."""
        rejections, left, (now, wall) = decision.rejections, self.left, self._at
        reason = self._why_hopeless(pod, rejections, blocking)
        rated = left.again is not None or bool(rejections - {AHEAD, BEYOND_BUDGET})
        # The first protection of a pod of lower priority that ends.
        own, pods = priority_of(pod), self._state.snapshot.pods
        ends = protection_ends(self._state.snapshot, rules, wall, own)
        lower = (pods.priority[: pods.rows] < own) & (pods.node[: pods.rows] >= 0)
        ends = np.zeros(0) if ends is None else ends[lower]
        protected = float(ends[ends > wall].min(initial=math.inf)) - wall
        protected = now + max(protected, _PROTECTION_PAUSE)
        dues = [
            (left.again, f"{left.rates_used_up} leaves room again"),
            (self.asked_again, _REFUSED),
            (protected, "the protection of a pod of lower priority ends"),
        ]
        if NOT_NOW in rejections:
            dues.append((left.until, "the first eviction that counts leaves its window"))
        rates = self.limits.rates.values() if rated else ()
        ending = [rate.schedule.ends(wall) for rate in rates if rate.schedule]
        dues += [(now + end - wall, "the schedule of a rate ends") for end in ending if end]
        known = [(at, why) for at, why in dues if at is not None and math.isfinite(at)]
        due, because = min(known, default=(None, ""))
        if due is None:
            return Unschedulable(reason, rated)
        at = rfc3339(round(wall + due - now))
        return Unschedulable(reason, rated, due, f"That may change at {at}, when {because}.")

    def _why_hopeless(self, pod: Pod, rejections: frozenset[int], blocking: str) -> str:
        snapshot, makes_room = self._state.snapshot, "wherever evicting pods makes room,"
        if rejections and rejections <= NEVER.keys():
            never = " and ".join(NEVER[code] for code in sorted(rejections))
            reason = f"{makes_room} more would have to go at once than limits.{never} ever allows"
        elif blocking:
            reason = f"wherever room can be made, {blocking}"
        elif BEYOND_BUDGET in rejections:
            reason = f"{makes_room} a disruption budget keeps one of them"
        elif NOT_NOW in rejections:
            reason = f"{makes_room} more would have to go than the policy's limits allow now"
        else:
            reason = "no node where evicting pods that may be evicted makes room"
            if self.left.again is not None:
                reason += f"; {self.left.rates_used_up} excludes pods that would do otherwise"
        pods = snapshot.pods
        placed = pods.node[: pods.rows] >= 0
        expendable = np.flatnonzero((pods.priority[: pods.rows] < EXPENDABLE) & placed)
        if len(expendable) and fits(snapshot, pod, without=expendable):
            reason += f"; {_NO_NODE}"
        if self.asked_again is not None:
            reason += "; pods that would not go, or come back at once, are excluded for now"
        return reason

    def kept_from(self, outcome: Unschedulable) -> Unschedulable:
        """The outcome. It says so if pods stay to close no cycle."""
        if not len(self._kept):
            return outcome
        names = ", ".join(list(self.evictors)[:_SHOWN])
        within = self._policy.limits.cycles.window
        why = f"pods of {names} stay, for which pods of its own workload were evicted within {within:g} s"
        return replace(outcome, reason=f"{outcome.reason.rstrip('.')}; {why}", limited=True)

    def decide(self, decided: Callable[..., Decision], in_front: CandidateFilter | None) -> Decision:
        """The decision of `decided` within rates and budgets, behind those `in_front`.

        Nobody goes in place of pods that leave in time. If all candidates exceed a rate it
        is made again with as many pods of a node as the rates leave: the cheapest, then
        those that give most of what is lacking. Fewer or more important ones may do.
        """
        state, last = self._state, self.last_resort

        def selectable(candidates: Candidates) -> NDArray[np.int8]:
            """0 for selectable candidates, else what rejects them."""
            codes = np.zeros(len(candidates.nodes), np.int8)
            if self.left.left:
                codes = self.beyond_rates(len(codes), candidates.numbers, candidates.pods)
            if self._policy.eviction is EvictionMode.EVICT:
                codes[(codes == 0) & (candidates.violations > 0)] = BEYOND_BUDGET
            if in_front and (open_ := codes == 0).any():
                codes[open_] = in_front(candidates.only(open_))
            return codes

        leaving = mask_of(state, self.leaving) if len(self.leaving) else None
        decided = partial(decided, candidate_filter=selectable, leaving=leaving, evicted=self.evicted)
        decision = decide_sparing(last, decided, self.excluded)
        if decision.selected or not decision.rejections & {NOT_NOW, *NEVER}:
            return decision
        rows = decision.may_go_rows()
        cheapness, relief = decision.cheapness(rows), decision.relief(rows)
        for preference, at_once in ((cheapness, False), (relief, False), (relief, True)):
            if at_once and (NOT_NOW in decision.rejections or self.left.until is None):
                break  # it is known whether waiting for the rates helps
            beyond = mask_of(state, self.beyond(rows, preference, at_once=at_once))
            narrowed = decide_sparing(last, decided, self.excluded | beyond)
            narrowed.rejections |= decision.rejections
            if narrowed.selected:
                return narrowed
            decision.rejections = narrowed.rejections
        return decision

    # The rates.

    def beyond_rates(self, count: int, candidate: Rows, victims: Rows) -> NDArray[np.int8]:
        """0 for each of `count` candidates within the rates, else what rejects it.

        Victims, each of a `candidate`, count if they do not leave anyway.
        """
        codes = np.zeros(count, np.int8)
        asked = ~self._state.snapshot.pods.terminating[victims]
        candidate = candidate[asked]
        for code, rate, group, left in self._counted(victims[asked]):
            place = _places(candidate, group)
            beyond = (group >= 0) & (place >= left)
            codes[candidate[beyond & (codes[candidate] == 0)]] = NOT_NOW
            beyond &= place >= rate.evictions
            codes[candidate[beyond & (codes[candidate] <= NOT_NOW)]] = code
        return codes

    def leaving_most_to(self, chosen: Rows, excluded: Mask) -> Mask:
        """The `excluded`, and those that rates keep if the `chosen` go first."""
        pods = self._state.snapshot.pods
        mask = mask_of(self._state, np.flatnonzero(excluded))  # trials may have made rows since
        rows = np.flatnonzero(~mask & (pods.node[: pods.rows] >= 0))
        first = np.isin(rows, chosen).astype(np.float64)
        mask[self.beyond(rows, first, together=True)] = True
        return mask

    def beyond(self, rows: Rows, preference: Floats, *, at_once: bool = False, together: bool = False) -> Rows:
        """Which of these stay if as many go of each node as the rates leave.

        The preferred go first. With `at_once` as many go as the rates ever allow. With
        `together` as many go of all nodes, whatever `perCluster` says: others are no fewer.
        """
        pods = self._state.snapshot.pods
        rows = rows[np.argsort(-preference, kind="stable")]
        rows = rows[~pods.terminating[rows]]
        node = pods.node[rows].astype(np.intp) * (not together)
        kept = np.arange(len(rows))
        for _, rate, group, left in self._counted(rows):  # inner groups come first
            if together and rate is self.limits.per_cluster:
                continue
            place = _places(node[kept], group[kept])
            kept = kept[(group[kept] < 0) | (place < (rate.evictions if at_once else left[kept]))]
        return np.delete(rows, kept)

    def _counted(self, rows: Rows) -> Iterator[tuple[int, AnyRate, Rows, Ints]]:
        """Each rate, its code, each pod's group in it (or -1), and what is left.

        Pods of one owner and identity are alike.
        """
        pods = self._state.snapshot.pods
        codes = {name: code for code, name in NEVER.items()}
        alike = pods.owner[rows].astype(np.int64) << 32 | pods.identity[rows]
        by_kind: dict[str, NDArray[Any]] = {"node": pods.node[rows], "cluster": np.zeros_like(rows)}
        for field, kind, rate in rates_of(self.limits):
            ids, id_of = np.unique(by_kind.get(kind, alike), return_inverse=True)
            names = [self._name(kind, id_) for id_ in ids.tolist()]
            numbers = {name: number for number, name in enumerate(names)}
            known = self.left.left[field]
            group = np.array([-1 if name is None else numbers[name] for name in names], np.intp)
            left = np.array([known.get(name or "", rate.evictions) for name in names], np.int64)
            yield codes[field], rate, group[id_of], left[id_of]

    def _name(self, kind: str, id_: int) -> str | None:
        """The name in which a rate of this kind counts such pods, if any."""
        pods = self._state.snapshot.pods
        if kind in ("node", "cluster"):
            return pods.nodes.names[id_] if kind == "node" else ""
        owner = pods.owners.values[id_ >> 32]
        identity = pods.identities.values[id_ & 0xFFFFFFFF]
        assert owner
        assert identity
        if kind == "owner":
            return workload_name(owner.kind, owner.name, identity.namespace, identity.labels) or None
        if kind == "namespace":
            return identity.namespace
        labels = identity.labels_at_creation
        return next((labels[key] for key in labels if label(key) == kind), None)


def _places(of: Rows, group: Rows) -> Rows:
    """How many pods of the same candidate or node and group precede each."""
    both = of * (group.max(initial=0) + 2) + group + 1
    order = np.argsort(both, kind="stable")
    firsts = np.flatnonzero(np.diff(both[order], prepend=-1))
    places = np.empty(len(both), np.intp)
    places[order] = np.arange(len(both)) - np.repeat(firsts, np.diff(np.append(firsts, len(both))))
    return places


def decide_sparing(last: Mask, decided: Callable[..., Decision], excluded: Mask) -> Decision:
    """The decision without pods of `last` resort, or with them if it finds nothing.

    `decided` makes it, given its `exclusions`.
    """
    sparing = decided(exclusions=excluded | last)
    if sparing.selected or not sparing.eligible or not last.any() or sparing.fits:
        return sparing
    decision = decided(exclusions=excluded)
    decision.rejections |= sparing.rejections
    return decision


def beyond_budget(state: State, policy: PreemptionPolicy, victims: Sequence[PlanVictim]) -> str:
    """Which budget keeps a victim if all of these are to go; empty if none does.

    The Eviction API counts every budget, however victims are chosen (docs/semantics.md D4).
    """
    evicts = policy.eviction is EvictionMode.EVICT
    if not (evicts or policy.budgets is BudgetMode.STRICT) or not state.budgets.items():
        return ""
    snapshot, users = state.snapshot, defaultdict[str, set[str]](set)
    rows = snapshot.pod_rows([row.key for row in victims])
    unguarded = rows[snapshot.budgets.unguarded(rows)].tolist() if evicts else ()
    for victim in victims:
        pod = state.pods.get(victim.key)
        if pod is None or snapshot.pods.find(victim.namespace, victim.name) in unguarded:
            continue
        keys = state.pending.covering(pod)
        if evicts and len(keys) > 1:
            covering = ", ".join(keys)
            return f"the Eviction API does not let {victim.key} go, which several budgets cover: {covering}"
        for key in keys:
            users[key].add(victim.name)
    for key, names in users.items():
        if not (budget := state.budgets.get(key)):
            continue
        status, spent = budget.status, len(state.pending.spending(key) - names)
        stale = (status.observed_generation or 0) < (budget.metadata.generation or 0)
        if stale or len(names) > status.disruptions_allowed - spent:
            return f"disruption budget {key} does not let {', '.join(sorted(names))} go"
    return ""
