"""What keeps pods from going that the rules let go: who would come back, rates, cycles and disruption budgets. Pure.

A pod is excluded, by masks of pod rows, if its owner or its kubelet puts it back on the node, if the API server does
not remove it, or if it leaves already, but too late. It is excluded if a rate that it counts in is used up, or if its
workload evicted that of the preemptor and the policy keeps the evictor. If its replacement could run on no other node,
it is taken only if nothing else helps. A rate allows what recent evictions have left of it. Budgets are counted without
what a plan itself has reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_name, workload_of
from webhook.policy.model.limits import CycleKeeper
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.preemption.decision import decide
from webhook.preemption.extenders import Extender
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Ints, Mask, Rows
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator, mask_of
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.evictions.log import BARE, AnyRate, label, rates_of
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

NOT_NOW = 1
"""Rejected because of the recent evictions: it may stand once they have left their windows."""
NEVER = {2: "perOwner", 3: "perNode", 4: "perCluster", 5: "perWorkload", 6: "perNamespace", 7: "perLabel"}
"""Rejected for good: these victims are more than the rate allows in a whole window. Other filters have other codes."""
BEYOND_BUDGET = 8
"""The code of candidates with a victim that the Eviction API would refuse."""
_SHOWN = 3
"""Evictors that are named."""


class _Counted(NamedTuple):
    """How a rate counts pods: by its code, in a `group` each, of which so many are `left`; -1 for none."""

    code: int
    rate: AnyRate
    group: Rows
    left: Ints


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
        _, _, self.asked_again = log.excluded(now)
        """When the first of those may be asked again that are excluded for a while only, in monotonic seconds."""
        own = [workload for pod in pods if (workload := workload_of(pod))]
        self.evictors = log.evictors(own, policy.limits.cycles.window, now)
        """Workload or bare pod for which pods were evicted to the way from it to the preemptor's own."""
        stay = self.evictors if policy.limits.cycles.keep is CycleKeeper.EVICTOR else ()
        bare = [evictor.removeprefix(BARE) for evictor in stay if evictor.startswith(BARE)]
        self._kept = np.append(state.snapshot.pod_rows(bare), evaluator.owned(stay))
        self.last_resort = state.index.last_resort()
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
        snapshot, used_up = self._state.snapshot, self.left.used_up
        pods, nodes = snapshot.pods, snapshot.nodes
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
        state, deletes = self._state, self._policy.eviction is EvictionMode.DELETE

        def selectable(candidates: Candidates) -> NDArray[np.int8]:
            """0 for every candidate that may be selected now, else the code of what rejects it first."""
            codes = np.zeros(len(candidates.nodes), np.int8)
            if self.left.left:
                codes = self.beyond_rates(candidates)
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
        decision = decide_sparing(self.last_resort, decided, self.excluded)
        if decision.selected is not None or not decision.rejections & {NOT_NOW, *NEVER}:
            return decision
        rows = decision.may_go_rows()
        relief = decision.relief(rows)
        for preference, at_once in ((decision.cheapness(rows), False), (relief, False), (relief, True)):
            if at_once and (NOT_NOW in decision.rejections or self.left.until is None):
                break  # it is known already whether waiting for the rates helps
            beyond = self.beyond(rows, preference, at_once=at_once)
            narrowed = decide_sparing(self.last_resort, decided, self.excluded | mask_of(state, beyond))
            narrowed.rejections |= decision.rejections
            if narrowed.selected is not None:
                return narrowed
            decision.rejections = narrowed.rejections
        return decision

    # The rates.

    def beyond_rates(self, candidates: Candidates) -> NDArray[np.int8]:
        """0 for every candidate within the rates, else why it is rejected.

        A decision selects the best candidate *within* the rates, so that one whose victims are too many for a rate does
        not keep the preemptor from the next best. Victims that are leaving anyway are not asked, so they do not count.
        """
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
        if not len(victims) or not self.left.left:
            return 0
        snapshot, nobody = self._state.snapshot, np.zeros(len(victims), np.bool_)
        on = np.full(len(victims), snapshot.pods.node[victims[0]], np.intp)  # as if all were on one node
        return int(self.beyond_rates(Candidates.on_nodes(snapshot, on, victims, nobody))[0])

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
            if together and counted.rate is self.limits.per_cluster:
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
        pods, codes = self._state.snapshot.pods, {name: code for code, name in NEVER.items()}
        alike = pods.owner[row].astype(np.int64) << 32 | pods.identity[row]
        nodes, cluster = pods.node[row].astype(np.int64), np.zeros(len(row), np.int64)
        by_kind: dict[str, Ints] = {"node": nodes, "cluster": cluster}
        for field, kind, rate in rates_of(self.limits):
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
        if kind == "namespace":
            return identity.namespace
        made = identity.labels_at_creation.items()
        return next((value for key, value in made if label(key) == kind), None)


def _places(of: Rows, group: Rows) -> Rows:
    """How many pods of the same candidate or node, and of the same group, come before each pod."""
    both = of * (group.max(initial=0) + 2) + group + 1
    order = np.argsort(both, kind="stable")
    firsts = np.flatnonzero(np.diff(both[order], prepend=-1))
    places = np.empty(len(both), np.intp)
    places[order] = np.arange(len(both)) - np.repeat(firsts, np.diff(np.append(firsts, len(both))))
    return places


def decide_sparing(last: Mask, decided: Callable[..., Decision], excluded: Mask) -> Decision:
    """The decision without the `excluded` pods and those of `last` resort; only if that finds nothing, with these.

    `decided` makes it, given who is excluded (`exclusions`).
    """
    rejections = frozenset[int]()
    for exclusions in (excluded | last, excluded):
        decision = decided(exclusions=exclusions)
        decision.rejections |= rejections
        if decision.selected is not None or not decision.eligible or not last.any() or decision.fits:
            break
        rejections = decision.rejections
    return decision


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
        pod = state.pods.get(victim.key)
        row = state.snapshot.pods.find(victim.namespace, victim.name)
        keys = state.pending.covering(pod) if pod is not None and row not in unguarded else []
        if evicts and len(keys) > 1:
            return f"the Eviction API does not let {victim.key} go, which several budgets cover: {', '.join(keys)}"
        for key in keys:
            users.setdefault(key, set()).add(victim.name)
    for key, names in users.items():
        if (budget := state.budgets.get(key)) is None:
            continue
        stale = (budget.status.observed_generation or 0) < (budget.metadata.generation or 0)
        left = 0 if stale else budget.status.disruptions_allowed - len(state.pending.spending(key) - names)
        if len(names) > left:
            return f"disruption budget {key} does not let {', '.join(sorted(names))} go"
    return ""
