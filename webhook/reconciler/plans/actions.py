"""What can be done next for a plan, what comes of it, and how it ends.

`plans.look` says what is done, `evict.executor` does it. A request that came to nothing is made again
after a pause (docs/reconciler.md). The table of endings for people is in docs/operations.md.
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
"""Seconds, at least, to the next try if the server is away or throttles, or the victim is on its way."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those answer with 429 who have begun to move the pod: KubeVirt says "Evacuation in progress" and
"Eviction triggered evacuation of VMI" (for which the descheduler looks)."""


class Ending(StrEnum):
    """Why a plan is over; the sets that it is in say what is done then."""

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
"""By these a member of a gang leaves; the plan goes on for others if they are enough."""
ENDS_PREEMPTOR = frozenset({Ending.BOUND, Ending.RESIZED, Ending.DELETED, Ending.DEPOSED})
"""After these nothing is left to do for the preemptor, or not for this process."""
LOST_ROOM = frozenset({Ending.SPACE_TAKEN, Ending.DEVICES_TAKEN})
"""Others took what was freed."""
HOPELESS = frozenset({Ending.TIMED_OUT, Ending.REFUSED})
"""Another decision at once would do no better: only after these the preemptor waits the first time."""
IN_VAIN = LOST_ROOM | HOPELESS | {Ending.FAILED, Ending.OUTDATED}
"""Evicting did not help the preemptor: one of its attempts is used up."""


class Verb(StrEnum):
    """What is asked of the API server about a pod, and what for.

    NOMINATE: write nomination and plan on a member. DISPLACE: clear another pod's nomination.
    TRY: ask with `dryRun` whether a victim would go. TELL: give it its notice. ASK: have it
    leave. READ: find out whether it leaves, since no answer said so.
    """

    NOMINATE = "nominate"
    DISPLACE = "displace"
    TRY = "try"
    TELL = "tell"
    ASK = "ask"
    READ = "read"


class Effect(StrEnum):
    """What the API server says to a request.

    DONE: it was done, or would be. GONE: the pod is gone. REFUSED: a budget does not allow it.
    UNKNOWN: the server cannot say whether it would, or a victim that was read does not leave.
    """

    DONE = "done"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def may_pass(error: ApiError) -> bool:
    """Whether trying again may help: no answer, throttled, a server in trouble."""
    return error.status in {NO_ANSWER, 429} or error.status >= 500


def is_on_its_way(error: ApiError) -> bool:
    """Whether the server says that somebody has begun to move the pod."""
    return error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY)


class Tries(Struct):
    """Requests about a pod that came to nothing, and when the next is `due` (monotonic seconds)."""

    failures: int = 0
    """Those in a row that may pass."""
    conflicts: int = 0
    """Those for a pod that had changed since it was seen."""
    begun: bool = False
    """Whether the server has said that the pod is on its way out."""
    unclear: bool = False
    """Whether one may have been carried out though the answer was lost."""
    refused: bool = False
    """Whether a budget did not let it go when it was asked last."""
    over: bool = False
    """Whether asking again would not help."""
    conflicting: str = ""
    """The resourceVersion with which a member could not be nominated."""
    pause: float = 0.0
    due: float = -math.inf

    @property
    def whatever(self) -> bool:
        """Whether its version is passed over: nobody keeps a pod by changing it."""
        return self.conflicts >= TRIES

    def failed(self, error: ApiError | None, now: float) -> None:
        """It came to this error, or the pod takes its time: ask after a pause, or give up.

        A pod that is not as it was seen is judged again once the watch shows it.
        """
        pause, asked = max(_AWAY_PAUSE, 2 * self.pause), 0.0
        if error is None or is_on_its_way(error) or error.throttled or error.reason == "Unreachable":
            self.failures = 0  # a server that throttles or is away has no time for more
        elif error.status in {404, 409}:
            pause = FIRST_PAUSE * 3 ** min(TRIES, self.conflicts)
            self.conflicts, self.failures = self.conflicts + 1, 0
        else:
            pause = FIRST_PAUSE * 3 ** min(TRIES, self.failures)
            self.failures += 1
            self.over = not may_pass(error) or error.reason == "Timeout" or self.failures >= TRIES
        if error is not None:
            self.unclear |= error.status == NO_ANSWER or error.status >= 500
            self.begun |= is_on_its_way(error)
            asked = error.retry_after or 0.0
        self.pause = min(LONGEST_PAUSE, pause)
        self.due = now + min(LONGEST_PAUSE, max(self.pause, asked))


class Do(NamedTuple):
    """This is to be asked about each of these pods, side by side, as they were judged."""

    verb: Verb
    pods: tuple[Pod, ...]


class Spare(NamedTuple):
    """These victims, by uid, stay, and why."""

    uids: frozenset[str]
    why: str


class Wait(NamedTuple):
    """Nothing is to be done until something happens, or then (monotonic seconds)."""

    until: float
    all_asked: bool = False
    """Whether nobody is left to be asked."""


class End(NamedTuple):
    """The plan is over, because of this `member` if one is named, or for it alone (`LEAVES`)."""

    ending: Ending
    note: str = ""
    member: str = ""
    """`namespace/name`."""


Step = Do | Spare | Wait | End
