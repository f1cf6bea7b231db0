"""What can be done next for a plan, what comes of it, and how it ends.

`plans.look` says what is done, `evict.executor` does it. A request about a pod that came to nothing is made again after
a pause (docs/reconciler.md). docs/operations.md has the table of endings for people.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.objects.pod import Pod

TRIES = 4
"""So often at most in a row, if trying again may help."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
_AWAY_PAUSE = 1.0
"""Seconds, at least, between two tries while the API server is away or throttles, or the victim is on its way out."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those say who answer an eviction with 429 because they have begun to move the pod: KubeVirt's words are
"Evacuation in progress" and "Eviction triggered evacuation of VMI" (the latter is what the descheduler looks for)."""


class Ending(StrEnum):
    """Why a plan is over; what is done then say the sets that it is in."""

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


LEAVES = frozenset({Ending.BOUND, Ending.RESIZED, Ending.DELETED, Ending.LOST, Ending.DISPLACED})
"""By these a member of a gang leaves the plan, which goes on for the others as long as they are enough."""
ENDS_PREEMPTOR = frozenset({Ending.BOUND, Ending.RESIZED, Ending.DELETED, Ending.DEPOSED})
"""After these there is nothing left to do for the preemptor, or not for this process."""
LOST_ROOM = frozenset({Ending.SPACE_TAKEN, Ending.DEVICES_TAKEN})
"""Others took what was freed."""
HOPELESS = frozenset({Ending.TIMED_OUT, Ending.REFUSED})
"""Another decision, made at once, would do no better: after all others the preemptor need not wait the first time."""
IN_VAIN = LOST_ROOM | HOPELESS | {Ending.FAILED, Ending.OUTDATED}
"""Evicting did not help this preemptor, so it uses up one of its attempts."""


class Verb(StrEnum):
    """What is asked of the API server about a pod, and what for.

    NOMINATE: write nomination and plan on a member. DISPLACE: clear the nomination of another pod. TRY: ask with
    `dryRun` whether a victim would go: one that is kept would cost the others. TELL: give a victim its notice. ASK:
    have it leave. READ: find out whether one that was asked leaves, since no answer said so.
    """

    NOMINATE = "nominate"
    DISPLACE = "displace"
    TRY = "try"
    TELL = "tell"
    ASK = "ask"
    READ = "read"


class Effect(StrEnum):
    """What the API server says to a request.

    DONE: it was done, or would be. GONE: the pod is not there any more. REFUSED: a budget does not allow it now.
    UNKNOWN: the server cannot say whether it would; a victim that was read does not leave.
    """

    DONE = "done"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def may_pass(error: ApiError) -> bool:
    """Whether trying again may help: no answer, throttled, or a server in trouble."""
    return error.status in {NO_ANSWER, 429} or error.status >= 500


def is_on_its_way(error: ApiError) -> bool:
    """Whether the server says that somebody has begun to move the pod."""
    return error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY)


class Tries(Struct):
    """The requests about a pod that came to nothing so far, and when the next one is `due`, in monotonic seconds."""

    failures: int = 0
    """Those in a row that may pass."""
    conflicts: int = 0
    """Those for a pod that had changed since it was seen."""
    begun: bool = False
    """Whether the server has said that the pod is on its way out."""
    unclear: bool = False
    """Whether one may have been carried out although the answer was lost."""
    refused: bool = False
    """Whether a budget did not let it go when it was asked last."""
    over: bool = False
    """Whether asking again would not help."""
    conflicting: str = ""
    """The resourceVersion by which a member could not be nominated, since it had another one by then."""
    pause: float = 0.0
    due: float = -math.inf

    @property
    def whatever(self) -> bool:
        """Whether it is asked as it is, however it has changed: nobody keeps a pod by changing it all the time."""
        return self.conflicts >= TRIES

    def failed(self, error: ApiError | None, now: float) -> None:
        """It came to this error, or without one the pod takes its time: it is asked again after a pause, or it is over.

        A pod that is not as it was seen is judged again, by what the watch shows by then.
        """
        pause = max(_AWAY_PAUSE, 2 * self.pause)  # the server has no time either, if it throttles or is away
        if error is not None and error.status in {404, 409}:
            pause = FIRST_PAUSE * 3 ** min(TRIES, self.conflicts)
            self.conflicts, self.failures = self.conflicts + 1, 0
        elif error is None or is_on_its_way(error) or error.throttled or error.reason == "Unreachable":
            self.failures = 0
        else:
            pause = FIRST_PAUSE * 3 ** min(TRIES, self.failures)
            self.failures += 1
            self.over = not may_pass(error) or error.reason == "Timeout" or self.failures >= TRIES
        if error is not None:
            self.unclear |= error.status == NO_ANSWER or error.status >= 500
            self.begun |= is_on_its_way(error)
        self.pause = min(LONGEST_PAUSE, pause)
        asked = error.retry_after if error is not None else None
        self.due = now + min(LONGEST_PAUSE, max(self.pause, asked or 0.0))


class Do(NamedTuple):
    """These requests are to be made, side by side: each about a pod, as it was when that was found to be right."""

    requests: tuple[tuple[Verb, Pod], ...]


class Spare(NamedTuple):
    """These victims, by uid, stay, and why."""

    uids: frozenset[str]
    why: str


class Wait(NamedTuple):
    """Nothing is to be done until something happens, or until then, in monotonic seconds."""

    until: float
    all_asked: bool = False
    """Whether nobody is left to be asked."""


class End(NamedTuple):
    """The plan is over, or it is for this `member` alone (`LEAVES`); if one is named, it is because of it."""

    ending: Ending
    note: str = ""
    member: str = ""
    """`namespace/name`."""


Step = Do | Spare | Wait | End
