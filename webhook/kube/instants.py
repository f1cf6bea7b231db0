"""Time: RFC 3339 texts, as Kubernetes writes them, to seconds since the epoch and back, and where the time is from."""

import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

FIRST_SECOND = -62_135_596_800
"""The beginning of year 1, in seconds since the epoch."""
LAST_SECOND = 253_402_300_799
"""The last second of year 9999, in seconds since the epoch: RFC 3339 has no later one."""

_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?P<zone>Z|[+-]\d{2}:\d{2})?", re.ASCII)


class InstantError(ValueError):
    """A text that is not an RFC 3339 instant."""


@lru_cache(maxsize=65536)
def epoch(text: str) -> float:
    """Seconds since the epoch. Raises InstantError for what is not RFC 3339 with a zone, or beyond its years."""
    match = _RFC3339.fullmatch(text)
    if match is not None and match["zone"] is None:
        raise InstantError(
            f"{text[:64]!r} names no time zone; Kubernetes writes 2026-01-01T00:00:00Z",
        )
    try:
        seconds = datetime.fromisoformat(text).timestamp() if match is not None else None
    except ValueError:
        seconds = None
    if seconds is None:
        raise InstantError(f"{text[:64]!r} is not an RFC 3339 instant such as 2026-01-01T00:00:00Z")
    if not FIRST_SECOND <= seconds <= LAST_SECOND + 1:
        raise InstantError(f"{text[:64]!r} lies outside the years 0001 to 9999 in UTC")
    return seconds


def epoch_or(text: str | None, otherwise: float) -> float:
    """Seconds since the epoch; the other number for what is no instant."""
    try:
        return epoch(text or "")
    except InstantError:
        return otherwise


def rfc3339(seconds: float) -> str:
    """The instant to the second, as in `creationTimestamp`; the nearest that RFC 3339 can say."""
    return _second(int(_sayable(seconds) // 1))


def rfc3339_micro(seconds: float) -> str:
    """The instant to the microsecond, as in `MicroTime` fields; the nearest that can be said."""
    instant = datetime.fromtimestamp(_sayable(seconds), UTC)
    return instant.isoformat(timespec="microseconds")[:26] + "Z"


def _sayable(seconds: float) -> float:
    return min(max(seconds, FIRST_SECOND), LAST_SECOND)


def time_span(seconds: float) -> str:
    """A time for people: `40 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, size, lesser, least in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            count, rest = divmod(whole, size)
            return f"{count} {unit} {rest // least} {lesser}" if rest // least else f"{count} {unit}"
    return f"{whole} s"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19] + "Z"


class Clock(Protocol):
    """What a program asks for the time, so that a simulation can answer with another one."""

    def monotonic(self) -> float:
        """Seconds since some instant; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class SystemClock(Clock):
    """The machine's clocks as the module `time` tells them when it is asked: tests set them on."""
