"""Schedules: when something of a policy holds: a cron expression, a time zone, a duration (docs/semantics.md D9).

A window begins whenever the expression matches and lasts for the duration, both by the clocks of the time zone: from
22:00 for 8 h it ends at 06:00, also in the nights in which clocks change. Windows that touch or overlap are one. When
clocks are put forward, a fixed time that does not exist is the first moment after it; when they are put back, a fixed
time that exists twice counts the first time (as in Debian's cron, by `cronsim`).
Seconds are since the epoch; everything here is a function of the time that is given.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from webhook.kube.instants import FIRST_SECOND, LAST_SECOND, epoch
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import mapping
from webhook.policy.shapes.shapes import ShapeError, duration_that, string
from webhook.policy.shapes.yaml_nodes import YamlScalar, duration

_MINUTE, _DAY = 60, 24 * 3600
_LONGEST = 31 * _DAY
"""Seconds that a window may last, at most."""
_STEPS = 500
"""Windows that are looked at to find where those that are open end, and whether two schedules ever meet."""
_SHIFT = 3 * 3600
"""Seconds, at least, by which a change of clocks makes a window longer or shorter."""
_BEGIN = epoch("2025-01-01T00:00:00Z")
_END = _BEGIN + 400 * _DAY
"""Between which instants windows are compared: a year with the clock changes of today."""


def _cron(text: str, _: YamlScalar, __: Reader) -> None:
    fields = "the fields are minute, hour, day of month, month, day of week, such as 0 22 * * MON-FRI"
    if len(text.split()) != 5:
        raise ShapeError(f'"{text[:80]}" is no cron expression of five fields: {fields}')
    try:
        first = next(CronSim(text, datetime.fromtimestamp(_BEGIN, ZoneInfo("UTC"))), None)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("-", " ")
        message = f'"{text[:80]}": the {field} is wrong, or there is no such day; {fields}'
        raise ShapeError(message) from error
    if first is None:
        raise ShapeError(f'"{text[:80]}" never begins: there is no such day')


_zones = cache(available_timezones)


def _zone(name: str, _: YamlScalar, reader: Reader) -> None:
    if name not in _zones():
        near = reader.nearest(name, _zones())
        raise ShapeError(f'"{name[:80]}" is no time zone such as Europe/Berlin{near}')


_CRON = string("a cron expression", longest=200, check=_cron)
_TIME_ZONE = string("a time zone", longest=80, check=_zone, examples=["UTC", "Europe/Berlin", "America/New_York"])
_LASTS = duration_that(
    lambda lasts: _MINUTE <= lasts <= _LONGEST and not lasts % _MINUTE,
    f"{{amount}}: whole minutes, from 1m to {duration(_LONGEST)}",
)


@mapping("schedule")
class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When something holds: from each time that `cron` names, for `duration`."""

    cron: Annotated[str, _CRON, "When it begins: minute, hour, day of month, month, day of week."]
    time_zone: Annotated[str, _TIME_ZONE, "By whose clocks: a name of the IANA time zone database."] = "UTC"
    duration: Annotated[float, _LASTS, "For how long it holds then, by these clocks: whole minutes, at most 744h."]

    def __str__(self) -> str:
        """`0 6 * * MON-FRI Europe/Berlin for 14h`."""
        return f"{self.cron} {self.time_zone} for {duration(self.duration)}"

    def holds(self, now: float) -> bool:
        """Whether a window is open."""
        return self.ends(now) is not None

    def ends(self, now: float) -> float | None:
        """When the open window ends, or some time in a very long one; None without one."""
        return _end(self, int(now // _MINUTE))

    def begins(self, now: float) -> float | None:
        """When the next window begins; None if never."""
        return next((begins for begins, _ in _windows(self, now)), None)

    def when(self, instant: float, now: float) -> str:
        """An instant by the zone's clocks: `06:00 Europe/Berlin`; with the day if it is far."""
        local = _local(instant, ZoneInfo(self.time_zone))
        day = "" if instant - now < _DAY else f" on {local:%a %Y-%m-%d}"
        return f"{local:%H:%M}{day} {self.time_zone}"

    def next_window(self, now: float) -> str:
        """`from 06:00 Europe/Berlin`."""
        begins = self.begins(now)
        return "never again" if begins is None else f"from {self.when(begins, now)}"


def ever_together(first: Schedule, second: Schedule, moments: Iterable[int]) -> bool:
    """Whether both ever hold together; True if these `moments` are not enough to tell."""
    now = _BEGIN
    for _ in islice(moments, 2 * _STEPS):
        closed = [schedule for schedule in (first, second) if not schedule.holds(now)]
        if not closed:
            return True
        now = max(schedule.begins(now) or math.inf for schedule in closed)
        if now > _END:
            return False
    return True


def _local(instant: float, zone: ZoneInfo) -> datetime:
    """An instant by the clocks of a zone, but on the first and last day that there are."""
    return datetime.fromtimestamp(min(max(instant, FIRST_SECOND + _DAY), LAST_SECOND - _DAY), zone)


def _windows(schedule: Schedule, after: float) -> Iterator[tuple[float, float]]:
    """When the windows that begin after an instant begin and end, in their order."""
    zone, last, lasts = ZoneInfo(schedule.time_zone), after, timedelta(seconds=schedule.duration)
    with suppress(OverflowError, ValueError):  # there is no window before year 1 or after year 9999
        for begins in CronSim(schedule.cron, _local(after, zone)):
            at = begins.timestamp()
            if at > last:
                # Adding goes by the clocks; in an hour that is there
                # twice the end is in the same one as the beginning.
                yield at, (begins + lasts).replace(fold=begins.fold).timestamp()
                last = at


@lru_cache(maxsize=4096)
def _end(schedule: Schedule, minute: int) -> float | None:
    """As `Schedule.ends`, for a whole minute: nothing begins or ends within one."""
    now = float(minute * _MINUTE)
    end: float | None = None
    for begins, ends in islice(_windows(schedule, now - schedule.duration - _SHIFT), _STEPS):
        if begins > (now if end is None else end):
            break
        if ends > now:
            end = max(ends, end or ends)
    return end
