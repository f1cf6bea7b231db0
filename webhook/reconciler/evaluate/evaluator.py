"""What to do for one preemptor, on the newest state: nothing, wait, evict, or nothing that helps. Acts on nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.informer import Change
from webhook.kube.instants import rfc3339
from webhook.kube.objects import ObjectMeta, Pod, key_of
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.decision import decide, fits, fits_on
from webhook.preemption.extenders import Extender
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.ranking import Score, preferred_because, sum_of_priorities
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.candidates import Candidate, CandidateFilter
from webhook.preemption.victims.eligible import protection_ends
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import Clock
from webhook.reconciler.evaluate import victim_exclusions
from webhook.reconciler.evaluate.eviction_backoff import EvictionBackoff
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, ExhaustedLimits, is_last_resort
from webhook.reconciler.evaluate.extender_cache import UnaskedError
from webhook.reconciler.evaluate.outcomes import Asks, Evicts, Fits, Outcome, Unschedulable, Waits
from webhook.reconciler.evaluate.rates import NOT_NOW, Rates, too_large
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import PLAN, Alternative, PlanRecord
from webhook.reconciler.state.preemptors import is_over, unschedulable_since
from webhook.reconciler.state.state import State

__all__ = ["Evaluator", "decide_with_exclusions", "evaluate", "still_allowed"]

Rows = NDArray[np.intp]

_OVERDUE = 60.0
"""Seconds after which a pod that should be gone is not counted on any more."""
_SHOWN = 5
_SCHEDULERS = 100
"""Schedulers that are remembered."""
_LOWEST = -(2**31)
"""The lowest priority there is."""
_HASTE = 1.0
"""Seconds between two tries that an end of protection asks for, however close the ends lie."""


class Evaluator:
    """The cluster and the past, as far as decisions look at them."""

    def __init__(self, state: State, limiter: EvictionLimiter, clock: Clock) -> None:
        self.state = state
        self.limiter = limiter
        self.eviction_backoff = EvictionBackoff()
        self.clock = clock
        self.scheduled: dict[str, float] = {}
        """Scheduler to when it was last seen at work, in monotonic seconds."""

    def leaving_within(self, seconds: float) -> Rows:
        """The pod rows of those that will be gone from their nodes by then; a long overdue one is not counted on."""
        pods, now = self.state.snapshot.pods, self.clock.wall()
        rows = pods.leaving()
        ends = pods.gone_at[rows]
        soon: Rows = rows[(now - _OVERDUE <= ends) & (ends <= now + seconds)]
        return soon

    def note_scheduling(self, change: Change[Pod]) -> None:
        """A pod changed: take note if that shows that its scheduler is at work."""
        old, new = change.old, change.new
        if old is None or new is None or new.metadata.deletion_timestamp:
            return
        bound = bool(new.spec.node_name) and not old.spec.node_name
        tried = unschedulable_since(old) is None and unschedulable_since(new) is not None
        if bound or tried:
            self.scheduled[new.spec.scheduler_name] = self.clock.monotonic()
            while len(self.scheduled) > _SCHEDULERS:
                del self.scheduled[next(iter(self.scheduled))]

    def fits_on(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node now."""
        return fits_on(self.state.snapshot, pod, node)

    def has_room(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node once every pod that is leaving is gone."""
        return fits_on(self.state.snapshot, pod, node, without=self.state.snapshot.pods.leaving())

    def objection(self, plan: Plan) -> str:
        """Why a plan whose nomination stands should not go on to evict; empty if it should.

        Where it fits is worked out again if anything has happened since that was last done.
        """
        pod = self.state.pod(plan.key)
        if pod is None or pod.metadata.uid != plan.uid or pod.metadata.deletion_timestamp or pod.spec.node_name:
            return "the preemptor is gone or bound"
        if self.state.nodes.get(plan.node) is None:
            return f"node {plan.node} is gone"
        for victim in plan.record.victims:
            seen, decided = self.state.pod(victim.key), plan.decided.get(victim.uid)
            if seen is None or decided is None or not plan.needs(victim.uid):
                continue
            if _differs(seen.metadata, decided):
                return f"victim {victim.key} has changed since the decision"
        if plan.looked == self.state.snapshot.version:
            return ""
        if not self.has_room(pod, plan.node):
            return f"evicting would not make room on {plan.node} any more"
        found = () if plan.gone else fits(self.state.snapshot, pod)
        if plan.node not in found and not plan.left_out.issuperset(found):
            return "it fits without preemption by now"
        return ""


def evaluate(
    evaluator: Evaluator,
    pod: Pod,
    policy: PreemptionPolicy,
    rules: Rules,
    attempts: int,
    *,
    extenders: Sequence[Extender] = (),
    left_out: Collection[str] = (),
) -> Outcome:
    """What to do for a preemptor (docs/semantics.md D).

    `attempts` is how many plans evicted for it in vain; nothing is planned on the nodes `left_out`.
    """
    now = evaluator.clock.monotonic()
    full, left = evaluator.limiter.full(policy.limits, now), evaluator.limiter.remaining(policy.limits, now)
    leaving = evaluator.leaving_within(min(policy.wait_for_terminating, policy.plan_timeout))
    rates = Rates(evaluator.state, policy.limits, left) if _is_rated(policy) else None
    try:
        decision = _decide(evaluator, pod, rules, full, leaving, extenders=extenders, rates=rates, left_out=left_out)
    except UnaskedError as unasked:
        return Asks(unasked.question)
    if decision.fits:
        return Fits(tuple(decision.fits))
    waits = _wait(evaluator, pod, decision, leaving)
    if waits is not None:
        return waits
    if not decision.eligible:
        return Unschedulable(decision.reason)
    if decision.selected is not None:
        outcome = _act_on(evaluator, decision, decision.selected, policy, attempts)
    else:
        outcome = _unschedulable(evaluator, pod, rules, decision, used_up=full.until, counted=left.until)
    later = evaluator.leaving_within(policy.plan_timeout) if isinstance(outcome, Unschedulable) else leaving
    return (_wait(evaluator, pod, decision, later) or outcome) if len(later) > len(leaving) else outcome


def decide_with_exclusions(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    kept: victim_exclusions.Mask,
    *,
    extenders: Sequence[Extender] = (),
    admission: CandidateFilter | None = None,
    left_out: Collection[str] = (),
    going: Rows = NO_PODS,
) -> Decision:
    """Decide with last-resort victims spared; only if that finds nothing, with them too. Those `kept` never go.

    `admission` and `left_out` are as `decide` takes them; the pods in the rows `going` go anyway.
    """
    mask = victim_exclusions.of_rows(state, going) if len(going) else None

    def decided(spared: victim_exclusions.Mask) -> Decision:
        return decide(
            state.snapshot,
            pod,
            rules,
            now,
            extenders,
            exclusions=spared,
            candidate_filter=admission,
            excluded_nodes=left_out,
            leaving=mask,
        )

    last = victim_exclusions.last_resort(state)
    first = decided(victim_exclusions.union(kept, last))
    if first.selected is not None or not first.eligible or not last.any() or first.fits:
        return first
    second = decided(kept)
    second.rejections |= first.rejections
    return second


def still_allowed(evaluator: Evaluator, pod: Pod, rules: Rules, record: PlanRecord) -> str:
    """Why the rest of an earlier leader's plan must not be carried out; empty if it is what would be done now.

    The victims on the plan are not believed: those that remain must be just those that a decision made now asks for
    on that node. Extenders have agreed to the plan and are not asked again.
    """
    kept = victim_exclusions.immovable(evaluator.state, evaluator.eviction_backoff.spared(evaluator.clock.monotonic()))
    going = evaluator.state.snapshot.pods.leaving()
    decision = decide_with_exclusions(
        evaluator.state, _unnominated(pod), rules, evaluator.clock.wall(), kept, going=going
    )
    if decision.fits:
        return "it fits without preemption by now"
    candidate = next((found for found in decision.candidates if found.node == record.node), None)
    if candidate is None:
        return f"preemption on {record.node} would not help any more"
    leaving = evaluator.state.index.leaving
    wanted = {victim.uid for victim in candidate.victims if victim.key not in leaving}
    planned = {victim.uid for victim in record.victims}
    if not wanted <= planned:
        return f"other pods than planned would have to go on {record.node}"
    alive = {victim.uid for victim in record.victims if _is_alive(evaluator.state, victim.key, victim.uid)}
    return "" if alive == wanted else f"not all pods that were planned have to go on {record.node}"


def _decide(
    evaluator: Evaluator,
    pod: Pod,
    rules: Rules,
    full: ExhaustedLimits,
    soon: Rows,
    *,
    extenders: Sequence[Extender],
    rates: Rates | None,
    left_out: Collection[str],
) -> Decision:
    """Decide with pods kept that asking does not remove, and those whose rate is used up.

    Of the pods that are leaving those that will not be gone `soon` are no victims: asking them again would not help.
    The others are counted on first: nobody goes in place of one that goes anyway.
    If every candidate has more victims than a rate ever allows, it is decided once more with those beyond it kept:
    fewer pods that are more important may do.
    """
    state = evaluator.state
    refused = evaluator.eviction_backoff.spared(evaluator.clock.monotonic())
    kept = victim_exclusions.union(
        victim_exclusions.immovable(state, refused), victim_exclusions.over_rate(state, full)
    )
    leaving = state.snapshot.pods.leaving()
    if len(leaving) > len(soon):
        kept = victim_exclusions.union(kept, victim_exclusions.of_rows(state, np.setdiff1d(leaving, soon)))
    pod, wall = _unnominated(pod), evaluator.clock.wall()

    def decided() -> Decision:
        return decide_with_exclusions(
            state, pod, rules, wall, kept, extenders=extenders, admission=rates, left_out=left_out, going=soon
        )

    decision = decided()
    if rates is None or not rates.surplus or decision.selected is not None or NOT_NOW in decision.rejections:
        return decision
    kept = victim_exclusions.union(kept, victim_exclusions.of_rows(state, np.concatenate(rates.surplus)))
    narrowed = decided()
    narrowed.rejections |= decision.rejections
    return narrowed


def _wait(evaluator: Evaluator, pod: Pod, decision: Decision, leaving: Rows) -> Waits | Unschedulable | None:
    """Wait for the room that the pods `leaving` make; None if they make none."""
    nodes = decision.fits_without(leaving) if len(leaving) else []
    if not nodes:
        return None
    foreign = pod.status.nominated_node_name if PLAN not in (pod.metadata.annotations or {}) else ""
    if foreign in nodes:
        return Unschedulable(f"somebody else has nominated it to {foreign}, where room is coming up")
    node = _least_contested(evaluator, pod, nodes, leaving)
    return Waits(node, _count_on(evaluator.state.snapshot, node, leaving))


def _act_on(
    evaluator: Evaluator, decision: Decision, chosen: Candidate, policy: PreemptionPolicy, attempts: int
) -> Outcome:
    state = evaluator.state
    leaving = [victim for victim in chosen.victims if victim.key in state.index.leaving]
    pods = [state.pod(victim.key) for victim in chosen.victims if victim.key not in state.index.leaving]
    victims = tuple(pod for pod in pods if pod is not None)
    if not victims:
        return Waits(chosen.node, len(leaving))
    most = policy.limits.attempts_per_preemptor
    if attempts >= most:
        forgiven = "one stops to count every 15 min"
        reason = f"{attempts} plans evicted pods for it in vain, and the policy allows {most}; {forgiven}"
        return Unschedulable(reason, restrained=True)
    scores = decision.scores(_SHOWN + 1)
    own = next((score for score in scores if score.node == chosen.node), None)
    others = [score for score in scores if score.node != chosen.node][:_SHOWN]
    return Evicts(
        node=chosen.node,
        victims=victims,
        leaving=len(leaving),
        candidates=decision.candidate_count,
        selected=_alternative(own) if own else None,
        alternatives=tuple(map(_alternative, others)),
        because=preferred_because(own, others[0]) if own and others else "",
        last_resort=frozenset(key_of(victim) for victim in victims if is_last_resort(victim)),
        grounds={key_of(victim): decision.victim_reason(key_of(victim)) for victim in victims},
    )


def _unschedulable(
    evaluator: Evaluator, pod: Pod, rules: Rules, decision: Decision, *, used_up: float | None, counted: float | None
) -> Unschedulable:
    """Nothing helps now. Rates are used up until `used_up`; until `counted` recent evictions count for them."""
    now = evaluator.clock.monotonic()
    ends = [used_up, evaluator.eviction_backoff.next_end(now), _end_of_protection(evaluator, pod, rules)]
    if NOT_NOW in decision.rejections:
        ends.append(counted)
    rated = used_up is not None or bool(decision.rejections)
    due = min((end for end in ends if end is not None), default=None)
    reason = decision.reason or "no node where evicting pods that may be evicted makes room"
    never = too_large(decision.rejections)
    if never and not decision.reason:
        reason = f"wherever evicting pods makes room, more would have to go at once than limits.{never} ever allows"
    elif NOT_NOW in decision.rejections and not decision.reason:
        reason = "wherever evicting pods makes room, more would have to go than the policy's limits allow now"
    elif used_up is not None:
        reason += "; the policy's limits leave out pods that would do otherwise"
    if evaluator.eviction_backoff.spared(now):
        reason += "; pods that the API server would not remove are left out for now"
    return Unschedulable(reason, restrained=rated, due=due)


def _end_of_protection(evaluator: Evaluator, pod: Pod, rules: Rules) -> float | None:
    """When the first protection window of a pod of lower priority ends, in monotonic seconds."""
    pods, now = evaluator.state.snapshot.pods, evaluator.clock.wall()
    ends = protection_ends(evaluator.state.snapshot, rules)
    if ends is None:
        return None
    below = (pods.priority[: pods.rows] < (pod.spec.priority or 0)) & (pods.node[: pods.rows] >= 0)
    open_ = (ends > now) & np.isfinite(ends) & below
    if not open_.any():
        return None
    return evaluator.clock.monotonic() + max(float(ends[open_].min()) - now, _HASTE)


def _is_rated(policy: PreemptionPolicy) -> bool:
    limits = policy.limits
    return bool(limits.per_owner or limits.per_node or limits.per_cluster)


def _least_contested(evaluator: Evaluator, pod: Pod, nodes: Sequence[str], leaving: Rows) -> str:
    """Of the nodes with room once the pods `leaving` are gone, one where fewest others lose a nomination.

    A pod keeps its nomination if both fit. Else the higher priority gets the room, as it would from
    kube-scheduler, and the other one is decided for again: that costs less than evicting pods elsewhere.
    """
    own, priority, key = pod.status.nominated_node_name, pod.spec.priority or 0, key_of(pod)
    preferred = sorted(nodes, key=lambda node: node != own)
    lower = {node: len(evaluator.state.lower_nominated(node, priority, key)) for node in preferred}
    if not all(lower.values()):
        return next(node for node in preferred if not lower[node])
    together = set(fits(evaluator.state.snapshot, _lowest(pod), without=leaving))
    return min(preferred, key=lambda node: 0 if node in together else lower[node])


def _lowest(pod: Pod) -> Pod:
    """The preemptor as if every nominated pod had a higher priority, so that none has to give way to it."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=_LOWEST))


def _count_on(snapshot: Snapshot, node: str, rows: Rows) -> int:
    return int(np.count_nonzero(snapshot.pods.node[rows] == snapshot.nodes.find(node)))


def _alternative(score: Score) -> Alternative:
    start = score.values["earliest_start"]
    return Alternative(
        node=score.node,
        victims=score.values["victims"],
        budget_violations=score.values["violations"],
        highest_priority=score.values["highest_priority"],
        priority_sum=sum_of_priorities(score),
        earliest_start="" if math.isinf(start) else rfc3339(start),
    )


def _unnominated(pod: Pod) -> Pod:
    """The preemptor as if it had no nomination: what an earlier plan left there is not to weigh in."""
    if not pod.status.nominated_node_name:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=""))


def _is_alive(state: State, key: str, uid: str) -> bool:
    pod = state.pod(key)
    return pod is not None and pod.metadata.uid == uid and not is_over(pod) and key not in state.index.leaving


def _differs(seen: ObjectMeta, decided: ObjectMeta) -> bool:
    if seen.uid != decided.uid:
        return False
    return seen.labels != decided.labels or seen.annotations != decided.annotations
