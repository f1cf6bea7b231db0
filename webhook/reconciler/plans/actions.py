"""What can be done next for a plan, and how it ends. `plans.next_action` says what is, `evict.executor` does it.

docs/operations.md has the table of endings for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from webhook.kube.objects.pod import Pod
from webhook.reconciler.state.annotations import PlanVictim


class Ending(StrEnum):
    """Why a plan is over; `ENDINGS` says what is done then."""

    BOUND = "bound"
    RESIZED = "resized"
    DELETED = "deleted"
    LOST = "nomination-lost"
    NODE_GONE = "node-gone"
    NODE_CHANGED = "node-changed"
    SPACE_TAKEN = "space-taken"
    DEVICES_TAKEN = "devices-taken"
    TIMED_OUT = "timed-out"
    REFUSED = "budget-refused"
    FAILED = "failed"
    OUTDATED = "outdated"
    DISPLACED = "displaced"
    GANG = "gang-given-up"
    DEPOSED = "deposed"


class EndingRow(NamedTuple):
    """What an ending means.

    `ends_preemptor`: there is nothing left to do for the preemptor, or not for this process. `lost_room`: others took
    what was freed. `blames_preemptor`: evicting did not help this preemptor, so it uses up one of its attempts.
    `at_once`: another decision, made at once, may do better: the first time it need not wait.
    """

    ends_preemptor: bool
    lost_room: bool
    blames_preemptor: bool
    at_once: bool


LEAVES = frozenset({Ending.BOUND, Ending.RESIZED, Ending.DELETED, Ending.LOST})
"""By these a member of a gang leaves the plan, which goes on for the others as long as they are enough."""
_DONE = EndingRow(ends_preemptor=True, lost_room=False, blames_preemptor=False, at_once=False)
_BLAMELESS = EndingRow(ends_preemptor=False, lost_room=False, blames_preemptor=False, at_once=True)
_ROOM_LOST = EndingRow(ends_preemptor=False, lost_room=True, blames_preemptor=True, at_once=True)
_OVERTAKEN = EndingRow(ends_preemptor=False, lost_room=False, blames_preemptor=True, at_once=True)
_IN_VAIN = EndingRow(ends_preemptor=False, lost_room=False, blames_preemptor=True, at_once=False)

ENDINGS: Mapping[Ending, EndingRow] = MappingProxyType(
    {
        Ending.BOUND: _DONE,
        Ending.RESIZED: _DONE,
        Ending.DELETED: _DONE,
        Ending.LOST: _BLAMELESS,
        Ending.NODE_GONE: _BLAMELESS,
        Ending.NODE_CHANGED: _BLAMELESS,
        Ending.SPACE_TAKEN: _ROOM_LOST,
        Ending.DEVICES_TAKEN: _ROOM_LOST,
        Ending.TIMED_OUT: _IN_VAIN,
        Ending.REFUSED: _IN_VAIN,
        Ending.FAILED: _OVERTAKEN,
        Ending.OUTDATED: _OVERTAKEN,
        Ending.DISPLACED: _BLAMELESS,
        Ending.GANG: _BLAMELESS,
        Ending.DEPOSED: _DONE,
    }
)


class Nominate(NamedTuple):
    """Write nomination and plan, by which victims are told so many seconds before they are asked.

    Meanwhile find out for these victims what `Try` does.
    """

    victims: tuple[PlanVictim, ...]
    notice: float


class Displace(NamedTuple):
    """Clear the nominations of these pods, if there are any."""

    pods: tuple[Pod, ...]


class Spare(NamedTuple):
    """These victims, by uid, stay, and why."""

    uids: frozenset[str]
    why: str


class Try(NamedTuple):
    """Ask with `dryRun` whether the API server would let these victims go: one that it keeps would cost the others."""

    victims: tuple[PlanVictim, ...]


class Notify(NamedTuple):
    """Tell these victims that they are asked to leave in so many seconds."""

    victims: tuple[PlanVictim, ...]
    seconds: float


class Prepare(NamedTuple):
    """Read these victims, or mark them as to be deleted: what is learned by that says whether they may be asked."""

    victims: tuple[PlanVictim, ...]


class Ask(NamedTuple):
    """Ask these victims to leave, side by side."""

    victims: tuple[PlanVictim, ...]


class Wait(NamedTuple):
    """Nothing is to be done until something happens, or until then, in monotonic seconds."""

    until: float


class End(NamedTuple):
    """The plan is over, or it is for this `member` alone (`LEAVES`); if one is named, it is because of it."""

    ending: Ending
    note: str = ""
    member: str = ""
    """`namespace/name`."""


AboutVictims = Try | Notify | Prepare | Ask
"""What is done about several victims, side by side."""
Step = Nominate | Displace | AboutVictims
"""What is done for a plan, one thing after the other."""
Action = Step | Spare | Wait | End
