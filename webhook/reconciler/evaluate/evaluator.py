"""What to do for one preemptor, on the newest state: nothing, wait, evict, or nothing that helps. Acts on nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.decision import fits, fits_on, victims_needed
from webhook.preemption.extenders import Extender
from webhook.preemption.ranking import Score, preferred_because, shown_keys
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.pod_info import for_any_node
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidate, CandidateFilter
from webhook.preemption.victims.eligible import protection_ends
from webhook.preemption.victims.rules import EXPENDABLE, Rules
from webhook.reconciler.clock import MeasuringClock, Now
from webhook.reconciler.evaluate.devices_ahead import DevicesAhead
from webhook.reconciler.evaluate.extender_client import UnaskedError
from webhook.reconciler.evaluate.limits import BEYOND_BUDGET, NOT_NOW, PastEvictions, Rates, too_large, within_budgets
from webhook.reconciler.evaluate.outcomes import (
    NOTHING_PROMISED,
    Asks,
    Evicts,
    Fits,
    Outcome,
    Promised,
    Unschedulable,
    Waits,
)
from webhook.reconciler.evaluate.pods_ahead import AHEAD, PodsAhead, blocked_text
from webhook.reconciler.evaluate.room import rows_with, rows_without
from webhook.reconciler.evaluate.scheduler_activity import SchedulerActivity
from webhook.reconciler.evaluate.victim_exclusions import (
    LimitsNow,
    among_last_resort,
    decide_within_limits,
    immovable,
)
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.state.annotations import Alternative
from webhook.reconciler.state.state import State

Rows = NDArray[np.intp]

_NO_NODE = (
    f"cluster-autoscaler adds no node, because the pod fits where pods below {EXPENDABLE} run that may not be evicted:"
    " nobody helps it"
)
_SHOWN = 5
"""Other nodes that are written down."""
_OVERDUE = 60.0
"""Seconds after which a pod that should be gone is not counted on any more."""
_LOWEST = -(2**31)
"""The lowest priority there is."""
_PROTECTION_PAUSE = 1.0
"""Seconds between two tries at ends of protections, however close these lie."""


class Evaluator:
    """The cluster and the past, and what they mean for a preemptor."""

    def __init__(self, state: State, log: EvictionLog, clock: MeasuringClock) -> None:
        self.state = state
        self.log = log
        self.schedulers = SchedulerActivity()
        self.clock = clock

    def evaluate(
        self,
        pod: Pod,
        policy: PreemptionPolicy,
        rules: Rules,
        attempts: int,
        *,
        extenders: Sequence[Extender] = (),
        left_out: Collection[str] = (),
        promised: Promised = NOTHING_PROMISED,
    ) -> Outcome:
        """What to do for a preemptor (docs/semantics.md D).

        `attempts` is how many plans evicted for it in vain; nothing is planned on the nodes `left_out`.
        """
        at = Now.by(self.clock)
        # 1. Which pods will be gone soon enough to wait for them, and which rates are used up.
        leaving, ahead = self.leaving_soon(policy, at), self.pods_ahead((pod,), at, promised)
        in_front = () if pod.spec.node_name else (ahead,)  # room beside a pod that grows is its own at once
        filters = in_front if policy.eviction is EvictionMode.DELETE else (within_budgets, *in_front)
        limits = self.limits_now(policy, (pod,), at, filters)
        # 2. Decide, with the pods excluded that evicting would not remove, or must not now.
        try:
            decision = decide_within_limits(
                self.state,
                unnominated(pod),
                rules,
                at.wall,
                limits,
                leaving=leaving,
                extenders=extenders,
                left_out=left_out,
            )
        except UnaskedError as unasked:
            return Asks(unasked.question)
        # 3. If it fits without preemption, nothing is to be done.
        if decision.fits:
            return Fits(tuple(decision.fits))
        # 4. If pods that are leaving make room, wait for them.
        if (waits := self._wait(pod, decision, leaving, promised.planned, ahead)) is not None:
            return waits
        if not decision.eligible:
            return Unschedulable(decision.reason, due=schedule_begins(policy, rules, at))
        # 5. Evict, if a node was selected and not too many plans have evicted for it in vain.
        devices = DevicesAhead(ahead, pod, now=at.wall)
        chosen, why = devices.choose(decision)
        outcome: Outcome = Unschedulable(why, behind=True)
        if chosen is not None:
            outcome = limits.past.closed_by(_evicts(self.state, decision, chosen, why, promised.planned))
        elif not why:
            outcome = limits.past.kept_from(self._unschedulable(pod, rules, decision, limits, ahead))
        if isinstance(outcome, Evicts):
            outcome = limits.too_many(attempts) or outcome
        # 6. If nothing helps, a plan may wait as long as it lasts for pods that take longer to leave.
        later = self.room_within(policy.plan_timeout, at) if isinstance(outcome, Unschedulable) else leaving
        if len(later) > len(leaving) and (waits := self._wait(pod, decision, later, promised.planned, ahead)):
            return waits
        if isinstance(outcome, Unschedulable) and ahead.blocking is not None:
            return replace(outcome, behind=True)
        return outcome

    def limits_now(
        self, policy: PreemptionPolicy, pods: Sequence[Pod], at: Now, filters: tuple[CandidateFilter, ...] = ()
    ) -> LimitsNow:
        """What keeps pods from going for these preemptors under a policy now; the `filters` keep candidates, too."""
        now, limits = at.monotonic, policy.limits.at(at.wall)
        self.log.remember(policy.limits)
        left = self.log.remaining(limits, now)
        past = PastEvictions(self.state, self.log, pods, policy, now)
        excluded = self.exclusions(now) if past.stay is None else self.exclusions(now) | past.stay
        rates = Rates(self.state, limits, left) if left.left else None
        return LimitsNow(limits, excluded, self.log.next_end(now) is not None, left, rates, past, filters)

    def pods_ahead(
        self,
        pods: Sequence[Pod],
        at: Now,
        promised: Promised = NOTHING_PROMISED,
        *,
        own: Collection[str] = (),
        others: Collection[Pod] = (),
    ) -> PodsAhead:
        """Which candidates are left to pods placed together, with `own` plans by id, and `others` of their gang."""

        def is_overdue(ahead: Pod) -> bool:
            fitting = fits(self.state.snapshot, for_any_node(ahead))
            return self.schedulers.overdue(ahead, fits=bool(fitting), now=at.monotonic)

        leaving = self.leaving_within(math.inf, at)
        return PodsAhead(self.state, pods, is_overdue, leaving, held=promised.held, own=own, others=others)

    def taken_by(
        self, pod: Pod, policy: PreemptionPolicy, node: str, victims: Rows, *, plans: Collection[str], at: Now
    ) -> str:
        """Which pod in front takes the room on a node once the victims are gone; empty if it is left to the pod.

        The victims go for the `plans` (by id) of the pod and of the other members of its gang. As in the decision, pods
        that leave anyway are gone then, too, if the plan counts on them.
        """
        ahead, snapshot = self.pods_ahead((pod,), at, own=plans), self.state.snapshot
        there = victims[snapshot.pods.node[victims] == snapshot.nodes.find(node)]
        if not len(there) or not ahead.anybody:
            return ""
        leaving = rows_without(self.leaving_soon(policy, at), there)
        leaving = leaving[snapshot.pods.node[leaving] == snapshot.nodes.find(node)]
        needed = victims_needed(snapshot, pod, node, leaving, without=there) if len(leaving) else leaving
        rows = np.concatenate([there, needed])
        devices = DevicesAhead(ahead, pod, now=at.wall)
        if ahead.taken(rows) or devices.taker(node, rows, parts=False):
            return blocked_text(ahead.blocking)
        return ""

    def exclusions(self, now: float) -> NDArray[np.bool_]:
        """The pods, by row, that evicting does not help now, whatever the rules say."""
        return immovable(self.state, *self.log.excluded(now))

    def leaving_soon(self, policy: PreemptionPolicy, at: Now) -> Rows:
        """The rows of the pods that leave so soon that decisions count on them and evict no others."""
        return self.room_within(min(policy.wait_for_terminating, policy.plan_timeout), at)

    def room_within(self, seconds: float, at: Now) -> Rows:
        """Rows of pods whose room comes up by then. An owner that puts its pods back takes their room at once."""
        rows, (_, owners) = self.leaving_within(seconds, at), self.log.excluded(at.monotonic)
        back = [key for owner in owners for key in self.state.index.owned.get(owner, ())] if len(rows) else []
        return rows_without(rows, self.state.snapshot.pod_rows(back))

    def leaving_within(self, seconds: float, at: Now) -> Rows:
        """The rows of the pods that will be gone from their nodes by then; a long overdue pod is not counted on."""
        pods = self.state.snapshot.pods
        rows = pods.leaving()
        ends = pods.gone_at[rows]
        leaving: Rows = rows[(at.wall - _OVERDUE <= ends) & (ends <= at.wall + seconds)]
        return leaving

    def staying(self, keys: Collection[str]) -> Rows:
        """The rows of those of these pods that are not leaving yet, whatever plans count on."""
        return self.state.snapshot.pod_rows([key for key in keys if self._is_staying(key)])

    def fits_on(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node now."""
        return fits_on(self.state.snapshot, pod, node)

    def has_room(self, pod: Pod, node: str, *, but: Collection[str] = ()) -> bool:
        """Whether the pod fits on the node once every pod that is leaving is gone, and `but` for these pods."""
        snapshot = self.state.snapshot
        without = rows_with(snapshot.pods.leaving(), snapshot.pod_rows(but))
        return fits_on(snapshot, pod, node, without=without)

    def _wait(
        self, pod: Pod, decision: Decision, leaving: Rows, planned: Collection[str], ahead: PodsAhead
    ) -> Waits | Unschedulable | None:
        """Wait for the room that the pods `leaving` make; None if they make none that is left to the preemptor."""
        nodes = decision.fits_without(leaving) if len(leaving) else []
        if not nodes:
            return None
        if pod.spec.node_name:
            return Unschedulable("it has room to grow once pods that are leaving its node are gone")
        foreign = pod.status.nominated_node_name if PLAN not in (pod.metadata.annotations or {}) else ""
        if foreign in nodes:
            return Unschedulable(f"somebody else has nominated it to {foreign}, where room is coming up")
        # Of the pods that a plan has yet to ask, those that the preemptor needs, and may evict itself.
        snapshot = self.state.snapshot
        unasked = snapshot.pod_rows([key for key in planned if decision.may_go(key)])
        rest = rows_without(leaving, unasked)

        def needed(node: str) -> Rows:
            among = unasked[snapshot.pods.node[unasked] == snapshot.nodes.find(node)]
            return victims_needed(snapshot, pod, node, among, without=rest) if len(among) else among

        # Nobody goes for it if others have to go, too, that another plan is to ask, and that it may not evict itself.
        theirs = snapshot.pod_rows([key for key in planned if not decision.may_go(key) and self._is_staying(key)])

        def needs_theirs(node: str) -> bool:
            own = needed(node) if (snapshot.pods.node[theirs] == snapshot.nodes.find(node)).any() else theirs[:0]
            without = np.setdiff1d(np.append(rest, own), theirs)
            return bool(len(own)) and not fits_on(snapshot, pod, node, without=without)

        if len(theirs) and not (nodes := [node for node in nodes if not needs_theirs(node)]):
            return None
        # The room is left to it only if pods in front leave it: a nomination there would take it from others in vain.
        if ahead.anybody:
            taken = ahead.taken(np.concatenate([rest, *(needed(node) for node in nodes)]))
            nodes = [node for node in nodes if node not in taken]
            if not nodes:
                return None
        # Where fewest others lose a nomination: none does where it fits beside all of them at the lowest priority.
        lost = {node: len(self.state.lower_nominated(node, priority_of(pod), key_of(pod))) for node in nodes}
        if any(lost.values()):
            humble = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=_LOWEST))
            lost |= dict.fromkeys(fits(snapshot, humble, without=leaving), 0)
        node = min(nodes, key=lambda node: (lost[node], node != pod.status.nominated_node_name))
        own = needed(node)
        keys = [f"{snapshot.pods.namespaces[row]}/{snapshot.pods.names[row]}" for row in own.tolist()]
        victims = tuple(victim for key in keys if (victim := self.state.pods.get(key)) is not None)
        gone = np.count_nonzero(snapshot.pods.node[leaving] == snapshot.nodes.find(node))
        return Waits(node, int(gone), victims, decision.groups_of(own))

    def _is_staying(self, key: str) -> bool:
        """Whether a pod is not leaving yet, whatever plans count on."""
        pod = self.state.pods.get(key)
        return pod is not None and not pod.metadata.deletion_timestamp

    def _unschedulable(
        self, pod: Pod, rules: Rules, decision: Decision, limits: LimitsNow, ahead: PodsAhead
    ) -> Unschedulable:
        """Nothing helps now: why, and when time alone may let the pod be helped.

        A rate leaves room again or the schedule of one ends, the API server may be asked again for a pod that it did
        not remove, or a protection window of a pod of lower priority ends.
        """
        now, wall = self.clock.monotonic(), self.clock.wall()
        left, asked_again = limits.left, self.log.next_end(now)
        dues = [] if left.again is None else [(left.again, f"{left.rates_used_up} leaves room again")]
        if asked_again is not None:
            dues.append((asked_again, "the API server is asked again about pods that it would not remove"))
        reason = decision.reason or "no node where evicting pods that may be evicted makes room"
        never = too_large(decision.rejections)
        if never and not decision.reason:
            reason = f"wherever evicting pods makes room, more would have to go at once than limits.{never} ever allows"
        elif ahead.blocking is not None and not decision.reason:
            reason = f"wherever room can be made, {blocked_text(ahead.blocking)}"
        elif BEYOND_BUDGET in decision.rejections and not decision.reason:
            reason = "wherever evicting pods makes room, a disruption budget keeps one of them"
        elif NOT_NOW in decision.rejections and not decision.reason:
            reason = "wherever evicting pods makes room, more would have to go than the policy's limits allow now"
        elif left.again is not None:
            reason += f"; {left.rates_used_up} excludes pods that would do otherwise"
        pods = self.state.snapshot.pods
        expendable = np.flatnonzero((pods.priority[: pods.rows] < EXPENDABLE) & (pods.node[: pods.rows] >= 0))
        if len(expendable) and not decision.reason and fits(self.state.snapshot, pod, without=expendable):
            reason += f"; {_NO_NODE}"
        if limits.setbacks:
            reason += "; pods that would not go, or come back at once, are excluded for now"
        if NOT_NOW in decision.rejections and left.until is not None:
            dues.append((left.until, "the first eviction that counts leaves its window"))
        rated = left.again is not None or bool(decision.rejections - {AHEAD, BEYOND_BUDGET})
        if rated:
            schedules = [rate.schedule for rate in limits.now.rates.values() if rate.schedule is not None]
            ending = [end for schedule in schedules if (end := schedule.ends(wall)) is not None]
            dues += [(now + end - wall, "the schedule of a rate ends") for end in ending]
        ends = protection_ends(self.state.snapshot, rules, wall, pod.spec.priority or 0)
        if ends is not None:
            pods, count = self.state.snapshot.pods, len(ends)
            lower = (pods.priority[:count] < (pod.spec.priority or 0)) & (pods.node[:count] >= 0)
            protecting = ends[(ends > wall) & np.isfinite(ends) & lower]
            if len(protecting):
                ends_first = now + max(float(protecting.min()) - wall, _PROTECTION_PAUSE)
                dues.append((ends_first, "the protection of a pod of lower priority ends"))
        dues = [row for row in dues if math.isfinite(row[0])]
        due, because = min(dues, default=(None, ""))
        change = "" if due is None else f"That may change at {rfc3339(round(wall + due - now))}, when {because}."
        return Unschedulable(reason, rated, due, change)


def schedule_begins(policy: PreemptionPolicy, rules: Rules, at: Now) -> float | None:
    """When the policy's schedule begins if it keeps everybody now, in monotonic seconds."""
    begins = policy.schedule.begins(at.wall) if policy.schedule and rules.outside(at.wall) else None
    return None if begins is None else at.monotonic + begins - at.wall


def unnominated(pod: Pod) -> Pod:
    """The preemptor as if it had no nomination: one that an earlier plan left does not count."""
    if not pod.status.nominated_node_name:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=""))


def _evicts(state: State, decision: Decision, chosen: Candidate, why: str, planned: Collection[str]) -> Evicts | Waits:
    """Evict the victims of the chosen candidate that are not leaving already; only wait if all of them are.

    `why` says why it is not a better one, empty if it is the best. Victims that another plan has yet to ask are victims
    of both plans: the other one may never ask them.
    """
    leaving = [victim for victim in chosen.victims if victim.key in state.index.leaving and victim.key not in planned]
    known = {victim.key for victim in leaving}
    pods = [state.pods.get(victim.key) for victim in chosen.victims if victim.key not in known]
    victims = tuple(pod for pod in pods if pod is not None)
    groups = {victim.key: victim.group for victim in chosen.victims if victim.group}
    if all(key_of(victim) in planned for victim in victims):
        return Waits(chosen.node, len(chosen.victims), victims, groups)
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
        because=why or (preferred_because(own, others[0]) if own and others else ""),
        room=decision.made_room(chosen),
        last_resort=among_last_resort(state, victims),
        grounds={key_of(victim): decision.victim_reason(key_of(victim)) for victim in victims},
        groups=groups,
    )


def _alternative(score: Score) -> Alternative:
    """What people are told of a candidate, with every key of the ranking, also new ones."""
    return Alternative(node=score.node, compared={key.heading: key.text(score) for key in shown_keys(score)})
