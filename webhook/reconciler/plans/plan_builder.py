"""Plans as they begin: from an outcome just decided, or from what an earlier leader wrote. Acts on nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from webhook.kube.instants import InstantError, epoch, rfc3339
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.reconciler.clock import Clock
from webhook.reconciler.evaluate.eviction_limiter import owner_of
from webhook.reconciler.evaluate.outcomes import Evicts, Waits
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.queue.queue import Entry
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord, PlanVictim

__all__ = ["adopted", "decided", "drafted", "grace_under"]

_SHOWN = 20
"""Nodes that were left out that are written down."""


def drafted(entry: Entry, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits, clock: Clock) -> Plan:
    """The plan to carry out an outcome for a preemptor."""
    victims = outcome.victims if isinstance(outcome, Evicts) else ()
    now, time = clock.monotonic(), _time_for(victims, policy)
    record = PlanRecord(
        id=uuid.uuid4().hex[:16],
        node=outcome.node,
        victims=tuple(PlanVictim(one.metadata.namespace, one.metadata.name, one.metadata.uid) for one in victims),
        deadline=rfc3339(clock.wall() + time),
        policy=policy.name,
        attempt=entry.attempts + 1,
    )
    plan = Plan(record, entry.key, pod.metadata.uid, entry.priority, now, now + time)
    plan.left_out = frozenset(left.node for left in entry.nodes.left_out(now))
    if isinstance(outcome, Evicts):
        plan.grounds = {one.metadata.uid: outcome.grounds[key_of(one)] for one in victims}
    return plan


def adopted(pod: Pod, record: PlanRecord, policy: PreemptionPolicy, victims: Iterable[Pod], clock: Clock) -> Plan:
    """The plan of an earlier leader, with the time that is left of its own, at most what this policy gives.

    `victims` are those still there, leaving ones included. The leaders' clocks may differ.
    """
    now = clock.monotonic()
    try:
        left = epoch(record.deadline) - clock.wall()
    except InstantError:
        left = 0.0
    deadline = now + min(max(left, 0.0), _time_for(victims, policy))
    plan = Plan(record, key_of(pod), pod.metadata.uid, pod.spec.priority or 0, now, deadline)
    plan.seen = True
    plan.version = pod.metadata.resource_version
    return plan


def decided(plan: Plan, outcome: Evicts | Waits, seconds: float, clock: Clock) -> DecisionRecord:
    """What is told of the decision behind a plan; `seconds` is what it took."""
    evicts = outcome if isinstance(outcome, Evicts) else None
    return DecisionRecord(
        plan=plan.record.id,
        at=rfc3339(clock.wall()),
        node=plan.node,
        policy=plan.record.policy,
        attempt=plan.record.attempt,
        victims=_victims(evicts) if evicts else (),
        already_leaving=outcome.leaving,
        selected=evicts.selected if evicts else None,
        alternatives=evicts.alternatives if evicts else (),
        because=evicts.because if evicts else "",
        left_out=tuple(sorted(plan.left_out)[:_SHOWN]),
        candidates=evicts.candidates if evicts else 0,
        decision_ms=round(seconds * 1000, 3),
    )


def _victims(outcome: Evicts) -> tuple[DecidedVictim, ...]:
    return tuple(
        DecidedVictim(
            pod=key_of(pod),
            priority=pod.spec.priority or 0,
            owner=owner_of(pod),
            rule=outcome.grounds[key_of(pod)].rule,
            because=outcome.grounds[key_of(pod)].text,
            last_resort=key_of(pod) in outcome.last_resort,
        )
        for pod in outcome.victims
    )


def _time_for(victims: Iterable[Pod], policy: PreemptionPolicy) -> float:
    """Seconds a plan may take: the policy's, from when the last of its victims has had its time to end.

    A plan given up earlier would have them end in vain, and others after them.
    """
    return policy.plan_timeout + max((grace_under(policy, victim) for victim in victims), default=0)


def grace_under(policy: PreemptionPolicy, victim: Pod) -> int:
    """How many seconds a victim gets to end."""
    return policy.grace_period if policy.grace_period is not None else grace_of(victim)
