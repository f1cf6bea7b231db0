"""The page's model of a reconciler.

Who leads shows its queue, others show what the pods tell them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from webhook.kube.instants import epoch, epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.page import model
from webhook.policy.model.values import DECISION
from webhook.preemption.gangs.gang import form_gang
from webhook.preemption.ranking import how_compared
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.reconciler.evictions.log import BARE
from webhook.reconciler.evictions.store import EvictionRecord
from webhook.reconciler.overview.priorities import ladder
from webhook.reconciler.plans.actions import Ending
from webhook.reconciler.plans.plan import Member, Plan, group_names, stays
from webhook.reconciler.preemptors import is_marked, scheduler_refusal
from webhook.reconciler.queue.queue import QueueState
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.service import ReconcilerService
from webhook.reconciler.state.annotations import (
    DecisionRecord,
    PlanRecord,
    PlanVictim,
    UnreadableError,
    carries,
    decision_of,
    is_ready,
    notice_of,
    plan_of,
    with_names,
)
from webhook.reconciler.state.state import State

_WAITING, _PLANS, _VICTIMS, _DECISIONS, _POLICIES, _OWNERS = 50, 20, 12, 20, 50, 12
_MEMBERS, _DEVICES, _HOLDERS = 24, 16, 3
"""How many of each are shown."""
_HOUR, _QUARTER = 3600.0, 900.0
_AHEAD = 300.0
"""Seconds by which another clock may be ahead; no later decision is believed."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the reconciler does not know: why policy files are not used, and certificates."""

    policies_problem: str = ""
    certificates: tuple[model.Certificate, ...] = ()


def overview(service: ReconcilerService, port: int, surroundings: Surroundings) -> model.Page:
    """All that the page shows; a command to reach the leader names its `port`."""
    state, reconciler = service.state, service.reconciler
    wall, leader = service.clock.wall(), service.led_elsewhere()
    # 1. What this process does, or who leads and how to reach it.
    role, notice, command = "leads", "", ""
    if service.options.dry_run:
        role = "rehearses" if reconciler.leading else "watches"
        notice = "Nothing is written: plans are what would be done." if reconciler.leading else ""
    elif leader is not None:
        role, (said, command) = "follows", service.way_to(leader, port)
        notice = f"{said[0].upper()}{said[1:]}. What is below was read off the pods; the leader knows more."
    # 2. Who waits, and which plans are under way.
    pods = state.pods.items()
    pending = [pod for pod in pods.values() if not (pod.spec.node_name or is_terminal(pod))]
    marked = [pod for pod in pending if is_marked(pod)]
    ahead = wall - service.clock.monotonic()
    waiting = _waiting(reconciler, marked, ahead)
    plans = sorted({*reconciler.plans.values()}, key=lambda plan: plan.order)
    if not reconciler.leading:
        plans = written_plans(state, marked, ahead)
    # 3. Everything else is the same for every process.
    return model.Page(
        leadership=model.Leadership(identity=service.identity, role=role, notice=notice, command=command),
        ladder=ladder(state, reconciler.policy_set, pending, wall),
        nodes=len(state.nodes.items()),
        pods=len(pods),
        waiting=tuple(waiting[:_WAITING]),
        waiting_total=len(waiting),
        plans=tuple(plan_shown(state, plan, ahead) for plan in plans[:_PLANS]),
        plans_total=len(plans),
        decisions=tuple(decisions(reconciler.reporter.decided, pods, wall)),
        evictions=_evictions(service.evictions(), wall),
        policies=_policies(service, surroundings.policies_problem),
        certificates=surroundings.certificates,
    )


def _waiting(reconciler: Reconciler, marked: Iterable[Pod], ahead: float) -> list[model.WaitingPod]:
    """The queue of a leader, by priority; to a follower the pods tell it."""
    waiting = []
    if not reconciler.leading:
        for pod in marked:
            said, priority = scheduler_refusal(pod), pod.spec.priority or 0
            if said and said.reason == "Unschedulable":
                key, why = key_of(pod), said.message or ""
                row = model.WaitingPod(pod=key, priority=priority, state="pending", reason=why)
                waiting.append(row)
        return sorted(waiting, key=lambda row: (-row.priority, row.pod))
    now, entries = reconciler.clock.monotonic(), reconciler.queue.entries.values()
    return [
        model.WaitingPod(
            pod=entry.key,
            priority=entry.priority,
            state=entry.state.value,
            reason="its plan is under way" if entry.state is QueueState.BUSY else entry.reason,
            attempts=entry.attempts,
            next_try=entry.due + ahead if entry.due > now else None,
        )
        for entry in sorted(entries, key=lambda row: (-row.priority, row.created, row.key))
    ]


def written_plans(state: State, pods: Iterable[Pod], ahead: float) -> list[Plan]:
    """The plans written on these pods; `ahead` is as for `plan_shown`."""
    written: dict[str, tuple[PlanRecord, dict[str, Member]]] = {}
    for pod in pods:
        with suppress(UnreadableError):
            if (record := plan_of(pod)) is None:
                continue
            key, node = key_of(pod), record.node
            devices = [DeviceId(*device) for device in record.devices]
            member = Member(key, pod.metadata.uid, pod.spec.priority or 0, node, devices, nominated=True)
            member.reserved = pod.status.nominated_node_name == node
            written.setdefault(record.id, (record, {}))[1][key] = member
    plans = []
    for record, members in written.values():
        begun, until = epoch_or(record.begun, -math.inf), epoch_or(record.deadline, math.inf)
        plans.append(Plan(record, members, begun - ahead, until - ahead))
    for plan in plans[:_PLANS]:  # who may write annotations need not have all pods read for each
        plan.record = with_names(plan.record, state.pods.items().values())
        victims = plan.record.victims
        plan.groups = group_names(state, victims)
        plan.gone = {row.uid for row in victims if not stays(state.pod_of(row.key, row.uid))}
        plan.waiting = len(plan.gone) == len(victims)
    return plans


def plan_shown(state: State, plan: Plan, ahead: float) -> model.PlanShown:
    """A plan, with its first victims and devices; what goes whole stands together.

    An instant since the epoch is more than a monotonic one, by `ahead` seconds.
    """
    claims, member = state.snapshot.device_claims, plan.unplaced[0]
    together: defaultdict[int | str, list[model.VictimShown]] = defaultdict(list)
    for victim in plan.record.victims:
        if victim.name:  # of a gone one the record may have only the uid
            together[victim.group or victim.uid].append(_victim(state, victim, plan))
    victims = [row for rows in together.values() for row in rows]
    return model.PlanShown(
        preemptor=member.key,
        priority=member.priority,
        node=member.node,
        policy=plan.record.policy,
        step=plan.step,
        begun=plan.started + ahead if math.isfinite(plan.started) else None,
        until=plan.deadline + ahead if math.isfinite(plan.deadline) else None,
        reserved=all(row.reserved for row in plan.unplaced),
        victims=tuple(victims[:_VICTIMS]),
        more_victims=len(plan.record.victims) - min(len(victims), _VICTIMS),
        devices=tuple(
            model.DeviceShown(str(device), tuple(sorted(claims.users(device) - claims.planned.keys())[:_HOLDERS]))
            for device in plan.devices[:_DEVICES]
        ),
        more_devices=max(0, len(plan.devices) - _DEVICES),
        gang=_gang(state, plan) if plan.record.members else None,
    )


def _gang(state: State, plan: Plan) -> model.GangShown | None:
    """The bound members, those of the plan, and how many are missing."""
    waiting = [pod for member in plan.unplaced if (pod := state.pods.get(member.key))]
    if not waiting:
        return None
    gang, pods = form_gang(state.snapshot, waiting), state.snapshot.pods
    group, members = pods.groups.find(gang.key), list[model.MemberShown]()
    for row in pods.grouped.members(group).tolist() if group else ():
        pod = state.pods.get(pods.key(row))
        if pod and pod.spec.node_name and not pod.metadata.deletion_timestamp:
            members.append(model.MemberShown(pod=key_of(pod), node=pod.spec.node_name, state="bound"))
    for pod in waiting:
        if not pod.spec.node_name:
            node = plan.members[key_of(pod)].node
            said = "nominated" if pod.status.nominated_node_name == node else "to be nominated"
            members.append(model.MemberShown(pod=key_of(pod), node=node, state=said))
    states = Counter(row.state for row in members)
    return model.GangShown(
        name=str(gang.key),
        minimum=gang.minimum,
        bound=states["bound"],
        nominated=states["nominated"],
        missing=max(0, gang.minimum - states["bound"] - states["nominated"]),
        members=tuple(members[:_MEMBERS]),
        more_members=max(0, len(members) - _MEMBERS),
    )


def _victim(state: State, victim: PlanVictim, plan: Plan) -> model.VictimShown:
    """A victim and how far it is, by its pod and what was done."""
    uid, pod, progress = victim.uid, state.pod_of(victim.key, victim.uid), "to be asked"
    if uid not in plan.needed | plan.gone:
        progress = "stays"
    elif pod is None:
        progress = "gone"
    elif pod.metadata.deletion_timestamp:
        progress = "leaving"
    elif uid in plan.gone:
        progress = "asked"
    elif uid in plan.asking:
        progress = "being asked"
    elif (notice := notice_of(pod)) and notice.plan == plan.id:
        progress = "told, and ready" if is_ready(pod, plan.id) else f"to be asked by {notice.by}"
    group = plan.groups.get(victim.group, f"group {victim.group}") if victim.group else ""
    return model.VictimShown(pod=victim.key, state=progress, group=group)


def _evictions(record: EvictionRecord, wall: float) -> model.Evictions:
    """How many evictions each quarter of the last hour had, by owner."""
    last = dict[str, float]()
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in record.evictions:
        at, owner = record.when(row), row.workload.removeprefix(BARE)
        if wall - at >= _HOUR:
            break
        counts[owner][-1 - max(0, int((wall - at) / _QUARTER))] += 1
        last.setdefault(owner, at)
    most = sorted(counts, key=lambda owner: (-sum(counts[owner]), owner))
    shown = [model.OwnerEvictions(owner, tuple(counts[owner]), last[owner]) for owner in most[:_OWNERS]]
    total = sum(map(sum, counts.values()))
    return model.Evictions(total=total, owners=tuple(shown), more_owners=max(0, len(most) - _OWNERS))


class _Dated(msgspec.Struct):
    at: str


def decisions(plans: Iterable[Plan], pods: Mapping[str, Pod], wall: float) -> list[model.DecisionShown]:
    """The last decisions, the newest first; `wall` is now (since the epoch).

    They are those of this process, and those written on pods, by which a follower and a
    new leader know them. The latter may be forged where the webhook does not look: they
    push out none of this process.
    """
    members = {(plan.id, key): member for plan in plans for key, member in plan.members.items()}
    own = [(name, member.decision) for name, member in members.items() if member.decision]
    known = dict(own[-_DECISIONS:])
    written = list[tuple[float, str]]()
    for key, preemptor in pods.items():
        if text := (preemptor.metadata.annotations or {}).get(DECISION):
            with suppress(msgspec.DecodeError, RecursionError):
                at = msgspec.json.decode(text, type=_Dated).at
                written.append((epoch_or(at, math.inf), key))
    for instant, key in sorted(written, reverse=True):
        if instant < wall + _AHEAD and len(known) < _DECISIONS and (record := decision_of(pods[key])):
            known.setdefault((record.plan, key), record)
    shown = []
    for (plan, key), record in known.items():
        pod, member = pods.get(key), members.get((plan, key))
        ending = (member and member.ended) or ""
        if not ending and pod and pod.spec.node_name == record.node and not carries(pod, plan):
            ending = Ending.BOUND
        shown.append(_decision(record, key, ending))
    return sorted(shown, key=lambda row: epoch(row.at), reverse=True)


def _decision(record: DecisionRecord, preemptor: str, ending: str) -> model.DecisionShown:
    """What a decision tells, cut to the first rows, and what became of it."""
    told = {**msgspec.to_builtins(record), "preemptor": preemptor, "ending": str(ending)}
    shown = msgspec.convert(told, model.DecisionShown)
    return msgspec.structs.replace(
        shown,
        alternatives=shown.alternatives[:5],
        how_compared=how_compared(shown.selected.compared) if shown.selected else "",
        victims=shown.victims[:_VICTIMS],
        more_victims=max(0, len(shown.victims) - _VICTIMS) + shown.more_victims,
    )


def _policies(service: ReconcilerService, problem: str) -> model.PoliciesShown:
    """Each policy in one line: whom it acts for and may evict, or its first rules."""
    rows, policies = [], service.reconciler.policy_set.policies
    for policy in policies.preemption:
        own, rates = policy.preemptors, []
        classes = ", ".join((*own.priority_classes, *own.twins.values())) or "no class"
        for field, rate in policy.limits.rates.items():
            said = f"{rate.evictions} in {rate.window:g} s {field.replace('_', ' ')}"
            rates.append(f"{said} ({rate.schedule})" if rate.schedule else said)
        said = f"preempts for {classes}; victims {policy.victims.mode.value}, budgets {policy.budgets.value}"
        said += f"; at most {', '.join(rates)}" if rates else ""
        said += f"; evicts only by its schedule ({policy.schedule})" if policy.schedule else ""
        rows.append(model.PolicyShown("PreemptionPolicy", policy.name, said))
    for judging in policies.priority:
        names, said = [rule.name for rule in judging.rules], judging.enforcement.value
        said += f"; rules {', '.join(names[:8])}" if names else ""
        said += f" and {len(names) - 8} more" if len(names) > 8 else ""
        rows.append(model.PolicyShown("PriorityPolicy", judging.name, said))
    return model.PoliciesShown(
        rows=tuple(rows[:_POLICIES]),
        more=max(0, len(rows) - _POLICIES),
        loaded=service.policies_since,
        problem=problem,
    )
