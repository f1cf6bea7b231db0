"""Log lines: what is written, what is lost, and that nobody forges one."""

from __future__ import annotations

import io
import json
import re

import pytest

from webhook.component_base.logs import LogWriter
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
