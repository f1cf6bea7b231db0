"""What can come of considering a preemptor."""

from __future__ import annotations

from dataclasses import dataclass, field

from webhook.kube.objects import Pod
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.evaluate.extender_cache import Question
from webhook.reconciler.state.annotations import Alternative

__all__ = ["Asks", "Evicts", "Fits", "Outcome", "Unschedulable", "Waits"]


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
    restrained: bool = False
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Asks:
    """Which candidates may stand is an extender's to say; it is decided again once that has answered."""

    question: Question


Outcome = Fits | Waits | Evicts | Unschedulable | Asks
