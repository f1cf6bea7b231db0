"""The plans under way as the page shows them: those of a gang as one, with its members and all their victims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    """A plan with its preemptor; `plan` is None if it was read off that, and its victims tell how far it is."""

    pod: Pod
    record: PlanRecord
    plan: Plan | None = None

    def step(self, state: State) -> int:
        """How far it is, as `PlanShown` has it."""
        if self.plan is not None:
            return self.plan.step
        if all(victim.state != _FIRST for victim in victims_shown(state, [self]).values()):
            return 3
        return 1 if self.record.notice else 2

    def begun(self, ahead: float) -> float | None:
        """When it began; `ahead` is what an instant since the epoch is more than a monotonic one."""
        return epoch_or(self.record.begun, 0.0) or None if self.plan is None else self.plan.started + ahead

    def until(self, ahead: float) -> float | None:
        """When it is given up, None for not before something happens."""
        if self.plan is None:
            return epoch_or(self.record.deadline, 0.0) or None
        return None if math.isinf(self.plan.deadline) else self.plan.deadline + ahead

    @property
    def reserved(self) -> bool:
        """Whether its nomination stands."""
        return self.plan.reserved if self.plan else self.pod.status.nominated_node_name == self.record.node


def by_gang(plans: Iterable[UnderWay]) -> list[list[UnderWay]]:
    """The plans, those of one gang together, in the order of the first of each."""
    gangs: dict[str, list[UnderWay]] = {}
    for under_way in plans:
        gang = under_way.record.gang
        gangs.setdefault(gang.id if gang else key_of(under_way.pod), []).append(under_way)
    return list(gangs.values())


def victims_shown(state: State, plans: Iterable[UnderWay]) -> dict[str, VictimShown]:
    """The victims of plans by their keys, each once, with what goes whole one after the other.

    A victim is as far as the plan says that is farthest: its pod says the rest. One that is gone, and that the record
    does not name, is left out.
    """
    victims: dict[str, VictimShown] = {}
    for under_way in plans:
        record, plan = under_way.record, under_way.plan
        names = group_names(state, record.victims) if plan is None else plan.groups
        for victim in record.victims:
            group = names.get(victim.group, f"group {victim.group}") if victim.group else ""
            known = victims.get(victim.key)
            if victim.name and (known is None or known.state == _FIRST):
                victims[victim.key] = _victim(state, victim, group, plan, record.id)
    first: dict[str, int] = {}
    for place, (key, row) in enumerate(victims.items()):
        first.setdefault(row.group or key, place)
    return dict(sorted(victims.items(), key=lambda pair: first[pair[1].group or pair[0]]))


def shown_as_one(state: State, plans: Sequence[UnderWay], ahead: float) -> PlanShown:
    """The plan of a preemptor without a gang, or those of a gang as one: as far as the one that is behind.

    `ahead` is as for `UnderWay.begun`. Victims and devices are cut to the first ones.
    """
    pods, claims = state.pods.items().values(), state.snapshot.device_claims
    plans = [replace(under_way, record=with_names(under_way.record, pods)) for under_way in plans]
    victims, first = list(victims_shown(state, plans).values()), plans[0]
    unnamed = sum(not victim.name for under_way in plans for victim in under_way.record.victims)
    devices = [DeviceId(row.driver, row.pool, row.device) for under_way in plans for row in under_way.record.devices]
    return PlanShown(
        preemptor=key_of(first.pod),
        priority=first.pod.spec.priority or 0 if first.plan is None else first.plan.priority,
        node=first.record.node,
        policy=first.record.policy,
        step=min(under_way.step(state) for under_way in plans),
        begun=min((at for under_way in plans if (at := under_way.begun(ahead)) is not None), default=None),
        until=max((at for under_way in plans if (at := under_way.until(ahead)) is not None), default=None),
        reserved=all(under_way.reserved for under_way in plans),
        victims=tuple(victims[:_VICTIMS]),
        more_victims=max(0, len(victims) - _VICTIMS) + unnamed,
        devices=tuple(
            DeviceShown("/".join(device), tuple(sorted(claims.users(device) - claims.planned.keys())[:_HOLDERS]))
            for device in devices[:_DEVICES]
        ),
        more_devices=max(0, len(devices) - _DEVICES),
        gang=_gang(state, plans) if first.record.gang else None,
    )


def _gang(state: State, plans: Sequence[UnderWay]) -> GangShown:
    """The members that are bound, and those with plans, and what is missing to the minimum."""
    key, grouped = group_of(plans[0].pod), state.snapshot.pods.grouped
    group = state.snapshot.pods.groups.find(key)
    names = state.snapshot.pods.names
    known = (state.pods.get(f"{key.namespace}/{names[row]}") for row in (grouped.members(group) if group else ()))
    there = [pod for pod in known if pod and pod.spec.node_name and not pod.metadata.deletion_timestamp]
    members = [MemberShown(pod=key_of(pod), node=pod.spec.node_name, state="bound") for pod in there]
    for pod, record in ((under_way.pod, under_way.record) for under_way in plans):
        if not pod.spec.node_name:
            said = "nominated" if pod.status.nominated_node_name == record.node else "to be nominated"
            members.append(MemberShown(pod=key_of(pod), node=record.node, state=said))
    minimum = form_gang(state.snapshot, [under_way.pod for under_way in plans]).minimum
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
