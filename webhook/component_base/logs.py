"""Log lines that never wait for whoever reads them: collected, and written in batches by a thread of their own."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, BinaryIO, Literal

import msgspec

from webhook.kube.bounded import bounded
from webhook.kube.instants import rfc3339

LogFormat = Literal["json", "text"]

_MOST_WAITING = 8192
"""Lines kept for a reader that does not read; further ones are dropped and counted. Some take 8 KB, most 300 bytes."""
_LONGEST_TEXT = 1024
"""Characters of a field; of a message, an error or a traceback `_LONGEST_ACCOUNT`."""
_LONGEST_ACCOUNT = 8192
_ACCOUNTS = frozenset(("message", "error", "exception"))
_LONGEST_LINE = 64 * 1024
"""Bytes of a line, whatever lists and maps are in it."""
_INTERVAL = 0.05
_PLAIN = re.compile(r"[\w./:@*,+~%#()\[\]-]+")
"""What needs no quotes in a text line; letters of any script among it."""
_encoder = msgspec.json.Encoder()


class LogWriter:
    """Where log lines go. `write` makes the bytes of a line; `on_drop` is called with the number of lines lost.

    Every line is bounded here, whoever wrote what is in it: each text that is a field, and the line as a whole.
    """

    def __init__(self, stream: BinaryIO, format_: LogFormat, on_drop: Callable[[int], object] = bool) -> None:
        self._stream, self._on_drop = stream, on_drop
        self._render = _text_line if format_ == "text" else bytes
        self._waiting: SimpleQueue[bytes] = SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_out, name="log", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Add a line."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(self._rendered(line))
        else:
            self._on_drop(1)

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _write_out(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
        if not lines:
            return
        try:
            self._stream.write(b"".join(lines))
            self._stream.flush()
        except (OSError, ValueError):
            self._on_drop(len(lines))

    def _rendered(self, line: Line) -> bytes:
        try:
            encoded = _json_line(line)
            # Most lines are shorter than a text may be, so none of theirs is too long
            if len(encoded) > _LONGEST_TEXT:
                encoded = _cut(encoded)
            if len(encoded) <= _LONGEST_LINE and len(rendered := self._render(encoded)) <= _LONGEST_LINE:
                return rendered
            problem = f"of more than {_LONGEST_LINE} bytes"
        except Exception as error:  # noqa: BLE001 - a line that cannot be written must not cost what it tells of
            problem = type(error).__name__
        text = f"a log line could not be written: {problem}"
        return self._render(_json_line({"time": _timestamp(time.time()), "level": "error", "message": text}))


class LogHandler(logging.Handler):
    """The standard library's log records as lines of the same format."""

    def __init__(self, lines: LogWriter) -> None:
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


@contextmanager
def log_records(lines: LogWriter) -> Iterator[None]:
    """Write what giveway logs, from INFO on, and warnings of asyncio; end with the last line written."""
    handler, loggers = LogHandler(lines), [logging.getLogger(name) for name in ("webhook", "certs", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if logger.name == "asyncio" else logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        lines.close()


class LogLine(msgspec.Struct, rename="camel", omit_defaults=True):
    """A line whose fields are known; `time` is in seconds since the epoch until it is written."""

    time: float | str
    level: str
    message: str


Line = LogLine | dict[str, Any]
"""A line of the log, of known fields or of any."""


def _cut(encoded: bytes) -> bytes:
    """The line with those of its texts cut that are too long."""
    fields = msgspec.json.decode(encoded)
    for key, value in fields.items():
        if isinstance(value, str):
            fields[key] = bounded(value, _LONGEST_ACCOUNT if key in _ACCOUNTS else _LONGEST_TEXT)
    return _json_line(fields)


def _timestamp(seconds: float) -> str:
    return f"{rfc3339(seconds)[:-1]}.{int(seconds % 1 * 1000):03d}Z"


def _json_line(line: Line) -> bytes:
    if isinstance(line, LogLine) and isinstance(line.time, float):
        line.time = _timestamp(line.time)
    return _encoder.encode(line) + b"\n"


def _text_line(encoded: bytes) -> bytes:
    rest = msgspec.json.decode(encoded)
    when, level, message = rest.pop("time"), rest.pop("level"), rest.pop("message")
    rest.pop("logger", None)
    exception = rest.pop("exception", "")
    message = _quoted(message) if "=" in message else visible(message)  # it must not be taken for fields
    texts = [" ".join([when, level.upper(), message, *(f"{_word(key)}={_word(rest[key])}" for key in rest)])]
    texts += [f"    | {visible(part)}" for part in exception.split("\n") if part]
    return "\n".join([*texts, ""]).encode(errors="replace")


def _word(value: Any) -> str:
    """The value of a field; in quotes if it holds more than a plain word."""
    if not isinstance(value, str):
        return visible(_encoder.encode(value).decode())
    return value if _PLAIN.fullmatch(value) else _quoted(value)


def _quoted(text: str) -> str:
    return visible(_encoder.encode(text).decode())


def visible(text: str) -> str:
    """Without control characters, line ends, direction marks and whatever else moves the cursor: these are escaped."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
