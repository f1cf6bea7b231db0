"""The way of a gang through the control loop: its members are decided for, nominated and waited for together.

Each member is a preemptor in the queue, and has a plan of its own; the plans of a gang name one another and go on
together (`plans.next_action`). The turn of any member is the turn of all.
"""

from __future__ import annotations

import uuid
from functools import partial

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_groups import GroupKey, group_of
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.gang_evaluator import GangMembers, Together, evaluate_gang
from webhook.reconciler.evaluate.outcomes import Fits, Unschedulable
from webhook.reconciler.evaluate.verdicts import Moment, Verdicts
from webhook.reconciler.plans.next_action import missing_member
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import PolicySet, unschedulable_since
from webhook.reconciler.queue.queue import Queue, QueuedPreemptor
from webhook.reconciler.reporting import Evaluation, Reporter
from webhook.reconciler.state.annotations import DecisionRecord, GangRecord


def leave_out(entry: QueuedPreemptor, pod: Pod, outcome: object, evaluator: Evaluator, reporter: Reporter) -> float:
    """Leave out nodes that a preemptor has fitted on for too long without being bound there.

    Returns when there may be more of them, in monotonic seconds: now if there are some.
    """
    now, nodes = evaluator.clock.monotonic(), outcome.nodes if isinstance(outcome, Fits) else ()
    left, more_fits = entry.nodes.fitting(nodes, partial(evaluator.schedulers.chance, pod), now)
    for left_out in left:
        reporter.left_out(entry.key, left_out, now)
    return now if left else more_fits


class GangPreemption:
    """Decides for gangs, and begins their plans."""

    def __init__(
        self,
        manager: PlanManager,
        policy_set: PolicySet,
        queue: Queue,
        verdicts: Verdicts,
        reporter: Reporter,
    ) -> None:
        self._manager = manager
        self._evaluator: Evaluator = manager.evaluator
        self._policy_set = policy_set
        self._queue = queue
        self._reporter = reporter
        self._verdicts = verdicts

    def preempt(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy) -> None:
        """Do for the gang of this member, whose turn it is, what can be done now."""
        clock, told = self._evaluator.clock, entry.reason
        begun, now = clock.stopwatch(), clock.monotonic()
        members = self._members(pod, policy)
        outcome = self._evaluate(entry, pod, policy, members)
        seconds = clock.stopwatch() - begun
        self._reporter.metrics.gangs.labels(outcome.result).inc()
        if not isinstance(outcome, Together):
            due = leave_out(entry, pod, outcome, self._evaluator, self._reporter)
            if isinstance(outcome, Fits):
                reason = f"its gang fits without preemption on {len(outcome.nodes)} nodes"
                self._queue.park(entry.key, now, reason=reason, due=due)
            else:
                self._queue.park(entry.key, now, reason=outcome.reason, due=outcome.due, behind=outcome.behind)
            self._report(Evaluation(pod, outcome, None, told, seconds, took=clock.stopwatch() - begun))
            return
        placed = [key_of(member) for member, _ in outcome.placed]
        if entry.key not in placed:
            self._queue.park(entry.key, now, reason="other pods of its gang are placed first")
        record = self._record(group_of(pod), [key.partition("/")[2] for key in placed])
        for number, (member, what) in enumerate(outcome.placed):
            known = self._queue.get(placed[number])
            attempts = known.attempts if known is not None else 0
            plan = self._manager.begin(member, policy, what, attempts, outcome.left_out, gang=record)
            self._queue.hold(placed[number], attempts)
            evaluation = Evaluation(member, what, plan, told, seconds, took=clock.stopwatch() - begun)
            plan.note_decision(self._report(evaluation))
        victims = {victim.metadata.uid for _, what in outcome.placed for victim in what.victims}
        self._queue.took(entry.key, len(victims))

    def _record(self, key: GroupKey, names: list[str]) -> GangRecord:
        """The gang of these members: the one that others of their group are in already, if there is one."""
        known = next((plan.record.gang for plan in self._secured(key) if plan.record.gang), None)
        if known is None:
            return GangRecord(uuid.uuid4().hex[:16], tuple(names))
        return GangRecord(known.id, tuple(dict.fromkeys((*known.members, *names))))

    def _report(self, evaluation: Evaluation) -> DecisionRecord | None:
        return self._reporter.evaluated(evaluation, self._evaluator.clock.wall(), dry_run=self._manager.dry_run)

    def _members(self, pod: Pod, policy: PreemptionPolicy) -> GangMembers:
        """The members of the pod's group that have no node."""
        key, wall = group_of(pod), self._evaluator.clock.wall()
        ready, gated = [], []
        for member in self._evaluator.state.members.of(key):
            if key_of(member) in self._manager.plans:
                continue
            if member.spec.scheduling_gates:
                gated.append(member)
            elif (
                self._policy_set.policy_to_act_by(member) is policy
                and wall - (unschedulable_since(member) or wall) >= policy.preemptors.delay
            ):
                ready.append(member)
        secured = tuple(plan.record.node for plan in self._secured(key))
        return GangMembers(key, tuple(ready), tuple(gated), secured)

    def _secured(self, key: GroupKey) -> list[Plan]:
        """The plans for members of a group that go on: not those that lack a member, and will find that."""
        known = (self._manager.plans.get(key_of(member)) for member in self._evaluator.state.members.of(key))
        return [plan for plan in known if plan is not None and not missing_member(plan, self._manager.context)]

    def _evaluate(
        self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, members: GangMembers
    ) -> Together | Fits | Unschedulable:
        """What to do for the gang; if nothing helps it at the turn of one member, nothing does at that of the next."""
        now = self._evaluator.clock.monotonic()
        entries = [queued for member in members.ready if (queued := self._queue.get(key_of(member))) is not None]
        who = sorted(key_of(member) for member in (*members.ready, *members.gated))
        shape = policy.name, repr((members.key, who, members.secured)).encode()
        moment = Moment(now, self._queue.events, entry.back_off())
        if (known := self._verdicts.find(shape, moment)) is not None:
            return known
        if not members.ready:
            return Unschedulable("it waits for its scheduler to look at it")
        outcome: Together | Fits | Unschedulable
        try:
            outcome = evaluate_gang(
                self._evaluator,
                members,
                policy,
                self._policy_set.rules[policy.name],
                max((queued.attempts for queued in entries), default=0),
                left_out={left.node for queued in entries for left in queued.nodes.left_out(now)},
                promised=self._manager.promised(pod),
            )
        except ClusterError as error:
            outcome = Unschedulable(str(error))
        if isinstance(outcome, Unschedulable):
            self._verdicts.note(shape, moment, outcome)
        return outcome
