"""The way of a preemptor through the control loop, alone or as a member of a gang: decide, and begin what helps.

What the watches show moves it in the queue: preemptors come and go, and who could be helped is tried again. Which
changes could help one that found no room is said by the hints of docs/semantics.md F3, which kube-scheduler calls
queueing hints. They are pure.

A gang takes the same way as a pod. Each member is a preemptor in the queue, the turn of any is the turn of all, and
those that are placed have one plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from webhook.kube.instants import epoch_or
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import is_terminal, workload_of
from webhook.policy.model.creation import at_creation
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.gangs.gang import is_gang
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import BUDGETS, CLAIMS, NODES, SnapshotKind
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
from webhook.reconciler.preemptors import unschedulable_since
from webhook.reconciler.queue.queue import MOST_FITTING, Queue, QueuedPreemptor
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import decision_of, not_own

_GANG_PAUSE = 1.0
"""Seconds between two looks whether a plan for other members has asked all its victims."""
_SHOWN = 5
"""Nodes that are named."""
_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""
_NOT_TAKEN = "a plan timed out there although there was room"


class Preempting:
    """Moves preemptors in the queue as the cluster changes, decides for those whose turn it is, and begins plans."""

    def __init__(
        self,
        manager: PlanManager,
        queue: Queue,
        extender_client: ExtenderClient,
        reporter: Reporter,
    ) -> None:
        self.verdicts = Verdicts()
        """Those on the shapes of preemptors for whom nothing helps."""
        self._manager = manager
        self._evaluator: Evaluator = manager.evaluator
        self._clock = manager.clock
        self._state = manager.evaluator.state
        self._policy_set = manager.context.policy_set
        self._queue = queue
        self._extender_client = extender_client
        self._reporter = reporter
        self._wanting_company: dict[str, None] = {}
        """Preemptors with pod affinity: a pod that comes to a node may be what they want beside them."""

    def changed(self, kind: SnapshotKind, change: Change[Any]) -> bool:
        """An object of another kind than a pod changed, and the state has taken it in."""
        helps = _HINTS.get(kind, relevant_difference)
        return helps(change) and self._queue.wake(self._clock.monotonic())

    def pod_changed(self, change: Change[Pod]) -> bool:
        """A pod changed, and the state has taken it in; whether the loop has to take another turn."""
        key, old, new = change.key, change.old, change.new
        queue, now = self._queue, self._clock.monotonic()
        # 1. Who could be helped by the change is tried again: by room, or by a pod that goes first and waits no more.
        work = frees_room(change) and queue.wake(now)
        waits = new is not None and not new.spec.node_name and not new.metadata.deletion_timestamp
        if queue.behind and old is not None and not old.spec.node_name and not waits:
            work |= queue.wake(now, queue.behind)
        # 2. So is one that asks for something else than before, or that has company.
        if old is not None and new is not None and _asked_by_pods(old) != _asked_by_pods(new):
            work |= queue.wake(now, (key,))
        if self._wanting_company and makes_company(change):
            work |= queue.wake(now, self._wanting_company)
        # 3. It comes to the queue or leaves it.
        return self.offer(key, new) or work

    def offer(self, key: str, pod: Pod | None) -> bool:
        """Take a pod into the queue, or out of it; one with a plan stays until that has ended."""
        policy = self._policy_set.policy_to_act_by(pod) if pod else None
        if pod is None or policy is None:
            if key not in self._manager.plans:
                self._queue.remove(key)
                self._wanting_company.pop(key, None)
            return False
        if (known := self._queue.entries.get(key)) is not None and known.uid == pod.metadata.uid:
            return False
        now, wall, delay = self._clock.monotonic(), self._clock.wall(), policy.preemptors.delay
        since = unschedulable_since(pod) or 0.0
        due = now + delay - min(max(0.0, wall - since), delay)
        entry = self._queue.offer(
            key, uid=pod.metadata.uid, priority=pod.spec.priority or 0, created=since, now=now, due=due
        )
        if pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None:
            self._wanting_company[key] = None
        if (decision := decision_of(pod)) is not None:
            # An attempt of an earlier leader counts if it evicted somebody.
            entry.attempts = max(0, decision.attempt - (not decision.victims and not decision.more_victims))
            entry.attempted = now - max(0.0, wall - epoch_or(decision.at, 0.0))
        return True

    def preempt(self, entry: QueuedPreemptor) -> None:
        """Do for a preemptor whose turn it is what can be done now, as kube-scheduler's `Preempt` does."""
        # 1. Is it still a preemptor to act for?
        pod = self._state.pods.get(entry.key)
        policy = self._policy_set.policy_to_act_by(pod) if pod else None
        if pod is None or policy is None:
            self._queue.remove(entry.key)
            return
        clock, told, gang = self._clock, entry.reason, is_gang(self._state.snapshot, pod)
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
        # 4. Wait for an event that helps, ask an extender, or begin a plan, of a gang for the members placed first.
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
                keys = [key_of(member) for member, _ in outcome.places] or [entry.key]
                if entry.key not in keys:
                    self._queue.park(entry, now, reason="other pods of its gang are placed first")
                queued = [known for key in keys if (known := self._queue.entries.get(key)) is not None]
                attempts = max((known.attempts for known in queued), default=0)
                plan = self._manager.begin(pod, policy, outcome, attempts)
                self._queue.hold(queued, attempts, len(plan.record.victims))
        if not isinstance(outcome, Question):
            entry.said = {}
        # 5. Report it.
        self._reporter.metrics.decision_seconds.observe(clock.stopwatch() - begun)
        self._reporter.evaluated(pod, outcome, plan, told=told, seconds=seconds, wall=clock.wall())

    def plan_ended(self, plan: Plan, members: Sequence[Member], ending: Ending, because: Member | None) -> None:
        """A plan is over for these members: decide again for who is not bound, at once or after a while.

        A node that kube-scheduler did not take in time, or whose room others took, would not do the next time.
        """
        now, evicted = self._clock.monotonic(), bool(plan.gone)
        there = [self._state.pod_of(member.key, member.uid) for member in members]
        shunned = ending is Ending.TIMED_OUT and all(
            pod is not None and self._evaluator.fits_on(pod, member.node)
            for pod, member in zip(there, members, strict=True)
        )
        for member in members:
            entry = self._queue.entries.get(member.key)
            taken = ending in LOST_ROOM and evicted and member is because
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
            there = pod.spec.node_name or pod.status.nominated_node_name
            alike = self._state.index.shape(entry.key)
            evictors = self._evaluator.log.of(workload_of(pod), now)  # which it may not evict
            learned = entry.attempts or entry.nodes.left_out(now) or evictors
            if alike and not (there or learned or policy.extenders):
                rules = self._policy_set.rules[policy.name]
                made = at_creation(pod.metadata).labels if rules.pairs else None
                shape = policy.name, alike, group_of(pod), tuple(sorted((made or {}).items()))
        moment = Moment(now, self._queue.events, entry.back_off)
        if shape is not None and (known := self.verdicts.holding(shape, moment)) is not None:
            return known
        try:
            outcome = self._decide(pod, members, entries, policy, now)
        except ClusterError as error:
            outcome = Unschedulable(str(error))
        except ExtenderError as error:
            outcome = Unschedulable(str(error), due=now + entry.back_off + _EXTENDER_PAUSE)
        if shape is not None and isinstance(outcome, Unschedulable):
            self.verdicts[shape] = outcome, moment
        return outcome

    def _decide(
        self, pod: Pod, members: Members, entries: Sequence[QueuedPreemptor], policy: PreemptionPolicy, now: float
    ) -> Outcome:
        """What to do for a preemptor, or for the members of its gang, given what was learned about them."""
        learned = [entry.nodes.left_out(now) for entry in entries]
        left_out = {left.node: left.until for known in learned for left in known}
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
        if isinstance(outcome, Fits) and any(len(known) >= MOST_FITTING for known in learned):
            left_out |= dict.fromkeys(outcome.nodes, max(left_out.values()))
            outcome = decide(left_out=left_out).outcome()
        if isinstance(outcome, Fits) and self._manager.dry_run and members.key is None:
            # Where only rehearsed plans make the room kube-scheduler will bind nothing.
            plans = self._manager.index.by_id.values()
            made = {member.node for plan in plans if math.isinf(plan.emptied) for member in plan.unplaced}
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
        key, wall = group_of(pod), self._clock.wall()
        members, plans = self._state.waiting_members(key), self._manager.plans
        waiting = [member for member in members if key_of(member) not in plans]
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


def frees_room(change: Change[Pod]) -> bool:
    """Whether a pod's change leaves more room, or more pods that may be asked to leave."""
    old, new = change.old, change.new
    if old is None:
        return False
    if new is None or is_terminal(new):
        return bool(old.spec.node_name or old.status.nominated_node_name) and not is_terminal(old)
    if old.status.nominated_node_name != new.status.nominated_node_name and old.status.nominated_node_name:
        return True
    return bool(new.spec.node_name) and (
        _read_of_pods(old) != _read_of_pods(new)
        or bool(new.metadata.deletion_timestamp) != bool(old.metadata.deletion_timestamp)
        or (old.metadata.annotations != new.metadata.annotations and not_own(old) != not_own(new))
    )


def makes_company(change: Change[Pod]) -> bool:
    """Whether a pod came to a node, which can only help a preemptor with pod affinity."""
    old, new = change.old, change.new
    return new is not None and bool(new.spec.node_name) and (old is None or not old.spec.node_name)


def node_helps(change: Change[Node]) -> bool:
    """Whether a node came or changed in what the filters look at; a heartbeat is no such change."""
    old, new = change.old, change.new
    return new is not None and (old is None or _read_of_nodes(old) != _read_of_nodes(new))


def budget_helps(change: Change[PodDisruptionBudget]) -> bool:
    """Whether a budget is gone, covers other pods, was counted again, or has more disruptions left."""
    old, new = change.old, change.new
    if new is None or old is None:
        return new is None
    more = new.status.disruptions_allowed > old.status.disruptions_allowed
    return more or _read_of_budgets(old) != _read_of_budgets(new)


def claim_helps(change: Change[ResourceClaim]) -> bool:
    """Whether a claim on devices came, asks for something else, or leaves devices or users behind."""
    old, new = change.old, change.new
    if old is None or new is None:
        return new is None or new.status.allocation is None
    if old.status.allocation is not None and old.status.allocation != new.status.allocation:
        return True
    users, left = ({consumer.uid for consumer in claim.status.reserved_for or ()} for claim in (old, new))
    return bool(users - left) or _read_of_claims(old) != _read_of_claims(new)


def relevant_difference(change: Change[Any]) -> bool:
    """Whether an object of a minor kind (class, namespace, volume) differs in anything that is read of it."""
    old, new = change.old, change.new
    if old is None or new is None or _read_of_all(old) != _read_of_all(new):
        return True
    return bool(replace(old, metadata=new.metadata) != new)


_read_of_all = attrgetter("metadata.labels", "metadata.annotations")
_asked_by_pods = attrgetter("spec", "metadata.labels")
_read_of_pods = attrgetter("metadata.labels", "status.start_time", "spec.containers", "status.container_statuses")
_read_of_nodes = attrgetter("spec", "metadata.labels", "status.allocatable", "status.declared_features")
_read_of_budgets = attrgetter("spec.selector", "status.disrupted_pods", "status.observed_generation")
_read_of_claims = attrgetter("spec", "metadata.finalizers")
_HINTS: dict[SnapshotKind, Callable[[Change[Any]], bool]] = {
    NODES: node_helps,
    BUDGETS: budget_helps,
    CLAIMS: claim_helps,
}
"""By kind: whether a change could help a preemptor that found no room; `relevant_difference` says it of others."""
