"""Log lines: what is written, what is lost, and that nobody forges one."""

import io
import json
import logging

import pytest

from webhook.component_base import logs
from webhook.component_base.logs import LogWriter, log_records

REVIEW = {"time": "1970-01-01T00:00:00.500Z", "level": "info", "message": "review", "verdict": "denied", "ms": 0.25}


def written(*lines):
    """What is in the stream after these lines."""
    stream = io.BytesIO()
    writer = LogWriter(stream)
    for line in lines:
        writer.write(line)
    writer.close()
    return stream.getvalue().splitlines()


def test_a_line_that_cannot_be_written_costs_no_other():
    """The thread that writes goes on, and says that a line is missing."""
    messages = [json.loads(row)["message"] for row in written({"message": object()}, {"message": "hello"})]
    assert messages == ["a log line could not be written: TypeError", "hello"]


def test_lines_nobody_reads_are_dropped_and_counted():
    """A log that cannot be written costs lines, never the server."""

    class Broken(io.BytesIO):
        def write(self, data):
            raise OSError("full")

    dropped = []
    lines = LogWriter(Broken(), dropped.append)
    lines.write({"time": "now", "level": "info", "message": "hello"})
    lines.close()
    assert dropped == [1]


@pytest.mark.parametrize("field", ["user", "object", "rule", "error", "message"])
def test_no_text_makes_a_long_line(field):
    """A name of 700 KB, in whatever field, takes some kilobytes of the log."""
    [row] = written({**REVIEW, field: "n" * 700_000})
    assert 100 < len(row) < 9000
    assert "…".encode() in row or b"\\u2026" in row


def test_lists_in_a_line_are_bounded_too():
    """What no single text makes too long is left out, and said; other lines of the batch stay."""
    rows = written({"message": "before"}, {"message": "m", "names": ["n" * 100] * 10_000}, {"message": "after"})
    messages = [json.loads(row)["message"] for row in rows]
    assert messages == ["before", "a log line could not be written: of more than 65536 bytes", "after"]


def test_what_waits_for_the_reader_is_bounded(monkeypatch):
    """Lines that nobody reads take so much of the memory and no more; the others are counted."""
    monkeypatch.setattr(logs, "_MOST_WAITING", 9)
    monkeypatch.setattr(logs, "_INTERVAL", 60)
    dropped = []
    lines = LogWriter(io.BytesIO(), dropped.append)
    for _ in range(100):
        lines.write({"time": "T", "level": "info", "message": "m" * 1000})
    lines.close()
    assert sum(dropped) == 91


def test_warnings_of_asyncio_are_lines_of_the_log_as_well():
    """What it would write to stderr by itself, of any length, is bounded and has the form of all lines."""
    stream = io.BytesIO()
    logger = logging.getLogger("asyncio")
    with log_records(LogWriter(stream)):
        logger.warning("x" * 100_000)
        logger.info("not told")
    [line] = stream.getvalue().splitlines()
    assert (json.loads(line)["level"], len(line) < 10_000) == ("warning", True)
