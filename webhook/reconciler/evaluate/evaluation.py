"""What to do for a preemptor or its gang, on the newest state: nothing, wait, evict, or nothing that helps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.preemption import EvictionMode, PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.decision import fits, fits_on, victims_needed
from webhook.preemption.extenders import Extender
from webhook.preemption.gangs.decision import GangDecision, decide_gang
from webhook.preemption.gangs.gang import Gang, form_gang
from webhook.preemption.ranking import preferred_because, shown_keys
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Victim
from webhook.preemption.victims.eligible import protection_ends
from webhook.preemption.victims.rules import EXPENDABLE, Rules, VictimReason
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.extender_client import UnaskedError
from webhook.reconciler.evaluate.limits import BEYOND_BUDGET, NEVER, NOT_NOW, LimitsNow
from webhook.reconciler.evaluate.outcomes import (
    NOTHING_PROMISED,
    Evicts,
    Fits,
    Members,
    Outcome,
    Promised,
    Unschedulable,
    Waits,
)
from webhook.reconciler.evaluate.pods_ahead import AHEAD, PodsAhead
from webhook.reconciler.evictions.log import name_of
from webhook.reconciler.state.annotations import MOST_MEMBERS, Alternative, DecidedVictim

_NO_NODE = (
    f"cluster-autoscaler adds no node, because the pod fits where pods below {EXPENDABLE} run that may not be evicted:"
    " nobody helps it"
)
_SHOWN = 5
"""Other nodes that are written down."""
_LOWEST = -(2**31)
"""The lowest priority there is."""
_PROTECTION_PAUSE = 1.0
"""Seconds between two tries at ends of protections, however close these lie."""
_TRIES = 4
"""Decisions for a gang until nothing stands against one."""


class Evaluation:
    """What to do for a preemptor, or for the members of its gang together (docs/semantics.md D).

    `attempts` is how many plans evicted for one of them in vain; nothing is planned on the nodes `left_out`.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        members: Members,
        policy: PreemptionPolicy,
        rules: Rules,
        attempts: int,
        *,
        extenders: Sequence[Extender] = (),
        left_out: Collection[str] = (),
        promised: Promised = NOTHING_PROMISED,
    ) -> None:
        self._evaluator, self._members = evaluator, members
        self._policy, self._rules = policy, rules
        self._state, self._attempts = evaluator.state, attempts
        self._promised, self._planned = promised, promised.planned
        self._extenders, self._left_out = extenders, left_out
        self._at = Now(evaluator.clock.monotonic(), evaluator.clock.wall())
        self._limits = LimitsNow(evaluator, policy, members.ready, self._at)

    def outcome(self) -> Outcome:
        """Raises ClusterError for a member of a gang that cannot be read, ExtenderError for an extender that failed."""
        if self._members.key is not None:
            return self._together()
        (pod,), limits = self._members.ready, self._limits
        ahead = PodsAhead(self._evaluator, (pod,), self._at, self._promised)
        # 1. Decide, with the pods excluded that evicting would not remove, or must not now.
        # Room beside a pod that grows is its own at once.
        come = ahead.groups or self._promised.held
        in_front = ahead if come and not pod.spec.node_name else None
        free = unnominated(pod)
        try:
            decision = limits.decide(free, self._rules, in_front, self._extenders, self._left_out)
        except UnaskedError as unasked:
            return unasked.question
        # 2. If it fits without preemption, nothing is to be done.
        if decision.fits:
            return Fits(tuple(decision.fits))
        # 3. If pods that are leaving make room, wait for them.
        if (waits := self._wait(pod, decision, self._limits.leaving, ahead)) is not None:
            return waits
        if not decision.eligible:
            return Unschedulable(decision.reason, due=self._schedule_begins())
        # 4. Evict on the best node, or the best one of which nobody takes devices, if not too many plans did in vain.
        chosen = ahead.first_left(decision) if decision.asks_for_devices else decision.selected
        if chosen is None:
            outcome: Outcome = limits.kept_from(self._hopeless(pod, decision, ahead))
        else:
            scores = {score.node: score for score in decision.scores(_SHOWN + 1)}
            own, others = scores.pop(chosen.node, None), list(scores.values())[:_SHOWN]
            because = preferred_because(own, others[0]) if own and others else ""
            if decision.selected is not None and chosen.node != decision.selected.node:
                because = f"on {decision.selected.node} {ahead.blocking}"
            shown = [
                Alternative(node=score.node, compared={key.heading: key.text(score) for key in shown_keys(score)})
                for score in (*others, *([own] if own else []))
            ]
            outcome = self._reserves(
                [chosen.node],
                chosen.victims,
                decision.victim_reason,
                candidates=decision.candidate_count,
                selected=shown[-1] if own else None,
                alternatives=tuple(shown[: len(others)]),
                because=because,
                room=decision.made_room(chosen),
            )
        # 5. If nothing helps, a plan may wait as long as it lasts for pods that take longer to leave.
        if not isinstance(outcome, Unschedulable):
            return outcome
        outcome = replace(outcome, behind=bool(ahead.blocking))
        later = self._evaluator.room_within(self._policy.plan_timeout, self._at)
        if len(later) <= len(limits.leaving):
            return outcome
        return self._wait(pod, decision, later, ahead) or outcome

    def _together(self) -> Outcome:
        """What to do for the members of a gang together (docs/semantics.md D12)."""
        state, members = self._state, self._members
        # 1. The gang, at the lowest priority that its group or a member has; nobody of it counts as nominated.
        if not members.ready:
            return Unschedulable("it waits for its scheduler to look at it")
        if self._policy.extenders:
            return Unschedulable("the policy has extenders, and they are not asked about gangs")
        if len(members.ready) + len(members.secured) > MOST_MEMBERS:
            return Unschedulable(f"{members.key} has more than {MOST_MEMBERS} pods to be placed together")
        gang = form_gang(state.snapshot, map(unnominated, (*members.ready, *members.gated)), members.secured)
        gang = gang._replace(priority=min([gang.priority, *map(priority_of, members.ready)]))
        # 2. Decide with the pods excluded that evicting would not remove, or must not now; last those of last resort.
        excluded, last = self._limits.excluded, self._limits.last_resort
        for exclusions in (excluded | last, excluded) if last.any() else (excluded,):
            decision = self._agreed(gang, exclusions)
            if isinstance(decision, GangDecision):
                break
        if isinstance(decision, Fits):
            return decision
        if isinstance(decision, Unschedulable):
            return self._limits.kept_from(decision)
        # 3. Evict. Devices are held in the order of the places, and those of lower priority give way.
        placements = sorted(decision.placements, key=lambda placement: -priority_of(placement.pod))
        places = tuple((state.pods.get(key_of(pod)) or pod, node) for pod, node in placements)
        return self._reserves(
            [node for _, node in places],
            decision.victims,
            decision.grounds.__getitem__,
            candidates=1,
            because=f"{len(places)} pods of {members.key} are placed together",
            places=places,
            left_out=decision.outside,
        )

    def _agreed(self, gang: Gang, exclusions: Mask) -> GangDecision | Fits | Unschedulable:
        """The decision with these pods excluded to which nothing objects; what does, if there is none.

        Where the rates leave fewer victims, or others take the room on a node or a part of the devices, it is decided
        again, a few times.
        """
        limits, snapshot, objection = self._limits, self._state.snapshot, None
        # Pods that a plan has yet to ask do not count as leaving: that plan may end because of this gang, and they stay
        leaving = np.setdiff1d(self._limits.leaving, snapshot.pod_rows(self._planned), assume_unique=True)
        decided = partial(
            decide_gang,
            snapshot,
            gang,
            self._rules,
            self._at.wall,
            evicted=limits.evicted,
            keeps_budgets=self._policy.eviction is EvictionMode.EVICT,
        )
        avoided = set(self._left_out)
        for _ in range(_TRIES):
            decision = decided(exclusions=exclusions, leaving=leaving, left_out=avoided)
            if not decision.placements:
                again = limits.left.again
                due = again if (begins := self._schedule_begins()) is None else begins
                return objection or Unschedulable(decision.reason, limited=again is not None, due=due)
            if not decision.victims and decided(exclusions=exclusions, left_out=avoided).fits:
                return Fits(tuple(sorted({placement.node for placement in decision.placements})))
            victims = snapshot.pod_rows([victim.key for victim in decision.victims])
            if code := limits.code_of(victims):
                why, due = "more pods would have to go than the policy's limits allow", limits.left.until
                objection = objection or Unschedulable(why, limited=True, due=due if code == NOT_NOW else None)
                exclusions = limits.leaving_most_to(victims, exclusions)
            elif (taker := self._taker(decision, victims, leaving)) is not None:
                objection = objection or Unschedulable(taker[1], behind=True)
                avoided.add(taker[0])
            else:
                return decision
        assert objection is not None
        return objection

    def _taker(self, decision: GangDecision, victims: Rows, leaving: Rows) -> tuple[str, str] | None:
        """The first node that is not left to the members that would go there, and why; None if there is none."""
        evaluator, pods, ready = self._evaluator, self._state.snapshot.pods, self._members.ready
        members: dict[str, list[Pod]] = {}
        for pod, node in decision.placements:
            members.setdefault(node, []).append(pod)
        for node, together in members.items():
            ahead = PodsAhead(evaluator, together, self._at, self._promised, others=ready)
            row = evaluator.state.snapshot.nodes.find(node)
            going, coming = (rows[pods.node[rows] == row] for rows in (victims, leaving))
            if why := ahead.taker(node, going if len(going) else coming, evicts=bool(decision.victims)):
                return node, f"where evicting pods makes room, {why}"
        return None

    def _reserves(
        self, nodes: Sequence[str], victims: Sequence[Victim], ground: Callable[[str], VictimReason], **told: Any
    ) -> Evicts | Waits | Unschedulable:
        """Evict the victims that do not leave anyway, within attempts; only wait if other plans are to ask all of them.

        These are victims of both plans: the other one may never ask them.
        """
        state, planned, limits = self._state, self._planned, self._limits
        most, known = limits.limits.attempts_per_preemptor, state.snapshot.pods
        rows = state.snapshot.pod_rows([victim.key for victim in victims])
        gone = set(map(known.key, rows[np.isin(rows, known.leaving())].tolist())).difference(planned)
        keys = [victim.key for victim in victims if victim.key not in gone]
        waits = all(key in planned for key in keys)
        if not waits and self._attempts >= most:
            why = f"{self._attempts} plans evicted pods for it in vain, and the policy allows {most}"
            return Unschedulable(f"{why}; one stops to count every 15 min", limited=True)
        rows, last = state.snapshot.pod_rows(keys), limits.last_resort
        leaving = np.setdiff1d(limits.leaving, rows)
        there = np.isin(known.node[leaving], state.snapshot.nodes.rows_of(nodes))
        pods = tuple(pod for key in keys if (pod := state.pods.get(key)) is not None)
        evictors = sorted(limits.evictors.keys() & map(name_of, pods))
        groups, decided = {victim.key: victim.group for victim in victims if victim.group}, []
        nowhere_else = set(map(known.key, rows[last[rows]].tolist()))
        for pod in pods:
            key, node = key_of(pod), pod.spec.node_name
            grounds = ground(key)
            row = DecidedVictim(
                pod=key,
                priority=priority_of(pod),
                owner=workload_of(pod),
                rule=grounds.rule,
                because=grounds.text,
                last_resort=key in nowhere_else,
                node=node if node not in nodes else msgspec.UNSET,
                group=groups.get(key, msgspec.UNSET),
            )
            decided.append(row)
        return (Waits if waits else Evicts)(
            node=nodes[0],
            victims=pods,
            leaving=int(np.count_nonzero(there)),
            decided=tuple(decided),
            groups=groups,
            cycles=tuple(limits.evictors[evictor] for evictor in evictors),
            **told,
        )

    def _wait(self, pod: Pod, decision: Decision, leaving: Rows, ahead: PodsAhead) -> Waits | Unschedulable | None:
        """Wait for the room that the pods `leaving` make; None if they make none that is left to the preemptor."""
        if not (nodes := decision.fits_without(leaving) if len(leaving) else []):
            return None
        if pod.spec.node_name:
            return Unschedulable("it has room to grow once pods that are leaving its node are gone")
        foreign = pod.status.nominated_node_name if PLAN not in (pod.metadata.annotations or {}) else ""
        if foreign in nodes:
            return Unschedulable(f"somebody else has nominated it to {foreign}, where room is coming up")
        # 1. Of the pods that a plan has yet to ask those go for it that it needs, and may evict itself. Nobody does if
        #    others have to go, too, that it may not evict: that plan may never ask them.
        state, snapshot, planned = self._state, self._state.snapshot, self._planned
        pods = snapshot.pods
        unasked = snapshot.pod_rows([key for key in planned if decision.may_go(key)])
        theirs = snapshot.pod_rows([key for key in planned if not decision.may_go(key)])
        rest, own = np.setdiff1d(leaving, unasked), dict[str, Rows]()
        for node in nodes:
            among = unasked[pods.node[unasked] == snapshot.nodes.find(node)]
            needed = victims_needed(snapshot, pod, node, among, without=rest) if len(among) else among
            sure = np.append(np.setdiff1d(rest, theirs), needed)
            if not (len(needed) and len(theirs)) or fits_on(snapshot, pod, node, without=sure):
                own[node] = needed
        # 2. A nomination where pods in front take the room would take it from others in vain.
        taken = ahead.taken(np.concatenate([rest, *own.values()]))
        if not (nodes := [node for node in own if node not in taken]):
            return None
        # 3. Where fewest others lose a nomination: none does where it fits beside all of them at the lowest priority.
        lower = pods.nominees()
        lower = lower[pods.priority[lower] < priority_of(pod)]
        counts = Counter(snapshot.nodes.names[row] for row in pods.nominated[lower].tolist())
        lost = {node: counts[node] for node in nodes}
        if any(lost.values()):
            humble = replace(pod, spec=replace(pod.spec, priority=_LOWEST))
            lost |= dict.fromkeys(fits(snapshot, humble, without=leaving), 0)
        node = min(nodes, key=lambda node: (lost[node], node != pod.status.nominated_node_name))
        keys = map(pods.key, own[node].tolist())
        victims = tuple(victim for key in keys if (victim := state.pods.get(key)) is not None)
        gone = np.count_nonzero(pods.node[leaving] == snapshot.nodes.find(node))
        return Waits(node, int(gone), victims, decision.groups_of(own[node]))

    def _hopeless(self, pod: Pod, decision: Decision, ahead: PodsAhead) -> Unschedulable:
        """Nothing helps now: why, and when time alone may let the pod be helped.

        A rate leaves room again or the schedule of one ends, the API server may be asked again for a pod that it did
        not remove, or a protection window of a pod of lower priority ends.
        """
        snapshot, limits, rejections = self._state.snapshot, self._limits, decision.rejections
        left, (now, wall) = limits.left, self._at
        makes_room, beyond = "wherever evicting pods makes room,", rejections & NEVER.keys()
        never = " and ".join(NEVER[code] for code in sorted(beyond)) if beyond == rejections else ""
        reasons = {
            f"{makes_room} more would have to go at once than limits.{never} ever allows": bool(never),
            f"wherever room can be made, {ahead.blocking}": bool(ahead.blocking),
            f"{makes_room} a disruption budget keeps one of them": BEYOND_BUDGET in rejections,
            f"{makes_room} more would have to go than the policy's limits allow now": NOT_NOW in rejections,
        }
        reason = next((why for why, holds in reasons.items() if holds), "")
        if not reason:
            reason = "no node where evicting pods that may be evicted makes room"
            if left.again is not None:
                reason += f"; {left.rates_used_up} excludes pods that would do otherwise"
        pods = snapshot.pods
        expendable = np.flatnonzero((pods.priority[: pods.rows] < EXPENDABLE) & (pods.node[: pods.rows] >= 0))
        if len(expendable) and fits(snapshot, pod, without=expendable):
            reason += f"; {_NO_NODE}"
        if limits.asked_again is not None:
            reason += "; pods that would not go, or come back at once, are excluded for now"
        rated = left.again is not None or bool(rejections - {AHEAD, BEYOND_BUDGET})
        ending = [rate.schedule.ends(wall) for rate in limits.limits.rates.values() if rate.schedule is not None]
        # The first protection of a pod of lower priority on a node that ends.
        ends = protection_ends(snapshot, self._rules, wall, priority_of(pod))
        ends = np.zeros(0) if ends is None else ends
        rows = slice(len(ends))
        lower = (pods.priority[rows] < priority_of(pod)) & (pods.node[rows] >= 0)
        protected = float(ends[(ends > wall) & lower].min(initial=math.inf)) - wall
        dues = [
            (left.again, f"{left.rates_used_up} leaves room again"),
            (limits.asked_again, "the API server is asked again about pods that it would not remove"),
            (left.until if NOT_NOW in rejections else None, "the first eviction that counts leaves its window"),
            *((now + end - wall, "the schedule of a rate ends") for end in ending if end is not None and rated),
            (now + max(protected, _PROTECTION_PAUSE), "the protection of a pod of lower priority ends"),
        ]
        known = [(at, why) for at, why in dues if at is not None and math.isfinite(at)]
        due, because = min(known, default=(None, ""))
        if due is None:
            return Unschedulable(reason, rated)
        at = rfc3339(round(wall + due - now))
        return Unschedulable(reason, rated, due, f"That may change at {at}, when {because}.")

    def _schedule_begins(self) -> float | None:
        """When the policy's schedule begins if it keeps everybody now, in monotonic seconds."""
        (now, wall), schedule = self._at, self._policy.schedule
        begins = schedule.begins(wall) if schedule and self._rules.outside(wall) else None
        return None if begins is None else now + begins - wall


def unnominated(pod: Pod) -> Pod:
    """The preemptor as if it had no nomination: one that an earlier plan left does not count."""
    if not pod.status.nominated_node_name:
        return pod
    return replace(pod, status=replace(pod.status, nominated_node_name=""))
