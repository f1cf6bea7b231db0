"""Log lines that never hold up the event loop: collected, and written in batches by a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from webhook.admission.webhook import Reviewed
from webhook.serving.options import LogFormat

__all__ = ["Handler", "Lines", "review_line"]

_MOST_WAITING = 100_000
"""Lines kept for a reader that does not read; further ones are dropped and counted."""
_INTERVAL = 0.05
_encode = msgspec.json.Encoder().encode


class Lines:
    """Where log lines go. `write` costs an append; `on_drop` is called with the number of lines lost."""

    def __init__(self, stream: BinaryIO, format_: LogFormat, on_drop: Callable[[int], object] | None = None) -> None:
        self._stream, self._on_drop = stream, on_drop
        self._render = _json_line if format_ == "json" else _text_line
        self._waiting: list[dict[str, Any]] = []
        self._lock, self._dropped = threading.Lock(), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_out, name="log", daemon=True)
        self._thread.start()

    def write(self, fields: dict[str, Any]) -> None:
        """Add a line."""
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(fields)
            else:
                self._dropped += 1

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _write_out(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
            dropped, self._dropped = self._dropped, 0
        if dropped and self._on_drop:
            self._on_drop(dropped)
        if not lines:
            return
        try:
            self._stream.write(b"".join(map(self._render, lines)))
            self._stream.flush()
        except (OSError, ValueError):
            if self._on_drop:
                self._on_drop(len(lines))


class Handler(logging.Handler):
    """The standard library's log records as lines of the same format."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        fields: dict[str, Any] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        self._lines.write(fields)


def review_line(now: float, phase: str, reviewed: Reviewed, milliseconds: float) -> dict[str, Any]:
    """The line of one review: who asked for what, and what became of it; never the object itself."""
    answer, asked = reviewed.answer, reviewed.review
    line: dict[str, Any] = {
        "time": now,
        "level": "info",
        "message": "review",
        "phase": phase,
        "uid": reviewed.uid,
        "verdict": answer.verdict,
        "ms": round(milliseconds, 3),
    }
    if asked is not None:
        line["user"] = asked.user.username
        line["operation"] = asked.operation
        line["resource"] = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        line["object"] = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
        if asked.dry_run:
            line["dryRun"] = True
    if answer.code != 200:
        line["code"], line["error"] = answer.code, answer.message
    elif not answer.allowed:
        line["rule"] = ",".join(answer.rules)
    return line


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_line(fields: dict[str, Any]) -> bytes:
    if isinstance(fields["time"], float):
        fields["time"] = _timestamp(fields["time"])
    return _encode(fields) + b"\n"


def _text_line(fields: dict[str, Any]) -> bytes:
    rest = dict(fields)
    when, level, message = rest.pop("time"), rest.pop("level"), rest.pop("message")
    rest.pop("logger", None)
    stamp = when if isinstance(when, str) else _timestamp(when)
    words = [stamp, level.upper(), message, *(f"{key}={value}" for key, value in rest.items())]
    return " ".join(words).encode(errors="replace") + b"\n"
