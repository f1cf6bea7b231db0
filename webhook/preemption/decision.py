"""The preemption decision: which node, which victims, and why.

No I/O, no clock: the same input gives the same answer. `now` is in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from webhook.kube.objects.pod import Pod
from webhook.preemption.extenders import Extender, call_extenders
from webhook.preemption.filters.filtering import (
    NO_PODS,
    Failures,
    nodes_where_preemption_might_help,
    prefilter,
    run_filters,
)
from webhook.preemption.ranking import Ranking
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Ints, Ints8, Mask, Rows
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import BY_EVICTION, BY_SCHEDULER
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import CandidateFilter, Candidates
from webhook.preemption.victims.eligible import PotentialVictims, only_pods, potential_victims
from webhook.preemption.victims.rules import Rules
from webhook.preemption.victims.selection import find_victims

_PLACED_TOGETHER = (
    "it is placed together with the pods of its spec.schedulingGroup, and here pods are placed one by one"
)

_MOST_LOOKS = 8
"""Candidates looked at again, 1.3 ms each at 5000 nodes with 50 000 pods."""
_LOOKS_AT_NODES = 2000
"""In a small cluster more sets are looked at: until so many nodes have been."""


def decide(
    snapshot: Snapshot,
    preemptor: Pod,
    rules: Rules,
    now: float,
    extenders: Sequence[Extender] = (),
    *,
    exclusions: Mask | None = None,
    candidate_filter: CandidateFilter | None = None,
    left_out: Collection[str] = (),
    leaving: Mask | None = None,
    evicted: Ints | None = None,
) -> Decision:
    """Decide for one preemptor over all nodes, in the steps of kube-scheduler's `Preempt`.

    By pod row, the `exclusions` stay; those `leaving` go anyway, so they are reprieved last. `evicted`
    is as in `VictimCosts`. Extenders answer first, then `candidate_filter` judges: its codes are in
    `Decision.rejections`. On nodes `left_out` the pod neither fits nor preempts. Raises ClusterError
    for a preemptor that cannot be read, ExtenderError for an extender that cannot be ignored.
    """
    # 1. What the pod asks for, and which pods may go for it.
    incoming = compile_pod(preemptor)
    if preemptor.spec.scheduling_group and not incoming.grows:
        incoming = incoming._replace(beyond=_PLACED_TOGETHER)
    potential = potential_victims(
        snapshot, incoming, rules, now, exclusions=exclusions, leaving=leaving, evicted=evicted
    )
    # 2. Where it fits, and what fails elsewhere (PreFilter and Filter).
    state = prefilter(snapshot, incoming)
    failures = run_filters(state, snapshot.nodes.rows_of(left_out))
    # 3. Whether it may preempt (PodEligibleToPreemptOthers), and has to.
    reason = why_not_eligible(failures, rules, now)
    if reason or len(failures.fits):
        return Decision(failures, potential, reason=reason)
    # 4. Who would go where evictions can help (nodesWherePreemptionMightHelp, SelectVictimsOnNode).
    nodes = nodes_where_preemption_might_help(failures)
    candidates = find_victims(state, potential, nodes)
    # 5. Extenders may drop candidates and victims (callExtenders), and the caller candidates.
    candidates = call_extenders(extenders, preemptor, candidates)
    rejections = set[int]()

    def judge(candidates: Candidates) -> Ints8:
        codes = np.zeros(len(candidates.nodes), np.int8)
        if candidate_filter is not None and len(codes):
            codes = candidate_filter(candidates)
        rejections.update(codes[codes > 0].tolist())
        return codes

    candidates = candidates.only(judge(candidates) == 0)
    # 6. The best one (pickOneNodeForPreemption).
    if candidates.group.any() and (incoming.spread or incoming.affinity):
        candidates = _that_fit_afterwards(candidates, potential)
    ranking = Ranking(candidates, potential)
    # 7. If no single node helps, sets of victims on several (docs/semantics.md D15).
    if rules.across and not ranking.equally_good:
        sets = find_victims(state, potential, nodes, across=True)
        looks = max(_MOST_LOOKS, _LOOKS_AT_NODES // max(1, snapshot.nodes.rows))
        candidates = _that_fit_afterwards(sets, potential, candidate_filter and judge, looks)
        ranking = Ranking(call_extenders(extenders, preemptor, candidates), potential)
    return Decision(failures, potential, ranking=ranking, rejections=frozenset(rejections))


def _that_fit_afterwards(
    candidates: Candidates,
    potential: PotentialVictims,
    judge: CandidateFilter | None = None,
    looks: int = _MOST_LOOKS,
) -> Candidates:
    """Each node's best candidate, from the first that the caller lets stand and the pod fits on.

    Victims on other nodes may mean more than the meters say. One may be whom the preemptor's affinity
    asks for, or leave a domain with fewer pods than the spread allows. After so many looks those are
    left that nobody has to judge and whose victims are all on their node.
    """
    snapshot = potential.snapshot
    for _ in range(looks if len(candidates.nodes) else 0):
        ranking = Ranking(candidates, potential)
        first = ranking.equally_good[0]
        best = ranking.best_of_nodes()
        of_nodes = candidates.only(best)
        top = int(np.count_nonzero(best[:first]))
        codes = np.zeros(len(of_nodes.nodes), np.int8) if judge is None else judge(of_nodes)
        if codes[top] == 0:
            victims, node = of_nodes.victims_of(top), of_nodes.nodes[top]
            alone = (snapshot.pods.node[victims] == node).all()
            if alone or run_filters(prefilter(snapshot, potential.incoming, victims)).code[node] == 0:
                return of_nodes.only(codes == 0)
        # What rejects the best of a node rejects others there
        left = ~np.isin(candidates.nodes, of_nodes.nodes[codes > 0])
        left[first] = False
        candidates = candidates.only(left)
        if not left.any():
            break
    if judge is not None or not len(candidates.nodes):
        return candidates.only(np.zeros(len(candidates.nodes), np.bool_))
    return candidates.only(candidates.elsewhere() == 0)


def why_not_eligible(failures: Failures, rules: Rules, now: float) -> str:
    """Why the pod may not preempt (docs/semantics.md D1), in Kubernetes' words; else empty.

    Kubernetes asks after a failure: a pod that fits everywhere is eligible. A policy's pods
    are `preemptionPolicy: Never` by design, for kube-scheduler only.
    """
    snapshot, incoming = failures.state.snapshot, failures.state.incoming
    if failures.error:
        return f"error: {failures.error}"
    if not (failures.code > 0).any():
        return ""
    if incoming.pod.spec.preemption_policy == "Never" and rules.policy is None:
        return "not eligible due to preemptionPolicy=Never."
    if why_not := rules.why_not(incoming.pod, snapshot.classes, now) or incoming.beyond:
        return f"not eligible: {why_not}."
    pods = snapshot.pods
    node = snapshot.nodes.find(incoming.pod.status.nominated_node_name)
    if node is None or (failures.code[node] > 0 and not failures.resolvable[node]):
        return ""
    # A victim on its way out makes room there; that of a policy is marked by the Eviction API
    marks = (BY_SCHEDULER,) if rules.policy is None else (BY_SCHEDULER, BY_EVICTION)
    for row in pods.on_node(node):
        if pods.terminating[row] and pods.priority[row] < incoming.priority and pods.disruption[row] in marks:
            return "not eligible due to a terminating pod on the nominated node."
    return ""


def fits(snapshot: Snapshot, preemptor: Pod, *, without: Rows = NO_PODS) -> list[str]:
    """The nodes where the pod fits `without` the pods in these rows, sorted.

    Nominated pods of equal or higher priority keep their place. Raises ClusterError for an unreadable
    preemptor.
    """
    return sorted(snapshot.nodes.names[row] for row in _failures(snapshot, preemptor, without).fits)


def fits_on(snapshot: Snapshot, preemptor: Pod, node: str, *, without: Rows = NO_PODS) -> bool:
    """Whether the pod fits on this node, judged like `fits`; False for an unknown one."""
    row = snapshot.nodes.find(node)
    return row is not None and bool(_failures(snapshot, preemptor, without).code[row] == 0)


def refusal_of(snapshot: Snapshot, preemptor: Pod, node: str) -> str:
    """Why the node never takes the pod, in kube-scheduler's words; empty if it may."""
    row, failures = snapshot.nodes.find(node), _failures(snapshot, preemptor)
    if row is None or failures.error or not failures.code[row]:
        return ""
    return "" if row in nodes_where_preemption_might_help(failures) else failures.reason(row)


def _failures(snapshot: Snapshot, preemptor: Pod, without: Rows = NO_PODS) -> Failures:
    return run_filters(prefilter(snapshot, compile_pod(preemptor), without))


def devices_on(snapshot: Snapshot, preemptor: Pod, node: str, *, without: Rows = NO_PODS) -> list[DeviceId]:
    """The devices that the pod would get there, as for `fits`, without shared ones."""
    row = snapshot.nodes.find(node)
    devices = prefilter(snapshot, compile_pod(preemptor), without).devices
    return [] if row is None or devices is None else devices.allocation(row) or []


def victims_needed(
    snapshot: Snapshot,
    preemptor: Pod,
    node: str,
    among: Rows,
    *,
    rules: Rules | None = None,
    begun: Rows = NO_PODS,
    without: Rows = NO_PODS,
    evicted: Ints | None = None,
) -> Rows:
    """Which pods `among` these rows must leave for the pod to fit there, in their order.

    Judged like `fits`. What goes together by the `rules` leaves or stays together: if one of a group
    has `begun` to leave, the others must. Of pods of equal priority the costlier stay, with
    `evicted` as for `decide`. All of them, if they are not enough.
    """
    row = snapshot.nodes.find(node)
    if row is None:
        return among
    incoming, needed = compile_pod(preemptor), NO_PODS
    state = prefilter(snapshot, incoming, without)
    victims = only_pods(snapshot, incoming, among, rules, evicted)
    if run_filters(state).code[row] != 0:
        across = rules is not None and rules.across
        candidates = find_victims(state, victims, np.array([row]), across=across)
        needed = candidates.pods[: candidates.sizes[:1].sum()]
        gone = np.union1d(without, needed)
        if not len(needed) or (across and not fits_on(snapshot, preemptor, node, without=gone)):
            return among
    if victims.units is None:
        return needed
    leaves = np.isin(np.arange(snapshot.pods.rows), np.append(needed, begun))
    return among[victims.units.spread(leaves)[among]]
