"""The page's model of one reconciler. A process that leads shows its queue; another reads off the pods what it can."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.kube.instants import InstantError, epoch
from webhook.kube.objects import Pod, key_of
from webhook.page.model import (
    Certificate,
    Compared,
    DecisionShown,
    Evictions,
    Leadership,
    OwnerEvictions,
    Page,
    PlanShown,
    PoliciesShown,
    PolicyShown,
    VictimShown,
    WaitingPod,
)
from webhook.policy.model import Policies, PreemptionPolicy, PriorityPolicy
from webhook.reconciler.overview.history import BUCKET, Known
from webhook.reconciler.overview.priorities import ladder
from webhook.reconciler.plans.plan import Plan, PlanStep
from webhook.reconciler.preemptors import is_marked, unschedulable_since
from webhook.reconciler.queue.queue import QueuedPreemptor, QueueState
from webhook.reconciler.state.annotations import Alternative, PlanRecord, PlanVictim, UnreadableError, plan_of
from webhook.reconciler.state.state import State

if TYPE_CHECKING:
    from webhook.reconciler.service import Service

__all__ = ["Surroundings", "overview"]

_WAITING, _PLANS, _VICTIMS, _DECISIONS, _OWNERS, _POLICIES = 50, 20, 12, 20, 12, 50
"""How many of each are shown."""
_STEPS = {PlanStep.NOMINATING: 1, PlanStep.EVICTING: 2, PlanStep.WAITING: 3}


class Surroundings(msgspec.Struct, frozen=True):
    """What the reconciler itself does not know: why the policy files are not in use, and the certificates served."""

    policies_problem: str = ""
    certificates: tuple[Certificate, ...] = ()


def overview(service: Service, port: int, surroundings: Surroundings) -> Page:
    """All that the page shows now. `port` is the one it is served on, for the command that reaches the leader."""
    reconciler, state = service.reconciler, service.state
    wall, now = reconciler.clock.wall(), reconciler.clock.monotonic()
    pending = _pending(service)
    if reconciler.leading:
        entries = reconciler.queue.entries()
        first = heapq.nsmallest(_WAITING, entries, key=lambda entry: (-entry.priority, entry.created, entry.key))
        waiting, waiting_total = [_waiting(entry, wall, now) for entry in first], len(entries)
        plans = sorted(reconciler.plans.values(), key=lambda plan: plan.started)
        shown, plans_total = [_plan(plan, state, wall, now) for plan in plans[:_PLANS]], len(plans)
    else:
        marked = [pod for pod in pending if is_marked(pod)]
        unplaced = [pod for pod in marked if unschedulable_since(pod) is not None]
        highest = heapq.nsmallest(_WAITING, unplaced, key=lambda pod: (-(pod.spec.priority or 0), key_of(pod)))
        waiting, waiting_total = list(map(_pending_row, highest)), len(unplaced)
        written = [(pod, record) for pod in marked if (record := _readable_plan(pod)) is not None]
        shown, plans_total = [_written_plan(pod, record, state) for pod, record in written[:_PLANS]], len(written)
    return Page(
        leadership=_leadership(service, port),
        ladder=ladder(state, reconciler.policy_set, pending, wall),
        nodes=len(state.nodes.items()),
        pods=len(state.pods.items()),
        waiting=tuple(waiting),
        waiting_total=waiting_total,
        plans=tuple(shown),
        plans_total=plans_total,
        decisions=tuple(map(_decision, service.history.decisions()[:_DECISIONS])),
        evictions=_evictions(service),
        policies=_policies(reconciler.policy_set.policies, service.policies_since, surroundings),
        certificates=surroundings.certificates,
    )


def _leadership(service: Service, port: int) -> Leadership:
    """What this process does; one that does not lead says who does, and how to reach that one."""
    if service.options.dry_run:
        role = "rehearses" if service.reconciler.leading else "watches"
        notice = "Nothing is written: plans are what would be done." if service.reconciler.leading else ""
        return Leadership(identity=service.identity, role=role, notice=notice)
    leader = service.led_elsewhere()
    if leader is None:
        return Leadership(identity=service.identity, role="leads")
    notice, command = service.way_to(leader, port)
    notice = f"{notice[0].upper()}{notice[1:]}. What is below was read off the pods; the leader knows more."
    return Leadership(identity=service.identity, role="follows", notice=notice, command=command)


def _waiting(entry: QueuedPreemptor, wall: float, now: float) -> WaitingPod:
    return WaitingPod(
        pod=entry.key,
        priority=entry.priority,
        state=entry.state.value,
        reason="its plan is under way" if entry.state is QueueState.BUSY else entry.reason,
        attempts=entry.attempts,
        next_try=wall + entry.due - now if entry.due > now else None,
    )


def _pending(service: Service) -> list[Pod]:
    """The pods on no node."""
    pods = (service.state.pods.get(key) for key in service.pending.keys)
    return [pod for pod in pods if pod is not None]


def _pending_row(pod: Pod) -> WaitingPod:
    said = next((one.message for one in pod.status.conditions or () if one.type == "PodScheduled"), "")
    return WaitingPod(pod=key_of(pod), priority=pod.spec.priority or 0, state="pending", reason=said or "")


def _plan(plan: Plan, state: State, wall: float, now: float) -> PlanShown:
    victims = plan.victims
    return PlanShown(
        preemptor=plan.key,
        priority=plan.priority,
        node=plan.node,
        policy=plan.record.policy,
        step=_STEPS[plan.step],
        begun=wall + plan.started - now,
        until=None if math.isinf(plan.deadline) else wall + plan.deadline - now,
        reserved=plan.reserved,
        victims=tuple(
            VictimShown(pod=victim.key, state=_progress(victim, plan, state)) for victim in victims[:_VICTIMS]
        ),
        more_victims=max(0, len(victims) - _VICTIMS),
    )


def _progress(victim: PlanVictim, plan: Plan, state: State) -> str:
    """How far a victim of a plan under way is."""
    if victim.uid in plan.unneeded:
        return "stays"
    seen = _seen(victim, state)
    if seen == "there":
        return "asked" if victim.uid in plan.gone else "being asked" if victim.uid in plan.asking else "to be asked"
    return seen


def _seen(victim: PlanVictim, state: State) -> str:
    pod = state.pod_of(victim.key, victim.uid)
    if pod is None:
        return "gone"
    return "leaving" if pod.metadata.deletion_timestamp else "there"


def _readable_plan(pod: Pod) -> PlanRecord | None:
    try:
        return plan_of(pod)
    except UnreadableError:
        return None


def _written_plan(pod: Pod, record: PlanRecord, state: State) -> PlanShown:
    """A plan as it is written on its preemptor; how far it is can be read off its victims."""
    states = [_seen(victim, state) for victim in record.victims]
    step = 3 if "there" not in states else 2 if set(states) != {"there"} else 1
    try:
        until: float | None = epoch(record.deadline)
    except InstantError:
        until = None
    pairs = list(zip(record.victims, states, strict=True))
    return PlanShown(
        preemptor=key_of(pod),
        priority=pod.spec.priority or 0,
        node=record.node,
        policy=record.policy,
        step=step,
        until=until,
        reserved=pod.status.nominated_node_name == record.node,
        victims=tuple(
            VictimShown(pod=victim.key, state="to be asked" if seen == "there" else seen)
            for victim, seen in pairs[:_VICTIMS]
        ),
        more_victims=max(0, len(pairs) - _VICTIMS),
    )


def _decision(known: Known) -> DecisionShown:
    record = known.record
    rows = [_compared(record.selected, chosen=True)] if record.selected else []
    return DecisionShown(
        plan=record.plan,
        at=record.at,
        preemptor=known.preemptor,
        node=record.node,
        policy=record.policy,
        attempt=record.attempt,
        ending=known.ending,
        because=record.because,
        candidates=record.candidates,
        already_leaving=record.already_leaving,
        milliseconds=record.decision_ms,
        compared=(*rows, *(_compared(other) for other in record.alternatives[:5])),
        victims=tuple(
            VictimShown(
                pod=victim.pod,
                priority=victim.priority,
                owner=victim.owner,
                rule=victim.rule,
                because=victim.because + ("; its replacement could run nowhere else" if victim.last_resort else ""),
            )
            for victim in record.victims[:_VICTIMS]
        ),
        more_victims=max(0, len(record.victims) - _VICTIMS),
    )


def _compared(row: Alternative, *, chosen: bool = False) -> Compared:
    return Compared(
        node=row.node,
        violations=row.budget_violations,
        highest_priority=row.highest_priority,
        victims=row.victims,
        priority_sum=row.priority_sum,
        earliest_start=row.earliest_start,
        chosen=chosen,
    )


def _evictions(service: Service) -> Evictions:
    begins, counts = service.history.evictions()
    owners = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
    shown = tuple(OwnerEvictions(owner, tuple(numbers)) for owner, numbers in owners[:_OWNERS])
    others: list[Any] = [sum(column) for column in zip(*(numbers for _, numbers in owners[_OWNERS:]), strict=True)]
    if others:
        shown = (*shown, OwnerEvictions(f"{len(owners) - _OWNERS} other owners", tuple(others)))
    return Evictions(begins=begins, bucket=BUCKET, owners=shown)


def _policies(policies: Policies, since: float, surroundings: Surroundings) -> PoliciesShown:
    rows = [
        *(PolicyShown("PreemptionPolicy", policy.name, _of_preemption(policy)) for policy in policies.preemption),
        *(PolicyShown("PriorityPolicy", policy.name, _of_priority(policy)) for policy in policies.priority),
    ]
    return PoliciesShown(
        rows=tuple(rows[:_POLICIES]),
        more=max(0, len(rows) - _POLICIES),
        loaded=since,
        problem=surroundings.policies_problem,
    )


def _of_preemption(policy: PreemptionPolicy) -> str:
    """Whom a policy acts for and whom it may evict, in one line."""
    classes = ", ".join((*policy.preemptors.priority_classes, *policy.preemptors.twins.values())) or "no class"
    limits = policy.limits
    rates = [
        f"{rate.evictions} in {rate.window:g} s per {what}"
        for rate, what in ((limits.per_owner, "owner"), (limits.per_node, "node"), (limits.per_cluster, "cluster"))
        if rate is not None
    ]
    said = f"preempts for {classes}; victims {policy.victims.mode.value}, budgets {policy.budgets.value}"
    return f"{said}; at most {', '.join(rates)}" if rates else said


def _of_priority(policy: PriorityPolicy) -> str:
    names = ", ".join(rule.name for rule in policy.rules[:8])
    more = f" and {len(policy.rules) - 8} more" if len(policy.rules) > 8 else ""
    return f"{policy.enforcement.value}; rules {names}{more}" if names else policy.enforcement.value
