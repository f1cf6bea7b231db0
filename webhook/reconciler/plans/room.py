"""The room that a plan waits for, when it comes, and who took it; and devices that are held.

A nomination reserves no devices (docs/kubernetes-behaviour.md K43). So decisions count
those that the preemptor would get as taken. The victims that have them are asked so that
all end together: who wants fewer devices would take the first that comes free.
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


def time_limit(plan: Plan, evaluator: Evaluator, index: PlanIndex, timeout: float) -> float:
    """When a plan is given up (monotonic seconds); infinite if others have to act first.

    The time counts from when all room was there, while the preemptor's scheduler is seen
    at work: else no node is to blame. If it is not, it counts from when it was last, or the
    last end of a notice, a victim, or a pod that leaves the node: until then others may not
    be asked. The deletionTimestamp is by the API server's clock, which may be behind: a pod
    has its grace period since it was asked or seen to leave.
    """
    state, snapshot, leaving = evaluator.state, evaluator.state.snapshot, index.leaving
    pods, now, wall = snapshot.pods, evaluator.clock.monotonic(), evaluator.clock.wall()
    if math.isfinite(plan.roomy):
        if plan.record.resize:
            return plan.roomy + timeout  # the kubelet retries once a pod has left
        known = (state.pods.get(row.key) for row in plan.unplaced)
        chance, since = evaluator.schedulers.chance, plan.roomy
        chances = [chance(pod, since, timeout) for pod in known if pod]
        return max(chances, default=math.inf) + timeout
    ends = [plan.started, plan.had_room, *(leaving.get(uid, -math.inf) for uid in plan.gone)]
    ends += [until for uid, until in plan.notices.items() if uid in plan.needed]
    rows = evaluator.leaving_within(math.inf, Now(now, wall))
    here = np.isin(pods.node[rows], snapshot.nodes.rows_of(plan.nodes))
    victims = snapshot.pod_rows([row.key for row in plan.record.victims])
    for row in rows[here | np.isin(rows, victims)].tolist():
        uid, pod = pods.uids[row], state.pods.get(pods.key(row))
        if pod and pod.metadata.deletion_timestamp:
            written = pod.metadata.deletion_grace_period_seconds
            leaving.setdefault(uid, now + (grace_of(pod) if written is None else written))
        ends += float(pods.gone_at[row]) - wall + now, leaving.get(uid, -math.inf)
    return max(ends) + timeout


def later_equals(plan: Plan, member: Member, index: PlanIndex) -> list[str]:
    """Preemptors of equal priority that chose the node later: lost room is theirs."""
    later = [other for other in index.of(member.node) if other.order > plan.order]
    rows = [row for other in later for row in other.unplaced if row.node == member.node]
    return [row.key for row in rows if row.priority == member.priority]


def returning_owners(evaluator: Evaluator, plan: Plan, member: Member, index: PlanIndex) -> set[str]:
    """The owners (`workload_of`) of victims that put pods back in this member's way.

    Such a pod was made after the plan began to evict. It has devices of the member, or the
    member would fit without it. If something else keeps the member away, such as another
    owner's pod, nobody has put anything back.
    """
    state, snapshot, node = evaluator.state, evaluator.state.snapshot, member.node
    keys = [snapshot.pods.key(row) for row in snapshot.pods_on(node)]
    if plan.room:
        keys += [key for owner in plan.owners for key in state.index.owned.get(owner, ())]
    # Claims say who has devices before a pod is seen on the node.
    users, claims = set[str](), snapshot.device_claims.claims
    for name, _ in claims_in_the_way(snapshot, plan, member):
        namespace, consumers = claims[name].metadata.namespace, claims[name].status.reserved_for
        users |= {f"{namespace}/{user.name}" for user in consumers or ()}
    begun, back = plan.evicting, dict[str, str]()
    victims = {row.uid for row in plan.record.victims}
    for key in (*users, *keys):
        pod = state.pods.get(key)
        if not (pod and begun and begun.is_before(pod)) or pod.metadata.uid in victims:
            continue
        if (owner := workload_of(pod)) in plan.owners:
            back[key] = owner
    owners = {back[key] for key in users & back.keys()}
    here = [key for key in dict.fromkeys(keys) if key in back]
    preemptor, others = state.pods.get(member.key), later_equals(plan, member, index)
    if not (preemptor and here and evaluator.has_room(preemptor, node, but=[*others, *here])):
        return owners
    gone = np.union1d(snapshot.pods.leaving(), snapshot.pod_rows(others))
    for owner in plan.owners - owners:
        own = snapshot.pod_rows([key for key in here if back[key] == owner])
        rest = np.setdiff1d(snapshot.pod_rows(here), own)
        beside = victims_needed(snapshot, preemptor, node, rest, without=np.union1d(gone, own))
        if not evaluator.fits_on(preemptor, node, np.union1d(gone, beside)):
            owners.add(owner)
    return owners


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods nominated to the plan's nodes that do not fit beside its preemptors.

    Leaving pods count as gone. The more important come first: each that fits keeps
    its place against those after it. This is narrower than kube-scheduler on purpose:
    `prepareCandidate` of `DefaultPreemption` clears every lower nomination. Pods of other
    schedulers, and those in `plan.displaced`, are left alone.
    """
    snapshot, pods, displaced = state.snapshot, state.snapshot.pods, dict[str, Pod]()
    leaving, nominees = pods.leaving(), pods.nominees()
    for member in plan.unplaced if not plan.record.resize else ():
        preemptor, node = state.pods.get(member.key), member.node
        scheduler = preemptor.spec.scheduler_name if preemptor else ""
        here = nominees[pods.nominated[nominees] == snapshot.nodes.find(node)]
        keys = map(pods.key, here[pods.priority[here] < member.priority].tolist())
        known = (state.pods.get(key) for key in keys if key not in plan.members)
        lower = [pod for pod in known if pod and pod.spec.scheduler_name == scheduler]
        lower.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", key_of(pod)))
        lower.sort(key=lambda pod: pod.spec.priority or 0, reverse=True)
        losing = {key_of(pod): pod for pod in lower}
        for key, pod in list(losing.items()):
            without = np.union1d(leaving, snapshot.pod_rows(losing))
            if fits_on(snapshot, pod, node, without=without):
                del losing[key]
        displaced |= losing
    return [pod for pod in displaced.values() if pod.metadata.uid not in plan.displaced]


def claims_in_the_way(snapshot: Snapshot, plan: Plan, member: Member) -> list[tuple[str, list[DeviceId]]]:
    """The claims (keys) with a member's devices that nobody who leaves frees."""
    pods = snapshot.pods
    leaving = {pods.uids[row] for row in pods.leaving()} | plan.gone | plan.needed
    return snapshot.device_claims.in_the_way(member.devices, member.uid, leaving)
