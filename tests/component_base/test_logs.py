"""Log lines: what is written, what is lost, and that nobody forges one."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from webhook.component_base import logs
from webhook.component_base.logs import LogWriter, log_records
from webhook.serving.review_handler import ReviewLine

FORGED = [
    "\nFAKE",
    "\r\n2026-11-21T00:00:00.000Z INFO review",
    "\x1b[2K\x1b[1A",
    "a\u2028b",
    "a\x85b",
    "a\u202eb",
    "a\x00b",
    "bob verdict=allowed",
    'bob" verdict="allowed',
    "=",
    "",
]


@pytest.mark.parametrize("text", FORGED, ids=ascii)
@pytest.mark.parametrize("field", ["user", "object", "rule", "error", "message"])
def test_nobody_forges_a_text_line(field, text):
    """Whatever a user calls himself or his objects, it stays one line, and inside the quotes of its field."""
    stream = io.BytesIO()
    lines = LogWriter(stream, "text")
    line = ReviewLine(0.5, "info", "review", "mutate", "u", "denied", 0.25)
    setattr(line, field, text)
    lines.write(line)
    lines.close()
    written = stream.getvalue().decode()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    words = re.sub(r'"(?:[^"\\]|\\.)*"', "QUOTED", written).split()
    assert [word for word in words if word.startswith("verdict=")] == ["verdict=denied"]
    assert words[0] == "1970-01-01T00:00:00.500Z"


def test_tracebacks_of_text_logs_cannot_be_taken_for_lines():
    """Each line of a traceback is set off."""
    stream = io.BytesIO()
    lines = LogWriter(stream, "text")
    lines.write({"time": "T", "level": "error", "message": "failed", "exception": "Traceback:\n  x\nError: a\u2028b"})
    lines.close()
    assert stream.getvalue().decode().splitlines() == [
        "T ERROR failed",
        "    | Traceback:",
        "    |   x",
        "    | Error: a\\u2028b",
    ]


def test_text_logs_are_for_people():
    """`--log-format text` writes the same as one readable line."""
    stream = io.BytesIO()
    lines = LogWriter(stream, "text")
    lines.write(ReviewLine(0.5, "info", "review", "mutate", "u", "denied", 0.25, user="alice"))
    lines.close()
    expected = b"1970-01-01T00:00:00.500Z INFO review phase=mutate uid=u verdict=denied ms=0.25 user=alice\n"
    assert stream.getvalue() == expected


def test_a_line_that_cannot_be_written_costs_no_other():
    """The thread that writes goes on, and says that a line is missing."""
    stream = io.BytesIO()
    lines = LogWriter(stream, "json")
    lines.write({"message": object()})
    lines.write({"message": "hello"})
    lines.close()
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == ["a log line could not be written: TypeError", "hello"]


def test_lines_nobody_reads_are_dropped_and_counted():
    """A log that cannot be written costs lines, never the server."""

    class Broken(io.BytesIO):
        def write(self, data):
            raise OSError("full")

    dropped = []
    lines = LogWriter(Broken(), "json", dropped.append)
    lines.write({"time": "now", "level": "info", "message": "hello"})
    lines.close()
    assert dropped == [1]


@pytest.mark.parametrize("format_", ["json", "text"])
@pytest.mark.parametrize("field", ["user", "object", "rule", "error", "message"])
def test_no_text_makes_a_long_line(field, format_):
    """A name of 700 KB, in whatever field, takes some kilobytes of the log."""
    stream = io.BytesIO()
    lines = LogWriter(stream, format_)
    line = ReviewLine(0.5, "info", "review", "mutate", "u", "denied", 0.25)
    setattr(line, field, "n" * 700_000)
    lines.write(line)
    lines.write({"time": "T", "level": "info", "message": "m", field: "n" * 700_000})
    lines.close()
    written = stream.getvalue().splitlines()
    assert len(written) == 2
    assert all(100 < len(row) < 9000 for row in written)
    assert all("…".encode() in row or b"\\u2026" in row for row in written)


@pytest.mark.parametrize("field", ["user", "message"])
def test_a_text_is_cut_before_it_is_made_readable(field, monkeypatch):
    """Whoever sends 700 KB of control characters pays for a few of them: to escape all takes a fifth of a second."""
    lengths = []
    visible = logs.visible
    monkeypatch.setattr(logs, "visible", lambda text: lengths.append(len(text)) or visible(text))
    lines = LogWriter(io.BytesIO(), "text")
    line = ReviewLine(0.5, "info", "review", "mutate", "u", "denied", 0.25)
    setattr(line, field, "\x1b" * 700_000)
    lines.write(line)
    lines.close()
    assert 1000 < max(lengths) < 60_000


def test_lists_in_a_line_are_bounded_too():
    """What no single text makes too long is left out, and said; other lines of the batch stay."""
    stream = io.BytesIO()
    lines = LogWriter(stream, "json")
    lines.write({"time": "T", "level": "info", "message": "before"})
    lines.write({"time": "T", "level": "info", "message": "m", "names": ["n" * 100] * 10_000})
    lines.write({"time": "T", "level": "info", "message": "after"})
    lines.close()
    messages = [json.loads(row)["message"] for row in stream.getvalue().splitlines()]
    assert messages == ["before", "a log line could not be written: of more than 65536 bytes", "after"]


def test_what_waits_for_the_reader_is_bounded(monkeypatch):
    """Lines that nobody reads take so much of the memory and no more; the others are counted."""
    monkeypatch.setattr(logs, "_MOST_WAITING", 9)
    monkeypatch.setattr(logs, "_INTERVAL", 60)
    dropped = []
    lines = LogWriter(io.BytesIO(), "json", dropped.append)
    for _ in range(100):
        lines.write({"time": "T", "level": "info", "message": "m" * 1000})
    lines.close()
    assert sum(dropped) == 91


def test_warnings_of_asyncio_are_lines_of_the_log_as_well():
    """What it would write to stderr by itself, of any length, is bounded and has the form of all lines."""
    stream = io.BytesIO()
    logger = logging.getLogger("asyncio")
    with log_records(LogWriter(stream, "json")):
        logger.warning("x" * 100_000)
        logger.info("not told")
    [line] = stream.getvalue().splitlines()
    assert (json.loads(line)["level"], len(line) < 10_000) == ("warning", True)
