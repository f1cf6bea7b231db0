"""What comes of an evaluation of a preemptor: it fits, waits, evicts, asks, or nothing helps.

In a full cluster thousands of preemptors wait for the same. A decision depends on what a
pod asks for, not on its name: a verdict is one on all pods of a shape. It holds until
something that could help happens, and for the back-off of the pod that was tried. So a
shape costs as many decisions as one pod.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.kube.bounded import Newest
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.pod_groups import GroupKey
from webhook.reconciler.evaluate.extender_client import Question
from webhook.reconciler.state.annotations import Alternative, DecidedVictim

_LONGEST = 30.0
"""Seconds that a verdict holds at most: the flush of the queue."""
_REMEMBERED = 10_000

Key = tuple[Hashable, ...]
"""A policy's name, and what it and a decision read of a preemptor: its shape."""


class Fits(Struct, frozen=True):
    """It fits without preemption: kube-scheduler's business."""

    result: ClassVar[str] = "fits"
    nodes: tuple[str, ...]


class Reserves(Struct, frozen=True):
    """It fits on `node` once its `victims` and so many that are `leaving` anyway have left."""

    node: str
    leaving: int
    victims: tuple[Pod, ...] = ()
    groups: dict[str, str] = {}
    """By the key of a victim, the group that it goes with."""
    candidates: int = 0
    alternatives: tuple[Alternative, ...] = ()
    """Other nodes that would have done."""
    selected: Alternative | None = None
    """What the node was compared by."""
    because: str = ""
    """Why it was preferred to the best of the others."""
    room: str = ""
    """What victims on other nodes go for, such as `to make room in zone z1`."""
    decided: tuple[DecidedVictim, ...] = ()
    """The victims as the decision tells them; none if that was another plan's."""
    places: tuple[tuple[Pod, str], ...] = ()
    """Members of a gang that are placed together, with their nodes, the first on `node`."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were no candidates."""
    cycles: tuple[tuple[str, ...], ...] = ()
    """The cycles it closes: from a victim's workload to its own, each evicted for the one before."""


class Waits(Reserves, frozen=True):
    """Reserve the node, and evict nobody.

    Another plan has yet to ask its victims. If it never does, they are asked for this one.
    """

    result: ClassVar[str] = "waits"


class Evicts(Reserves, frozen=True):
    """Evict the victims."""

    result: ClassVar[str] = "evicts"


class Unschedulable(Struct, frozen=True):
    """Nothing helps now. At `due`, in monotonic seconds, something may, if that is known."""

    reason: str
    limited: bool = False
    due: float | None = None
    change: str = ""
    """What happens then, and when, for people."""
    behind: bool = False
    """Whether waiting pods of higher priority keep it from a plan."""

    @property
    def result(self) -> str:
        """`limited` if the policy's limits leave out what might help."""
        return "limited" if self.limited else "unschedulable"

    @property
    def text(self) -> str:
        """Why, and when that changes, for people."""
        why = self.reason.rstrip(".")
        return f"{why}. {self.change}" if self.change else f"{why}."


class Members(NamedTuple):
    """The pods that are placed together: mostly one. Of a gang those without a node, and its `key`.

    The policy may place those that are `ready`; the `gated` are held back. Plans under way
    have nominated others to the nodes `secured`.
    """

    ready: tuple[Pod, ...]
    key: GroupKey | None = None
    gated: tuple[Pod, ...] = ()
    secured: tuple[str, ...] = ()


class Promised(NamedTuple):
    """What plans under way mean for other decisions.

    The `planned` count as leaving, although a plan has yet to ask them. `held` are, by
    node, preemptors of lower priority for which pods were evicted.
    """

    planned: Collection[str] = ()
    held: Mapping[str, Sequence[Pod]] = MappingProxyType({})


NOTHING_PROMISED = Promised()
Outcome = Fits | Waits | Evicts | Unschedulable | Question
"""What can come of an evaluation; `result` is its name in metrics."""


class Moment(NamedTuple):
    """Monotonic seconds, how much happened that could help, and how long the pod backs off."""

    now: float
    events: int
    back_off: float


class Verdicts(Newest[Key, tuple[Unschedulable, Moment]]):
    """What was decided by policy and shape where nothing helps, and when."""

    def __init__(self) -> None:
        super().__init__(_REMEMBERED)

    def holding(self, shape: Key, moment: Moment) -> Unschedulable | None:
        """The verdict that holds now, if any.

        After something that could help it says when to look again.
        """
        if (known := self.get(shape)) is None:
            return None
        outcome, then = known
        due = math.inf if outcome.due is None else outcome.due
        over, retried = min(then.now + _LONGEST, due), then.now + then.back_off
        if moment.events == then.events:
            return outcome if moment.now < over else None
        if moment.now >= min(over, retried):
            return None
        return replace(outcome, due=min(due, max(retried, moment.now + moment.back_off)))
