"""What to do for a preemptor or its gang, on the newest state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import workload_of
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.decision import decide, fits, fits_on, victims_needed
from webhook.preemption.extenders import Extender
from webhook.preemption.gangs.decision import GangDecision, decide_gang
from webhook.preemption.gangs.gang import Gang, form_gang
from webhook.preemption.ranking import preferred_because, shown_keys
from webhook.preemption.result import Decision
from webhook.preemption.snapshot.columns import Mask, Rows
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.candidates import Candidate, Victim
from webhook.preemption.victims.rules import Rules, VictimReason
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator, on_nodes
from webhook.reconciler.evaluate.extender_client import UnaskedError
from webhook.reconciler.evaluate.limits import NOT_NOW, LimitsNow
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
from webhook.reconciler.evaluate.pods_ahead import PodsAhead
from webhook.reconciler.evictions.log import name_of
from webhook.reconciler.state.annotations import MOST_MEMBERS, Alternative, DecidedVictim

_TOO_MANY = "more pods would have to go than the policy's limits allow"
_SHOWN = 5
"""Other nodes that are written down."""
_LOWEST = -(2**31)
"""The lowest priority."""
_TRIES = 4
"""Decisions for a gang until nothing stands against one."""


@dataclass
class Evaluation:
    """What to do for a preemptor or its gang (docs/semantics.md D).

    So many plans, `attempts`, evicted in vain. On the nodes `left_out` nothing is planned.
    """

    evaluator: Evaluator
    members: Members
    policy: PreemptionPolicy
    rules: Rules
    attempts: int
    extenders: Sequence[Extender] = ()
    left_out: Collection[str] = ()
    promised: Promised = NOTHING_PROMISED

    def outcome(self) -> Outcome:
        """Raises ClusterError for an unreadable member, ExtenderError for an extender."""
        clock, self._state = self.evaluator.clock, self.evaluator.state
        self._at = Now(clock.monotonic(), clock.wall())
        self._limits = LimitsNow(self.evaluator, self.policy, self.members.ready, self._at)
        if self.members.key is not None:
            return self._together()
        (pod,), limits = self.members.ready, self._limits
        ahead = PodsAhead(self.evaluator, (pod,), self._at, self.promised)
        # 1. Decide without pods that evicting would not remove, or must not.
        free = unnominated(pod) if pod.status.nominated_node_name else pod
        wall, come = self._at.wall, ahead.groups or self.promised.held
        decided = partial(decide, self._state.snapshot, free, self.rules, wall, self.extenders)
        # Room beside a pod that grows is its own at once.
        in_front = ahead if come and not pod.spec.node_name else None
        try:
            decision = limits.decide(partial(decided, left_out=self.left_out), in_front)
        except UnaskedError as unasked:
            return unasked.question
        # 2. If it fits, nothing is to be done.
        if decision.fits:
            return Fits(tuple(decision.fits))
        # 3. If leaving pods make room, wait for them.
        leaving = limits.leaving
        if len(leaving) and (waits := self._wait(pod, decision, leaving, ahead)):
            return waits
        if not decision.eligible:
            return Unschedulable(decision.reason, due=self._schedule_begins())
        # 4. Evict on the best node of which nobody takes devices.
        chosen = ahead.first_left(decision) if decision.asks_for_devices else decision.selected
        if chosen is None:
            hopeless = limits.hopeless(pod, decision, self.rules, ahead.blocking)
            outcome: Outcome = limits.kept_from(hopeless)
        else:
            outcome = self._on_best(chosen, decision, ahead)
        # 5. If nothing helps, a plan may wait for slower pods while it lasts.
        if not isinstance(outcome, Unschedulable):
            return outcome
        outcome = replace(outcome, behind=bool(ahead.blocking))
        later = self.evaluator.room_within(self.policy.plan_timeout, self._at)
        return (len(later) > len(leaving) and self._wait(pod, decision, later, ahead)) or outcome

    def _on_best(self, chosen: Candidate, decision: Decision, ahead: PodsAhead) -> Outcome:
        """Evict on the chosen node, told with the next best ones."""
        best = decision.selected
        scores = {row.node: row for row in decision.scores(_SHOWN + 1)}
        shown = dict[str, Alternative]()
        for node, score in scores.items():
            compared = {key.heading: key.text(score) for key in shown_keys(score)}
            shown[node] = Alternative(node=node, compared=compared)
        own, others = scores.pop(chosen.node, None), list(scores.values())
        because = ""
        if best and chosen.node != best.node:
            because = f"on {best.node} {ahead.blocking}"
        elif own and others:
            because = preferred_because(own, others[0])
        return self._reserves(
            [chosen.node],
            chosen.victims,
            decision.victim_reason,
            candidates=decision.candidate_count,
            selected=shown.pop(chosen.node, None),
            alternatives=tuple(shown.values())[:_SHOWN],
            because=because,
            room=decision.made_room(chosen),
        )

    def _together(self) -> Outcome:
        """What to do for a gang (docs/semantics.md D12)."""
        members, limits = self.members, self._limits
        # 1. The gang, at the lowest priority of group and members; none is nominated.
        if not members.ready:
            return Unschedulable("it waits for its scheduler to look at it")
        if self.policy.extenders:
            return Unschedulable("the policy has extenders, and they are not asked about gangs")
        if len(members.ready) + len(members.secured) > MOST_MEMBERS:
            return Unschedulable(f"{members.key} has more than {MOST_MEMBERS} pods to be placed together")
        waiting = map(unnominated, (*members.ready, *members.gated))
        gang = form_gang(self._state.snapshot, waiting, members.secured)
        gang = gang._replace(priority=min([gang.priority, *map(priority_of, members.ready)]))
        # 2. Decide without pods that evicting would not remove, or must not.
        decision = self._agreed(gang, limits.excluded | limits.last_resort)
        if isinstance(decision, Unschedulable) and limits.last_resort.any():
            decision = self._agreed(gang, limits.excluded)
        if isinstance(decision, Unschedulable):
            return limits.kept_from(decision)
        if isinstance(decision, Fits):
            return decision
        # 3. Evict. Devices are held in the order of places, by priority.
        places = sorted(decision.placements, key=lambda row: -priority_of(row.pod))
        return self._reserves(
            [node for _, node in places],
            decision.victims,
            decision.grounds.__getitem__,
            candidates=1,
            because=f"{len(places)} pods of {members.key} are placed together",
            places=tuple(places),
            left_out=decision.outside,
        )

    def _agreed(self, gang: Gang, exclusions: Mask) -> GangDecision | Fits | Unschedulable:
        """The decision without these pods to which nothing objects; else what does.

        It is made a few times: rates may leave fewer victims, others take room or devices.
        """
        limits, snapshot, objection = self._limits, self._state.snapshot, None
        # Pods that a plan has yet to ask may stay: this gang may end that plan
        planned = snapshot.pod_rows(self.promised.planned)
        leaving = np.setdiff1d(limits.leaving, planned, assume_unique=True)
        decided = partial(
            decide_gang,
            snapshot,
            gang,
            self.rules,
            self._at.wall,
            evicted=limits.evicted,
            keeps_budgets=self.rules.evicts,
        )
        avoided = set(self.left_out)
        for _ in range(_TRIES):
            decision = decided(exclusions=exclusions, leaving=leaving, left_out=avoided)
            if not decision.placements:
                again = limits.left.again
                due = self._schedule_begins() or again
                return objection or Unschedulable(decision.reason, again is not None, due)
            if not decision.victims and decided(exclusions=exclusions, left_out=avoided).fits:
                return Fits(tuple(sorted({row.node for row in decision.placements})))
            victims = snapshot.pod_rows([row.key for row in decision.victims])
            of_one = np.zeros_like(victims)  # as if all were on one node
            (code,) = limits.beyond_rates(1, of_one, victims)
            if code:
                due = limits.left.until if code == NOT_NOW else None
                objection = objection or Unschedulable(_TOO_MANY, limited=True, due=due)
                exclusions = limits.leaving_most_to(victims, exclusions)
            elif taker := self._taker(decision, victims, leaving):
                node, why = taker
                objection = objection or Unschedulable(why, behind=True)
                avoided.add(node)
            else:
                return decision
        assert objection
        return objection

    def _taker(self, decision: GangDecision, victims: Rows, leaving: Rows) -> tuple[str, str] | None:
        """The first node not left to its members, and why, if any."""
        snapshot, members = self._state.snapshot, defaultdict[str, list[Pod]](list)
        for pod, node in decision.placements:
            members[node].append(pod)
        for node, pods in members.items():
            ready = self.members.ready
            ahead = PodsAhead(self.evaluator, pods, self._at, self.promised, others=ready)
            going = on_nodes(snapshot, victims, (node,))
            going = going if len(going) else on_nodes(snapshot, leaving, (node,))
            if why := ahead.taker(node, going, evicts=bool(decision.victims)):
                return node, f"where evicting pods makes room, {why}"
        return None

    def _reserves(
        self, nodes: Sequence[str], victims: Sequence[Victim], ground: Callable[[str], VictimReason], **told: Any
    ) -> Evicts | Waits | Unschedulable:
        """Evict the victims that do not leave anyway, within attempts.

        If other plans are to ask all, only wait. Both have them as victims: others may
        never ask.
        """
        state, limits, planned = self._state, self._limits, self.promised.planned
        snapshot, pods = state.snapshot, state.snapshot.pods
        rows = snapshot.pod_rows([row.key for row in victims])
        rows = rows[~pods.terminating[rows] | np.isin(rows, snapshot.pod_rows(planned))]
        unasked = set(map(pods.key, rows.tolist()))
        waits = unasked.issubset(planned)
        most = self.policy.limits.attempts_per_preemptor
        if not waits and self.attempts >= most:
            why = f"{self.attempts} plans evicted pods for it in vain, and the policy allows {most}"
            return Unschedulable(f"{why}; one stops to count every 15 min", limited=True)
        leaving = on_nodes(snapshot, np.setdiff1d(limits.leaving, rows), nodes)
        keys = [row.key for row in victims if row.key in unasked]
        asked = tuple(filter(None, map(state.pods.get, keys)))
        evictors = sorted(limits.evictors.keys() & map(name_of, asked))
        groups = {row.key: row.group for row in victims if row.group}
        last_resort = set(map(pods.key, rows[limits.last_resort[rows]].tolist()))
        decided = list[DecidedVictim]()
        for pod in asked:
            key, node = key_of(pod), pod.spec.node_name
            grounds = ground(key)
            row = DecidedVictim(
                pod=key,
                priority=priority_of(pod),
                owner=workload_of(pod),
                rule=grounds.rule,
                because=grounds.text,
                last_resort=key in last_resort,
                node=node if node not in nodes else msgspec.UNSET,
                group=groups.get(key, msgspec.UNSET),
            )
            decided.append(row)
        return (Waits if waits else Evicts)(
            node=nodes[0],
            victims=asked,
            leaving=len(leaving),
            decided=tuple(decided),
            groups=groups,
            cycles=tuple(limits.evictors[evictor] for evictor in evictors),
            **told,
        )

    def _wait(self, pod: Pod, decision: Decision, leaving: Rows, ahead: PodsAhead) -> Waits | Unschedulable | None:
        """Wait for the room of pods `leaving`; None if none is left to the pod."""
        if not (nodes := decision.fits_without(leaving)):
            return None
        if pod.spec.node_name:
            return Unschedulable("it has room to grow once pods that are leaving its node are gone")
        nominated = pod.status.nominated_node_name
        if nominated in nodes and PLAN not in (pod.metadata.annotations or {}):
            return Unschedulable(f"somebody else has nominated it to {nominated}, where room is coming up")
        # 1. Where pods in front take the room a nomination is in vain.
        own, rest = self._own_part(pod, decision, nodes, leaving)
        taken = ahead.taken(np.concatenate([rest, *own.values()]))
        if not (nodes := [node for node in own if node not in taken]):
            return None
        # 2. Where fewest others lose a nomination: none where it fits beside all.
        snapshot, pods = self._state.snapshot, self._state.snapshot.pods
        lower = pods.nominees()
        lower = lower[pods.priority[lower] < priority_of(pod)]
        lost = Counter(snapshot.nodes.names[row] for row in pods.nominated[lower].tolist())
        if not lost.keys().isdisjoint(nodes):
            humble = replace(pod, spec=replace(pod.spec, priority=_LOWEST))
            for node in fits(snapshot, humble, without=leaving):
                lost[node] = 0
        node = min(nodes, key=lambda node: (lost[node], node != nominated))
        victims = tuple(filter(None, map(self._state.pods.get, map(pods.key, own[node].tolist()))))
        gone = len(on_nodes(snapshot, leaving, (node,)))
        return Waits(node, gone, victims, decision.groups_of(own[node]))

    def _own_part(
        self, pod: Pod, decision: Decision, nodes: Iterable[str], leaving: Rows
    ) -> tuple[dict[str, Rows], Rows]:
        """By node whom it needs, and may evict, of whom a plan has yet to ask; who else leaves.

        Nodes where it needs others, too, are left out: that plan may never ask them.
        """
        snapshot, planned = self._state.snapshot, self.promised.planned
        unasked = snapshot.pod_rows([key for key in planned if decision.may_go(key)])
        theirs = np.setdiff1d(snapshot.pod_rows(planned), unasked)
        rest, own = np.setdiff1d(leaving, unasked), dict[str, Rows]()
        for node in nodes:
            needed = on_nodes(snapshot, unasked, (node,))
            if len(needed):
                needed = victims_needed(snapshot, pod, node, needed, without=rest)
            sure = np.append(np.setdiff1d(rest, theirs), needed)
            if not (len(needed) and len(theirs)) or fits_on(snapshot, pod, node, without=sure):
                own[node] = needed
        return own, rest

    def _schedule_begins(self) -> float | None:
        """When the schedule that keeps everybody now begins, in monotonic seconds."""
        (now, wall), schedule = self._at, self.policy.schedule
        begins = schedule.begins(wall) if schedule and self.rules.outside(wall) else None
        return None if begins is None else now + begins - wall


def unnominated(pod: Pod) -> Pod:
    """The preemptor without an earlier plan's nomination."""
    return replace(pod, status=replace(pod.status, nominated_node_name=""))
