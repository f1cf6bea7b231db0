"""The plans under way as the page shows them: that of a gang with its members."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.page.model import DeviceShown, GangShown, MemberShown, PlanShown, VictimShown
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.reconciler.plans.plan import Plan, group_names
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim, with_names
from webhook.reconciler.state.notices import is_ready, notice_of
from webhook.reconciler.state.state import State

_MEMBERS, _VICTIMS, _DEVICES, _HOLDERS = 24, 12, 16, 3
"""How many of each are shown."""
_FIRST = "to be asked"
"""How far a victim is at first."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A plan with its preemptors and what is written on each; `plan` is None if it was read off these.

    Then its victims tell how far it is.
    """

    members: list[tuple[Pod, PlanRecord]]
    plan: Plan | None = None


def victims_shown(state: State, under_way: UnderWay) -> dict[str, VictimShown]:
    """The victims of a plan by their keys, what goes whole one after the other.

    One that is gone, and that the record does not name, is left out.
    """
    record, plan = with_names(under_way.members[0][1], state.pods.items().values()), under_way.plan
    names = group_names(state, record.victims) if plan is None else plan.groups
    shown, first = {0: "", **names}, dict[int | str, int]()
    for place, victim in enumerate(record.victims):
        first.setdefault(victim.group or victim.uid, place)
    return {
        victim.key: _victim(state, victim, shown.get(victim.group, f"group {victim.group}"), plan, record.id)
        for victim in sorted(record.victims, key=lambda victim: first[victim.group or victim.uid])
        if victim.name
    }


def plan_shown(state: State, under_way: UnderWay, ahead: float) -> PlanShown:
    """A plan; `ahead` is what an instant since the epoch is more than a monotonic one.

    Victims and devices are cut to the first ones.
    """
    (pod, record), plan, claims = under_way.members[0], under_way.plan, state.snapshot.device_claims
    victims = list(victims_shown(state, under_way).values())
    rows = [row for _, own in under_way.members for row in own.devices]
    devices = [DeviceId(row.driver, row.pool, row.device) for row in rows]
    if plan is not None:
        step, reserved = plan.step, all(row.reserved for row in plan.unplaced)
        begun, until = plan.started + ahead, plan.deadline + ahead
    else:
        step = 3 if all(victim.state != _FIRST for victim in victims) else 1 if record.notice else 2
        reserved = all(member.status.nominated_node_name == own.node for member, own in under_way.members)
        begun, until = epoch_or(record.begun, 0.0), epoch_or(record.deadline, 0.0)
    return PlanShown(
        preemptor=key_of(pod),
        priority=pod.spec.priority or 0,
        node=record.node,
        policy=record.policy,
        step=step,
        begun=begun or None,
        until=until if until and math.isfinite(until) else None,
        reserved=reserved,
        victims=tuple(victims[:_VICTIMS]),
        more_victims=len(record.victims) - min(len(victims), _VICTIMS),
        devices=tuple(
            DeviceShown("/".join(device), tuple(sorted(claims.users(device) - claims.planned.keys())[:_HOLDERS]))
            for device in devices[:_DEVICES]
        ),
        more_devices=max(0, len(devices) - _DEVICES),
        gang=_gang(state, under_way) if record.members else None,
    )


def _gang(state: State, under_way: UnderWay) -> GangShown:
    """The members that are bound, and those of the plan, and what is missing to the minimum."""
    key, grouped = group_of(under_way.members[0][0]), state.snapshot.pods.grouped
    group = state.snapshot.pods.groups.find(key)
    names = state.snapshot.pods.names
    known = (state.pods.get(f"{key.namespace}/{names[row]}") for row in (grouped.members(group) if group else ()))
    there = [pod for pod in known if pod and pod.spec.node_name and not pod.metadata.deletion_timestamp]
    members = [MemberShown(pod=key_of(pod), node=pod.spec.node_name, state="bound") for pod in there]
    for pod, record in under_way.members:
        if not pod.spec.node_name:
            said = "nominated" if pod.status.nominated_node_name == record.node else "to be nominated"
            members.append(MemberShown(pod=key_of(pod), node=record.node, state=said))
    minimum = form_gang(state.snapshot, [pod for pod, _ in under_way.members]).minimum
    bound, nominated = len(there), sum(member.state == "nominated" for member in members)
    return GangShown(
        name=str(key),
        minimum=minimum,
        bound=bound,
        nominated=nominated,
        missing=max(0, minimum - bound - nominated),
        members=tuple(members[:_MEMBERS]),
        more_members=max(0, len(members) - _MEMBERS),
    )


def _victim(state: State, victim: PlanVictim, group: str, plan: Plan | None, plan_id: str) -> VictimShown:
    """A victim and how far it is: by its pod, and by what was done for a plan under way if that is known."""
    pod = state.pod_of(victim.key, victim.uid)
    progress = _FIRST
    if plan is not None and victim.uid in plan.unneeded:
        progress = "stays"
    elif pod is None:
        progress = "gone"
    elif pod.metadata.deletion_timestamp:
        progress = "leaving"
    elif plan is not None and victim.uid in plan.gone:
        progress = "asked"
    elif plan is not None and victim.uid in plan.asking:
        progress = "being asked"
    elif (notice := notice_of(pod)) is not None and notice.plan == plan_id:
        progress = "told, and ready" if is_ready(pod, plan_id) else f"to be asked by {notice.by}"
    return VictimShown(pod=victim.key, state=progress, group=group)
