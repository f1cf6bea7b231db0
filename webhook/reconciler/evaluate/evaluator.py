"""What to do for one preemptor, on the newest state: nothing, wait, evict, or nothing that helps. Acts on nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.informer import Change
from webhook.kube.objects import Pod, key_of
from webhook.policy.model import Limits, PreemptionPolicy
from webhook.preemption.decision import decide, fits, fits_on
from webhook.preemption.extenders import Extender
from webhook.preemption.filters.filtering import NO_PODS
from webhook.preemption.result import Decision
from webhook.preemption.victims.candidates import CandidateFilter
from webhook.preemption.victims.eligible import protection_ends
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.clock import MeasuringClock
from webhook.reconciler.evaluate import victim_exclusions
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, ExhaustedLimits, has_rates
from webhook.reconciler.evaluate.extenders import UnaskedError
from webhook.reconciler.evaluate.outcomes import (
    Asks,
    Evicts,
    Fits,
    Outcome,
    Unschedulable,
    Waits,
    evicts,
    unschedulable,
)
from webhook.reconciler.evaluate.rates import NOT_NOW, Rates
from webhook.reconciler.evaluate.victim_exclusions import EvictionBackoff
from webhook.reconciler.state.annotations import PLAN
from webhook.reconciler.state.preemptors import unschedulable_since
from webhook.reconciler.state.state import State

__all__ = ["Evaluator", "decide_with_exclusions"]

Rows = NDArray[np.intp]

_OVERDUE = 60.0
"""Seconds after which a pod that should be gone is not counted on any more."""
_SCHEDULERS = 100
"""Schedulers that are remembered."""
_LOWEST = -(2**31)
"""The lowest priority there is."""
_PROTECTION_PAUSE = 1.0
"""Seconds between two tries that an end of protection asks for, however close the ends lie."""


class Evaluator:
    """The cluster and the past, and what they mean for a preemptor."""

    def __init__(self, state: State, limiter: EvictionLimiter, clock: MeasuringClock) -> None:
        self.state = state
        self.limiter = limiter
        self.eviction_backoff = EvictionBackoff()
        self.clock = clock
        self.scheduled: dict[str, float] = {}
        """Scheduler to when it was last seen at work, in monotonic seconds."""

    def evaluate(
        self,
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
        now = self.clock.monotonic()
        # 1. Which rates are used up, and which pods will be gone soon enough to wait for them.
        exhausted = self.limiter.exhausted(policy.limits, now)
        leaving = self.leaving_within(min(policy.wait_for_terminating, policy.plan_timeout))
        # 2. Decide, with the pods excluded that evicting would not remove, or must not now.
        try:
            decision = self._decide(pod, rules, policy.limits, leaving, extenders=extenders, left_out=left_out)
        except UnaskedError as unasked:
            return Asks(unasked.question)
        # 3. If it fits without preemption, nothing is to be done.
        if decision.fits:
            return Fits(tuple(decision.fits))
        # 4. If pods that are leaving make room, wait for them.
        if (waits := self._wait(pod, decision, leaving)) is not None:
            return waits
        if not decision.eligible:
            return Unschedulable(decision.reason)
        # 5. Evict, if a node was selected and not too many plans have evicted for it in vain.
        outcome: Outcome
        if decision.selected is not None:
            outcome = _within_attempts(evicts(self.state, decision, decision.selected), policy, attempts)
        else:
            outcome = unschedulable(
                decision,
                rate_exhausted=exhausted.until is not None,
                some_refused=bool(self.eviction_backoff.excluded(now)),
                due=self._next_chance(pod, rules, policy, decision, exhausted),
            )
        # 6. If nothing helps, a plan may wait as long as it lasts for pods that take longer to leave.
        later = self.leaving_within(policy.plan_timeout) if isinstance(outcome, Unschedulable) else leaving
        return (self._wait(pod, decision, later) or outcome) if len(later) > len(leaving) else outcome

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

    def note_refusal(self, key: str) -> None:
        """The API server did not let the pod be removed: decisions exclude it for a while."""
        self.eviction_backoff.note(key, self.clock.monotonic())

    def fits_on(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node now."""
        return fits_on(self.state.snapshot, pod, node)

    def has_room(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node once every pod that is leaving is gone."""
        return fits_on(self.state.snapshot, pod, node, without=self.state.snapshot.pods.leaving())

    def decide_again(self, pod: Pod, rules: Rules) -> Decision:
        """What a decision made now says for a pod that carries an earlier leader's plan, as if it had no nomination.

        Rates are not asked, since the plan's victims count already, and extenders neither, since they have agreed.
        """
        excluded = victim_exclusions.immovable(self.state, self.eviction_backoff.excluded(self.clock.monotonic()))
        going = self.state.snapshot.pods.leaving()
        return decide_with_exclusions(self.state, _unnominated(pod), rules, self.clock.wall(), excluded, going=going)

    def _decide(
        self,
        pod: Pod,
        rules: Rules,
        limits: Limits,
        soon: Rows,
        *,
        extenders: Sequence[Extender],
        left_out: Collection[str],
    ) -> Decision:
        """Decide with the pods excluded that asking does not remove, and those whose rate is used up.

        Of the pods that are leaving those that will not be gone `soon` are no victims: asking them again would not
        help. The others are counted on first: nobody goes in place of one that goes anyway.
        If every candidate has more victims than a rate ever allows, it is decided once more with those beyond it
        excluded: fewer pods that are more important may do.
        """
        state, now = self.state, self.clock.monotonic()
        rates = Rates(state, limits, self.limiter.remaining(limits, now)) if has_rates(limits) else None
        excluded = victim_exclusions.union(
            victim_exclusions.immovable(state, self.eviction_backoff.excluded(now)),
            victim_exclusions.over_rate(state, self.limiter.exhausted(limits, now)),
        )
        leaving = state.snapshot.pods.leaving()
        if len(leaving) > len(soon):
            excluded = victim_exclusions.union(excluded, victim_exclusions.of_rows(state, np.setdiff1d(leaving, soon)))
        pod, wall = _unnominated(pod), self.clock.wall()

        def decided() -> Decision:
            return decide_with_exclusions(
                state,
                pod,
                rules,
                wall,
                excluded,
                extenders=extenders,
                candidate_filter=rates,
                left_out=left_out,
                going=soon,
            )

        decision = decided()
        if rates is None or not rates.surplus or decision.selected is not None or NOT_NOW in decision.rejections:
            return decision
        excluded = victim_exclusions.union(excluded, victim_exclusions.of_rows(state, np.concatenate(rates.surplus)))
        narrowed = decided()
        narrowed.rejections |= decision.rejections
        return narrowed

    def _wait(self, pod: Pod, decision: Decision, leaving: Rows) -> Waits | Unschedulable | None:
        """Wait for the room that the pods `leaving` make; None if they make none."""
        nodes = decision.fits_without(leaving) if len(leaving) else []
        if not nodes:
            return None
        foreign = pod.status.nominated_node_name if PLAN not in (pod.metadata.annotations or {}) else ""
        if foreign in nodes:
            return Unschedulable(f"somebody else has nominated it to {foreign}, where room is coming up")
        node = self._least_contested(pod, nodes, leaving)
        snapshot = self.state.snapshot
        return Waits(node, int(np.count_nonzero(snapshot.pods.node[leaving] == snapshot.nodes.find(node))))

    def _least_contested(self, pod: Pod, nodes: Sequence[str], leaving: Rows) -> str:
        """Of the nodes with room once the pods `leaving` are gone, one where fewest others lose a nomination.

        A pod keeps its nomination if both fit. Else the higher priority gets the room, as it would from
        kube-scheduler, and the other one is decided for again: that costs less than evicting pods elsewhere.
        """
        own, priority, key = pod.status.nominated_node_name, pod.spec.priority or 0, key_of(pod)
        preferred = sorted(nodes, key=lambda node: node != own)
        lower = {node: len(self.state.lower_nominated(node, priority, key)) for node in preferred}
        if not all(lower.values()):
            return next(node for node in preferred if not lower[node])
        # Of the lowest priority it has to fit beside every nominated pod, so that none has to give way to it.
        humble = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=_LOWEST))
        together = set(fits(self.state.snapshot, humble, without=leaving))
        return min(preferred, key=lambda node: 0 if node in together else lower[node])

    def _next_chance(
        self, pod: Pod, rules: Rules, policy: PreemptionPolicy, decision: Decision, exhausted: ExhaustedLimits
    ) -> float | None:
        """When time alone may let the pod be helped, in monotonic seconds; None if that is not known.

        A rate leaves room again, the API server may be asked again for a pod that it did not remove, or a protection
        window of a pod of lower priority ends.
        """
        now, wall = self.clock.monotonic(), self.clock.wall()
        dues = [exhausted.until, self.eviction_backoff.next_end(now)]
        if NOT_NOW in decision.rejections:
            dues.append(self.limiter.remaining(policy.limits, now).until)
        ends = protection_ends(self.state.snapshot, rules)
        if ends is not None:
            pods, count = self.state.snapshot.pods, len(ends)
            lower = (pods.priority[:count] < (pod.spec.priority or 0)) & (pods.node[:count] >= 0)
            protecting = ends[(ends > wall) & np.isfinite(ends) & lower]
            if len(protecting):
                dues.append(now + max(float(protecting.min()) - wall, _PROTECTION_PAUSE))
        return min((due for due in dues if due is not None), default=None)


def decide_with_exclusions(
    state: State,
    pod: Pod,
    rules: Rules,
    now: float,
    excluded: victim_exclusions.Mask,
    *,
    extenders: Sequence[Extender] = (),
    candidate_filter: CandidateFilter | None = None,
    left_out: Collection[str] = (),
    going: Rows = NO_PODS,
) -> Decision:
    """Decide with last-resort victims excluded; only if that finds nothing, with them too.

    The pods `excluded` never go, the pods in the rows `going` go anyway; nothing is planned on the nodes `left_out`.
    """
    mask = victim_exclusions.of_rows(state, going) if len(going) else None

    def decided(without: victim_exclusions.Mask) -> Decision:
        return decide(
            state.snapshot,
            pod,
            rules,
            now,
            extenders,
            exclusions=without,
            candidate_filter=candidate_filter,
            excluded_nodes=left_out,
            leaving=mask,
        )

    last = victim_exclusions.last_resort(state)
    first = decided(victim_exclusions.union(excluded, last))
    if first.selected is not None or not first.eligible or not last.any() or first.fits:
        return first
    second = decided(excluded)
    second.rejections |= first.rejections
    return second


def _within_attempts(outcome: Evicts | Waits, policy: PreemptionPolicy, attempts: int) -> Outcome:
    most = policy.limits.attempts_per_preemptor
    if attempts < most or isinstance(outcome, Waits):
        return outcome
    forgiven = "one stops to count every 15 min"
    reason = f"{attempts} plans evicted pods for it in vain, and the policy allows {most}; {forgiven}"
    return Unschedulable(reason, limited=True)


def _unnominated(pod: Pod) -> Pod:
    """The preemptor as if it had no nomination: what an earlier plan left there is not to weigh in."""
    if not pod.status.nominated_node_name:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=""))
