"""The room that a plan waits for: when it comes, and who took it; for devices, too, which are held for its preemptor.

A nomination reserves no devices (docs/kubernetes-behaviour.md K43). So later decisions count those that the preemptor
would get as taken, and the victims that hold them are asked so that all of them end together: who wants fewer devices
would take the first that comes free.
"""

from __future__ import annotations

import math

import numpy as np

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.preemption.decision import fits_on, victims_needed
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex
from webhook.reconciler.state.state import State

# Until when a plan may go on.


def time_limit(plan: Plan, evaluator: Evaluator, index: PlanIndex, timeout: float) -> float:
    """When a plan is given up if nothing happens, in monotonic seconds; infinite if others have to act first.

    The time counts from when all room was there, and only while the preemptor's scheduler is seen at work: if that is
    away, no node is to blame. Before, it counts from when the last notice is over, when the last victim, and the last
    pod that leaves the node, has had its time to end: whoever ends sooner may have kept others from being asked. A
    deletionTimestamp is by the API server's clock, and this one may be ahead. So such a pod has at least its grace
    period from when it was asked, or first seen to leave.
    """
    state, clock, leaving = evaluator.state, evaluator.clock, index.leaving
    now = Now(clock.monotonic(), clock.wall())
    if math.isfinite(plan.roomy):
        if plan.record.resize:
            return plan.roomy + timeout  # the kubelet tries again as soon as a pod has left
        chance, pods = evaluator.schedulers.chance, [state.pods.get(member.key) for member in plan.unplaced]
        chances = [chance(pod, plan.roomy, timeout) for pod in pods if pod is not None]
        return max(chances, default=math.inf) + timeout
    known, rows = state.snapshot.pods, evaluator.leaving_within(math.inf, now)
    nodes = state.snapshot.nodes.rows_of({member.node for member in plan.unplaced})
    ends = [plan.started, *(until for uid, until in plan.notices.items() if uid in plan.needed)]
    ends += [leaving.get(uid, -math.inf) for uid in plan.gone]
    victims = state.snapshot.pod_rows([victim.key for victim in plan.record.victims])
    for row in rows[np.isin(known.node[rows], nodes) | np.isin(rows, victims)].tolist():
        ends.append(float(known.gone_at[row]) - now.wall + now.monotonic)
        pod = state.pods.get(known.key(row))
        if pod is not None and pod.metadata.deletion_timestamp:
            written = pod.metadata.deletion_grace_period_seconds
            leaving.setdefault(pod.metadata.uid, now.monotonic + (grace_of(pod) if written is None else written))
        ends.append(leaving.get(known.uids[row], -math.inf))
    return max(ends) + timeout


# Who took the room.


def later_equals(plan: Plan, member: Member, index: PlanIndex) -> list[str]:
    """The preemptors of the same priority for which the node was chosen later: if room was taken, theirs is lost."""
    later = (row for other in index.of(member.node) if other.order > plan.order for row in other.unplaced)
    return [row.key for row in later if row.node == member.node and row.priority == member.priority]


def returning_owners(evaluator: Evaluator, plan: Plan, member: Member, index: PlanIndex) -> set[str]:
    """The owners (`workload_of`) of victims of the plan that have put pods back in their place, in this member's way.

    Such a pod was made after the plan began to evict. It has devices of the member, or is on the node, and the member
    would fit there without it. If something else keeps the member from the node, such as another owner's pod, nobody
    has put anything back.
    """
    state, snapshot, node, back = evaluator.state, evaluator.state.snapshot, member.node, dict[str, Pod]()
    preemptor, others, evicting = state.pods.get(member.key), later_equals(plan, member, index), plan.evicting
    keys = list(map(snapshot.pods.key, snapshot.pods_on(node)))
    keys += [key for owner in plan.owners for key in state.index.owned.get(owner, ())] if plan.room else []
    # Claims say who has devices before a pod is seen on the node.
    claims = [snapshot.device_claims.claims[key] for key, _ in claims_in_the_way(snapshot, plan, member)]
    users = {f"{claim.metadata.namespace}/{user.name}" for claim in claims for user in claim.status.reserved_for or ()}
    victims = {victim.uid for victim in plan.record.victims}
    for key in (*users, *keys):
        pod = state.pods.get(key)
        if pod is None or evicting is None or not evicting.is_before(pod) or pod.metadata.uid in victims:
            continue
        if workload_of(pod) in plan.owners:
            back[key] = pod
    owners = {workload_of(back[key]) for key in users & back.keys()}
    here = [key for key in dict.fromkeys(keys) if key in back]
    if preemptor is None or not here or not evaluator.has_room(preemptor, node, but=[*others, *here]):
        return owners
    gone = np.union1d(snapshot.pods.leaving(), snapshot.pod_rows(others))
    for owner in plan.owners - owners:
        rest = [key for key in here if workload_of(back[key]) != owner]
        without = np.union1d(gone, snapshot.pod_rows(set(here).difference(rest)))
        beside = victims_needed(snapshot, preemptor, node, snapshot.pod_rows(rest), without=without)
        if not evaluator.fits_on(preemptor, node, np.union1d(gone, beside)):
            owners.add(owner)
    return owners


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nominations to the plan's nodes are to be cleared: those that do not fit beside its preemptors.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
    """
    snapshot, pods, displaced = state.snapshot, state.snapshot.pods, dict[str, Pod]()
    leaving, nominees = pods.leaving(), pods.nominees()
    for member in plan.unplaced if not plan.record.resize else ():
        preemptor = state.pods.get(member.key)
        scheduler = preemptor.spec.scheduler_name if preemptor is not None else ""
        here = nominees[pods.nominated[nominees] == snapshot.nodes.find(member.node)]
        keys = map(pods.key, here[pods.priority[here] < member.priority].tolist())
        known = [pod for key in keys if key not in plan.members and (pod := state.pods.get(key)) is not None]
        lower = [pod for pod in known if pod.spec.scheduler_name == scheduler]
        lower.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)))
        undecided = {key_of(pod) for pod in lower}
        for pod in lower:
            without = np.union1d(leaving, snapshot.pod_rows(undecided))
            if fits_on(snapshot, pod, member.node, without=without):
                undecided.discard(key_of(pod))
            else:
                displaced[key_of(pod)] = pod
    return list(displaced.values())


# Devices.


def claims_in_the_way(snapshot: Snapshot, plan: Plan, member: Member) -> list[tuple[str, list[DeviceId]]]:
    """The claims, by `namespace/name`, that hold these devices of a member and that no pod that leaves will free."""
    leaving = {snapshot.pods.uids[row] for row in snapshot.pods.leaving().tolist()} | plan.gone | plan.needed
    return snapshot.device_claims.in_the_way(member.devices, member.uid, leaving)
