"""Schedules: when a window is open, by the clocks of a time zone, also on the days on which these change."""

from datetime import datetime
from itertools import count, pairwise
from zoneinfo import ZoneInfo

import pytest

from tests.policy.builders import table
from webhook.kube.instants import epoch
from webhook.policy.model.schedule import Schedule, ever_together

HOUR = 3600.0


def every(cron, duration=HOUR, zone="Europe/Berlin"):
    """A schedule."""
    return Schedule(cron=cron, time_zone=zone, duration=duration)


DAILY, NIGHTLY = every("0 6 * * *", 14 * HOUR), every("0 22 * * *", 8 * HOUR)


def berlin(text, fold=0):
    """Seconds since the epoch of a time in Berlin; `fold` 1 is the second time that clocks show it."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).timestamp()


@table(
    "schedule, now, ends",
    {
        "a minute before": (DAILY, "2026-11-23 05:59", None),
        "from the minute": (DAILY, "2026-11-23 06:00", "2026-11-23 20:00"),
        "to the minute": (DAILY, "2026-11-23 19:59", "2026-11-23 20:00"),
        "not at its end": (DAILY, "2026-11-23 20:00", None),
        "in summer by summer's clocks": (DAILY, "2026-07-01 06:00", "2026-07-01 20:00"),
        "over midnight": (NIGHTLY, "2026-11-23 02:00", "2026-11-23 06:00"),
        "in the morning": (NIGHTLY, "2026-11-23 07:00", None),
        "not on Sunday": (every("0 6 * * MON-FRI"), "2026-11-22 06:30", None),
        "windows that overlap are one": (every("0,30 6 * * *"), "2026-11-23 06:15", "2026-11-23 07:30"),
        "windows that touch are one": (every("0 6,7 * * *"), "2026-11-23 06:15", "2026-11-23 08:00"),
        "the last day of a month": (every("0 0 L * *", 24 * HOUR), "2028-02-29 12:00", "2028-03-01 00:00"),
    },
)
def test_a_window_is_open_from_its_beginning_to_its_end(schedule, now, ends):
    """The first minute belongs to a window, the end does not."""
    assert schedule.ends(berlin(now)) == (ends and berlin(ends))
    assert schedule.holds(berlin(now)) == (ends is not None)


SPRING = every("30 2 * * *")


@table(
    "schedule, after, begins",
    {
        "the day before": (SPRING, "2026-03-27 12:00", berlin("2026-03-28 02:30")),
        "02:30 does not exist: from 03:00 summer time": (SPRING, "2026-03-28 12:00", epoch("2026-03-29T01:00:00Z")),
        "the day after": (SPRING, "2026-03-29 12:00", berlin("2026-03-30 02:30")),
        "02:30 twice: the first time": (SPRING, "2026-10-24 12:00", epoch("2026-10-25T00:30:00Z")),
        "the night before the change": (NIGHTLY, "2026-03-28 12:00", berlin("2026-03-28 22:00")),
    },
)
def test_the_days_on_which_clocks_change(schedule, after, begins):
    """A time that clocks leave out is the first one after it; one that they repeat counts once."""
    assert schedule.begins(berlin(after)) == begins


def test_a_repeated_hour_opens_one_window():
    """In the night in October the window of the first 02:30 is open at the second one, and ends at 03:30."""
    first, second = berlin("2026-10-25 02:30"), berlin("2026-10-25 02:30", fold=1)
    assert second - first == HOUR
    assert SPRING.ends(first) == SPRING.ends(second) == berlin("2026-10-25 03:30")
    assert SPRING.begins(second) == berlin("2026-10-26 02:30")


CHANGES = {
    "Europe/Berlin": ("2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"),
    "America/St_Johns": ("2026-03-07T12:00:00Z", "2026-10-31T12:00:00Z"),
    "Australia/Lord_Howe": ("2026-04-04T00:00:00Z", "2026-10-03T00:00:00Z"),
    "Africa/Cairo": ("2026-04-23T12:00:00Z", "2026-10-29T12:00:00Z"),
    "Asia/Kathmandu": ("2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"),
}


@pytest.mark.parametrize("zone", CHANGES)
def test_a_duration_goes_by_the_clocks(zone):
    """From 22:00 for 8 h it holds exactly while clocks show 22:00 to 05:59, also in nights in which they change."""
    nightly = every("0 22 * * *", 8 * HOUR, zone)
    for begin in map(epoch, CHANGES[zone]):
        for minute in range(0, 36 * 60, 5):
            now = begin + 60 * minute
            shown = datetime.fromtimestamp(now, ZoneInfo(zone))
            assert nightly.holds(now) == (shown.hour >= 22 or shown.hour < 6), shown


def test_a_window_of_every_hour_goes_by_hours_that_pass():
    """With * for the hour both of the repeated hours count, and none is left out."""
    hourly = every("0 * * * *", 600.0)
    starts, now = [], berlin("2026-10-25 00:30")
    for _ in range(5):
        now = hourly.begins(now)
        starts.append(now)
    assert [later - earlier for earlier, later in pairwise(starts)] == [HOUR] * 4


@pytest.mark.parametrize("cron", ["50 * * * *", "0 2,3 * * *", "*/20 * * * *", "0 22 * * *", "30 2 28-31 * *"])
def test_what_is_open_has_begun_and_ends(cron):
    """Around changes of the clocks a window is open from its beginning on, and is not at its end."""
    schedule = every(cron, 900.0)
    for begin in map(epoch, CHANGES["Europe/Berlin"]):
        for now in (begin + 60 * minute for minute in range(0, 36 * 60, 7)):
            begins, ends = schedule.begins(now), schedule.ends(now)
            assert begins > now
            assert schedule.holds(begins)
            if ends is not None:
                assert ends > now
                assert not schedule.holds(ends)


def test_what_is_always_open_has_an_end_that_lies_ahead():
    """Windows that run together for years do not have to be followed to their end."""
    always = every("* * * * *", 31 * 24 * HOUR, "UTC")
    assert always.ends(1_800_000_000.0) > 1_800_000_000.0


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ("2026-11-23 05:00", "from 06:00 Europe/Berlin"),
        ("2026-11-23 21:00", "from 06:00 Europe/Berlin"),
        ("2026-11-20 21:00", "from 06:00 on Mon 2026-11-23 Europe/Berlin"),
    ],
)
def test_the_next_window_in_words(now, text):
    """With the day if it does not begin within one."""
    workdays = every("0 6 * * MON-FRI")
    assert workdays.next_window(berlin(now)) == text


@table(
    "one, other, meet",
    {
        "day and night": (DAILY, NIGHTLY, False),
        "every five minutes": (DAILY, every("*/5 * * * *", 60.0, "UTC"), True),
        "once": (every("0 0 * * SAT", 24 * HOUR, "UTC"), every("0 0 1 1 *", HOUR, "UTC"), False),
        "2026": (every("0 0 * * THU", 24 * HOUR, "UTC"), every("0 0 1 1 *", HOUR, "UTC"), True),
        "zones that drift apart": (DAILY, every("30 5 * * *", HOUR, "UTC"), True),
    },
)
def test_whether_two_ever_hold_together(one, other, meet):
    """Over two years, whichever of them is asked first."""
    assert ever_together(one, other, count()) == ever_together(other, one, count()) == meet
    assert ever_together(one, other, range(1))
