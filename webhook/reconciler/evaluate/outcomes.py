"""What can come of an evaluation, and how it is made of a decision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from webhook.kube.instants import rfc3339
from webhook.kube.objects import Pod, key_of
from webhook.kube.pods import is_last_resort
from webhook.preemption.ranking import Score, preferred_because, sum_of_priorities
from webhook.preemption.result import Decision
from webhook.preemption.victims.candidates import Candidate
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.evaluate.extenders import Question
from webhook.reconciler.evaluate.rates import NOT_NOW, too_large
from webhook.reconciler.state.annotations import Alternative
from webhook.reconciler.state.state import State

__all__ = ["Asks", "Evicts", "Fits", "Outcome", "Unschedulable", "Waits", "evicts", "unschedulable"]

_SHOWN = 5
"""Other nodes that are written down."""


@dataclass(frozen=True, slots=True)
class Fits:
    """It fits without preemption: kube-scheduler's business."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """It fits on `node` once the pods that are leaving anyway are gone: reserve the node, evict nobody."""

    node: str
    leaving: int


@dataclass(frozen=True, slots=True)
class Evicts:
    """It fits on `node` once `victims` have left too; `alternatives` are other nodes that would have done."""

    node: str
    victims: tuple[Pod, ...]
    leaving: int
    candidates: int
    alternatives: tuple[Alternative, ...]
    selected: Alternative | None = None
    """What the node was compared by."""
    because: str = ""
    """Why the node was preferred to the best of the others."""
    last_resort: frozenset[str] = frozenset()
    """Keys of the victims whose replacement can run nowhere else."""
    grounds: dict[str, VictimReason] = field(default_factory=dict)
    """Key of each victim to the `policy/rule` by which it may go."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Nothing helps now. `due` is when it may, in monotonic seconds, if that is known."""

    reason: str
    limited: bool = False
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Asks:
    """Which candidates may stand is an extender's to say; it is decided again once that has answered."""

    question: Question


Outcome = Fits | Waits | Evicts | Unschedulable | Asks


def evicts(state: State, decision: Decision, chosen: Candidate) -> Evicts | Waits:
    """Evict the victims of the chosen candidate that are not leaving already; only wait if all of them are."""
    leaving = [victim for victim in chosen.victims if victim.key in state.index.leaving]
    pods = [state.pod(victim.key) for victim in chosen.victims if victim.key not in state.index.leaving]
    victims = tuple(pod for pod in pods if pod is not None)
    if not victims:
        return Waits(chosen.node, len(leaving))
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


def unschedulable(decision: Decision, *, rate_exhausted: bool, some_refused: bool, due: float | None) -> Unschedulable:
    """Nothing helps now, and why: a rate is used up for some pods, or the API server refused to remove some."""
    reason = decision.reason or "no node where evicting pods that may be evicted makes room"
    never = too_large(decision.rejections)
    if never and not decision.reason:
        reason = f"wherever evicting pods makes room, more would have to go at once than limits.{never} ever allows"
    elif NOT_NOW in decision.rejections and not decision.reason:
        reason = "wherever evicting pods makes room, more would have to go than the policy's limits allow now"
    elif rate_exhausted:
        reason += "; the policy's limits leave out pods that would do otherwise"
    if some_refused:
        reason += "; pods that the API server would not remove are left out for now"
    return Unschedulable(reason, limited=rate_exhausted or bool(decision.rejections), due=due)


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
