"""What a new leader takes over from the one before: the plans written on pods, and the evictions they tell of.

An annotation is text that somebody wrote, so none of it is believed by itself. A plan goes on only if a decision made
now asks for just the same pods (`adopt`). An eviction uses up a rate only as far as the cluster bears it out
(`recall_evictions`): the victim is leaving, or it is gone and its owner has made another pod since.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from webhook.kube.instants import epoch, epoch_or
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal, workload_of
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import PLAN
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.victims.rules import Rules
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction, groups_of
from webhook.reconciler.plans.eviction_ledger import NOTHING, Ledger
from webhook.reconciler.plans.plan import Plan, group_names
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.plans.plan_times import time_for
from webhook.reconciler.preemptors import PolicySet, is_marked, lacks_post_filter
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    PlanRecord,
    UnreadableError,
    decision_of,
    plan_of,
    with_names,
)
from webhook.reconciler.state.notices import notice_of

log = logging.getLogger(__name__)

_AHEAD = 60.0
"""Seconds by which an earlier leader's clock may be ahead of this one's; a decision from later than that is none."""
_SKEW = 5.0
"""Seconds by which an earlier leader's clock may be ahead of the API server's, which dates the pods."""


class TakeOff(NamedTuple):
    """The plan of that id, for that node, is to be taken off the pod."""

    plan_id: str
    node: str


class Adopted(NamedTuple):
    """A plan of an earlier leader is under way here; it must end if `outdated` says why."""

    plan: Plan
    outdated: str = ""


def adopt(
    pod: Pod, manager: PlanManager, policy_set: PolicySet, clearing: Collection[str], *, late: bool = False
) -> Adopted | TakeOff | None:
    """Take over the plan an earlier leader wrote on a pod; None if it carries none, or one that is being taken off.

    `clearing` are the ids of the plans that this process is taking off their pods. A plan that comes `late`, when this
    process has led for long, is no earlier leader's.
    """
    # 1. Read it. What no version of giveway would write is taken off.
    state, key = manager.evaluator.state, key_of(pod)
    try:
        record = plan_of(pod)
    except UnreadableError as error:
        log.warning("%s: %s; taking it off", key, error)
        return TakeOff((pod.metadata.annotations or {})[PLAN], pod.status.nominated_node_name)
    cleared = state.expectations.cleared.get(key)
    if record is None or record.id in clearing or (cleared is not None and not cleared.shown(pod)):
        return None
    # 2. Take it off if it is over: ended by this process, without its nomination, or for a pod to leave alone. A plan
    #    without a nomination is believed only if the scheduler says that it clears them: anybody can annotate a pod.
    nominated, policy = pod.status.nominated_node_name, policy_set.policy_to_act_by(pod)
    under_way = nominated == record.node or (not nominated and lacks_post_filter(pod))
    if record.resize:
        under_way = pod.spec.node_name == record.node
    if late or record.id in manager.ended or not under_way or policy is None:
        return TakeOff(record.id, record.node)
    record = with_names(record, state.pods.items().values())
    # 3. Let it hold its room. Its time begins again: while nobody led, nobody could see the scheduler at work.
    there = [known for victim in record.victims if (known := state.pod_of(victim.key, victim.uid)) is not None]
    remaining = tuple(victim for victim in there if not (victim.metadata.deletion_timestamp or is_terminal(victim)))
    gone = {victim.uid for victim in record.victims} - {victim.metadata.uid for victim in remaining}
    has_begun = bool(gone or record.gang)
    now = manager.clock.monotonic()
    wall = manager.clock.wall()
    plan = Plan(
        record,
        key,
        pod.metadata.uid,
        pod.spec.priority or 0,
        now,
        now + time_for(there, policy),
        timeout=policy.plan_timeout,
        nominated=True,
        announced=not remaining,
        evicting=state.creations.at(record.begun),
        seen=True,
        notices=_notices(remaining, record, now, wall),
        ends={victim.metadata.uid: _ends(manager, victim, policy) for victim in there if victim not in remaining},
        groups=group_names(state, record.victims),
        granted=now if has_begun else -math.inf,
        gone=gone,
    )
    if (decision := decision_of(pod)) is not None and decision.plan == record.id:
        owners = frozenset(victim.owner for victim in decision.victims if victim.owner)
        plan.recall(owners, decision.room)
    manager.index.add(plan)
    for victim in record.victims:
        if state.pod_of(victim.key, victim.uid) is None:
            state.expect_deallocated(victim.uid)
    manager.hold_devices(plan, plan.devices)
    manager.observe_nomination(plan, pod)
    manager.unchecked[plan.key] = None
    if not remaining:
        return Adopted(plan)
    # 4. If nobody was asked, go on only if a decision made now asks for just the victims that remain. A plan that has
    #    evicted goes on where it is, by the rules of now: what was done would have been in vain. So does that of a
    #    gang, of which another plan may have evicted. Their rates were granted, by a clock that may differ.
    outdated = ""
    if not has_begun:
        outdated = disagreement(manager.evaluator, pod, policy_set.rules[policy.name], record)
    if not outdated:
        log.info("plan %s for %s: going on with it, %d victims remain", record.id, plan.key, len(remaining))
        manager.expect(plan, policy, remaining)
    return Adopted(plan, outdated)


def _notices(victims: Iterable[Pod], record: PlanRecord, now: float, wall: float) -> dict[str, float]:
    """Until when the notices of these victims last, in monotonic seconds; `wall` is `now` in seconds since the epoch.

    What a victim was told is kept, whatever the policy says by now; by a clock that is behind it is not longer than the
    plan says from now on.
    """
    notices = [(victim.metadata.uid, notice_of(victim)) for victim in victims]
    told = [(uid, notice) for uid, notice in notices if notice is not None and notice.plan == record.id]
    return {uid: now + min(epoch(notice.by) - wall, record.notice) for uid, notice in told}


def _ends(manager: PlanManager, victim: Pod, policy: PreemptionPolicy) -> float:
    """When a victim that is leaving has had its time to end, in monotonic seconds."""
    left = epoch_or(victim.metadata.deletion_timestamp, 0.0) - manager.clock.wall()
    return manager.clock.monotonic() + min(max(0.0, left), time_for([victim], policy))


def disagreement(evaluator: Evaluator, pod: Pod, rules: Rules, record: PlanRecord) -> str:
    """Why the rest of an earlier leader's plan must not be carried out; empty if it is what would be done now."""
    try:
        decision = evaluator.decide_again(pod, rules)
    except ClusterError as error:
        return str(error)
    if decision.fits:
        return "it fits without preemption by now"
    candidate = decision.selected
    if candidate is None or candidate.node != record.node:
        return f"preemption on {record.node} is not what would be done now"
    leaving = evaluator.state.index.leaving
    wanted = {victim.uid for victim in candidate.victims if victim.key not in leaving}
    if not wanted <= {victim.uid for victim in record.victims}:
        return f"other pods than planned would have to go on {record.node}"
    alive = {
        victim.uid
        for victim in record.victims
        if (known := evaluator.state.pod_of(victim.key, victim.uid)) is not None
        and not is_terminal(known)
        and victim.key not in leaving
    }
    return "" if alive == wanted else f"not all pods that were planned have to go on {record.node}"


def recall_evictions(evaluator: Evaluator, policy_set: PolicySet, ledger: Ledger = NOTHING) -> dict[int, str]:
    """Count the recent evictions for the rates. Owners that replaced their evicted pods are excluded again.

    The ledger names these owners and most evictions. The decisions on marked pods of managed classes name the rest.
    Returns the tickets in the rates by plan, as far as that is known.
    """
    now, wall = evaluator.clock.monotonic(), evaluator.clock.wall()
    for policy in policy_set.policies.preemption:
        evaluator.limiter.remember(policy.limits)
    pods = evaluator.state.pods.items()
    marked = [pod for pod in pods.values() if is_marked(pod) and policy_set.policy_of(pod)]
    told: set[str] = set()
    written: dict[tuple[str, str, str], list[PlannedEviction]] = {}
    for plan, _, eviction in ledger.evictions:  # which knows the groups of pods that are gone, too
        written.setdefault((plan, eviction.owner, eviction.node), []).append(eviction)
    evicted = [
        (now - age, plan, [(written.get((plan, known.owner, known.node)) or [known]).pop() for known in evictions])
        for age, plan, evictions in recalled(marked, pods, wall, evaluator.limiter.eviction_of, ledger)
    ]
    told.update(plan for _, plan, _ in evicted)
    evicted += [
        (now - max(0.0, wall - at), plan, [eviction]) for plan, at, eviction in ledger.evictions if plan not in told
    ]
    tickets: dict[int, str] = {}
    for at, plan, evictions in evicted:
        tickets |= dict.fromkeys(evaluator.limiter.note(evictions, at), plan)
        # The history of the workloads has what was before it was written
        for eviction in evictions if at - now + wall > evaluator.limiter.history.written else ():
            evaluator.limiter.history.note(eviction.owner, at, "")
    for known in ledger.returning:
        evaluator.eviction_backoff.recall(known._replace(until=now + known.until - wall), now)
    return tickets


def recalled(
    preemptors: Iterable[Pod],
    pods: Mapping[str, Pod],
    wall: float,
    eviction_of: Callable[[Pod], PlannedEviction],
    ledger: Ledger = NOTHING,
) -> Iterator[tuple[float, str, list[PlannedEviction]]]:
    """The evictions that the preemptors' decisions tell of and the cluster bears out: age in seconds, plan, evictions.

    `pods` are all pods by `namespace/name`, `wall` is now in seconds since the epoch, `eviction_of` says how the rates
    see the eviction of a pod that is leaving. Admission judges no changes of a
    pod that is being deleted, so its decision counts no more than that of one that is gone. What the ledger has of
    plans that were over when it was written is not looked for here; of those under way then the decision tells more.
    """
    present = [pod for pod in preemptors if not pod.metadata.deletion_timestamp]
    decisions = ((decision_of(pod), pod) for pod in present)
    written = [(epoch_or(decision.at, 0.0), decision, pod) for decision, pod in decisions if decision is not None]
    later = [row for row in written if row[0] >= ledger.at - 1.0 or row[1].plan in ledger.plans]
    told = sorted((row for row in later if row[0] <= wall + _AHEAD), key=lambda row: -row[0])
    if not told:
        return
    births = _Births(pods.values(), since=told[-1][0])
    counted: set[tuple[str, float]] = set()
    for at, decision, preemptor in told:
        evictions, planned = [], _planned(preemptor, decision)
        for victim in decision.victims:
            there = pods.get(victim.pod)
            key = victim.pod, 0.0 if there is not None else at
            if key in counted:
                continue  # it went for several plans, such as those of a gang
            counted.add(key)
            node = victim.node or decision.node
            if there is not None and there.metadata.deletion_timestamp:
                leaving = eviction_of(there)
                evictions.append(replace(leaving, node=leaving.node or node))
            elif there is not None and (there.metadata.uid in planned or _was_there(there, decision, at)):
                continue  # it does not leave: it was not evicted
            elif not victim.owner or births.take(victim.owner, at):
                evictions.append(PlannedEviction(victim.owner, node, _groups(victim)))
        yield max(0.0, wall - at), decision.plan, evictions


def _planned(preemptor: Pod, decision: DecisionRecord) -> frozenset[str]:
    """The uids of the pods that the plan of this decision is to evict, as far as it is still written."""
    try:
        record = plan_of(preemptor)
    except UnreadableError:
        record = None
    if record is None or record.id != decision.plan:
        return frozenset()
    return frozenset(victim.uid for victim in record.victims)


def _was_there(pod: Pod, decision: DecisionRecord, at: float) -> bool:
    """Whether a pod is the one that a decision named, and no later one: it is older, or still has its plan's notice."""
    notice = notice_of(pod)
    return epoch_or(pod.metadata.creation_timestamp, 0.0) < at - _SKEW or (
        notice is not None and notice.plan == decision.plan
    )


def _groups(victim: DecidedVictim) -> tuple[str, ...]:
    """The groups in which the rates count a victim, as far as its name tells."""
    return groups_of(victim.pod.partition("/")[0], {}, ())


class _Births:
    """When owners made pods, newest first; each of these pods stands for one that left."""

    def __init__(self, pods: Iterable[Pod], since: float) -> None:
        self._times: dict[str, list[float]] = {}
        for pod in pods:
            born = epoch_or(pod.metadata.creation_timestamp, 0.0)
            if born >= since - _SKEW:
                self._times.setdefault(workload_of(pod), []).append(born)
        for times in self._times.values():
            times.sort(reverse=True)
        self._used: Counter[str] = Counter()

    def take(self, owner: str, at: float) -> bool:
        """Whether the owner made one more pod since `at` than were taken before; asked with falling `at`."""
        times, used = self._times.get(owner, ()), self._used[owner]
        if used >= len(times) or times[used] < at - _SKEW:
            return False
        self._used[owner] += 1
        return True
