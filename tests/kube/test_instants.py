"""Instants: RFC 3339 to seconds and back."""

import math

import pytest

from webhook.kube.instants import InstantError, epoch, rfc3339, rfc3339_micro


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00Z", 1767225600),
        ("2026-01-01T01:00:00+01:00", 1767225600),
        ("2025-12-31T19:00:00-05:00", 1767225600),
        ("2026-01-01T00:00:00.5Z", 1767225600.5),
        ("2026-01-01T00:00:00.123456Z", 1767225600.123456),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
        ("0001-01-01T00:00:00Z", -62135596800),
        ("9999-12-31T23:59:59Z", 253402300799),
    ],
)
def test_epoch(text, seconds):
    """Seconds since the epoch, to the microsecond."""
    assert epoch(text) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not an RFC 3339 instant"),
        ("yesterday", "is not an RFC 3339 instant"),
        ("2026-01-01", "is not an RFC 3339 instant"),
        ("20260101T000000Z", "is not an RFC 3339 instant"),
        ("2026-W01-1T00:00:00Z", "is not an RFC 3339 instant"),
        ("2026-02-30T00:00:00Z", "is not an RFC 3339 instant"),
        ("2026-01-01T00:00:00", "names no time zone"),
        ("2026-01-01T00:00:00Z\n", "is not an RFC 3339 instant"),
        ("x" * 5000, "is not an RFC 3339 instant"),
        ("9999-12-31T23:59:59-14:00", "lies outside the years 0001 to 9999"),
        ("0001-01-01T00:00:00+14:00", "lies outside the years 0001 to 9999"),
    ],
)
def test_what_is_no_instant(text, words):
    """Anything else is refused, in few words."""
    with pytest.raises(InstantError, match=words) as caught:
        epoch(text)
    assert len(str(caught.value)) < 200


def test_there_and_back():
    """What is written is read as the same instant."""
    assert rfc3339(1767225600.9) == "2026-01-01T00:00:00Z"
    assert rfc3339_micro(1767225600.25) == "2026-01-01T00:00:00.250000Z"
    assert epoch(rfc3339_micro(1767225600.123456)) == 1767225600.123456


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (math.inf, "9999-12-31T23:59:59"),
        (253402300800, "9999-12-31T23:59:59"),
        (-62135596800, "0001-01-01T00:00:00"),
        (-math.inf, "0001-01-01T00:00:00"),
    ],
)
def test_what_cannot_be_written_is_the_nearest_that_can(seconds, text):
    """Sums of an instant and a duration are written whatever they are."""
    assert (rfc3339(seconds), rfc3339_micro(seconds)) == (f"{text}Z", f"{text}.000000Z")
