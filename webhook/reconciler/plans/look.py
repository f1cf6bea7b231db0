"""The look at a plan: what to do next for it, by the newest state, the log and the time (docs/semantics.md E3, E9).

A look is taken whenever something has happened to a plan or was done for it, by a new leader at what it finds on pods,
and in a rehearsal: nothing else decides about a plan, and it changes nothing. How far a plan has come is not stored: it
follows from what was written, told and asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from webhook.kube.instants import epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred, is_terminal
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.preemption.decision import fits, refusal_of, victims_needed
from webhook.preemption.gangs.gang import form_gang, is_gang
from webhook.preemption.snapshot.pod_groups import GroupKey, group_of
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.pod_view import priority_of
from webhook.preemption.victims.eligible import potential_victims
from webhook.reconciler.clock import Now
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.limits import beyond_budget
from webhook.reconciler.evaluate.pods_ahead import taken_by
from webhook.reconciler.plans.actions import Do, End, Ending, Spare, Step, Verb, Wait
from webhook.reconciler.plans.plan import Member, Plan, PlanIndex, stays
from webhook.reconciler.plans.room import claims_in_the_way, later_equals, to_displace
from webhook.reconciler.preemptors import PolicySet, grace_under, is_marked
from webhook.reconciler.state.annotations import PlanVictim, carries, is_ready

_SHOWN = 3
"""Claims, and devices of each, that are named."""
_SHORTEST_WAIT = 0.05
"""Seconds between two looks at a plan, if nothing happens: whatever it waits for, the loop does not spin on it."""
_EARLY = 0.5
"""Seconds by which a victim may be asked too early, so that all end together."""
_MOMENT = 1.0
"""Seconds, at most, for which it holds that all victims may go, or that one of a group may not."""


class PlanContext(NamedTuple):
    """What a plan is judged by, beside itself; `plans` are under way."""

    evaluator: Evaluator
    policy_set: PolicySet
    plans: PlanIndex


class Look:
    """A look at a plan, which is not changed, but for `plan.approved`: what there is of it now, and what to do next."""

    def __init__(self, plan: Plan, context: PlanContext, at: Now) -> None:
        self.plan, self.context, self.at, self.now = plan, context, at, at.monotonic
        self.evaluator, self.state = context.evaluator, context.evaluator.state
        known = ((member, self.state.pods.get(member.key)) for member in plan.unplaced)
        self.pods = [(member, pod) for member, pod in known if pod is not None]
        self.there: dict[str, Pod] = {}
        """The victims that have yet to be asked and do not leave for another reason either, by uid."""
        self.left: list[PlanVictim] = []
        """Those of them that are to be asked: not by another plan that has, or by an earlier one that will."""
        for victim in plan.record.victims:
            uid, pod = victim.uid, self.state.pod_of(victim.key, victim.uid)
            if uid not in plan.needed or pod is None or not stays(pod):
                continue
            self.there[uid] = pod
            for other in context.plans.of(uid):
                earlier = other.ended is None and other.order < plan.order
                if uid in other.gone or (earlier and uid in other.needed):
                    break
            else:
                self.left += [] if plan.rehearsed else [victim]
        self.untried = [pod for uid, pod in self.there.items() if uid not in plan.tried]
        """Those of whom it was not asked yet whether the server would keep them."""
        self.several = len(self.there) + len(plan.gone) > 1
        """Whether one that is kept costs others, also those that are asked for other plans and not answered for."""
        begun = {row.group for row in plan.record.victims if row.uid in plan.gone or row.uid in plan.asking}
        self.bound = frozenset(row.uid for row in plan.record.victims if row.group in begun - {0})
        """Those of whose group one has been asked, or may have been: they go with it."""

    def step(self) -> Step:
        """What to do next, which is over at its deadline."""
        plan, state = self.plan, self.state
        # 1. It may be over, or a member may leave it, by what became of the preemptors, the nodes or its time. Then it
        #    is still to be found out who goes.
        if plan.ended is not None:
            return self.ask((Verb.READ, plan.asking.values()))
        for member in plan.unplaced:
            if (ending := over(plan, member, state.pods.get(member.key))) is not None:
                return End(ending, member=member.key)
        if any(state.nodes.get(member.node) is None for member in plan.unplaced):
            return End(Ending.NODE_GONE)
        # 2. What was written, told and asked says the rest.
        step = self._proceed()
        if plan.deadline <= self.now and not isinstance(step, End):
            return End(Ending.TIMED_OUT)
        soon = self.now + _SHORTEST_WAIT
        return Wait(soon, step.all_asked) if isinstance(step, Wait) and step.until < soon else step

    def _proceed(self) -> Step:
        """Write the nominations, tell the victims, ask them, and wait for the room; each once all before it is done."""
        plan, left, policies = self.plan, self.left, self.context.policy_set
        # 1. Nobody goes for a part of a gang, or if one of the victims would be kept. Who may be on its way out is
        #    read.
        if why := too_few(self.pods[0][1], self.context):
            return End(Ending.GANG, why)
        waiting = {pod.metadata.uid: pod for member, pod in self.pods if not member.nominated}
        tries = {uid: tried for uid, tried in plan.tries.items() if uid in self.there or uid in waiting}
        if any(tried.refused for uid, tried in tries.items() if uid not in self.bound):
            return End(Ending.REFUSED)
        failed = [uid for uid, tried in tries.items() if tried.over]
        if any(not tries[uid].unclear for uid in failed):
            return End(Ending.FAILED)
        if failed:
            return self.ask((Verb.READ, [self.there[uid] for uid in failed]))
        # 2. Before anything else the nominations are written.
        for pod in waiting.values():
            if policies.policy_to_act_by(pod) is None:
                return End(Ending.OUTDATED, f"{key_of(pod)} has changed since the decision")
        if waiting:
            return self.ask((Verb.NOMINATE, waiting.values()), (Verb.TRY, self.untried if self.several else ()))
        # 3. If all have been asked, the room is there, or will be, or it was taken.
        if not left:
            lost = (self._lost(member, pod) for member, pod in self.pods if math.isinf(plan.roomy))
            return next((end for end in lost if end is not None), Wait(plan.deadline, all_asked=True))
        # 4. By the rules of now, the rest of it still has to be right. Of a group of which one has gone the others go
        #    as soon as their budgets let them.
        policy, *others = (policy_for(pod, policies) for _, pod in self.pods)
        if policy is None or any(other is not policy for other in others):
            return End(Ending.OUTDATED, "no policy lets the reconciler preempt for it any more")
        judged = judged_by(self.context, policy, self.now)
        if plan.approved != judged:
            objection = self._may_not_go(policy) or self._in_vain(policy)
            refused = isinstance(objection, End) and objection.ending is Ending.REFUSED
            if refused and any(victim.uid in self.bound for victim in left):
                return Wait(self.now + _MOMENT)
            if objection is not None:
                return objection
            plan.approved = judged
        # 5. Victims are told. Nobody is who would be kept, or for a plan that another victim's refusal would end.
        if policy.victims.notice > plan.record.notice and not (plan.notices or plan.gone or plan.asking):
            return End(Ending.OUTDATED, "the policy gives a longer notice by now")
        notice = min(policy.victims.notice, plan.record.notice)
        if notice and (untold := [self.there[row.uid] for row in left if row.uid not in plan.notices]):
            return self.ask((Verb.TRY, self.untried) if self.untried else (Verb.TELL, untold))
        return self._evict(policy)

    def fits_elsewhere(self, member: Member, pod: Pod) -> bool:
        """Whether its scheduler finds room for a member now, though none comes up on the node of its plan."""
        plan, evaluator = self.plan, self.evaluator
        if plan.record.resize or not plan.gone or evaluator.has_room(pod, member.node):
            return False
        return not plan.left_out.issuperset(fits(self.state.snapshot, pod))

    def _lost(self, member: Member, pod: Pod) -> End | None:
        """Why there will be no room for a member on its node; None if there will be, or if it finds some elsewhere."""
        plan, evaluator, snapshot = self.plan, self.evaluator, self.state.snapshot
        later = later_equals(plan, member, self.context.plans)
        if snapshot.device_claims.is_binding(member.uid) or evaluator.has_room(pod, member.node, but=later):
            return None
        if self.left and not plan.gone:
            return End(Ending.OUTDATED, f"evicting would not make room on {member.node} any more", member.key)
        # Two members might count on one node elsewhere, and who is left would go in vain.
        if not (self.left and len(self.pods) > 1) and self.fits_elsewhere(member, pod):
            return None
        if refusal := refusal_of(snapshot, pod, member.node):
            return End(Ending.NODE_CHANGED, refusal)
        if lost := claims_in_the_way(snapshot, plan, member):
            shown = [f"{key} ({', '.join(map('/'.join, held[:_SHOWN]))})" for key, held in lost[:_SHOWN]]
            more = f" and {len(lost) - _SHOWN} more claims" if len(lost) > _SHOWN else ""
            held_by = f"{', '.join(shown)}{more}"
            return End(Ending.DEVICES_TAKEN, f"devices that it waited for are held by {held_by}", member.key)
        cleared = "" if member.reserved else "; the scheduler cleared the nomination, so nothing was reserved"
        taken = f"{plan.newcomer} came to the node{cleared}" if plan.newcomer else ""
        return End(Ending.SPACE_TAKEN, taken, member.key)

    # Whether the victims that are left may go, and have to.

    def _may_not_go(self, policy: PreemptionPolicy) -> End | None:
        """Whether policy, budgets or rates keep one of the victims by now."""
        state, rules, (now, wall) = self.state, self.context.policy_set.rules[policy.name], self.at
        pods = [pod for _, pod in self.pods]
        if whys := [why for pod in pods if (why := rules.why_not(pod, state.snapshot.classes, wall))]:
            return End(Ending.OUTDATED, whys[0])
        exclusions = self.evaluator.exclusions(now)
        for pod in pods if rules.pairs is not None else [min(pods, key=priority_of)]:
            verdicts = potential_victims(state.snapshot, compile_pod(pod), rules, wall, exclusions=exclusions)
            for victim in self.left:
                row = state.snapshot.pods.find(victim.namespace, victim.name)
                if row is None or (victim.uid in self.bound and verdicts.stays_with_others(row)):
                    continue
                if (excluded := verdicts.excluded(row)) is not None:
                    return End(Ending.OUTDATED, f"{victim.key} may not go any more: {excluded.text} ({excluded.rule})")
        # Who is being asked has used a disruption already, or is expected to.
        if why := beyond_budget(state, policy, [row for row in self.left if row.uid not in self.plan.asking]):
            return End(Ending.REFUSED, why)
        uids = [victim.uid for victim in self.left]
        why = self.evaluator.log.overdrawn(policy.limits.at(wall), uids, now, since=self.plan.granted)
        return End(Ending.OUTDATED, why) if why else None

    def _in_vain(self, policy: PreemptionPolicy) -> End | Spare | None:
        """Whether evicting would not help, or is not needed, for all or for some of the victims.

        All of them stay if all members fit by now. Otherwise those without which each fits once the other victims are
        gone, however long these take, and the pods that leave anyway in time. What goes together by the rules stays or
        goes whole: if one of a group has been asked, the others are needed.
        """
        plan, snapshot, pods = self.plan, self.state.snapshot, self.state.snapshot.pods
        fresh = not (plan.gone or plan.asking)
        uids = plan.gone | plan.needed
        rows = snapshot.pod_rows([victim.key for victim in plan.record.victims]).tolist()
        going = {pods.uids[row]: row for row in rows if pods.uids[row] in uids}  # not a new pod of a victim's name
        free = frozenset(self.there).difference(plan.unclear, self.bound)
        among = np.array([row for uid, row in going.items() if uid in free], np.intp)
        begun = np.array([row for uid, row in going.items() if uid not in free], np.intp)
        lacking: list[tuple[Member, Pod]] = []
        for member, pod in self.pods:
            # 1. There would be no room, since others have come, or there is room without evicting anybody.
            if (end := self._lost(member, pod)) is not None:
                return end
            with pods.staying(among):
                fitting = fits(snapshot, pod)
            elsewhere = member.node not in fitting and not plan.left_out.issuperset(fitting)
            if fresh and elsewhere:
                return End(Ending.OUTDATED, "it fits without preemption by now")
            if member.node not in fitting and not (elsewhere and plan.gone and len(self.pods) == 1):
                lacking.append((member, pod))  # two members might count on one node elsewhere
            # 2. A pod in front would take the room.
            if fresh and not plan.record.resize:
                counted = np.array(list(going.values()), np.intp)
                if why := taken_by(self.evaluator, pod, policy, member.node, counted, plan=plan.id, at=self.at):
                    return End(Ending.OUTDATED, why)
        # 3. Nobody is needed any more, or not everybody.
        if free and not lacking:
            return Spare(free, "it fits without further evictions by now")
        wait = min(policy.wait_for_terminating, plan.deadline - self.now)
        # Other plans count on pods of which the server has not said that they leave: these may stay.
        leaving = self.evaluator.room_within(wait, self.at)
        here = snapshot.nodes.rows_of({member.node for member, _ in self.pods})
        for row in leaving[np.isin(pods.node[leaving], here)]:
            uid = pods.uids[row]
            if any(other is not plan and uid in other.needed for other in self.context.plans.of(uid)):
                leaving = leaving[leaving != row]
        without = np.setdiff1d(np.append(leaving, begun), among)
        rules, staying = self.context.policy_set.rules[policy.name], free
        for member, pod in lacking if free else ():
            with pods.staying(among):
                needed = victims_needed(snapshot, pod, member.node, among, rules=rules, begun=begun, without=without)
            staying -= {pods.uids[row] for row in needed.tolist()}
        return Spare(staying, "it fits without them once pods that are leaving are gone") if staying else None

    # Who is asked, and in which order.

    def _evict(self, policy: PreemptionPolicy) -> Do | Wait:
        """Ask those of the victims that are left whose turn it is: everybody has been told."""
        plan, state, left = self.plan, self.state, self.left
        together = any(member.devices for member in plan.unplaced)
        # 1. Whose notice is not over goes if it is ready. Those of a group wait for one another, since a group goes at
        #    once, and so do all of a plan that holds devices, since these have to come free together.
        told = [row for row in left if plan.notices.get(row.uid, self.now) > self.now]
        early = {row.uid: row.group for row in told if not is_ready(self.there[row.uid], plan.id)}
        later = min((plan.notices[uid] for uid in early), default=math.inf)
        groups = set(early.values()) - {0}
        asked = [row for row in left if row.uid not in early and row.group not in groups]
        if not asked or (early and together):
            return Wait(later)
        # 2. The room must go to nobody of lower priority.
        if lower := [pod for pod in to_displace(state, plan) if pod.metadata.uid not in plan.displaced]:
            return self.ask((Verb.DISPLACE, lower))
        # 3. If several go, it is tried first whether one of them is kept: the others would go in vain.
        if self.several and self.untried:
            return self.ask((Verb.TRY, self.untried))
        # 4. Nobody goes first for this plan if earlier ones have yet to ask others: they may never do so.
        if len(left) < len(self.there) and not (plan.gone or plan.asking):
            return Wait(plan.deadline)
        # 5. Devices have to come free together, or pods that want fewer take them one by one.
        slow = [victim for victim in left if plan.tried.get(victim.uid) is False]
        if together and not slow:
            asked, later = self._in_step(asked, policy)
        # 6. Ask them: first those of whom the server could not tell, then those that a budget covers, the last one
        #    last. The rest of a group goes at once, and only when no budget can refuse one of it any more.
        covered = [victim for victim in asked if state.pending.covering(self.there[victim.uid])]
        if len(grouped := [victim for victim in covered if victim.group]) > 1:
            # If the first one is refused the group is whole yet. Once one on a node of the plan has gone, room may be.
            pods, nodes = state.snapshot.pods, {member.node for member in plan.unplaced}
            here = {pods.uids[row] for node in nodes for row in state.snapshot.pods_on(node)}
            chosen = [min(grouped, key=lambda victim: victim.uid in here)]
        else:
            last = 0 if math.isfinite(later) and not together else 1
            first = slow or (covered if len(covered) < len(asked) else asked[: len(asked) - last]) or asked
            whole = {victim.group for victim in first if len(covered) in (0, len(asked))} - {0}
            chosen = [victim for victim in asked if victim in first or victim.group in whole]
        # 7. One that was asked in vain is asked after a pause: nobody goes in its place.
        return self.ask((Verb.ASK, [self.there[victim.uid] for victim in chosen])) if chosen else Wait(later)

    def _in_step(self, left: Iterable[PlanVictim], policy: PreemptionPolicy) -> tuple[list[PlanVictim], float]:
        """Of the victims that are left those to ask now, so that all end together; and when the next is to be asked.

        The one with the longest grace is asked first. How long others really take nobody knows. Monotonic seconds.
        """
        plan, state, ahead = self.plan, self.state, self.at.wall - self.now
        grace = {victim.uid: grace_under(policy, self.there[victim.uid]) for victim in left}
        ends = [self.now + seconds for seconds in grace.values()]
        for victim in plan.record.victims:
            if victim.uid in plan.gone and (pod := state.pod_of(victim.key, victim.uid)) is not None:
                had = self.context.plans.leaving.get(victim.uid, -math.inf)
                ends.append(epoch_or(pod.metadata.deletion_timestamp, had + ahead) - ahead)
        begin = {uid: max(ends) - seconds for uid, seconds in grace.items()}
        return [victim for victim in left if begin[victim.uid] <= self.now + _EARLY], min(begin.values())

    def ask(self, *wanted: tuple[Verb, Iterable[Pod]]) -> Do | Wait:
        """Ask these about those of their pods about whom something may be asked now, or wait for the first of them."""
        ready, dues = list[tuple[Verb, Pod]](), [math.inf]
        for verb, pod in ((verb, pod) for verb, pods in wanted for pod in pods):
            tries, version = self.plan.tries.get(pod.metadata.uid), pod.metadata.resource_version
            if tries is None or tries.due <= self.now or tries.conflicting not in ("", version):
                ready.append((verb, pod))
            else:
                dues.append(tries.due)
        return Do(tuple(ready)) if ready else Wait(min(dues))


def judged_by(context: PlanContext, policy: PreemptionPolicy, now: float) -> tuple[object, ...]:
    """All by which it is judged whether the victims of a plan may go. Schedules end, and pods leave, without an event.

    So if nothing has happened for a moment, it is judged again.
    """
    evaluator, rules = context.evaluator, context.policy_set.rules[policy.name]
    return evaluator.state.snapshot.version, rules, evaluator.log.excluded(now), now // _MOMENT


def too_few(pod: Pod, context: PlanContext) -> str:
    """Why nobody may go for this member of a gang: the gang needs more members than are nominated and bound."""
    snapshot = context.evaluator.state.snapshot
    if not is_gang(snapshot, pod):
        return ""
    gang = form_gang(snapshot, [pod], [member.node for _, member in plans_of(context, group_of(pod))])
    missing = len(gang.secured) < gang.minimum
    return f"{gang.key} needs {gang.minimum} pods, and {len(gang.secured)} are nominated or bound" if missing else ""


def plans_of(context: PlanContext, group: GroupKey) -> list[tuple[Plan, Member]]:
    """The plans for members of a group that wait, each with its member."""
    waiting, plans = context.evaluator.state.waiting_members(group), context.plans.by_preemptor
    return [(plans[key], plans[key].members[key]) for key in map(key_of, waiting) if key in plans]


def over(plan: Plan, member: Member, pod: Pod | None) -> Ending | None:
    """Whether it is over for a member by what its pod looks like now, which it takes in; None if it goes on."""
    if pod is None or pod.metadata.uid != member.uid or pod.metadata.deletion_timestamp:
        return Ending.DELETED
    if member.displaced:
        return Ending.DISPLACED
    if plan.record.resize:
        return Ending.RESIZED if not is_deferred(pod) or is_terminal(pod) else None
    if pod.spec.node_name:
        return Ending.BOUND
    nominated = pod.status.nominated_node_name
    if nominated == member.node and carries(pod, plan.id):
        member.seen = member.nominated = True
    # A scheduler that clears the nomination leaves the plan. Who takes a plan away takes both, and who nominates the
    # pod elsewhere leaves no empty field.
    member.reserved = bool(nominated) or not member.seen or not carries(pod, plan.id)
    if member.seen and member.reserved and nominated != member.node:
        return Ending.LOST
    return Ending.DELETED if is_terminal(pod) else None


def policy_for(pod: Pod, policy_set: PolicySet) -> PreemptionPolicy | None:
    """The policy by which a plan under way for the pod goes on; None if nobody may preempt for it any more."""
    policy = policy_set.policy_of(pod) if is_marked(pod) else None
    known = policy is not None and pod.spec.scheduler_name in policy.preemptors.scheduler_names
    return policy if known and pod.spec.preemption_policy == "Never" else None
