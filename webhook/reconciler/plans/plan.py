"""A plan for one preemptor, from the decision to the binding, and what the newest state says of it. Acts on nothing.

Between the decision and each eviction a plan is looked at again on its own node: does it make sense, who still has to
go there. Looking is cheap; what has to be worked out is worked out again if anything at all has happened since, or if
other pods leave soon enough by now to be counted on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from webhook.kube.objects import ObjectMeta, Pod, key_of
from webhook.kube.pods import is_terminal
from webhook.preemption.decision import fits, fits_on, victims_needed
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.evaluate.evaluator import Evaluator
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim
from webhook.reconciler.state.state import State

__all__ = [
    "Ending",
    "Plan",
    "PlanStep",
    "Unneeded",
    "is_there",
    "objection",
    "remaining",
    "to_displace",
    "unneeded",
]


class PlanStep(StrEnum):
    """How far a plan has come."""

    NOMINATING = "nominating"
    EVICTING = "evicting"
    WAITING = "waiting"


class Ending(StrEnum):
    """Why a plan is over."""

    BOUND = "bound"
    DELETED = "deleted"
    LOST = "nomination-lost"
    NODE_GONE = "node-gone"
    SPACE_TAKEN = "space-taken"
    TIMED_OUT = "timed-out"
    REFUSED = "budget-refused"
    FAILED = "failed"
    OUTDATED = "outdated"
    DISPLACED = "displaced"
    DEPOSED = "deposed"

    @property
    def ends_preemptor(self) -> bool:
        """Whether there is nothing left to do for the preemptor, or not for this process."""
        return self in {Ending.BOUND, Ending.DELETED, Ending.DEPOSED}

    @property
    def blames_preemptor(self) -> bool:
        """Whether the ending says that evicting did not help this preemptor: then it uses up one of its attempts."""
        return self not in {Ending.DISPLACED, Ending.LOST, Ending.NODE_GONE}

    @property
    def allows_retry_at_once(self) -> bool:
        """Whether another decision, made at once, may do better: the first time it need not wait."""
        return not self.blames_preemptor or self in {Ending.FAILED, Ending.OUTDATED, Ending.SPACE_TAKEN}


@dataclass(slots=True, eq=False)
class Plan:
    """A plan and what became of it so far; `started` and `deadline` are monotonic seconds."""

    record: PlanRecord
    """What is written on the preemptor: the nominated node and all victims, those that are not needed included."""
    key: str
    uid: str
    priority: int
    started: float
    deadline: float
    step: PlanStep = PlanStep.NOMINATING
    ended: Ending | None = None

    # What was decided.
    decided: dict[str, ObjectMeta] = field(default_factory=dict)
    """Victim's uid to what it looked like when it was chosen."""
    grounds: dict[str, VictimReason] = field(default_factory=dict)
    """Victim's uid to the `policy/rule` by which it may go; empty for a plan of an earlier leader."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were left out for the preemptor when it was decided."""
    tickets: dict[str, int] = field(default_factory=dict)
    """Victim's uid to its ticket in the rates."""

    # What became of the victims.
    gone: set[str] = field(default_factory=set)
    """uids of victims that were asked to leave with success, or that are leaving or gone anyway."""
    unneeded: set[str] = field(default_factory=set)
    """uids of victims that turned out not to be needed: they stay."""
    asking: set[str] = field(default_factory=set)
    """uids of victims that are being asked: they may be on their way out, though no answer says so yet."""

    # What the watches have shown.
    seen: bool = False
    """Whether the watch has shown our nomination."""
    reserved: bool = True
    """Whether the nomination stands; if the scheduler has cleared it, the plan goes on without."""
    touched: bool = False
    """Whether something happened to its node since it began."""
    newcomer: str = ""
    """Who came to its node last, and with which priority."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""

    # What the last look before an eviction found (`objection`, `unneeded`).
    looked: int = -1
    """`Snapshot.version` when it was decided or last looked at."""
    counted_on: bytes = b""
    """Rows of the pods, leaving anyway, that were counted on then."""
    found_needed: set[str] = field(default_factory=set)
    """uids of victims that were found to be needed then, beside leaving pods that could be nobody's victims, too."""

    def needs(self, uid: str) -> bool:
        """Whether this victim has yet to be asked to leave."""
        return uid not in self.gone and uid not in self.unneeded


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nomination to the plan's node is to be cleared: those that do not fit beside its preemptor.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
    """
    preemptor = state.pods.get(plan.key)
    if preemptor is None:
        return []
    scheduler = preemptor.spec.scheduler_name
    lower = [
        pod
        for pod in state.lower_nominated(plan.record.node, plan.priority, plan.key)
        if pod.spec.scheduler_name == scheduler
    ]
    lower.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)))
    snapshot, undecided, displaced = state.snapshot, {key_of(pod) for pod in lower}, []
    leaving = snapshot.pods.leaving()
    for pod in lower:
        without = np.union1d(leaving, snapshot.pod_rows(undecided)).astype(np.intp)
        if fits_on(snapshot, pod, plan.record.node, without=without):
            undecided.discard(key_of(pod))
        else:
            displaced.append(pod)
    return displaced


def is_there(state: State, plan: Plan, victim: PlanVictim) -> bool:
    """Whether the victim has yet to be asked, and is not leaving for another reason either."""
    if not plan.needs(victim.uid) or (pod := state.pod_of(victim.key, victim.uid)) is None:
        return False
    return not pod.metadata.deletion_timestamp and not is_terminal(pod)


def remaining(state: State, plan: Plan) -> list[PlanVictim]:
    """The victims that have yet to be asked, in the order in which they are.

    All but the last one are asked side by side; if one of them fails, the last one stays. If a budget can keep some of
    them and others not, the last is one of the others.
    """
    found = [(victim, state.pods.get(victim.key)) for victim in plan.record.victims if is_there(state, plan, victim)]
    found.sort(key=lambda row: not (row[1] is not None and state.disruptions.covering(row[1])))
    return [victim for victim, _ in found]


def objection(evaluator: Evaluator, plan: Plan) -> str:
    """Why a plan whose nomination stands should not go on to evict; empty if it should.

    Where it fits is worked out again if anything has happened since that was last done.
    """
    state = evaluator.state
    pod = state.pods.get(plan.key)
    if pod is None or pod.metadata.uid != plan.uid or pod.metadata.deletion_timestamp or pod.spec.node_name:
        return "the preemptor is gone or bound"
    if state.nodes.get(plan.record.node) is None:
        return f"node {plan.record.node} is gone"
    for victim in plan.record.victims:
        seen, decided = state.pods.get(victim.key), plan.decided.get(victim.uid)
        if seen is None or decided is None or seen.metadata.uid != decided.uid or not plan.needs(victim.uid):
            continue
        if (seen.metadata.labels, seen.metadata.annotations) != (decided.labels, decided.annotations):
            return f"victim {victim.key} has changed since the decision"
    if plan.looked == state.snapshot.version:
        return ""
    if not evaluator.has_room(pod, plan.record.node):
        return f"evicting would not make room on {plan.record.node} any more"
    found = () if plan.gone else fits(state.snapshot, pod)
    if plan.record.node not in found and not plan.left_out.issuperset(found):
        return "it fits without preemption by now"
    return ""


class Unneeded(NamedTuple):
    """Victims, by uid, that have not been asked and may stay, and why."""

    uids: frozenset[str] = frozenset()
    why: str = ""


def unneeded(evaluator: Evaluator, plan: Plan, wait: float, asking: frozenset[str] = frozenset()) -> Unneeded:
    """Which victims of a plan may stay; not those that have been asked or, by uid, are being asked.

    All of them if the preemptor fits by now. Otherwise those without which it fits once the other victims are gone,
    however long these take, and the pods that leave anyway within `wait` seconds.
    """
    state = evaluator.state
    pod = state.pods.get(plan.key)
    soon = evaluator.leaving_within(wait)
    if (plan.looked, plan.counted_on) != (state.snapshot.version, soon.tobytes()):
        plan.looked, plan.counted_on, plan.found_needed = state.snapshot.version, soon.tobytes(), set()
    unasked = frozenset(victim.uid for victim in plan.record.victims if is_there(state, plan, victim)) - asking
    if pod is None or unasked <= plan.found_needed:
        return Unneeded()
    plan.found_needed |= unasked
    found = fits(state.snapshot, pod)
    if plan.record.node in found:
        return Unneeded(unasked, f"it fits on {plan.record.node} by now")
    if plan.gone and not plan.left_out.issuperset(found):
        return Unneeded(unasked, "it fits without further evictions by now")
    # The snapshot's rows of the victims that are there; a new pod of a victim's name is none.
    uids, pods = {victim.uid for victim in plan.record.victims}, state.snapshot.pods
    rows = state.snapshot.pod_rows([victim.key for victim in plan.record.victims]).tolist()
    victims = {pods.uids[row]: row for row in rows if pods.uids[row] in uids}
    going = [row for uid, row in victims.items() if uid not in unasked | plan.unneeded]
    among = np.array([row for uid, row in victims.items() if uid in unasked], np.intp)
    leaves = np.zeros(pods.rows, np.bool_)
    leaves[soon] = True
    leaves[going] = True
    leaves[among] = False
    must_go = victims_needed(state.snapshot, pod, plan.record.node, among, without=np.flatnonzero(leaves))
    staying = unasked - {pods.uids[row] for row in must_go.tolist()}
    return Unneeded(staying, f"it fits on {plan.record.node} without them once pods that are leaving are gone")
