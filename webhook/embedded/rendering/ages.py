"""How long ago, as `kubectl get` shows it (`apimachinery/pkg/util/duration`)."""

from __future__ import annotations

from webhook.kube.instants import InstantError, epoch

__all__ = ["age", "human"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
_STEPS = (
    # below this many seconds: the unit shown, and the smaller one shown beside it
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (48 * _HOUR, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def human(seconds: float) -> str:
    """A duration in its two largest sensible units."""
    whole = int(seconds)
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    for bound, (size, letter), smaller in _STEPS:
        if whole < bound:
            rest = whole % size // smaller[0] if smaller else 0
            return f"{whole // size}{letter}{rest}{smaller[1]}" if smaller and rest else f"{whole // size}{letter}"
    return f"{whole // _YEAR}y"


def age(instant: str | None, now: float) -> str:
    """The time since an RFC 3339 instant; `now` in seconds since the epoch."""
    if not instant:
        return "<unknown>"
    try:
        return human(now - epoch(instant))
    except InstantError:
        return "<unknown>"
