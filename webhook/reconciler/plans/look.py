"""The look at a plan: what to do next, by the newest state, the log and the time (docs/semantics.md E3, E9).

Nothing else decides about a plan, and it changes nothing. A look follows on all that happens
to a plan or is done for it; a new leader begins with one. How far a plan has come is not
stored: what was written, told and asked says it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits, refusal_of, victims_needed
from webhook.preemption.gangs.gang import form_gang, is_gang
from webhook.preemption.snapshot.columns import Rows
from webhook.preemption.snapshot.pod_groups import GroupKey, group_of
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.eligible import potential_victims
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator, on_nodes
from webhook.reconciler.evaluate.limits import beyond_budget
from webhook.reconciler.evaluate.pods_ahead import PodsAhead
from webhook.reconciler.plans.actions import Do, End, Ending, Spare, Step, Verb, Wait
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, over, stays
from webhook.reconciler.plans.room import claims_in_the_way, later_equals, to_displace
from webhook.reconciler.preemptors import PolicySet, grace_under, policy_for
from webhook.reconciler.state.annotations import PlanVictim, is_ready

_SHOWN = 3
"""Claims, and devices of each, that are named."""
_SHORTEST_WAIT = 0.05
"""Seconds, at least, between two looks if nothing happens: so the loop never spins."""
_EARLY = 0.5
"""Seconds by which a victim may be asked too early, so that all end together."""
_MOMENT = 1.0
"""Seconds for which it holds that all victims may go, or that one of a group may not."""


class PlanContext(NamedTuple):
    """What a plan is judged by, beside itself; `plans` are under way."""

    evaluator: Evaluator
    policy_set: PolicySet
    plans: PlanIndex

    def judged_by(self, policy: PreemptionPolicy, now: float) -> tuple[object, ...]:
        """All that decides whether victims may go.

        Schedules end, and pods leave, without an event: it is judged again soon.
        """
        rules, excluded = self.policy_set.rules[policy.name], self.evaluator.log.excluded(now)
        return self.evaluator.state.snapshot.version, rules, excluded, now // _MOMENT

    def too_few(self, pod: Pod) -> str:
        """Why nobody may go for this pod: its gang lacks nominated or bound members."""
        snapshot = self.evaluator.state.snapshot
        if not is_gang(snapshot, pod):
            return ""
        nominated = [row.node for _, row in self.plans_of(group_of(pod))]
        gang = form_gang(snapshot, [pod], nominated)
        secured, needed = len(gang.secured), gang.minimum
        if secured >= needed:
            return ""
        return f"{gang.key} needs {needed} pods, and {secured} are nominated or bound"

    def plans_of(self, group: GroupKey) -> list[tuple[Plan, Member]]:
        """The plans for waiting members of a group, each with its member."""
        plans = self.plans.by_preemptor
        keys = map(key_of, self.evaluator.state.waiting_members(group))
        return [(plans[key], plans[key].members[key]) for key in keys if key in plans]


class Look:
    """What there is of a plan now, and what to do next. It changes nothing but `plan.approved`."""

    def __init__(self, plan: Plan, context: PlanContext, at: Now) -> None:
        self.plan, self.context, self.at, self.now = plan, context, at, at.monotonic
        self.evaluator, self.policy_set, self.plans = context
        state = self.state = self.evaluator.state
        self.snapshot = state.snapshot
        self.pods = [(row, pod) for row in plan.unplaced if (pod := state.pods.get(row.key))]
        policies = [policy_for(pod, self.policy_set) for _, pod in self.pods]
        agreed = policies and policies.count(policies[0]) == len(policies)
        self.policy = policies[0] if agreed else None
        """By which it goes on; None if nobody may preempt for all."""
        self.going = dict[str, Pod]()
        """The victims there, by uid, that are to go or were asked."""
        self.there = dict[str, Pod]()
        """Those yet to be asked that do not leave anyway."""
        self.left = list[PlanVictim]()
        """Those that this plan asks: no other has, no earlier one will."""
        victims, begun = plan.record.victims, plan.gone | plan.asking.keys()
        groups = {row.group for row in victims if row.uid in begun} - {0}
        self.bound = {row.uid for row in victims if row.group in groups}
        """Those of whose group one was asked, or may have been."""
        for victim in victims:
            uid = victim.uid
            known = state.pod_of(victim.key, uid)
            if not known or not (uid in plan.needed or uid in plan.gone):
                continue
            self.going[uid] = known
            if uid not in plan.needed or not stays(known):
                continue
            self.there[uid] = known
            others = self.plans.of(uid)
            if plan.rehearsed or any(uid in other.gone for other in others):
                continue
            earlier = [other for other in others if other.order < plan.order]
            if not any(uid in other.needed and not other.ended for other in earlier):
                self.left.append(victim)
        there = self.there.items()
        self.untried = [pod for uid, pod in there if uid not in plan.tried]
        """Those whose eviction the server was not yet asked to try."""
        self.several = len(there) + len(plan.gone) > 1
        """Whether one that is kept costs others, also of other plans."""
        self.fresh = not begun
        """Whether nobody was asked yet."""

    def step(self) -> Step:
        """What to do next; the plan is over at its deadline."""
        plan, state = self.plan, self.state
        # 1. Preemptors or nodes may end it. Then only who goes is read.
        if plan.ended:
            return self.ask(Verb.READ, plan.asking.values())
        for member in plan.unplaced:
            if ending := over(plan, member, state.pods.get(member.key)):
                return End(ending, member=member.key)
        if not plan.nodes <= state.nodes.items().keys():
            return End(Ending.NODE_GONE)
        # 2. What was written, told and asked says the rest.
        step = self._proceed()
        if plan.deadline <= self.now and not isinstance(step, End):
            return End(Ending.TIMED_OUT)
        if isinstance(step, Wait):
            return step._replace(until=max(step.until, self.now + _SHORTEST_WAIT))
        return step

    def _proceed(self) -> Step:
        """Write all nominations, tell all victims, ask them, wait for the room."""
        plan, left, policy = self.plan, self.left, self.policy
        # 1. Nobody goes for part of a gang, or if a victim is kept. Who may be leaving is read.
        if why := self.context.too_few(self.pods[0][1]):
            return End(Ending.GANG, why)
        waiting = {pod.metadata.uid: pod for member, pod in self.pods if not member.nominated}
        tries = {uid: plan.tries[uid] for uid in (*self.there, *waiting) if uid in plan.tries}
        if any(tries[uid].refused for uid in tries.keys() - self.bound):
            return End(Ending.REFUSED)
        if any(tried.over and not tried.unclear for tried in tries.values()):
            return End(Ending.FAILED)
        if unread := [self.there[uid] for uid, tried in tries.items() if tried.over]:
            return self.ask(Verb.READ, unread)
        # 2. Nominations come first.
        for pod in waiting.values():
            if not self.policy_set.policy_to_act_by(pod):
                return End(Ending.OUTDATED, f"{key_of(pod)} has changed since the decision")
        if waiting:
            return self.ask(Verb.NOMINATE, waiting.values())
        # 3. If all have been asked, the room is there, or will be, or it was taken.
        if not left:
            lost = math.isinf(plan.roomy) and self._lost()
            return lost or Wait(plan.deadline, all_asked=True)
        # 4. The rest must still be right, by the rules of now.
        if not policy:
            return End(Ending.OUTDATED, "no policy lets the reconciler preempt for it any more")
        judged = self.context.judged_by(policy, self.now)
        if plan.approved != judged:
            if objection := self._may_not_go(policy) or self._in_vain(policy):
                return objection
            plan.approved = judged
        # 5. Victims are told, if none would be kept.
        notice = min(policy.victims.notice, plan.record.notice)
        if policy.victims.notice > notice and self.fresh and not plan.notices:
            return End(Ending.OUTDATED, "the policy gives a longer notice by now")
        untold = [self.there[row.uid] for row in left if row.uid not in plan.notices]
        if notice and untold:
            return self.ask(Verb.TRY if self.untried else Verb.TELL, self.untried or untold)
        return self._evict(policy)

    def fits_elsewhere(self, member: Member, pod: Pod) -> bool:
        """Whether a scheduler has room for a member, though its node gets none."""
        plan = self.plan
        if plan.record.resize or not plan.gone or self.evaluator.has_room(pod, member.node):
            return False
        return not plan.left_out.issuperset(fits(self.snapshot, pod))

    def _lost(self) -> End | None:
        """Why a member will have no room anywhere; None if it will."""
        plan, snapshot = self.plan, self.snapshot
        for member, pod in self.pods:
            node, later = member.node, later_equals(plan, member, self.plans)
            comes = self.evaluator.has_room(pod, node, but=later)
            if comes or snapshot.device_claims.is_binding(member.uid):
                continue
            if self.left and not plan.gone:
                why = f"evicting would not make room on {node} any more"
                return End(Ending.OUTDATED, why, member.key)
            # Two members might count on one node elsewhere: the rest would go in vain.
            if not (self.left and len(self.pods) > 1) and self.fits_elsewhere(member, pod):
                continue
            if refusal := refusal_of(snapshot, pod, node):
                return End(Ending.NODE_CHANGED, refusal)
            if lost := claims_in_the_way(snapshot, plan, member):
                shown = [f"{key} ({', '.join(map('/'.join, held[:_SHOWN]))})" for key, held in lost[:_SHOWN]]
                why = f"devices that it waited for are held by {', '.join(shown)}"
                if len(lost) > _SHOWN:
                    why += f" and {len(lost) - _SHOWN} more claims"
                return End(Ending.DEVICES_TAKEN, why, member.key)
            taken = f"{plan.newcomer} came to the node" if plan.newcomer else ""
            if taken and not member.reserved:
                taken += "; the scheduler cleared the nomination, so nothing was reserved"
            return End(Ending.SPACE_TAKEN, taken, member.key)
        return None

    # Whether the victims that are left may go, and have to.

    def _may_not_go(self, policy: PreemptionPolicy) -> End | Wait | None:
        """Whether policy, budgets or rates keep a victim now."""
        snapshot, left, (now, wall) = self.snapshot, self.left, self.at
        rules = self.policy_set.rules[policy.name]
        pods = [pod for _, pod in self.pods]
        for pod in pods:
            if why := rules.why_not(pod, snapshot.classes, wall):
                return End(Ending.OUTDATED, why)
        exclusions = self.evaluator.exclusions(now)
        if rules.pairs is None:
            pods = [min(pods, key=priority_of)]
        for info in map(compile_pod, pods):
            verdicts = potential_victims(snapshot, info, rules, wall, exclusions=exclusions)
            for victim in left:
                row = snapshot.pods.find(victim.namespace, victim.name)
                begun = victim.uid in self.bound
                if row is None or (begun and verdicts.stays_with_others(row)):
                    continue
                if excluded := verdicts.excluded(row):
                    why = f"{victim.key} may not go any more: {excluded.text} ({excluded.rule})"
                    return End(Ending.OUTDATED, why)
        # Who is being asked has used a disruption, or is expected to.
        unasked = [row for row in left if row.uid not in self.plan.asking]
        uids = [row.uid for row in left]
        if why := beyond_budget(self.state, policy, unasked):
            # If one of a group has gone, the others go once budgets let them.
            begun = not self.bound.isdisjoint(uids)
            return Wait(now + _MOMENT) if begun else End(Ending.REFUSED, why)
        log, limits = self.evaluator.log, policy.limits.at(wall)
        why = log.overdrawn(limits, uids, now, since=self.plan.granted)
        return End(Ending.OUTDATED, why) if why else None

    def _in_vain(self, policy: PreemptionPolicy) -> End | Spare | None:
        """Whether evicting would not help, or some victims are not needed.

        All stay if all members fit. Else those stay without which each member fits, once
        other victims and pods that leave in time are gone. A group stays or goes whole: if one
        of it has been asked, the others are needed.
        """
        plan, snapshot, pods = self.plan, self.snapshot, self.snapshot.pods
        rules = self.policy_set.rules[policy.name]
        # 1. There would be no room, since others have come.
        if lost := self._lost():
            return lost
        contested = self.fresh and not plan.record.resize
        staying = self.there.keys() - plan.unclear - self.bound
        going = snapshot.pod_rows([*map(key_of, self.going.values())])
        among = snapshot.pod_rows([key_of(self.there[uid]) for uid in staying])
        begun = np.setdiff1d(going, among)
        without = np.setdiff1d(np.append(self._in_time(policy), begun), among)
        why = "it fits without further evictions by now"
        for member, pod in self.pods:
            # 2. There is room without evictions, here or elsewhere.
            node = member.node
            with pods.staying(among):
                fitting = fits(snapshot, pod)
            elsewhere = node not in fitting and not plan.left_out.issuperset(fitting)
            if self.fresh and elsewhere:
                return End(Ending.OUTDATED, "it fits without preemption by now")
            # 3. A pod in front would take the room.
            if contested and (taken := self._taken(pod, node, going, policy)):
                return End(Ending.OUTDATED, taken)
            # 4. Some are not needed. Two members might count on one node elsewhere.
            if node in fitting or (elsewhere and plan.gone and len(self.pods) == 1):
                continue
            why = "it fits without them once pods that are leaving are gone"
            with pods.staying(among):
                needed = victims_needed(snapshot, pod, node, among, rules=rules, begun=begun, without=without)
            staying -= {pods.uids[row] for row in needed.tolist()}
        return Spare(frozenset(staying), why) if staying else None

    def _taken(self, pod: Pod, node: str, going: Rows, policy: PreemptionPolicy) -> str:
        """Why the pod does not get the node once its plan is done; empty if it does.

        Pods that leave anyway are gone then, too, if the plan counts on them.
        """
        ahead = PodsAhead(self.evaluator, (pod,), self.at, plan=self.plan.id)
        there = on_nodes(self.snapshot, going, (node,))
        if not len(there) or not ahead.groups:
            return ""
        soon = min(policy.wait_for_terminating, policy.plan_timeout)
        leaving = np.setdiff1d(self.evaluator.room_within(soon, self.at), there)
        needed = on_nodes(self.snapshot, leaving, (node,))
        if len(needed):
            needed = victims_needed(self.snapshot, pod, node, needed, without=there)
        return ahead.taker(node, np.append(there, needed), evicts=False)

    def _in_time(self, policy: PreemptionPolicy) -> Rows:
        """Pods that leave in time; none on its nodes that other plans have yet to ask."""
        plan, snapshot, pods = self.plan, self.snapshot, self.snapshot.pods
        wait = min(policy.wait_for_terminating, plan.deadline - self.now)
        leaving = self.evaluator.room_within(wait, self.at)
        planned = list[int]()
        for row in on_nodes(snapshot, leaving, plan.nodes).tolist():
            uid = pods.uids[row]
            if any(other is not plan and uid in other.needed for other in self.plans.of(uid)):
                planned.append(row)
        return np.setdiff1d(leaving, planned)

    # Who is asked, and in which order.

    def _evict(self, policy: PreemptionPolicy) -> Do | Wait:
        """Ask the rest whose turn it is: everybody has been told."""
        plan, left, there, now = self.plan, self.left, self.there, self.now
        together = any(row.devices for row in plan.unplaced)
        # 1. One goes before its notice ends if ready; a group, and all for devices, at once.
        early, later = set[PlanVictim](), math.inf
        for victim in left:
            until = plan.notices.get(victim.uid, now)
            if until > now and not is_ready(there[victim.uid], plan.id):
                early.add(victim)
                later = min(later, until)
        groups = {row.group for row in early} - {0}
        asked = [row for row in left if row not in early and row.group not in groups]
        if not asked or (early and together):
            return Wait(later)
        # 2. The room must go to nobody of lower priority.
        if lower := to_displace(self.state, plan):
            return self.ask(Verb.DISPLACE, lower)
        # 3. If one of several is kept, the others go in vain: so it is tried first.
        if self.several and self.untried:
            return self.ask(Verb.TRY, self.untried)
        # 4. Nobody goes while earlier plans have yet to ask others: they may never do so.
        if self.fresh and len(left) < len(there):
            return Wait(plan.deadline)
        # 5. Devices come free together, or pods that want fewer take them one by one.
        slow = [row for row in left if plan.tried.get(row.uid) is False]
        if together and not slow:
            asked, later = self._in_step(asked, policy)
        # 6. First those of whom the server told nothing, then those under a budget, one last.
        covering, nodes = self.state.pending.covering, plan.nodes
        covered = [row for row in asked if covering(there[row.uid])]
        grouped = [row for row in covered if row.group]
        if len(grouped) > 1:
            # If its first is refused a group stays whole. Who makes room on the spot is last.
            chosen = [min(grouped, key=lambda row: there[row.uid].spec.node_name in nodes)]
        else:
            # The rest of a group goes at once when no budget can refuse one of it.
            last = covered == asked and (together or math.isinf(later))
            first = slow or (covered[:-1] if last else covered) or asked
            whole = {row.group for row in first if not covered} - {0}
            chosen = [row for row in asked if row in first or row.group in whole]
        # 7. Who was asked in vain is asked after a pause: nobody goes in its place.
        if not chosen:
            return Wait(later)
        return self.ask(Verb.ASK, [there[row.uid] for row in chosen])

    def _in_step(self, left: Iterable[PlanVictim], policy: PreemptionPolicy) -> tuple[list[PlanVictim], float]:
        """Those to ask now, so that all end together; and when to ask the next.

        The one with the longest grace is asked first. How long others take nobody knows.
        """
        now, ahead = self.now, self.at.wall - self.now
        grace = {row.uid: grace_under(policy, self.there[row.uid]) for row in left}
        last = now + max(grace.values())
        for uid in self.going.keys() & self.plan.gone:
            end = self.plans.leaving.get(uid, -math.inf) + ahead
            end = epoch_or(self.going[uid].metadata.deletion_timestamp, end)
            last = max(last, end - ahead)
        due = [row for row in left if last - grace[row.uid] <= now + _EARLY]
        return due, last - max(grace.values())

    def ask(self, verb: Verb, pods: Iterable[Pod]) -> Do | Wait:
        """Ask this about the pods whose pauses are over."""
        ready, due = list[Pod](), math.inf
        for pod in pods:
            meta = pod.metadata
            tries, version = self.plan.tries.get(meta.uid), meta.resource_version
            if not tries or tries.due <= self.now or tries.conflicting not in ("", version):
                ready.append(pod)
            else:
                due = min(due, tries.due)
        return Do(verb, tuple(ready)) if ready else Wait(due)
