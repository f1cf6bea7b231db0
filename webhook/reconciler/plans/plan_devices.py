"""The devices that a plan holds for its preemptor: which they are, who took them, and how they come free together.

A nomination reserves no devices (docs/kubernetes-behaviour.md K43). So later decisions count those that the preemptor
would get as taken, and the victims that hold them are asked so that all of them end together: who wants fewer devices
would take the first that comes free.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from webhook.kube.object_cache import Change
from webhook.kube.objects.devices import ResourceClaim, ResourceSlice
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import devices_on
from webhook.preemption.filters.devices import needs_devices
from webhook.preemption.snapshot.claim_index import devices_of
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.preemptors import grace_under
from webhook.reconciler.state.annotations import PlanVictim
from webhook.reconciler.state.state import State

_EARLY = 0.5
"""Seconds by which a victim may be asked too early."""
_SHOWN = 3
"""Claims, and devices of each, that are named."""


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
    state: State, plan: Plan, left: Collection[PlanVictim], policy: PreemptionPolicy, now: float
) -> tuple[list[PlanVictim], float]:
    """Of the victims that are left those to ask now, so that all end together; and when the next is to be asked.

    The one with the longest grace is asked first. How long others really take nobody knows. Monotonic seconds.
    """
    grace = {victim.uid: grace_under(policy, pod) for victim in left if (pod := state.pods.get(victim.key)) is not None}
    there = [victim.uid for victim in plan.record.victims if state.pod_of(victim.key, victim.uid) is not None]
    ends = [*(plan.ends[uid] for uid in there if uid in plan.ends), *(now + seconds for seconds in grace.values())]
    begin = {victim.uid: max(ends, default=now) - grace.get(victim.uid, 0) for victim in left}
    return [victim for victim in left if begin[victim.uid] <= now + _EARLY], min(begin.values())
