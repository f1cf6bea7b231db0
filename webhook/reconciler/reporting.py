"""Telling people: Events, metrics, a line and an annotation for a decision (docs/semantics.md E6)."""

from __future__ import annotations

import logging
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from webhook.kube.bounded import Newest
from webhook.kube.events import EventRecorder, Occurrence, reference
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.owner_events import OwnerEvents
from webhook.kube.resources import POD
from webhook.policy.model.preemption import PreemptorNaming
from webhook.policy.model.values import READY
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.reconciler.evaluate.outcomes import Evicts, Outcome, Reserves, Unschedulable
from webhook.reconciler.plans.actions import Ending
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.queue.queue import LeftOut
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, NoticeRecord, is_ready, notice_of

log = logging.getLogger(__name__)

T = TypeVar("T", bound=MetricWrapperBase)
Tell = Callable[..., None]
"""Takes the message of a log line, and its other fields by name."""


class Line:
    """The messages of lines that the page or a simulation reads."""

    DECISION = "decision"
    PLAN_ENDED = "plan ended"
    BUDGET_REFUSED = "budget refused"


CONTROLLER = "giveway.dev/reconciler"
"""Who tells, in Events."""
_ACTION = "Preempting"
DEVICES_TAKEN = "DevicesTaken"
"""The reason of the Event on who took the devices of a plan."""
_SHOWN = 5
"""Victims and nodes that an Event names."""
_LEFT_OUT = 20
"""Nodes that were left out that a decision names."""
_WAITS_AGAIN, _WAITS_ON = 60.0, 1800.0
"""Seconds, at least, between two Events on why a pod waits: of another reason, or the same."""
_MOST_WAITING = 20_000
"""Waiting pods whose last Event is remembered."""
_DECIDED = 30
_CLEARS = "it clears nominations at every failed attempt, as a profile without PostFilter plugins does"
_STAYS = "Is not asked to leave after all: what its notice said does not hold any more"

_DECISION_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_WRITE_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_PLAN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOST_VALUES = 50
"""Values of a label; further ones are counted together."""
_VICTIMS = (0, 1, 2, 4, 8, 16, 32, 64)
_TEXTS = {
    "preemption_attempts": "Preemptors evaluated, by result: fits, waits, evicts, asks, unschedulable, limited",
    "preemption_gangs": "Gangs decided for, by result: together, fits, unschedulable, limited",
    "gangs_ended": "Plans of gangs that ended, by how",
    "preemption_plans": "Plans that ended, by how",
    "preemption_victims": "Victims of a plan",
    "evictions": "Victims asked to leave, by policy, its rule and the victim's namespace",
    "group_evictions": "Victims asked to leave that belong to a group, by what defines the group",
    "preemption_notices": "Victims told before they are asked, by outcome: told, ready, expired, left, withdrawn",
    "budget_refusals": "Evictions a disruption budget refused",
    "nominations_cleared": "Plans whose nomination the scheduler cleared, as a profile without PostFilter plugins does",
    "events_dropped": "Events that could not be written or had to make room, by their reason",
    "decision_seconds": "Seconds from taking a preemptor off the queue to its plan being under way",
    "recheck_seconds": "Seconds it takes to look again just before evicting",
    "write_seconds": "Seconds the API server takes to answer a write, by kind of write",
    "plan_seconds": "Seconds from a decision to the preemptor being bound",
    "queue_depth": "Preemptors by their state in the queue",
    "nominations": "Nominations held",
    "leader": "1 while this process holds the lease",
    "workload_evictions": "Evictions of a workload within 24 hours, of the 50 that were evicted most often",
}


class ReconcilerMetrics(Collector):
    """One set of instruments in one registry.

    `most_evicted()` are the workloads that were evicted most often, and how often.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.most_evicted: Callable[[], list[tuple[str, int]]] = list
        registry.register(self)

        def made(kind: type[T], name: str, *labels: str, **more: Any) -> T:
            return kind(name, _TEXTS[name], labels, "giveway", registry=registry, **more)

        self.attempts = made(Counter, "preemption_attempts", "result")
        self.gangs = made(Counter, "preemption_gangs", "result")
        self.gangs_ended = made(Counter, "gangs_ended", "ending")
        self.plans = made(Counter, "preemption_plans", "ending")
        self.victims = made(Histogram, "preemption_victims", buckets=_VICTIMS)
        self.evictions = made(Counter, "evictions", "policy", "rule", "namespace")
        self.group_evictions = made(Counter, "group_evictions", "group")
        self.notices = made(Counter, "preemption_notices", "outcome")
        self.budget_refusals = made(Counter, "budget_refusals")
        self.nominations_cleared = made(Counter, "nominations_cleared", "scheduler")
        self.events_dropped = made(Counter, "events_dropped", "reason")
        self.decision_seconds = made(Histogram, "decision_seconds", buckets=_DECISION_SECONDS)
        self.recheck_seconds = made(Histogram, "recheck_seconds", buckets=_DECISION_SECONDS)
        self.write_seconds = made(Histogram, "write_seconds", "write", buckets=_WRITE_SECONDS)
        self.plan_seconds = made(Histogram, "plan_seconds", buckets=_PLAN_SECONDS)
        self.queue_depth = made(Gauge, "queue_depth", "state")
        self.nominations = made(Gauge, "nominations")
        self.leader = made(Gauge, "leader")

    def collect(self) -> Iterator[Metric]:
        """The gauge that has a sample for each workload."""
        name, labels = "workload_evictions", ["kind", "namespace", "name"]
        gauge = GaugeMetricFamily(f"giveway_{name}", _TEXTS[name], labels=labels)
        for workload, count in self.most_evicted():
            gauge.add_metric(workload.split("/", 2), count)
        yield gauge


@dataclass(eq=False)
class Reporter:
    """Everything the reconciler says.

    Without a `recorder` there are no Events (`--dry-run`); `owners` records those on workloads.
    `policy_set` says whether Events on victims name preemptors of other namespaces.
    """

    metrics: ReconcilerMetrics
    tell: Tell
    recorder: EventRecorder | None
    owners: OwnerEvents | None = None
    policy_set: PolicySet | None = None

    def __post_init__(self) -> None:
        self.decided = deque[Plan](maxlen=_DECIDED)
        """The latest plans, the oldest first."""
        self._waits = Newest[str, tuple[str, float]](_MOST_WAITING)
        """uid of a waiting pod to what was said, and when (since the epoch)."""
        self._clearing = set[str]()
        """Schedulers that clear nominations."""
        self._values = defaultdict[str, set[str]](set)
        """The values of labels of evictions so far."""

    def evaluated(
        self, pod: Pod, outcome: Outcome, plan: Plan | None, *, told: str, seconds: float, wall: float
    ) -> None:
        """A preemptor was evaluated in so many seconds; `wall` is now (since the epoch).

        Members of a plan, also a rehearsed one, learn the decision. Why a preemptor
        waits is told once; `told` is the last reason.
        """
        key = key_of(pod)
        self.metrics.attempts.labels(outcome.result).inc(len(plan.members) if plan else 1)
        log.debug("%s: %s", key, outcome)
        if isinstance(outcome, Unschedulable):
            if outcome.reason != told:
                self.tell("no preemption", preemptor=key, reason=outcome.reason)
            self._waiting(pod, outcome, wall)
        if plan is None or not isinstance(outcome, Reserves):
            return
        if isinstance(outcome, Evicts) and outcome.cycles and not plan.rehearsed:
            self.tell("cycle", preemptor=key, cycles=outcome.cycles, plan=plan.id)
            cycles = "; ".join(" evicted ".join(cycle) for cycle in outcome.cycles[:_SHOWN])
            note = f"Evicts pods in turn: {cycles}; limits.cycles of the policy says who stays"
            self._event(pod, "PreemptionCycle", note)
        self._planned(plan, outcome, seconds, wall)

    def _planned(self, plan: Plan, outcome: Reserves, seconds: float, wall: float) -> None:
        """The decision, as its log lines and the members of its plan tell it."""
        evicts, room = isinstance(outcome, Evicts), outcome.room
        victims = outcome.victims if evicts else ()
        self.metrics.victims.observe(len(victims))
        self.decided.append(plan)
        decided = defaultdict[str, list[DecidedVictim]](list)
        for victim, row in zip(victims, outcome.decided, strict=False):
            because = f"{row.because}; it goes {room}" if room and row.node else row.because
            shown = msgspec.structs.replace(row, because=because)
            decided[plan.member_for(victim).node].append(shown)
        reasons = outcome.because, room and f"victims go {room}"
        for member in plan.members.values():
            member.decision = DecisionRecord(
                plan=plan.id,
                at=rfc3339(wall),
                node=member.node,
                policy=plan.record.policy,
                attempt=plan.record.attempt,
                victims=tuple(decided[member.node]),
                already_leaving=outcome.leaving,
                selected=outcome.selected,
                alternatives=outcome.alternatives,
                because="; ".join(filter(None, reasons)),
                left_out=tuple(sorted(plan.left_out)[:_LEFT_OUT]),
                candidates=outcome.candidates,
                decision_ms=round(seconds * 1000, 3),
                notice=plan.record.notice if evicts else 0.0,
                room=room,
            )
            fields = {"dryRun": True} if plan.rehearsed else {}
            fields |= msgspec.to_builtins(member.decision)
            self.tell(Line.DECISION, preemptor=member.key, priority=member.priority, **fields)

    def left_out(self, key: str, left: LeftOut, now: float) -> None:
        """A node is left out for a preemptor for a while."""
        said = {"node": left.node, "reason": left.because, "times": left.times}
        self.tell("node left out", preemptor=key, **said, seconds=round(left.until - now))

    def victim_asked(self, plan: Plan, pod: Pod) -> None:
        """A victim was asked to leave."""
        meta, name, grounds = pod.metadata, plan.record.policy, plan.grounds.get(pod.metadata.uid)
        labels = {"rule": grounds.rule if grounds else "", "namespace": meta.namespace}
        for label, value in labels.items():
            known = self._values[label]
            if len(known) < _MOST_VALUES:
                known.add(value)
            if value not in known:
                labels[label] = "other"
        self.metrics.evictions.labels(policy=name, **labels).inc()
        if source := group_of(pod).source:
            self.metrics.group_evictions.labels(source).inc()
        if meta.uid in plan.notices:
            self.metrics.notices.labels("ready" if is_ready(pod, plan.id) else "expired").inc()
        rule = f"{grounds.rule}: {grounds.because}" if grounds else f"policy {name}"
        note = f"Preempted by {self._whom(plan, pod)} ({rule})"
        self._event(pod, "Preempted", note, urgent=True)
        if self.owners is not None:
            told = f"A pod of it made room for one of higher priority ({rule})"
            told += "; the Events of its pods say for which"
            self.owners.event(meta, "PodPreempted", _ACTION, told)

    def preemptor_shown(self, plan: Plan, victim: Pod) -> str:
        """The preemptor (key); empty if the policy keeps it from the victim."""
        key = plan.member_for(victim).key
        rules = self.policy_set.rules.get(plan.record.policy) if self.policy_set else None
        named = rules and rules.policy and rules.policy.name_preemptor is PreemptorNaming.ALWAYS
        return key if named or key.startswith(f"{victim.metadata.namespace}/") else ""

    def _whom(self, plan: Plan, victim: Pod) -> str:
        """For whom a victim goes, and with which pods."""
        member, together = plan.member_for(victim), plan.with_all_of({victim.metadata.uid})
        key = self.preemptor_shown(plan, victim) or f"{member.uid} of another namespace,"
        return f"pod {key} of priority {member.priority} on node {victim.spec.node_name}{together}"

    def told(self, plan: Plan, pod: Pod, notice: NoticeRecord) -> None:
        """A victim has a notice."""
        self.metrics.notices.labels("told").inc()
        self.tell("notice", plan=plan.id, preemptor=plan.member_for(pod).key, victim=key_of(pod), by=notice.by)
        note = f"Is asked to leave by {notice.by} for {self._whom(plan, pod)}"
        note += f"; with the annotation {READY}=true it is asked at once"
        self._event(pod, "PreemptionNotice", note, urgent=True)

    def victim_left(self, plan: Plan, pod: Pod) -> None:
        """A told victim left by itself: it counts as an eviction."""
        self.metrics.notices.labels("left").inc()
        self.tell("victim left", plan=plan.id, preemptor=plan.member_for(pod).key, victim=key_of(pod))

    def withdrawn(self, pod: Pod) -> None:
        """A notice was taken off a pod: it stays."""
        self.metrics.notices.labels("withdrawn").inc()
        record = notice_of(pod)
        self.tell("notice withdrawn", plan=record.plan if record else "", victim=key_of(pod))
        self._event(pod, "PreemptionNoticeWithdrawn", _STAYS, urgent=True)

    def budget_refused(self, plan: Plan, victim: str) -> None:
        """A disruption budget did not let a victim go."""
        self.metrics.budget_refusals.inc()
        self.tell(Line.BUDGET_REFUSED, plan=plan.id, preemptor=plan.key, victim=victim)

    def evicted(self, plan: Plan, pod: Pod) -> None:
        """All victims of a plan have been asked; the pod is a preemptor of it."""
        node = plan.members[key_of(pod)].node
        victims = [row for row in plan.record.victims if row.uid in plan.gone]
        if not victims:
            note = f"Node {node} is reserved: the pod fits there"
            note += " once pods that are already leaving are gone"
            self._event(pod, "NodeReserved", note)
            return
        names = ", ".join(f"{row.key} (uid {row.uid})" for row in victims[:_SHOWN])
        more = f" and {len(victims) - _SHOWN} more" if len(victims) > _SHOWN else ""
        more += plan.with_all_of(plan.gone)
        by = "by evicting some other pods"
        note = f"Pod can be placed {by}, nominated node: {node}, victims: {names}{more}"
        if plan.record.resize:
            note = f"Pod can be resized in place {by} of node {node}: {names}{more}"
        if plan.left_out:
            left_out = ", ".join(sorted(plan.left_out)[:_SHOWN])
            note += f"; left out, since the scheduler did not take them: {left_out}"
        self._event(pod, "PreemptForPodSuccessfully", note)

    def left(self, plan: Plan, member: Member, ending: Ending) -> None:
        """A plan goes on without this member."""
        self.tell("member left", plan=plan.id, preemptor=member.key, ending=ending.value)

    def ended(self, plan: Plan, ending: Ending, seconds: float, note: str = "", pod: Pod | None = None) -> None:
        """A plan is over after so many `seconds`; `pod` has lost its room."""
        self.metrics.plans.labels(ending.value).inc()
        if ending is Ending.BOUND:
            self.metrics.plan_seconds.observe(seconds)
        fields: dict[str, Any] = {"ending": ending.value, "seconds": round(seconds, 3)}
        if plan.record.members:
            self.metrics.gangs_ended.labels(ending.value).inc()
            fields["members"] = list(plan.members)
        if note:
            fields["reason"] = note
        self.tell(Line.PLAN_ENDED, plan=plan.id, preemptor=plan.key, **fields)
        if ending is Ending.DEVICES_TAKEN and pod is not None:
            told = f"Node {plan.members[key_of(pod)].node} is given up: {note}"
            self._event(pod, DEVICES_TAKEN, told, distinct=True)

    def nomination_cleared(self, pod: Pod) -> None:
        """A scheduler cleared a nomination though nobody took the room; told once for each."""
        scheduler = pod.spec.scheduler_name
        self.metrics.nominations_cleared.labels(scheduler).inc()
        if scheduler in self._clearing:
            return
        self._clearing.add(scheduler)
        self.tell("nominations are not kept", scheduler=scheduler, preemptor=key_of(pod), reason=_CLEARS)

    def _waiting(self, pod: Pod, outcome: Unschedulable, wall: float) -> None:
        """Say on a pod why nobody makes room, if that is new or long ago."""
        uid, text = pod.metadata.uid, outcome.text
        before, at = self._waits.get(uid, ("", -math.inf))
        if wall - at < (_WAITS_ON if before == text else _WAITS_AGAIN):
            return
        self._waits[uid] = text, wall
        helps = ""
        if outcome.limited and outcome.due is not None:
            helps = " Waiting helps, or larger limits in the policy."
        elif not outcome.limited and outcome.reason.startswith("no node where"):
            helps = " Room on a node helps, or pods of lower priority that may be evicted."
        note = f"No pod is evicted for it now: {text}{helps}"
        note += f" giveway explain {key_of(pod)} says more."
        self._event(pod, "PreemptionWaits", note, distinct=True)

    def _event(self, pod: Pod, reason: str, note: str, *, urgent: bool = False, distinct: bool = False) -> None:
        if self.recorder is not None:
            regarding = reference(POD, pod.metadata)
            self.recorder.event(Occurrence(regarding, None, "Normal", reason, _ACTION, note, urgent, distinct))
