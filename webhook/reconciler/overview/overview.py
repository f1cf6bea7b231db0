"""The page's model of one reconciler. A process that leads shows its queue; another reads off the pods what it can."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.page.model import (
    Certificate,
    Compared,
    DecisionShown,
    Evictions,
    Leadership,
    OwnerEvictions,
    Page,
    PoliciesShown,
    PolicyShown,
    VictimShown,
    WaitingPod,
)
from webhook.policy.model.policies import Policies
from webhook.preemption.ranking import how_compared
from webhook.reconciler.decision_history import Known
from webhook.reconciler.evictions.log import BARE
from webhook.reconciler.evictions.store import EvictionRecord
from webhook.reconciler.overview.plans_shown import UnderWay, plan_shown
from webhook.reconciler.overview.priorities import ladder
from webhook.reconciler.preemptors import is_marked, unschedulable_since
from webhook.reconciler.queue.queue import QueueState
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.service import ReconcilerService
from webhook.reconciler.state.annotations import (
    Alternative,
    UnreadableError,
    plan_of,
)

_WAITING, _PLANS, _VICTIMS, _DECISIONS, _POLICIES, _OWNERS = 50, 20, 12, 20, 50, 12
"""How many of each are shown."""
_HOUR, _QUARTERS = 3600.0, 4


class Surroundings(msgspec.Struct, frozen=True):
    """What the reconciler itself does not know: why the policy files are not in use, and the certificates served."""

    policies_problem: str = ""
    certificates: tuple[Certificate, ...] = ()


def overview(service: ReconcilerService, port: int, surroundings: Surroundings) -> Page:
    """All that the page shows now. `port` is the one it is served on, for the command that reaches the leader."""
    state, policy_set, leading = service.state, service.reconciler.policy_set, service.reconciler.leading
    wall, leader = service.clock.wall(), service.led_elsewhere()
    # 1. What this process does; one that does not lead says who does, and how to reach that one.
    role, notice, command = "leads", "", ""
    if service.options.dry_run:
        role = "rehearses" if leading else "watches"
        notice = "Nothing is written: plans are what would be done." if leading else ""
    elif leader is not None:
        role, (said, command) = "follows", service.way_to(leader, port)
        notice = f"{said[0].upper()}{said[1:]}. What is below was read off the pods; the leader knows more."
    # 2. Who waits, and which plans are under way.
    pending = [pod for pod in state.pods.items().values() if not (pod.spec.node_name or is_terminal(pod))]
    marked = [pod for pod in pending if is_marked(pod)]
    waiting, waiting_total = _queued(service.reconciler) if leading else _unscheduled(marked)
    plans = _under_way(service.reconciler) if leading else _written(marked)
    ahead = wall - service.clock.monotonic()
    # 3. Everything else is the same for every process.
    return Page(
        leadership=Leadership(identity=service.identity, role=role, notice=notice, command=command),
        ladder=ladder(state, policy_set, pending, wall),
        nodes=len(state.nodes.items()),
        pods=len(state.pods.items()),
        waiting=tuple(waiting),
        waiting_total=waiting_total,
        plans=tuple(plan_shown(state, plan, ahead) for plan in plans[:_PLANS]),
        plans_total=len(plans),
        decisions=tuple(_decision(known) for known in service.history.decisions()[:_DECISIONS]),
        evictions=_evictions(service.evictions(), wall),
        policies=_policies(policy_set.policies, service.policies_since, surroundings),
        certificates=surroundings.certificates,
    )


def _queued(reconciler: Reconciler) -> tuple[list[WaitingPod], int]:
    """The first pods of the queue of a process that leads, and how many there are: who is tried first."""
    wall, now, entries = reconciler.clock.wall(), reconciler.clock.monotonic(), reconciler.queue.entries()
    waiting = [
        WaitingPod(
            pod=entry.key,
            priority=entry.priority,
            state=entry.state.value,
            reason="its plan is under way" if entry.state is QueueState.BUSY else entry.reason,
            attempts=entry.attempts,
            next_try=wall + entry.due - now if entry.due > now else None,
        )
        for entry in heapq.nsmallest(_WAITING, entries, key=lambda entry: (-entry.priority, entry.created, entry.key))
    ]
    return waiting, len(entries)


def _unscheduled(marked: Iterable[Pod]) -> tuple[list[WaitingPod], int]:
    """The same as the pods tell it to a process that does not lead."""
    unplaced = [pod for pod in marked if unschedulable_since(pod) is not None]
    waiting = []
    for pod in heapq.nsmallest(_WAITING, unplaced, key=lambda pod: (-(pod.spec.priority or 0), key_of(pod))):
        said = (condition.message for condition in pod.status.conditions or () if condition.type == "PodScheduled")
        row = WaitingPod(pod=key_of(pod), priority=pod.spec.priority or 0, state="pending", reason=next(said, "") or "")
        waiting.append(row)
    return waiting, len(unplaced)


def _under_way(reconciler: Reconciler) -> list[UnderWay]:
    """The plans of a process that leads, the oldest first."""
    pods, shown = reconciler.state.pods, []
    for plan in sorted(reconciler.plan_manager.index.by_id.values(), key=lambda plan: plan.started):
        there = [(pod, plan.written_on(row)) for row in plan.unplaced if (pod := pods.get(row.key)) is not None]
        shown += [UnderWay(there, plan)] if there else []
    return shown


def _written(marked: Iterable[Pod]) -> list[UnderWay]:
    """The plans that are written on pods."""
    plans: dict[str, UnderWay] = {}
    for pod in marked:
        with suppress(UnreadableError):
            if (record := plan_of(pod)) is not None:
                plans.setdefault(record.id, UnderWay([])).members.append((pod, record))
    return list(plans.values())


def _evictions(record: EvictionRecord, wall: float) -> Evictions:
    """How many evictions there were in each quarter of the last hour, by owner."""
    last, counts = dict[str, float](), dict[str, list[int]]()
    for row in record.evictions:
        at, owner = record.when(row), row.workload.removeprefix(BARE)
        if (ago := wall - at) > _HOUR:
            break
        quarter = _QUARTERS - 1 - max(0, min(_QUARTERS - 1, int(ago * _QUARTERS / _HOUR)))
        counts.setdefault(owner, [0] * _QUARTERS)[quarter] += 1
        last.setdefault(owner, at)
    most = sorted(counts, key=lambda owner: (-sum(counts[owner]), owner))
    shown = tuple(OwnerEvictions(owner, tuple(counts[owner]), last[owner]) for owner in most[:_OWNERS])
    total = sum(map(sum, counts.values()))
    return Evictions(total=total, owners=shown, more_owners=max(0, len(most) - _OWNERS))


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
        how_compared=how_compared(record.selected.compared) if record.selected else "",
        victims=tuple(
            VictimShown(
                pod=victim.pod,
                priority=victim.priority,
                owner=victim.owner,
                rule=victim.rule,
                group=victim.group or "",
                node=victim.node or "",
                because=victim.because + ("; its replacement could run nowhere else" if victim.last_resort else ""),
            )
            for victim in record.victims[:_VICTIMS]
        ),
        more_victims=max(0, len(record.victims) - _VICTIMS) + record.more_victims,
    )


def _compared(row: Alternative, *, chosen: bool = False) -> Compared:
    return Compared(node=row.node, values=row.compared, chosen=chosen)


def _policies(policies: Policies, since: float, surroundings: Surroundings) -> PoliciesShown:
    """Each policy in one line: whom it acts for and whom it may evict, or its first rules."""
    rows = []
    for policy in policies.preemption:
        classes = ", ".join((*policy.preemptors.priority_classes, *policy.preemptors.twins.values())) or "no class"
        rates = [
            f"{rate.evictions} in {rate.window:g} s {field.replace('_', ' ')}"
            + (f" ({rate.schedule})" if rate.schedule else "")
            for field, rate in policy.limits.rates.items()
        ]
        said = f"preempts for {classes}; victims {policy.victims.mode.value}, budgets {policy.budgets.value}"
        said += f"; at most {', '.join(rates)}" if rates else ""
        said += f"; evicts only by its schedule ({policy.schedule})" if policy.schedule else ""
        rows.append(PolicyShown("PreemptionPolicy", policy.name, said))
    for judging in policies.priority:
        names = ", ".join(rule.name for rule in judging.rules[:8])
        more = f" and {len(judging.rules) - 8} more" if len(judging.rules) > 8 else ""
        said = f"{judging.enforcement.value}; rules {names}{more}" if names else judging.enforcement.value
        rows.append(PolicyShown("PriorityPolicy", judging.name, said))
    return PoliciesShown(
        rows=tuple(rows[:_POLICIES]),
        more=max(0, len(rows) - _POLICIES),
        loaded=since,
        problem=surroundings.policies_problem,
    )
