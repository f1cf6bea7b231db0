"""The preemption decision: which node, which victims, and why.

Pure: no I/O, no clock of its own (`now` is seconds since the epoch), and the same input gives the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from webhook.kube.objects import Pod
from webhook.preemption.eligibility import why_not_eligible
from webhook.preemption.extenders import Extender, extend
from webhook.preemption.filters.filtering import NO_PODS, Failures, PreFilterState, prefilter, run_filters, without_pods
from webhook.preemption.filters.pod_info import compile_pod
from webhook.preemption.ranking import Keys, best, in_order, keys_of
from webhook.preemption.result import Candidate, Decision, Source
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.eligible import (
    ExcludedPod,
    PotentialVictims,
    expected_ends,
    only_pods,
    potential_victims,
)
from webhook.preemption.victims.rules import Rules
from webhook.preemption.victims.selection import find_victims

__all__ = ["decide", "fits", "fits_on", "victims_needed"]

_NO_CODES = np.zeros(0, np.int8)


def decide(
    snapshot: Snapshot,
    preemptor: Pod,
    rules: Rules,
    now: float,
    extenders: Sequence[Extender] = (),
    *,
    exclusions: NDArray[np.bool_] | None = None,
    candidate_filter: CandidateFilter | None = None,
    excluded_nodes: Collection[str] = (),
    leaving: NDArray[np.bool_] | None = None,
) -> Decision:
    """Decide for one preemptor, looking at every node.

    `exclusions` are pods that may not go whatever the rules say, by pod row. `candidate_filter` says which candidates
    may be selected; the codes of the others are in `Decision.rejections`. It judges the victims that go in the end:
    those that are left once the extenders have answered. On `excluded_nodes` the pod neither fits nor preempts.
    Victims that are `leaving` anyway, by pod row, are the last that may stay, whatever their importance.
    Raises ClusterError for a preemptor that cannot be read, ExtenderError for an extender that cannot be ignored.
    """
    incoming = compile_pod(preemptor)
    verdicts = potential_victims(snapshot, incoming, rules, now, exclusions)._replace(leaving=leaving)
    problem = prefilter(snapshot, incoming)
    failures = run_filters(problem)
    reason = why_not_eligible(snapshot, incoming, rules, failures)
    excluded = _rows_of(snapshot, excluded_nodes)
    if reason or _where_it_fits(problem, failures, excluded).size:
        return _answer(problem, failures, verdicts, reason=reason, excluded=excluded)
    plans = find_victims(problem, verdicts, _curable_nodes(problem, failures, excluded))
    if extenders:
        candidates = extend(extenders, preemptor, plans.in_order_of_name())
        codes = _NO_CODES
        if candidate_filter is not None and candidates:
            codes = candidate_filter(Candidates.of(snapshot, candidates))
            candidates = [candidate for candidate, code in zip(candidates, codes, strict=True) if not code]
        keys = keys_of(candidates)
        if rules.policy is not None:
            keys = keys._replace(
                end=Candidates.of(snapshot, candidates).latest(expected_ends(snapshot, rules.policy, now))
            )
        return _answer(
            problem,
            failures,
            verdicts,
            candidates=candidates,
            ranked=best(keys),
            keys=keys,
            codes=codes,
            excluded=excluded,
        )
    codes = _NO_CODES
    if candidate_filter is not None and len(plans.nodes):
        codes = candidate_filter(plans)
        plans = plans.only(codes == 0)
    keys = plans.keys()
    if rules.policy is not None:
        keys = keys._replace(end=plans.latest(expected_ends(snapshot, rules.policy, now)))
    return _answer(
        problem, failures, verdicts, plans=plans, ranked=best(keys), keys=keys, codes=codes, excluded=excluded
    )


def fits(snapshot: Snapshot, preemptor: Pod, *, without: NDArray[np.intp] = NO_PODS) -> list[str]:
    """The nodes on which the pod fits, sorted, as if the pods in the rows `without` were gone.

    Nominated pods of equal or higher priority keep their place. Raises ClusterError for an unreadable preemptor.
    """
    problem = prefilter(snapshot, compile_pod(preemptor), without)
    failures = run_filters(problem)
    return sorted(snapshot.nodes.names[row] for row in _where_it_fits(problem, failures))


def fits_on(snapshot: Snapshot, preemptor: Pod, node: str, *, without: NDArray[np.intp] = NO_PODS) -> bool:
    """Whether the pod fits on this one node, judged like `fits`; False for a node that is not known."""
    row = snapshot.nodes.find(node)
    if row is None:
        return False
    problem = prefilter(snapshot, compile_pod(preemptor), without)
    return bool(run_filters(problem).code[row] == 0)


def victims_needed(
    snapshot: Snapshot, preemptor: Pod, node: str, among: NDArray[np.intp], *, without: NDArray[np.intp] = NO_PODS
) -> NDArray[np.intp]:
    """Which of the pods in the rows `among` have to leave the node so that the pod fits there, in their order.

    Judged like `fits`, as if the pods in the rows `without` were gone. If all of `among` are not enough, all of them.
    """
    row = snapshot.nodes.find(node)
    if row is None:
        return among
    incoming = compile_pod(preemptor)
    problem = prefilter(snapshot, incoming, without)
    if run_filters(problem).code[row] == 0:
        return NO_PODS
    plans = find_victims(problem, only_pods(snapshot, incoming, among), np.array([row]))
    return plans.pods if len(plans.pods) else among


def _where_it_fits(
    problem: PreFilterState, failures: Failures, excluded: NDArray[np.intp] = NO_PODS
) -> NDArray[np.intp]:
    nodes = problem.snapshot.nodes
    found = (failures.code == 0) & nodes.valid[: nodes.rows]
    found[excluded] = False
    return np.flatnonzero(found)


def _rows_of(snapshot: Snapshot, nodes: Collection[str]) -> NDArray[np.intp]:
    return np.array([row for node in nodes if (row := snapshot.nodes.find(node)) is not None], np.intp)


def _curable_nodes(problem: PreFilterState, failures: Failures, excluded: NDArray[np.intp]) -> NDArray[np.intp]:
    """Nodes whose first failure removing pods can cure, and which nothing else rules out."""
    resolvable = failures.resolvable & ~problem.impossible()
    resolvable[excluded] = False
    return np.flatnonzero(resolvable)


def _answer(
    problem: PreFilterState,
    failures: Failures,
    verdicts: PotentialVictims,
    *,
    reason: str = "",
    plans: Candidates | None = None,
    candidates: list[Candidate] | None = None,
    ranked: Sequence[int] = (),
    keys: Keys | None = None,
    codes: NDArray[np.int8] = _NO_CODES,
    excluded: NDArray[np.intp] = NO_PODS,
) -> Decision:
    """Wrap up: the plan now, everything else when it is asked for."""
    snapshot = problem.snapshot
    nodes = snapshot.nodes

    def names(rows: NDArray[np.intp]) -> list[str]:
        return sorted(nodes.names[row] for row in rows)

    def fits_without(gone: NDArray[np.intp]) -> list[str]:
        easier = without_pods(problem, gone)
        return names(_where_it_fits(easier, run_filters(easier), excluded))

    def first(count: int) -> Sequence[int]:
        return (ranked if keys is None or len(ranked) >= count else in_order(keys, count))[:count]

    def name_of(number: int) -> str:
        return nodes.names[plans.nodes[number]] if plans is not None else some([number])[0].node

    def all_candidates() -> list[Candidate]:
        if candidates is not None:
            return candidates
        return plans.in_order_of_name() if plans is not None else []

    def some(numbers: Sequence[int]) -> list[Candidate]:
        if candidates is not None:
            return [candidates[number] for number in numbers]
        return plans.candidates(numbers) if plans is not None else []

    known = nodes.known()
    source = Source(
        version=lambda: snapshot.version,
        fits=lambda: names(_where_it_fits(problem, failures, excluded)),
        unresolvable=lambda: names(known[(failures.code[known] > 0) & ~failures.resolvable[known]]),
        node_reasons=lambda: {nodes.names[row]: failures.reason(row) for row in known if failures.code[row]},
        fits_without=fits_without,
        candidates=all_candidates,
        equally_good=lambda: [name_of(number) for number in ranked],
        shortlist=lambda count: some(first(count)),
        scores=lambda count: [keys.score(number, name_of(number)) for number in first(count)] if keys else [],
        excluded=lambda node: _excluded_on(snapshot, verdicts, node),
        victim_reason=lambda victim: verdicts.reason(int(snapshot.pod_rows([victim])[0])),
    )
    selected = some(ranked[:1])[0] if ranked else None
    count = len(keys.victims) if keys else 0
    rejections = frozenset(np.unique(codes[codes > 0]).tolist())
    return Decision(
        source, eligible=not reason, reason=reason, selected=selected, candidate_count=count, rejections=rejections
    )


def _excluded_on(snapshot: Snapshot, verdicts: PotentialVictims, node: str) -> list[ExcludedPod]:
    row = snapshot.nodes.find(node)
    if row is None:
        return []
    found = [verdicts.excluded(pod) for pod in snapshot.pods.on_node(row)]
    return [excluded for excluded in found if excluded is not None]
