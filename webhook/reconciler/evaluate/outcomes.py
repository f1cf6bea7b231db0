"""What can come of an evaluation of a preemptor: it fits, waits, evicts, asks, or nothing helps.

Thousands of preemptors wait for the same in a full cluster. What a decision says depends on what a pod asks for, not on
its name, so the verdict on one is the verdict on all. It holds until something happens that could help. During the
back-off of the pod that was tried it holds even then. So a shape costs as many decisions as one pod.
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
"""Seconds for which a verdict holds at most: the flush of the queue."""
_REMEMBERED = 10_000

Key = tuple[Hashable, ...]
"""The name of a policy, and what it and a decision read of a preemptor: its shape."""


class Fits(Struct, frozen=True):
    """It fits without preemption: kube-scheduler's business."""

    result: ClassVar[str] = "fits"
    nodes: tuple[str, ...]


class Reserves(Struct, frozen=True):
    """It fits on `node` once `victims` have left, and so many pods there that are `leaving` anyway."""

    node: str
    leaving: int
    victims: tuple[Pod, ...] = ()
    groups: dict[str, str] = {}
    """Key of each victim that goes with a group to the name of the group."""
    candidates: int = 0
    alternatives: tuple[Alternative, ...] = ()
    """Other nodes that would have done."""
    selected: Alternative | None = None
    """What the node was compared by."""
    because: str = ""
    """Why the node was preferred to the best of the others."""
    room: str = ""
    """What victims on other nodes go for, such as `to make room in zone z1`."""
    decided: tuple[DecidedVictim, ...] = ()
    """The victims as the decision tells them; none if they go by another plan's decision."""
    places: tuple[tuple[Pod, str], ...] = ()
    """The members that are placed together, each with its node, the first on `node`; none for a pod by itself."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were no candidates."""
    cycles: tuple[tuple[str, ...], ...] = ()
    """The cycles that it closes: from a victim's workload to the preemptor's own, each evicted for the one before."""


class Waits(Reserves, frozen=True):
    """Reserve the node, and evict nobody.

    Its victims are pods that another plan has yet to ask. If that plan never does, they are asked for this one.
    """

    result: ClassVar[str] = "waits"


class Evicts(Reserves, frozen=True):
    """Evict the victims."""

    result: ClassVar[str] = "evicts"


class Unschedulable(Struct, frozen=True):
    """Nothing helps now. `due` is when it may, in monotonic seconds, and `change` says so, if that is known."""

    reason: str
    limited: bool = False
    due: float | None = None
    change: str = ""
    """A sentence for people, with the time of day."""
    behind: bool = False
    """Whether pods of higher priority that wait keep it from a plan."""

    @property
    def result(self) -> str:
        """`limited` if the policy's limits leave out what might have helped."""
        return "limited" if self.limited else "unschedulable"

    @property
    def text(self) -> str:
        """Why, and when that changes, for people."""
        why = self.reason.rstrip(".")
        return f"{why}. {self.change}" if self.change else f"{why}."


class Members(NamedTuple):
    """The pods that are placed together: mostly one. Of a gang those that have no node, and the `key` of their group.

    Those `ready` may be placed by the policy now, the `gated` ones are held back. `secured` are the nodes that other
    members are nominated to, by plans under way.
    """

    ready: tuple[Pod, ...]
    key: GroupKey | None = None
    gated: tuple[Pod, ...] = ()
    secured: tuple[str, ...] = ()


class Promised(NamedTuple):
    """What plans under way mean for other decisions.

    `planned` pods count as leaving, although a plan has yet to ask them. `held` are the preemptors of lower priority,
    by node, for which pods were evicted there.
    """

    planned: Collection[str] = ()
    held: Mapping[str, Sequence[Pod]] = MappingProxyType({})


NOTHING_PROMISED = Promised()
Outcome = Fits | Waits | Evicts | Unschedulable | Question
"""What can come of an evaluation; `result` is its name in metrics."""


class Moment(NamedTuple):
    """Monotonic seconds, how much has happened so far that could help, and the seconds that the pod backs off for."""

    now: float
    events: int
    back_off: float


class Verdicts(Newest[Key, tuple[Unschedulable, Moment]]):
    """What was decided by policy and shape where nothing helps, and when."""

    def __init__(self) -> None:
        super().__init__(_REMEMBERED)

    def holding(self, shape: Key, moment: Moment) -> Unschedulable | None:
        """The verdict that holds now, None if there is none.

        If something has happened since that could help, it says when to look again.
        """
        if (known := self.get(shape)) is None:
            return None
        outcome, then = known
        due, retried = math.inf if outcome.due is None else outcome.due, then.now + then.back_off
        has_happened = moment.events != then.events
        if moment.now >= min(then.now + _LONGEST, due) or (has_happened and moment.now >= retried):
            return None
        if not has_happened:
            return outcome
        again = max(retried, moment.now + moment.back_off)
        return replace(outcome, due=min(due, again))
