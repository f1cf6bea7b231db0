"""The way of a preemptor through the control loop: decide, and begin what helps.

What the watches show moves it in the queue. Hints (docs/semantics.md F3, kube-scheduler's queueing hints)
say which changes could help one that found no room. They are pure.

Each member of a gang is in the queue. The turn of any is the turn of all, and those that are placed have
one plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
from webhook.reconciler.evaluate.extender_client import ExtenderCache, Question, Said
from webhook.reconciler.evaluate.outcomes import (
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
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preemptors import unschedulable_since
from webhook.reconciler.queue.queue import MOST_FITTING, Queue, QueuedPreemptor
from webhook.reconciler.reporting import Reporter
from webhook.reconciler.state.annotations import decision_of, not_own

_GANG_PAUSE = 1.0
"""Seconds between two looks at a plan for other members that has victims to ask."""
_SHOWN = 5
"""Nodes that are named."""
_EXTENDER_PAUSE = 1.0
"""Seconds, at least, before an extender that failed is asked again."""
_OTHERS_FIRST = "the victims for other pods of its gang are asked first"
_NOT_TAKEN = "a plan timed out there although there was room"
_TAKEN = "another pod took the room that was made there"


class Preempting:
    """Moves preemptors in the queue, decides for the next ones, and begins plans; `ask` asks extenders."""

    def __init__(
        self,
        manager: PlanManager,
        queue: Queue,
        ask: Callable[[Question, Said], None],
        reporter: Reporter,
    ) -> None:
        self.verdicts = Verdicts()
        """By the shapes of preemptors for whom nothing helps."""
        self._manager = manager
        self._evaluator = manager.evaluator
        self._clock = manager.clock
        self._state = manager.evaluator.state
        self._policy_set = manager.context.policy_set
        self._queue = queue
        self._ask = ask
        self._reporter = reporter
        self._wanting_company: dict[str, None] = {}
        """Preemptors with pod affinity: a pod that comes to a node may help."""

    def changed(self, kind: SnapshotKind, change: Change[Any]) -> bool:
        """As `pod_changed`, for a change of another kind."""
        helps = _HINTS.get(kind, relevant_difference)
        return helps(change.old, change.new) and self._queue.wake(self._clock.monotonic())

    def pod_changed(self, change: Change[Pod]) -> bool:
        """The state took in a pod's change; whether another turn is needed."""
        key, old, new = change.key, change.old, change.new
        queue, now = self._queue, self._clock.monotonic()
        # 1. Room helps others, and so does a pod in front that waits no more.
        work = frees_room(old, new) and queue.wake(now)
        waits = new and not new.spec.node_name and not new.metadata.deletion_timestamp
        if queue.behind and old and not old.spec.node_name and not waits:
            work |= queue.wake(now, queue.behind)
        # 2. It is tried again if it asks for something else, others for company.
        if old and new and _asked_by_pods(old) != _asked_by_pods(new):
            work |= queue.wake(now, (key,))
        if self._wanting_company and makes_company(old, new):
            work |= queue.wake(now, self._wanting_company)
        # 3. It comes to the queue or leaves it.
        return self.offer(key, new) or work

    def offer(self, key: str, pod: Pod | None) -> bool:
        """Take a pod into the queue, or out if it has no plan."""
        queue = self._queue
        if pod is None or (policy := self._policy_set.policy_to_act_by(pod)) is None:
            if key not in self._manager.plans:
                queue.remove(key)
                self._wanting_company.pop(key, None)
            return False
        uid, spec, known = pod.metadata.uid, pod.spec, queue.entries.get(key)
        if known and known.uid == uid:
            return False
        now, wall = self._clock.monotonic(), self._clock.wall()
        since, delay = unschedulable_since(pod) or 0.0, policy.preemptors.delay
        due = now + min(delay, max(0.0, since + delay - wall))
        priority = spec.priority or 0
        entry = queue.offer(key, uid=uid, priority=priority, created=since, now=now, due=due)
        if spec.affinity and spec.affinity.pod_affinity:
            self._wanting_company[key] = None
        if decision := decision_of(pod):
            # An attempt of an earlier leader counts if it evicted somebody.
            evicted = decision.victims or decision.more_victims
            entry.attempts = max(0, decision.attempt - (not evicted))
            entry.attempted = now - max(0.0, wall - epoch_or(decision.at, 0.0))
        return True

    def preempt(self, entry: QueuedPreemptor) -> None:
        """Do what can be done now for a preemptor (kube-scheduler's `Preempt`)."""
        # 1. Is it still a preemptor to act for?
        clock, queue, told = self._clock, self._queue, entry.reason
        pod = self._state.pods.get(entry.key)
        if pod is None or (policy := self._policy_set.policy_to_act_by(pod)) is None:
            queue.remove(entry.key)
            return
        begun, now = clock.stopwatch(), clock.monotonic()
        gang = is_gang(self._state.snapshot, pod)
        # 2. What would help it?
        outcome = self.evaluate(entry, pod, policy, now)
        seconds = clock.stopwatch() - begun
        if gang:
            result = "together" if isinstance(outcome, Reserves) else outcome.result
            self._reporter.metrics.gangs.labels(result).inc()
        # 3. Leave out nodes that it has fitted on for too long.
        fitting = outcome.nodes if isinstance(outcome, Fits) else ()
        chance = partial(self._evaluator.schedulers.chance, pod)
        left, more = entry.nodes.fitting(fitting, chance, now)
        for left_out in left:
            self._reporter.left_out(entry.key, left_out, now)
        # 4. Wait for an event that helps, ask an extender, or begin a plan.
        plan = None
        match outcome:
            case Fits(nodes):
                who = "its gang" if gang else "it"
                reason = f"{who} fits without preemption on {len(nodes)} nodes"
                queue.park(entry, now, reason=reason, due=now if left else more)
            case Unschedulable(reason, due=due, behind=behind):
                queue.park(entry, now, reason=reason, due=due, behind=behind)
            case Question():
                self._ask(outcome, entry.said)
            case Reserves():
                keys = [key_of(member) for member, _ in outcome.places] or [entry.key]
                if entry.key not in keys:
                    queue.park(entry, now, reason="other pods of its gang are placed first")
                queued, attempts = self._queued(keys)
                plan = self._manager.begin(pod, policy, outcome, attempts)
                queue.hold(queued, attempts, len(outcome.victims))
        if not isinstance(outcome, Question):
            entry.said = {}
        # 5. Report it.
        self._reporter.metrics.decision_seconds.observe(clock.stopwatch() - begun)
        self._reporter.evaluated(pod, outcome, plan, told=told, seconds=seconds, wall=clock.wall())

    def plan_ended(self, plan: Plan, members: Sequence[Member], ending: Ending, because: Member | None) -> None:
        """A plan is over for these members: who is not bound is tried again.

        A node that kube-scheduler did not take, or whose room others took, is left out.
        """
        queue, now, evicted = self._queue, self._clock.monotonic(), bool(plan.gone)
        shunned = ending is Ending.TIMED_OUT
        for member in members if shunned else ():
            pod = self._state.pod_of(member.key, member.uid)
            shunned = shunned and bool(pod and self._evaluator.fits_on(pod, member.node))
        for member in members:
            if ending in ENDS_PREEMPTOR:
                queue.remove(member.key)
            if (entry := queue.entries.get(member.key)) is None:
                continue
            if shunned or (ending in LOST_ROOM and evicted and member is because):
                why = _NOT_TAKEN if shunned else _TAKEN
                left = entry.nodes.leave_out(member.node, why, now - plan.started, now)
                self._reporter.left_out(member.key, left, now)
            in_vain, lost = evicted and ending in IN_VAIN, ending is Ending.LOST
            at_once, reason = ending not in HOPELESS, f"its last plan ended: {ending}"
            queue.plan_ended(entry, now, in_vain=in_vain, at_once=at_once, reason=reason, lost=lost)

    def _queued(self, keys: Iterable[str]) -> tuple[list[QueuedPreemptor], int]:
        """Those in the queue, and how many plans evicted for one in vain."""
        entries = self._queue.entries
        queued = [entries[key] for key in keys if key in entries]
        return queued, max((row.attempts for row in queued), default=0)

    def evaluate(self, entry: QueuedPreemptor, pod: Pod, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for a preemptor; what helps none of its shape does not help it."""
        members = Members((pod,))
        shape: Key = ()
        if is_gang(self._state.snapshot, pod):
            plans = self._manager.context.plans_of(group_of(pod))
            if not all(plan.waiting for plan, _ in plans):
                return Unschedulable(_OTHERS_FIRST, due=now + _GANG_PAUSE)
            members = self._members(pod, policy, plans)
            names = [tuple(map(key_of, pods)) for pods in (members.ready, members.gated)]
            shape = policy.name, members.key, *names, members.secured
        elif not (pod.status.nominated_node_name or policy.extenders):
            # What holds for it holds for others like it, if nothing was learned
            evictors = self._evaluator.log.of(workload_of(pod), now)  # which it may not evict
            learned = entry.attempts or entry.nodes.left_out(now) or evictors
            alike = self._state.index.shape(entry.key)
            if alike and not learned:
                by_pairs = self._policy_set.rules[policy.name].pairs
                labels = at_creation(pod.metadata).labels if by_pairs else None
                shape = policy.name, alike, group_of(pod), *sorted((labels or {}).items())
        moment = Moment(now, self._queue.events, entry.back_off)
        if (known := self.verdicts.holding(shape, moment)) is not None:
            return known
        try:
            outcome = self._decide(pod, members, policy, now)
        except ClusterError as error:
            outcome = Unschedulable(str(error))
        except ExtenderError as error:
            outcome = Unschedulable(str(error), due=now + entry.back_off + _EXTENDER_PAUSE)
        if shape and isinstance(outcome, Unschedulable):
            self.verdicts[shape] = outcome, moment
        return outcome

    def _decide(self, pod: Pod, members: Members, policy: PreemptionPolicy, now: float) -> Outcome:
        """What to do for the members, given what was learned about them."""
        queued, attempts = self._queued(map(key_of, members.ready))
        learned = [row.nodes.left_out(now) for row in queued]
        left_out = {left.node: left.until for known in learned for left in known}
        decide = partial(
            Evaluation,
            self._evaluator,
            members,
            policy,
            self._policy_set.rules[policy.name],
            attempts,
            extenders=[ExtenderCache(row, entry.said) for row in policy.extenders for entry in queued],
            promised=self._manager.promised(pod),
        )
        outcome = decide(left_out=left_out).outcome()
        if isinstance(outcome, Fits) and any(len(known) >= MOST_FITTING for known in learned):
            left_out |= dict.fromkeys(outcome.nodes, max(left_out.values()))
            outcome = decide(left_out=left_out).outcome()
        match outcome:
            case Fits(nodes) if self._manager.dry_run and members.key is None:
                # Where only rehearsed plans make room kube-scheduler binds nothing.
                plans = self._manager.index.by_id.values()
                emptied = [plan for plan in plans if math.isinf(plan.emptied)]
                if {row.node for plan in emptied for row in plan.unplaced}.issuperset(nodes):
                    return Waits(nodes[0], 0)
            case Reserves():
                return replace(outcome, left_out=outcome.left_out | left_out.keys())
            case Unschedulable() if left_out:
                shown = ", ".join(list(left_out)[:_SHOWN])
                why = f"left out for now, since plans came to nothing there: {shown}"
                due = min(left_out.values())
                due = due if outcome.due is None else min(due, outcome.due)
                return replace(outcome, reason=f"{outcome.reason}; {why}", due=due)
        return outcome

    def _members(self, pod: Pod, policy: PreemptionPolicy, plans: Sequence[tuple[Plan, Member]]) -> Members:
        """The members of the pod's group without a node; `plans` are theirs."""
        key, latest = group_of(pod), self._clock.wall() - policy.preemptors.delay
        ready, gated, act_by = list[Pod](), list[Pod](), self._policy_set.policy_to_act_by
        for member in self._state.waiting_members(key):
            if key_of(member) in self._manager.plans:
                continue
            if member.spec.scheduling_gates:
                gated.append(member)
            elif (unschedulable_since(member) or 0.0) <= latest and act_by(member) is policy:
                ready.append(member)
        # Plans that lack a member will find that, and end.
        secured = () if self._manager.context.too_few(pod) else plans
        nodes = (row.node for _, row in secured)
        return Members(tuple(ready), key, tuple(gated), tuple(nodes))


def frees_room(old: Pod | None, new: Pod | None) -> bool:
    """Whether a pod's change leaves more room, or more pods that may go."""
    if old is None:
        return False
    nominated = old.status.nominated_node_name
    if new is None or is_terminal(new):
        return bool(old.spec.node_name or nominated) and not is_terminal(old)
    if nominated and nominated != new.status.nominated_node_name:
        return True
    return bool(new.spec.node_name) and (
        _read_of_pods(old) != _read_of_pods(new)
        or (old.metadata.annotations != new.metadata.annotations and not_own(old) != not_own(new))
    )


def makes_company(old: Pod | None, new: Pod | None) -> bool:
    """Whether a pod came to a node, which helps those with pod affinity."""
    return bool(new and new.spec.node_name and not (old and old.spec.node_name))


def node_helps(old: Node | None, new: Node | None) -> bool:
    """Whether a node came, or changed in what filters read: not by a heartbeat."""
    return new is not None and (old is None or _read_of_nodes(old) != _read_of_nodes(new))


def budget_helps(old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> bool:
    """Whether a budget is gone, covers others, was counted or has more left."""
    if new is None or old is None:
        return new is None
    more = new.status.disruptions_allowed > old.status.disruptions_allowed
    return more or _read_of_budgets(old) != _read_of_budgets(new)


def claim_helps(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Whether a device claim came, asks for others, or lost devices or users."""
    if old is None or new is None:
        return new is None or new.status.allocation is None
    before, after = old.status, new.status
    if before.allocation not in (None, after.allocation):
        return True
    users, left = ({user.uid for user in said.reserved_for or ()} for said in (before, after))
    return not users <= left or _read_of_claims(old) != _read_of_claims(new)


def relevant_difference(old: Any, new: Any) -> bool:
    """Whether a minor object (class, namespace, volume) differs in what is read."""
    if old is None or new is None or _read_of_all(old) != _read_of_all(new):
        return True
    return bool(replace(old, metadata=new.metadata) != new)


_read_of_all = attrgetter("metadata.labels", "metadata.annotations")
_asked_by_pods = attrgetter("spec", "metadata.labels")
_read_of_pods = attrgetter(
    "metadata.labels",
    "metadata.deletion_timestamp",
    "status.start_time",
    "spec.containers",
    "status.container_statuses",
)
_read_of_nodes = attrgetter("spec", "metadata.labels", "status.allocatable", "status.declared_features")
_read_of_budgets = attrgetter("spec.selector", "status.disrupted_pods", "status.observed_generation")
_read_of_claims = attrgetter("spec", "metadata.finalizers")
_HINTS: dict[SnapshotKind, Callable[[Any, Any], bool]] = {
    NODES: node_helps,
    BUDGETS: budget_helps,
    CLAIMS: claim_helps,
}
"""By kind: whether a change could help; `relevant_difference` says it of others."""
