"""The room that a plan waits for: when it comes, and who took it; for devices, too, which are held for its preemptor.

A nomination reserves no devices (docs/kubernetes-behaviour.md K43). So later decisions count those that the preemptor
would get as taken, and the victims that hold them are asked so that all of them end together: who wants fewer devices
would take the first that comes free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import epoch_or
from webhook.kube.object_cache import Change
from webhook.kube.objects.devices import ResourceClaim, ResourceSlice
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import devices_on, fits, fits_on, victims_needed
from webhook.preemption.filters.devices import needs_devices
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex
from webhook.reconciler.preemptors import grace_under
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

_EARLY = 0.5
"""Seconds by which a victim may be asked too early."""
_SHOWN = 3
"""Claims, and devices of each, that are named."""


# Until when a plan may go on.


def time_for(victims: Iterable[Pod], policy: PreemptionPolicy) -> float:
    """Seconds a plan may take: the policy's, from when notices are over and the last victim has had its time to end.

    If it were given up earlier, they would have ended for nothing, and others after them.
    """
    graces = [grace_under(policy, victim) for victim in victims]
    return policy.plan_timeout + (policy.victims.notice + max(graces) if graces else 0.0)


def time_limit(plan: Plan, evaluator: Evaluator, index: PlanIndex, timeout: float) -> float:
    """When a plan is given up if nothing happens, in monotonic seconds; infinite if others have to act first.

    These are the preemptor's scheduler, and kube-controller-manager while it has not taken a victim's devices back.

    The time counts from when all room was there, and only while the preemptor's scheduler is seen at work: if that is
    away, no node is to blame. Before, it counts from when the last notice is over, when the last pod that leaves the
    node has had its time to end.
    """
    if awaits_deallocation(evaluator.state, plan):
        return math.inf
    if math.isinf(plan.roomy):
        told = [until for uid, until in plan.notices.items() if plan.needs(uid)]
        return max([plan.started, _room_comes(plan, evaluator, index), *told]) + timeout
    if plan.record.resize:
        return plan.roomy + timeout  # the kubelet tries again as soon as a pod has left
    chance, pods = evaluator.schedulers.chance, [evaluator.state.pods.get(member.key) for member in plan.unplaced]
    chances = [chance(pod, plan.roomy, timeout) for pod in pods if pod is not None]
    return max(chances, default=math.inf) + timeout


def _room_comes(plan: Plan, evaluator: Evaluator, index: PlanIndex) -> float:
    """When the last pod that leaves a plan's nodes has had its time to end, in monotonic seconds; -inf if none does.

    Its deletionTimestamp is by the API server's clock, and this one may be ahead. So it has at least its grace period
    from when a plan has asked it, or this one first saw it leave.
    """
    state, now = evaluator.state, Now.by(evaluator.clock)
    pods, rows = state.snapshot.pods, evaluator.leaving_within(math.inf, now)
    last = -math.inf
    for row in rows[np.isin(pods.node[rows], nodes_of(plan, state))].tolist():
        last = max(last, float(pods.gone_at[row]) - now.wall + now.monotonic)
        if (pod := state.pods.get(f"{pods.namespaces[row]}/{pods.names[row]}")) is not None:
            written = pod.metadata.deletion_grace_period_seconds
            grace = grace_of(pod) if written is None else written
            last = max(last, plan.leaving.setdefault(pod.metadata.uid, now.monotonic + grace))
    beside = {plan, *(other for member in plan.unplaced for other, _ in index.on_node(member.node))}
    asked = [(other, victim) for other in beside for victim in other.record.victims if victim.uid in other.gone]
    there = [(other, victim.uid) for other, victim in asked if state.pod_of(victim.key, victim.uid) is not None]
    return max((other.leaving.get(uid, last) for other, uid in there), default=last)


def nodes_of(plan: Plan, state: State) -> NDArray[np.intp]:
    """The nodes of a plan, by row."""
    return state.snapshot.nodes.rows_of({member.node for member in plan.unplaced})


def fits_elsewhere(plan: Plan, member: Member, pod: Pod, evaluator: Evaluator) -> bool:
    """Whether its scheduler finds room for a member now, though none comes up on the node of its plan."""
    if plan.record.resize or not plan.gone or evaluator.has_room(pod, member.node):
        return False
    return not plan.left_out.issuperset(fits(evaluator.state.snapshot, pod))


# Who took the room.


def later_equals(plan: Plan, member: Member, index: PlanIndex) -> list[str]:
    """The preemptors of the same priority for which the node was chosen later: if room was taken, theirs is lost."""
    equals = [(other, own) for other, own in index.on_node(member.node) if own.priority == member.priority]
    return [own.key for other, own in equals if other.order > plan.order]


def returning_owners(evaluator: Evaluator, plan: Plan, member: Member, index: PlanIndex) -> set[str]:
    """The owners (`workload_of`) of victims of the plan that have put pods back in their place, in this member's way.

    Such a pod was made after the plan began to evict. It has devices of the member, or is on the node, and the member
    would fit there without it. If something else keeps the member from the node, such as another owner's pod, nobody
    has put anything back.
    """
    state, node, victims = evaluator.state, member.node, {victim.uid for victim in plan.record.victims}
    preemptor, snapshot = state.pods.get(member.key), evaluator.state.snapshot
    keys = [known.key for known in state.pods_on(node)]
    keys += [key for owner in plan.owners for key in state.index.owned.get(owner, ())] if plan.room else []
    there = [pod for key in keys if (pod := state.pods.get(key)) is not None]
    others, evicting = later_equals(plan, member, index), plan.evicting

    def is_put_back(pod: Pod) -> bool:
        came = evicting is not None and evicting.is_before(pod)
        return came and pod.metadata.uid not in victims and workload_of(pod) in plan.owners

    owners = {workload_of(pod) for pod in takers(state, plan, member) if is_put_back(pod)}
    back = {key_of(pod): pod for pod in there if is_put_back(pod)}
    if preemptor is None or not back or not evaluator.has_room(preemptor, node, but=[*others, *back]):
        return owners
    gone = np.union1d(snapshot.pods.leaving(), snapshot.pod_rows(others))
    needed = victims_needed(snapshot, preemptor, node, snapshot.pod_rows(back), without=gone)
    names, namespaces = snapshot.pods.names, snapshot.pods.namespaces
    return owners | {workload_of(back[f"{namespaces[row]}/{names[row]}"]) for row in needed.tolist()}


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nominations to the plan's nodes are to be cleared: those that do not fit beside its preemptors.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
    """
    snapshot, leaving, displaced = state.snapshot, state.snapshot.pods.leaving(), dict[str, Pod]()
    own = {member.key for member in plan.members}
    for member in plan.unplaced if not plan.record.resize else ():
        preemptor, lower = state.pods.get(member.key), state.lower_nominated(member.node, member.priority, member.key)
        scheduler = preemptor.spec.scheduler_name if preemptor is not None else ""
        lower = [pod for pod in lower if pod.spec.scheduler_name == scheduler and key_of(pod) not in own]
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


def devices_for(snapshot: Snapshot, pod: Pod, node: str) -> list[DeviceId]:
    """The devices that the pod would get on the node once every pod that is leaving is gone."""
    if not needs_devices(snapshot, compile_pod(pod)):
        return []
    return devices_on(snapshot, pod, node, without=snapshot.pods.leaving())


def claims_in_the_way(snapshot: Snapshot, plan: Plan, member: Member) -> list[tuple[str, list[DeviceId]]]:
    """The claims, by `namespace/name`, that hold these devices of a member and that no pod that leaves will free."""
    if not member.devices:
        return []
    leaving = [snapshot.pods.uids[row] for row in snapshot.pods.leaving().tolist()]
    leaving += [victim.uid for victim in plan.record.victims if victim.uid not in plan.unneeded]
    return snapshot.device_claims.in_the_way(member.devices, member.uid, leaving)


def taken_text(taken: Sequence[tuple[str, Sequence[DeviceId]]]) -> str:
    """Which claims hold which devices that a plan waited for, for people; the first of each."""
    shown = [f"{key} ({', '.join(map('/'.join, held[:_SHOWN]))})" for key, held in taken[:_SHOWN]]
    more = f" and {len(taken) - _SHOWN} more claims" if len(taken) > _SHOWN else ""
    return f"devices that it waited for are held by {', '.join(shown)}{more}"


def takers(state: State, plan: Plan, member: Member) -> list[Pod]:
    """The pods that have devices of a member; the claims say so before a pod is seen on the node."""
    claims = state.snapshot.device_claims.claims
    return [
        pod
        for key, _ in claims_in_the_way(state.snapshot, plan, member)
        for user in claims[key].status.reserved_for or ()
        if (pod := state.pod_of(f"{key.partition('/')[0]}/{user.name}", user.uid)) is not None
    ]


def awaits_deallocation(state: State, plan: Plan) -> bool:
    """Whether kube-controller-manager has yet to take back what a victim of the plan held."""
    return state.pending.awaits_deallocation(victim.uid for victim in plan.record.victims)


def concerns(change: Change[Any], plan: Plan) -> bool:
    """Whether a change of a claim, or of a slice, is one of devices that the plan holds."""
    if not plan.devices:
        return False
    for obj in (change.old, change.new):
        match obj:
            case ResourceClaim() if not set(plan.devices).isdisjoint(devices_of(obj)):
                return True
            case ResourceSlice() if (obj.spec.driver, obj.spec.pool.name) in {held[:2] for held in plan.devices}:
                return True
    return False


def asked_in_step(
    state: State, plan: Plan, left: Collection[PlanVictim], policy: PreemptionPolicy, at: Now
) -> tuple[list[PlanVictim], float]:
    """Of the victims that are left those to ask now, so that all end together; and when the next is to be asked.

    The one with the longest grace is asked first. How long others really take nobody knows. Monotonic seconds.
    """
    now, wall = at
    grace = {victim.uid: grace_under(policy, pod) for victim in left if (pod := state.pods.get(victim.key)) is not None}
    asked = [state.pod_of(victim.key, victim.uid) for victim in plan.record.victims if victim.uid in plan.gone]
    metas = [pod.metadata for pod in asked if pod is not None]
    ends = [epoch_or(meta.deletion_timestamp, plan.leaving[meta.uid] + wall - now) + now - wall for meta in metas]
    ends += [now + seconds for seconds in grace.values()]
    begin = {victim.uid: max(ends, default=now) - grace.get(victim.uid, 0) for victim in left}
    return [victim for victim in left if begin[victim.uid] <= now + _EARLY], min(begin.values())
