"""When a request about a pod is made again that came to nothing (docs/reconciler.md). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webhook.kube.errors import NO_ANSWER, ApiError

TRIES = 4
"""So often at most in a row, if trying again may help."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
_AWAY_PAUSE = 1.0
"""Seconds, at least, between two tries while the API server is away or throttles, or the victim is on its way out."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those say who answer an eviction with 429 because they have begun to move the pod: KubeVirt's words are
"Evacuation in progress" and "Eviction triggered evacuation of VMI" (the latter is what the descheduler looks for)."""


def may_pass(error: ApiError) -> bool:
    """Whether trying again may help: no answer, throttled, or a server in trouble."""
    return error.status in {NO_ANSWER, 429} or error.status >= 500


def is_on_its_way(error: ApiError) -> bool:
    """Whether the server says that somebody has begun to move the pod."""
    return error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY)


@dataclass(slots=True)
class Tries:
    """The requests about a pod that came to nothing so far, and when the next one is `due`, in monotonic seconds."""

    failures: int = 0
    """Those in a row that may pass."""
    conflicts: int = 0
    """Those for a pod that had changed since it was seen."""
    begun: bool = False
    """Whether the server has said that the pod is on its way out."""
    unclear: bool = False
    """Whether one may have been carried out although the answer was lost."""
    pause: float = 0.0
    due: float = -math.inf

    @property
    def may_have_left(self) -> bool:
        """Whether the pod may be on its way out by what was asked so far."""
        return self.begun or self.unclear

    @property
    def whatever(self) -> bool:
        """Whether it is asked as it is, however it has changed: nobody keeps a pod by changing it all the time."""
        return self.conflicts >= TRIES

    def changed(self, now: float) -> None:
        """The pod is not as it was seen: it is judged again, by what the watch shows by then."""
        self.conflicts, self.failures = self.conflicts + 1, 0
        self._wait(FIRST_PAUSE, None, now)

    def failed(self, error: ApiError, now: float) -> bool:
        """It came to this error: whether it is asked again. If not, only the pod itself says what became of it."""
        self.unclear |= error.status == NO_ANSWER or error.status >= 500
        self.begun |= is_on_its_way(error)
        if is_on_its_way(error) or error.throttled:
            self.rest(now, error)
            return True
        self.failures += 1
        self._wait(FIRST_PAUSE * 3 ** (self.failures - 1), error, now)
        return may_pass(error) and error.reason != "Timeout" and self.failures < TRIES

    def rest(self, now: float, error: ApiError | None = None) -> None:
        """The pod takes its time, or the server has none: it is asked after longer and longer pauses."""
        self.failures = 0
        self._wait(max(_AWAY_PAUSE, 2 * self.pause), error, now)

    def _wait(self, pause: float, error: ApiError | None, now: float) -> None:
        self.pause = min(LONGEST_PAUSE, pause)
        asked = error.retry_after or 0.0 if error is not None else 0.0
        self.due = now + min(LONGEST_PAUSE, max(self.pause, asked))
