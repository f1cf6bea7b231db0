"""The way of a preemptor through the control loop, alone or as a member of a gang: decide, and begin what helps.

A gang takes the same way as a pod. Each member is a preemptor in the queue, the turn of any is the turn of all, and
those that are placed have one plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_groups import group_of
from webhook.reconciler.evaluate.evaluation import Evaluation
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.extender_client import ExtenderCache, ExtenderClient, Question
from webhook.reconciler.evaluate.outcomes import (
    Evicts,
    Fits,
    Key,
    Members,
    Moment,
    Outcome,
    Reserves,
    Unschedulable,
    Verdicts,
    Waits,
)
from webhook.reconciler.plans.actions import ENDS_PREEMPTOR, HOPELESS, IN_VAIN, LOST_ROOM, Ending
from webhook.reconciler.plans.look import plans_of, too_few
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import PolicySet, unschedulable_since
from webhook.reconciler.queue.queue import Queue, QueuedPreemptor
from webhook.reconciler.reporting import Reporter

_GANG_PAUSE = 1.0
"""Seconds between two looks whether a plan for other members has asked all its victims."""
_SHOWN = 5
"""Nodes that are named."""
_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""
_NOT_TAKEN = "a plan timed out there although there was room"


class Preempting:
    """Decides for entries of the queue, and begins their plans."""

    def __init__(
        self,
        manager: PlanManager,
        policy_set: PolicySet,
        queue: Queue,
        extender_client: ExtenderClient,
        reporter: Reporter,
    ) -> None:
        self.verdicts = Verdicts()
        """Those on the shapes of preemptors for whom nothing helps."""
        self._manager = manager
        self._evaluator: Evaluator = manager.evaluator
        self._state = manager.evaluator.state
        self._policy_set = policy_set
        self._queue = queue
        self._extender_client = extender_client
        self._reporter = reporter

    def preempt(self, entry: QueuedPreemptor) -> None:
        """Do for a preemptor whose turn it is what can be done now, as kube-scheduler's `Preempt` does."""
        # 1. Is it still a preemptor to act for?
        pod = self._state.pods.get(entry.key)
        policy = self._policy_set.policy_to_act_by(pod) if pod else None
        if pod is None or policy is None:
            self._queue.remove(entry.key)
            return
        clock, told, gang = self._evaluator.clock, entry.reason, is_gang(self._state.snapshot, pod)
        begun, now = clock.stopwatch(), clock.monotonic()
        # 2. What would help it?
        outcome = self.evaluate(entry, pod, policy, now)
        seconds = clock.stopwatch() - begun
        if gang:
            result = "together" if isinstance(outcome, Reserves) else outcome.result
            self._reporter.metrics.gangs.labels(result).inc()
        # 3. Leave out nodes that it has fitted on for too long without being bound there.
        fitting = outcome.nodes if isinstance(outcome, Fits) else ()
        left, more = entry.nodes.fitting(fitting, partial(self._evaluator.schedulers.chance, pod), now)
        for left_out in left:
            self._reporter.left_out(entry.key, left_out, now)
        # 4. Wait for an event that helps, ask an extender, or begin a plan.
        plan = None
        match outcome:
            case Fits(nodes):
                reason = f"{'its gang' if gang else 'it'} fits without preemption on {len(nodes)} nodes"
                self._queue.park(entry, now, reason=reason, due=now if left else more)
            case Unschedulable(reason, due=due, behind=behind):
                self._queue.park(entry, now, reason=reason, due=due, behind=behind)
            case Question():
                self._extender_client.ask(outcome, entry.said)
            case Waits() | Evicts():
                plan = self._begin(entry, pod, policy, outcome)
        if not isinstance(outcome, Question):
            entry.said = {}
        # 5. Report it.
        self._reporter.metrics.decision_seconds.observe(clock.stopwatch() - begun)
        self._reporter.evaluated(pod, outcome, plan, told=told, seconds=seconds, wall=clock.wall())

    def _begin(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, outcome: Evicts | Waits) -> Plan:
        """Begin a plan for a preemptor, or for the members of its gang that are placed first."""
        keys = [key_of(member) for member, _ in outcome.places] or [entry.key]
        if entry.key not in keys:
            now = self._evaluator.clock.monotonic()
            self._queue.park(entry, now, reason="other pods of its gang are placed first")
        queued = [known for key in keys if (known := self._queue.entries.get(key)) is not None]
        attempts = max((known.attempts for known in queued), default=0)
        plan = self._manager.begin(pod, policy, outcome, attempts)
        for known in queued:
            self._queue.hold(known, attempts)
        self._queue.took(entry, len(plan.record.victims))
        return plan

    def plan_ended(self, plan: Plan, members: Sequence[Member], ending: Ending, because: Member | None) -> None:
        """A plan is over for these members: decide again for who is not bound, at once or after a while.

        A node that kube-scheduler did not take in time, or whose room others took, would not do the next time.
        """
        now, evicted = self._evaluator.clock.monotonic(), bool(plan.gone)
        there = [self._state.pod_of(member.key, member.uid) for member in members]
        shunned = ending is Ending.TIMED_OUT and all(
            pod is not None and self._evaluator.fits_on(pod, member.node)
            for pod, member in zip(there, members, strict=True)
        )
        for member in members:
            entry, taken = self._queue.entries.get(member.key), ending in LOST_ROOM and evicted and member is because
            if entry is None:
                continue
            if shunned or taken:
                why = _NOT_TAKEN if shunned else "another pod took the room that was made there"
                left = entry.nodes.leave_out(member.node, why, now - plan.started, now)
                self._reporter.left_out(member.key, left, now)
            if ending in ENDS_PREEMPTOR:
                self._queue.remove(member.key)
                continue
            in_vain, lost = evicted and ending in IN_VAIN, ending is Ending.LOST
            reason = f"its last plan ended: {ending}"
            self._queue.plan_ended(
                entry, now, in_vain=in_vain, lost=lost, at_once=ending not in HOPELESS, reason=reason
            )

    def evaluate(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for a preemptor; if nothing helps another of its shape, nothing helps this one either."""
        members, entries = Members((pod,)), [entry]
        shape: Key | None = None
        if is_gang(self._state.snapshot, pod):
            if any(not plan.waiting for plan, _ in plans_of(self._manager.context, group_of(pod))):
                return Unschedulable("the victims for other pods of its gang are asked first", due=now + _GANG_PAUSE)
            members = self._members(pod, policy)
            ready, gated = (sorted(map(key_of, pods)) for pods in (members.ready, members.gated))
            shape = policy.name, repr((members.key, ready, gated, members.secured)).encode()
            entries = [queued for key in ready if (queued := self._queue.entries.get(key)) is not None]
        else:  # what holds for it holds for others like it, if nothing was learned about it
            there, alike = pod.spec.node_name or pod.status.nominated_node_name, self._state.index.shape(entry.key)
            evictors = self._evaluator.log.of(workload_of(pod), now)  # which it may not evict
            learned = entry.attempts or entry.nodes.left_out(now) or evictors
            if alike and not (there or learned or policy.extenders or self._state.has_devices(pod)):
                made = (at_creation(pod.metadata).labels or {}) if self._policy_set.rules[policy.name].pairs else {}
                shape = policy.name, alike, group_of(pod), tuple(sorted(made.items()))
        moment = Moment(now, self._queue.events, entry.back_off())
        if shape is not None and (known := self.verdicts.holding(shape, moment)) is not None:
            return known
        try:
            outcome = self._decide(pod, members, entries, policy, now)
        except ClusterError as error:
            outcome = Unschedulable(str(error))
        except ExtenderError as error:
            outcome = Unschedulable(str(error), due=now + entry.back_off() + _EXTENDER_PAUSE)
        if shape is not None and isinstance(outcome, Unschedulable):
            self.verdicts[shape] = outcome, moment
        return outcome

    def _decide(
        self, pod: Pod, members: Members, entries: Sequence[QueuedPreemptor], policy: PreemptionPolicy, now: float
    ) -> Outcome:
        """What to do for a preemptor, or for the members of its gang, given what was learned about them."""
        left_out = {left.node: left.until for entry in entries for left in entry.nodes.left_out(now)}
        attempts = max((entry.attempts for entry in entries), default=0)
        decide = partial(
            Evaluation,
            self._evaluator,
            members,
            policy,
            self._policy_set.rules[policy.name],
            attempts,
            extenders=[ExtenderCache(row, entry.said) for entry in entries[:1] for row in policy.extenders],
            promised=self._manager.promised(pod),
        )
        outcome = decide(left_out=left_out).outcome()
        ends = [until for entry in entries if (until := entry.nodes.wherever_it_fits(now)) is not None]
        if isinstance(outcome, Fits) and ends:
            left_out |= dict.fromkeys(outcome.nodes, max(ends))
            outcome = decide(left_out=left_out).outcome()
        if isinstance(outcome, Fits) and self._manager.dry_run and members.key is None:
            # Where only rehearsed plans make the room kube-scheduler will bind nothing.
            plans = self._manager.index.by_id.values()
            made = {member.node for plan in plans if math.isinf(plan.emptied) for member in plan.members}
            if made.issuperset(outcome.nodes):
                return Waits(outcome.nodes[0], 0)
        if isinstance(outcome, Reserves):
            return replace(outcome, left_out=outcome.left_out | left_out.keys())
        if not left_out or not isinstance(outcome, Unschedulable):
            return outcome
        shown, due = ", ".join(list(left_out)[:_SHOWN]), min(left_out.values())
        reason = f"{outcome.reason}; left out for now, since plans came to nothing there: {shown}"
        return replace(outcome, reason=reason, due=due if outcome.due is None else min(due, outcome.due))

    def _members(self, pod: Pod, policy: PreemptionPolicy) -> Members:
        """The members of the pod's group that have no node."""
        key, wall = group_of(pod), self._evaluator.clock.wall()
        waiting = [member for member in self._state.waiting_members(key) if key_of(member) not in self._manager.plans]
        ready = [
            member
            for member in waiting
            if not member.spec.scheduling_gates
            and self._policy_set.policy_to_act_by(member) is policy
            and wall - (unschedulable_since(member) or wall) >= policy.preemptors.delay
        ]
        gated = [member for member in waiting if member.spec.scheduling_gates]
        # Plans that lack a member will find that, and end.
        secured = () if too_few(pod, self._manager.context) else plans_of(self._manager.context, key)
        nodes = tuple(member.node for _, member in secured)
        return Members(tuple(ready), key, tuple(gated), nodes)
