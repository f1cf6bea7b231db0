"""What can come of considering a preemptor."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.reconciler.record import Alternative

__all__ = ["Evicts", "Fits", "Hopeless", "Outcome", "Waits"]


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
    last_resort: frozenset[str] = frozenset()
    """Keys of the victims whose replacement can run nowhere else."""


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Nothing helps now. `due` is when it may, in monotonic seconds, where that is known."""

    reason: str
    restrained: bool = False
    due: float | None = None


Outcome = Fits | Waits | Evicts | Hopeless
